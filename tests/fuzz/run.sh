#!/usr/bin/env bash
# Build the fuzz targets with clang in a folder of their own and run each for a few seconds from its seeds.
#
# usage: tests/fuzz/run.sh [seconds each] [build folder]
set -euo pipefail
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
seconds=${1:-10}
build=${2:-$top/build/fuzz}
targets="tensor_create npy range router query"

command -v clang >/dev/null || {
    echo "clang is not installed" >&2
    exit 77
}
cmake -S "$top" -B "$build" -G Ninja -DCMAKE_C_COMPILER=clang -DCMAKE_BUILD_TYPE=RelWithDebInfo \
    -DCMAKE_C_FLAGS="-fsanitize=fuzzer-no-link" -DSYMTENSOR_SANITIZE=address,undefined \
    -DSYMTENSOR_FUZZ=ON >/dev/null
# shellcheck disable=SC2086
cmake --build "$build" --target $(printf 'fuzz_%s ' $targets)

work=$(mktemp -d "${TMPDIR:-/tmp}/symtensor-fuzz.XXXXXX")
trap 'rm -rf "$work"' EXIT
for target in $targets; do
    mkdir "$work/$target"
    echo "== $target"
    (cd "$work" && "$build/bin/fuzz_$target" -max_total_time="$seconds" -max_len=4096 \
        -rss_limit_mb=1024 -timeout=5 -print_final_stats=1 "$target" \
        "$top/tests/fuzz/seeds/$target") >"$work/log" 2>&1 || true
    grep -E "ERROR|SUMMARY|stat::number_of_executed_units|stat::peak_rss_mb" "$work/log" || true
    grep -q "stat::number_of_executed_units" "$work/log" || {
        tail -n 40 "$work/log" >&2
        exit 1
    }
    if ls "$work"/crash-* "$work"/timeout-* "$work"/oom-* "$work"/leak-* >/dev/null 2>&1; then
        echo "a finding in $target:" >&2
        ls "$work" >&2
        for finding in "$work"/crash-* "$work"/timeout-* "$work"/oom-* "$work"/leak-*; do
            if [ -e "$finding" ]; then
                base64 "$finding" >&2
            fi
        done
        exit 1
    fi
done
echo "no findings"
