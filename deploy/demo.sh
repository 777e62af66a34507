#!/usr/bin/env bash
# Install what is needed, build, start a server on four software devices, send real .npy data with curl,
# all_reduce it, read it back, check it against independent arithmetic, and leave nothing behind.
#
# usage: deploy/demo.sh [--no-install]
set -euo pipefail

top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$top"

install=yes
for argument in "$@"; do
    case "$argument" in
    --no-install) install=no ;;
    --help)
        sed -n '2,5s/^# \{0,1\}//p' "$0"
        exit
        ;;
    *)
        echo "usage: deploy/demo.sh [--no-install]" >&2
        exit 2
        ;;
    esac
done

say() { printf '\n\033[1m== %s\033[0m\n' "$*" >&2; }
# Show a command as a user would type it, then run it.
show() {
    printf '$ %s\n' "$*" >&2
    "$@"
}

if [ "$install" = yes ]; then
    say "Packages"
    deploy/install-packages.sh build test
fi
say "Build"
cmake --preset release >/dev/null
cmake --build --preset release --target symtensord symtensor

work=$(mktemp -d "${TMPDIR:-/tmp}/symtensor-demo.XXXXXX")
export SYMTENSOR_UNIX_SOCKET="$work/run/symtensord.sock"
server=
clean_up() {
    if [ -n "$server" ] && kill -0 "$server" 2>/dev/null; then
        kill -TERM "$server"
        wait "$server" || true
    fi
    rm -rf "$work"
}
trap clean_up EXIT
mkdir -m 0700 "$work/run"

say "Start a server on four software devices"
build/release/bin/symtensord --driver software --software-devices 4 --health-listen off \
    --unix-socket "$SYMTENSOR_UNIX_SOCKET" 2>"$work/log" &
server=$!
api() { curl --silent --show-error --fail-with-body --unix-socket "$SYMTENSOR_UNIX_SOCKET" "$@"; }
for _ in $(seq 100); do
    if [ -S "$SYMTENSOR_UNIX_SOCKET" ] && api -o /dev/null http://localhost/readyz 2>/dev/null; then
        break
    fi
    if ! kill -0 "$server" 2>/dev/null; then
        cat "$work/log" >&2
        exit 1
    fi
    sleep 0.1
done
show api http://localhost/readyz
echo

base=http://localhost/v1
say "One group over all devices, one symmetric tensor of 4 MiB on each"
show api --json '{"id": "demo", "devices": "all"}' "$base/groups" | jq -c '{id, world_size, ranks, state, multicast}'
show api --json '{"id": "weights", "group": "demo", "dtype": "float32", "shape": [1024, 1024]}' "$base/tensors" |
    jq -c '{id, dtype, shape, shard_bytes, allocated_bytes, state}'

say "Four .npy files, one for each rank, sent with curl"
python=/usr/bin/python3
"$python" - "$work" <<'PYTHON'
import sys
import numpy as np
for rank in range(4):
    values = np.random.default_rng(rank).standard_normal((1024, 1024), dtype=np.float32)
    np.save(f"{sys.argv[1]}/in{rank}.npy", values)
PYTHON
for rank in 0 1 2 3; do
    show api -H 'Content-Type: application/x-npy' -T "$work/in$rank.npy" "$base/tensors/weights/shards/$rank/data"
    echo
done

say "all_reduce"
show api --json '{"op": "sum"}' "$base/tensors/weights:all_reduce" |
    jq -c '{verb, state, algorithm, reason, deterministic, bytes, timing, bandwidth}'

say "Read it back and check it"
for rank in 0 1 2 3; do
    show api -H 'Accept: application/x-npy' -o "$work/out$rank.npy" "$base/tensors/weights/shards/$rank/data"
done
"$python" - "$work" <<'PYTHON'
import sys
import numpy as np
work = sys.argv[1]
inputs = [np.load(f"{work}/in{rank}.npy") for rank in range(4)]
expected = ((inputs[0] + inputs[1]) + inputs[2]) + inputs[3]   # rank order, float32
for rank in range(4):
    out = np.load(f"{work}/out{rank}.npy")
    if out.dtype != expected.dtype or out.tobytes() != expected.tobytes():
        sys.exit(f"rank {rank}: wrong result")
exact = sum(values.astype(np.float64) for values in inputs)
print(f"all four ranks hold the same bits; largest distance to the float64 sum: {np.abs(expected - exact).max():.1e}")
PYTHON

say "How fast: 64 MiB of float32 on each of four ranks"
api --json '{"id": "large", "group": "demo", "dtype": "float32", "shape": [16777216]}' "$base/tensors" >/dev/null
api --json '{"pattern": "rank"}' "$base/tensors/large:fill" >/dev/null
for _ in 1 2 3 4 5; do
    api --json '{"op": "max"}' "$base/tensors/large:all_reduce?wait=60" |
        jq -r '"\(.verb)  \(.algorithm)  \(.timing.run_ns / 1e6) ms  \(.bandwidth.algorithm_bytes_per_second / 1e9 * 100 | floor / 100) GB/s"'
done

say "Delete, and count what is left"
api -X DELETE "$base/groups/demo?force=true"
show api "$base/devices" | jq -c '.devices[] | {ordinal, owned: .memory.owned, state}'
left=$(api "$base/devices" | jq '[.devices[].memory.owned] | add')
[ "$left" = 0 ] || {
    echo "memory is left: $left bytes" >&2
    exit 1
}
kill -TERM "$server"
code=0
wait "$server" || code=$?
server=
[ "$code" = 0 ] || {
    cat "$work/log" >&2
    echo "the server ended with $code" >&2
    exit 1
}
say "Done: the server ended cleanly, nothing is left"
