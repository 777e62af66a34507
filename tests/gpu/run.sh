#!/usr/bin/env bash
# Everything that needs a real device, in two halves: collect the programs where they are built, run them where the
# device is. The second machine needs bash, curl, jq and a python3 with numpy (for the peers also torch).
#
# usage: tests/gpu/run.sh pack [--build FOLDER] DIR
#        DIR/tests/gpu/run.sh run DIR [--json FILE] [--log FILE] [--only NAME,...] [--skip NAME,...] [--soak SECONDS]
#                                     [--budget SECONDS] [--driver cuda|software]
#        DIR/tests/gpu/run.sh list DIR
#
# pack   Strips what it copies and takes the shared libraries along, but for those of the C library and of the driver.
# run    Runs every part, whatever became of the others, each with a limit of its own and all of them within the
#        budget (default 540 s). NAME may be a pattern: --only 'http_*,gpu_soak'. The result is one JSON object
#        {"machine","driver","date","parts":[{"name","rc","seconds","summary"}],"rows":[...],"others":[...]}; rc 77 is
#        skipped, 124 cut by its limit, null not run for want of time. Exits 1 when a part failed or was not run.
#        --driver software tries the script out without a device.
#
# Multicast (NVLS) of a real machine is shared with every other program on it: here it is always off, and the script
# does not start when something asks for it.
set -euo pipefail

export NCCL_NVLS_ENABLE=0 TORCH_SYMM_MEM_DISABLE_MULTICAST=1 NVSHMEM_DISABLE_NVLS=1
export PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1

PACK_BYTES_MAX=$((60 << 20))
PROGRAMS=(symtensord symtensor collectives_bench create_bench latency_bench)
PROGRAM_PATTERNS=('test_gpu_*' 'test_contract_gpu_*' 'kernels_bench*' 'export_*')
CONTRACTS=(collectives graph memory work) # not multicast: it makes multicast objects
HTTP_TESTS=(verbs npy data contents reports lists)
FILES=(tests/gpu tests/http tests/bench tests/lint/cuda_types.sh tests/lint/cuda_types_probe.c gpu/driver base)
# The C library and the compiler's run-time library are the machine's own; so is the driver.
NOT_PACKED='/(ld-linux.*|lib(c|m|dl|rt|pthread|resolv|util|gcc_s|stdc\+\+|cuda|nvidia-.*))\.so'

usage() {
    sed -n '/^# usage/,/^# *DIR.*list/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2
    exit 2
}
stop() {
    echo "run.sh: $*" >&2
    exit 1
}

# ---------------------------------------------------------------- pack

# pack_program FILE: the program, and a wrapper that gives it, and nothing else, our libraries.
pack_program() {
    local name
    name=$(basename "$1")
    cp "$1" "$DIR/elf/$name"
    strip --strip-debug "$DIR/elf/$name"
    cat >"$DIR/bin/$name" <<'WRAPPER'
#!/bin/sh
here=$(dirname "$(dirname "$(readlink -f "$0")")")
LD_LIBRARY_PATH="$here/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" exec "$here/elf/$(basename "$0")" "$@"
WRAPPER
    chmod +x "$DIR/bin/$name"
}

