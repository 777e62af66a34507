#!/usr/bin/env bash
# Install what is needed, build and test. The last line is "N passed, N failed".
#
#   tests/run.sh                 gcc release build and every test (under 10 minutes on 2 cores)
#   tests/run.sh --full          the same, and: clang build, asan+ubsan and tsan builds with every
#                                test, clang-tidy, 5 minutes of each fuzz target
#   tests/run.sh STEP...         only these steps, in this order:
#     --preset NAME              build a preset of CMakePresets.json and run every test
#     --build NAME               build a preset, warnings are errors
#     --tidy                     clang-tidy over the modules
#     --fuzz SECONDS             run each target of tests/fuzz for so long
#   --no-install                 do not install packages
#
# A build, clang-tidy and fuzzing count as one test each. Exit status 0 when nothing failed.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

jobs=2 # the machine that this is measured for
passed=0
failed=0
failures=()
steps=()
install=true
full=false
export UBSAN_OPTIONS=print_stacktrace=1
export TSAN_OPTIONS=second_deadlock_stack=1

usage() {
    sed -n '2,15s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"
}

while [[ $# -gt 0 ]]; do
    case $1 in
    --preset | --build | --fuzz)
        [[ $# -ge 2 ]] || { usage >&2; exit 2; }
        steps+=("${1#--} $2")
        shift
        ;;
    --tidy) steps+=("tidy") ;;
    --full) full=true ;;
    --no-install) install=false ;;
    --help)
        usage
        exit
        ;;
    *)
        usage >&2
        exit 2
        ;;
    esac
    shift
done
if $full; then
    steps=("preset release" "build clang" "preset asan" "preset tsan" "tidy" "fuzz 300")
elif [[ ${#steps[@]} -eq 0 ]]; then
    steps=("preset release")
fi

# count NAME COMMAND...: one check that passes or fails as a whole. Exit status 77: neither.
count() {
    local name=$1 status=0
    shift
    echo "== $name"
    "$@" || status=$?
    case $status in
    0) passed=$((passed + 1)) ;;
    77) echo "$name: skipped" ;;
    *)
        failed=$((failed + 1))
        failures+=("$name")
        return 1
        ;;
    esac
}

build() {
    cmake --preset "$1" >/dev/null && cmake --build "build/$1" -j "$jobs"
}

# How many tests of a JUnit report passed and failed, as two numbers. Those that were skipped are named, with the reason.
count_report() {
    python3 - "$1" <<'PYTHON'
import sys
import xml.etree.ElementTree as tree

suite = tree.parse(sys.argv[1]).getroot()
for case in suite.iter("testcase"):
    if case.find("skipped") is not None:
        said = (case.findtext("system-out") or "").strip().splitlines()
        print(f"skipped: {case.get('name')}: {said[-1] if said else 'no reason given'}", file=sys.stderr)
count = {key: int(suite.get(key, 0)) for key in ("tests", "failures", "disabled", "skipped")}
print(count["tests"] - count["failures"] - count["disabled"] - count["skipped"], count["failures"])
PYTHON
}

run_tests() {
    local preset=$1 status=0 report counts without=()
    echo "== test $preset"
    report=$PWD/build/$preset/report.xml
    rm -f "$report"
    # The lints read sources: once is enough, and that is with the first compiler.
    [[ $preset == release || $preset == debug ]] || without=(--label-exclude '^lint$')
    ctest --test-dir "build/$preset" -j "$jobs" --output-on-failure --no-tests=error \
        --output-junit "$report" "${without[@]}" || status=$?
    if ! counts=$(count_report "$report"); then
        failed=$((failed + 1))
        failures+=("test $preset: no report")
        return
    fi
    passed=$((passed + ${counts% *}))
    failed=$((failed + ${counts#* }))
    if [[ $status -ne 0 ]]; then
        failures+=("test $preset")
        # ctest failed without a failed test: that must not pass for success.
        [[ ${counts#* } -gt 0 ]] || failed=$((failed + 1))
    fi
}

tidy() {
    cmake --preset clang >/dev/null && tests/lint/tidy.sh build/clang
}

fuzz() {
    if [[ ! -x tests/fuzz/run.sh ]]; then
        return 77
    fi
    tests/fuzz/run.sh "$1"
}

if $install; then
    groups=(build test)
    for step in "${steps[@]}"; do
        [[ $step == "preset release" || $step == "preset debug" ]] || groups=(build test lint)
    done
    count "install" deploy/install-packages.sh "${groups[@]}" || steps=()
    passed=0 # installing is no test; its failure is
fi

for step in "${steps[@]}"; do
    name=${step% *}
    argument=${step#* }
    case $name in
    preset) count "build $argument" build "$argument" && run_tests "$argument" ;;
    build) count "build $argument" build "$argument" ;;
    tidy) count "clang-tidy" tidy ;;
    fuzz) count "fuzz" fuzz "$argument" ;;
    esac
done

if [[ ${#failures[@]} -gt 0 ]]; then
    printf 'failed: %s\n' "${failures[@]}"
fi
echo "$passed passed, $failed failed"
[[ $failed -eq 0 && $passed -gt 0 ]]
