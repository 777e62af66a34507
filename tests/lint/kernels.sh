#!/bin/sh
# The compiled kernels: kernels.sh NVCC SOURCE_DIR IMAGE. Exit 77 (skipped) without nvcc.
#   * the committed PTX is what the recorded nvcc makes of the sources (other versions: not compared)
#   * every reduction of the switch that gpu/algorithms/nvls.c offers is in the PTX
#   * with cuobjdump: the machine code has the switch's instructions and uses no local memory
# That ptxas takes the PTX and spills nothing is part of the build.
set -eu
nvcc=$1
source=$2
image=$3

if [ -z "$nvcc" ]; then
    echo "no nvcc on this machine"
    exit 77
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$source/cmake/nvcc.sh" "$nvcc" "$source" "$source/gpu/kernels/kernels.cu" "$work/ptx" ptx

version=$("$nvcc" --version | sed -n 's/.*V\([0-9.]*\)$/\1/p')
recorded=$(cat "$source/gpu/kernels/ptx/nvcc_version")
if [ "$version" = "$recorded" ]; then
    tar -C "$work" -xzf "$source/gpu/kernels/ptx/kernels.tar.gz"
    if ! cmp "$work/ptx" "$work/kernels.fatbin"; then
        echo "the committed PTX is older than the sources: build the target pack_kernels"
        exit 1
    fi
    echo "the committed PTX is what nvcc $version makes"
else
    echo "the committed PTX is nvcc $recorded's, this is $version: not compared"
fi

missing=0
for type in add.v4.f32 add.acc::f32.v4.f16x2 add.acc::f32.v4.bf16x2 add.f64 add.u32 add.u64 \
    min.u32 min.s32 min.u64 min.s64 max.u32 max.s32 max.u64 max.s64 and.b32 or.b32 xor.b32; do
    if ! grep -aq "multimem.ld_reduce.relaxed.sys.global.$type " "$work/ptx"; then
        echo "no multimem.ld_reduce $type"
        missing=1
    fi
done
if ! grep -aq "multimem.st.relaxed.sys.global.v4.f32 " "$work/ptx"; then
    echo "no multimem.st"
    missing=1
fi
if grep -aEq '\.(ftz|approx)\b|[[:space:]](fma|mad)\.(rn\.)?f(16|32|64)|[[:space:]](add|sub|mul)\.f(32|64)[[:space:]]' "$work/ptx"; then
    echo "arithmetic that is contracted, flushed or approximate"
    missing=1
fi
[ "$missing" = 0 ] || exit 1

cuobjdump=$(command -v cuobjdump || command -v "$(dirname "$(command -v "$nvcc")")/cuobjdump" || true)
if [ -z "$cuobjdump" ]; then
    echo "no cuobjdump: the machine code was not looked at"
    exit 0
fi
"$cuobjdump" -sass -arch sm_90 "$image" >"$work/sass"
loads=$(grep -c 'LDGMC' "$work/sass" || true)
echo "$loads reductions of the switch in sm_90"
if [ "$loads" -lt 17 ]; then
    exit 1
fi
"$cuobjdump" -res-usage "$image" >"$work/usage" 2>&1
grep -A1 'symtensor_' "$work/usage"
if grep -E 'STACK:[1-9]|LOCAL:[1-9]' "$work/usage"; then
    echo "a kernel uses local memory"
    exit 1
fi
