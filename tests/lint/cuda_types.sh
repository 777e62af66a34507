#!/bin/sh
# Compares gpu/driver/cuda_types.h with a real cuda.h: cuda_types.sh COMPILER SOURCE_DIR CUDA_INCLUDE_DIR
# Exit 77 (skipped) where there is no cuda.h, or one older than the values that we list.
set -eu
compiler=$1
source=$2
include=${3:-}

if [ ! -f "$include/cuda.h" ]; then
    echo "no cuda.h on this machine"
    exit 77
fi
version=$(sed -n 's/^#define CUDA_VERSION \([0-9]*\).*/\1/p' "$include/cuda.h")
if [ "${version:-0}" -lt 13000 ]; then
    echo "$include/cuda.h is version ${version:-unknown}; 13000 is needed"
    exit 77
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
probe=$source/tests/lint/cuda_types_probe.c
"$compiler" -std=gnu17 -Wall -I"$source" -o "$work/ours" "$probe"
"$compiler" -std=gnu17 -Wall -DPROBE_REAL -isystem "$include" -I"$source" -o "$work/real" "$probe"
"$work/ours" >"$work/ours.txt"
"$work/real" >"$work/real.txt"
diff -u "$work/real.txt" "$work/ours.txt"
echo "$(wc -l <"$work/ours.txt") lines agree with cuda.h $version"