pack() {
    local build=build/release top file pattern bytes
    top=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
    if [ "${1-}" = --build ]; then
        [ $# -ge 2 ] || usage
        build=$2
        shift 2
    fi
    [ $# = 1 ] || usage
    [[ $build = /* ]] || build=$top/$build
    DIR=$1
    [ ! -e "$DIR" ] || [ -e "$DIR/MANIFEST" ] || [ -z "$(ls -A "$DIR")" ] || stop "$DIR holds something else"
    rm -rf "$DIR"
    mkdir -p "$DIR/bin" "$DIR/elf" "$DIR/lib"
    for file in "${PROGRAMS[@]}"; do
        [ -x "$build/bin/$file" ] || stop "$build/bin/$file is not built"
        pack_program "$build/bin/$file"
    done
    for pattern in "${PROGRAM_PATTERNS[@]}"; do
        for file in "$build/bin/"$pattern; do
            [ ! -x "$file" ] || pack_program "$file"
        done
    done
    ldd "$DIR"/elf/* | awk '$2 == "=>" && $3 ~ /^\// {print $3}' | sort -u | grep -Ev "$NOT_PACKED" |
        while read -r file; do
            cp -L "$file" "$DIR/lib/"
        done
    for file in "${FILES[@]}"; do
        mkdir -p "$DIR/$(dirname "$file")"
        cp -r "$top/$file" "$DIR/$(dirname "$file")/"
    done
    rm -rf "$DIR/base/"*.c
    find "$DIR" -name __pycache__ -prune -exec rm -rf {} +
    git -C "$top" describe --always --dirty >"$DIR/MANIFEST" 2>/dev/null || echo unknown >"$DIR/MANIFEST"
    (cd "$DIR" && find . -type f ! -name MANIFEST | sort) >>"$DIR/MANIFEST"
    bytes=$(du -sb "$DIR" | cut -f1)
    [ "$bytes" -le "$PACK_BYTES_MAX" ] || stop "$DIR has $bytes bytes, more than $PACK_BYTES_MAX"
    echo "$DIR: $(find "$DIR/elf" -type f | wc -l) programs, $(find "$DIR/lib" -type f | wc -l) libraries, $bytes bytes"
}

# ---------------------------------------------------------------- the parts

# Lines NAME|SECONDS|COMMAND, in the order in which they run; SECONDS is the part's limit.
parts() {
    local path name sanitizer
    sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null || true)
    echo "types|60|$DIR/tests/lint/cuda_types.sh cc $DIR $(cuda_include)"
    for path in "$DIR"/elf/test_gpu_*; do
        name=$(basename "$path")
        [ ! -e "$path" ] || echo "${name#test_}|300|$DIR/bin/$name"
    done
    if [ -e "$DIR/elf/test_gpu_kernels_cuda" ] && [ -n "$sanitizer" ]; then
        for name in memcheck racecheck; do
            echo "kernels_$name|500|$sanitizer --tool $name --target-processes all --error-exitcode 9 \
$DIR/bin/test_gpu_kernels_cuda"
        done
    fi
    for name in "${CONTRACTS[@]}"; do
        [ ! -e "$DIR/elf/test_contract_gpu_$name" ] || echo "contract_$name|300|$DIR/bin/test_contract_gpu_$name"
    done
    echo "end_to_end|120|bash $DIR/tests/gpu/run.sh end_to_end $DIR $DRIVER"
    for name in "${HTTP_TESTS[@]}"; do
        echo "http_$name|180|bash $DIR/tests/http/${name}_test.sh"
    done
    for path in "$DIR"/elf/kernels_bench*; do
        [ ! -e "$path" ] || echo "$(basename "$path")|120|$DIR/bin/$(basename "$path")"
    done
    echo "bench|500|python3 $DIR/tests/bench/run.py --build $DIR --driver $DRIVER --one-device --json $WORK/rows.json"
}

cuda_include() {
    local path
    for path in /usr/local/cuda/include /usr/include; do
        [ ! -e "$path/cuda.h" ] || echo "$path"
    done | head -n 1
}

# chosen NAME: by --only and --skip.
chosen() {
    local pattern wanted=no
    [ -n "$ONLY" ] || wanted=yes
    for pattern in ${ONLY//,/ }; do
        # shellcheck disable=SC2053 # a pattern
        [[ $1 != $pattern ]] || wanted=yes
    done
    for pattern in ${SKIP//,/ }; do
        # shellcheck disable=SC2053
        [[ $1 != $pattern ]] || wanted=no
    done
    [ "$wanted" = yes ]
}

# ---------------------------------------------------------------- run

refuse_multicast() {
    local word
    for word in "$@"; do
        [[ $word != *nvls* ]] || stop "multicast of this machine must stay off: $word"
    done
    [ "${SYMTENSOR_NVLS:-off}" = off ] || stop "multicast of this machine must stay off: SYMTENSOR_NVLS=$SYMTENSOR_NVLS"
    if grep -rlE -e '--nvls[= ]+(on|auto)|NCCL_NVLS_ENABLE=1' "$DIR/tests/http" "$DIR/tests/bench" >&2; then
        stop "these files ask for multicast"
    fi
}

# The whole result, after each part: a run that is cut leaves what it had.
write_result() {
    python3 - "$WORK" "$JSON" "$DRIVER" "$(head -n 1 "$DIR/MANIFEST")" <<'PYTHON'
import datetime, json, os, re, subprocess, sys
work, target, driver, revision = sys.argv[1:]
machine, version = "no device", ""
if driver == "cuda":
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    line = subprocess.run(query, capture_output=True, text=True).stdout.splitlines()
    machine, version = (part.strip() for part in line[0].split(",")) if line else ("unknown", "")
result = {"machine": machine, "driver": driver, "driver_version": version, "revision": revision,
          "date": datetime.date.today().isoformat(), "parts": [], "rows": [], "others": []}
with open(f"{work}/parts", encoding="utf-8") as file:
    for line in file:
        name, rc, seconds = line.split()
        part = {"name": name, "rc": None if rc == "-" else int(rc), "seconds": float(seconds), "summary": ""}
        path = f"{work}/{name}.log"
        if os.path.exists(path):
            with open(path, encoding="utf-8", errors="replace") as log:
                lines = [text.rstrip() for text in log if text.strip()]
            failed = [text for text in lines if re.match(r"FAIL|\[ *FAILED|.*(wrong|ERROR SUMMARY)", text)]
            telling = failed[:1] if failed and part["rc"] not in (0, 77) else lines[-1:]
            part["summary"] = "".join(telling)[:300]
            if part["rc"] not in (0, 77):
                part["log_tail"] = [text[:500] for text in lines[-40:]]
        result["parts"].append(part)
for key in ("rows", "others"):
    if os.path.exists(f"{work}/rows.json"):
        with open(f"{work}/rows.json", encoding="utf-8") as file:
            result[key] = json.load(file)[key]
with open(target + ".new", "w", encoding="utf-8") as file:
    json.dump(result, file, indent=1)
    file.write("\n")
os.replace(target + ".new", target)
PYTHON
}

# run_part NAME SECONDS COMMAND
run_part() {
    local name=$1 limit=$2 command=$3 left rc=0 start seconds
    left=$((DEADLINE - $(date +%s)))
    if [ "$left" -lt 5 ]; then
        echo "$name - 0" >>"$WORK/parts"
        echo "not run  $name: the budget is spent" >&2
        FAILED=$((FAILED + 1))
        return
    fi
    [ "$limit" -le "$left" ] || limit=$left
    start=$EPOCHREALTIME
    # shellcheck disable=SC2086 # words
    timeout --kill-after=10 "$limit" $command >"$WORK/$name.log" 2>&1 </dev/null || rc=$?
    seconds=$(awk -v a="$start" -v b="$EPOCHREALTIME" 'BEGIN {printf "%.1f", b - a}')
    echo "$name $rc $seconds" >>"$WORK/parts"
    case $rc in
    0) echo "ok       $name ($seconds s)" >&2 ;;
    77) echo "skipped  $name: $(tail -n 1 "$WORK/$name.log")" >&2 ;;
    *)
        FAILED=$((FAILED + 1))
        echo "FAILED   $name: exit $rc after $seconds s" >&2
        tail -n 15 "$WORK/$name.log" | cut -c1-300 | sed 's/^/    /' >&2
        ;;
    esac
    [ -z "$LOG" ] || { echo "=== $name, exit $rc, $seconds s" && cat "$WORK/$name.log"; } >>"$LOG"
    write_result
}

run() {
    local soak=20 budget=540 name limit command
    [ $# -ge 1 ] || usage
    DIR=$(cd "$1" && pwd)
    shift
    JSON=$DIR/result.json LOG='' ONLY='' SKIP='' DRIVER=cuda FAILED=0
    refuse_multicast "$@"
    while [ $# -gt 0 ]; do
        [ $# -ge 2 ] || usage
        case $1 in
        --json) JSON=$2 ;;
        --log) LOG=$2 ;;
        --only) ONLY=$2 ;;
        --skip) SKIP=$2 ;;
        --soak) soak=$2 ;;
        --budget) budget=$2 ;;
        --driver) DRIVER=$2 ;;
        *) usage ;;
        esac
        shift 2
    done
    if [ "$DRIVER" = software ]; then
        unset NCCL_NVLS_ENABLE # its multicast is memory of the process, and tests of it are among the parts
    fi
    [ "$DRIVER" = software ] || nvidia-smi --query-gpu=name,driver_version,memory.used --format=csv,noheader >&2 ||
        stop "nvidia-smi finds no device"
    DEADLINE=$(($(date +%s) + budget))
    WORK=$(mktemp -d "${TMPDIR:-/tmp}/symtensor-gpu.XXXXXX")
    trap 'rm -rf "$WORK"' EXIT
    : >"$WORK/parts"
    PYTHON=$(command -v python3)
    export PYTHON SYMTENSORD="$DIR/bin/symtensord" SYMTENSOR="$DIR/bin/symtensor"
    export SYMTENSOR_TEST_DRIVER=$DRIVER SYMTENSOR_TEST_SOAK_SECONDS=$soak
    [ -z "$LOG" ] || : >"$LOG"
    write_result
    parts >"$WORK/list"
    while IFS='|' read -r -u 9 name limit command; do
        ! chosen "$name" || run_part "$name" "$limit" "$command"
    done 9<"$WORK/list"
    write_result
    echo "$JSON: $FAILED failed or not run" >&2
    [ "$FAILED" = 0 ]
}

# ---------------------------------------------------------------- the part end_to_end

# A server of its own, driven by curl as a user would: four ranks on one device, .npy in, collectives, .npy out.
end_to_end() {
    DIR=$1
    local driver=$2 work server options base=http://localhost/v1 code=0
    work=$(mktemp -d "${TMPDIR:-/tmp}/symtensor-e2e.XXXXXX")
    mkdir -m 0700 "$work/run"
    options=(--driver "$driver" --nvls=off --health-listen off --unix-socket "$work/run/socket")
    [ "$driver" != software ] || options+=(--software-devices 1)
    "$DIR/bin/symtensord" "${options[@]}" 2>"$work/log" &
    server=$!
    # shellcheck disable=SC2064 # now
    trap "[ \$? = 0 ] || tail -n 20 '$work/log'; kill -KILL $server 2>/dev/null || true; rm -rf '$work'" EXIT
    api() { curl --silent --show-error --fail-with-body --max-time 60 --unix-socket "$work/run/socket" "$@"; }
    for _ in $(seq 300); do
        ! api -o /dev/null http://localhost/readyz 2>/dev/null || break
        kill -0 "$server" || stop "the server ended while it started"
        sleep 0.1
    done
    api "$base/node" | jq -c '{driver, driver_version, devices_count, multicast}'
    api "$base/devices" | jq -c '.devices[] | {ordinal, model, uuid, state, memory: .memory.total}'
    api --json '{"id":"demo","devices":[0,0,0,0]}' "$base/groups?wait=60" | jq -c '{id, world_size, state, multicast}'
    "$PYTHON" "$DIR/tests/gpu/end_to_end.py" "$work/run/socket" "$work"
    for _ in 1 2 3; do
        api --json '{"op":"max"}' "$base/tensors/large:all_reduce?wait=60" |
            jq -r '"\(.verb) \(.algorithm) \(.timing.run_ns / 1e3) us"'
    done
    api -X DELETE "$base/groups/demo?force=true&wait=60"
    [ "$(api "$base/devices" | jq '[.devices[].memory.owned] | add')" = 0 ] || stop "memory is left"
    kill -TERM "$server"
    wait "$server" || code=$?
    [ "$code" = 0 ] || stop "the server ended with $code"
    ! grep -q '"level":"error"' "$work/log" || stop "errors in the log"
    echo "a server on $driver: four ranks on one device, right results, nothing left"
}

verb=${1-}
[ $# -gt 0 ] && shift
case $verb in
pack) pack "$@" ;;
run) run "$@" ;;
list)
    [ $# = 1 ] || usage
    DIR=$1 DRIVER=cuda WORK=. parts | cut -d'|' -f1,2
    ;;
end_to_end) end_to_end "$@" ;;
*) usage ;;
esac
