#!/bin/sh
# Compiles the CUDA kernels: nvcc.sh NVCC SOURCE_DIR FILE OUTPUT all|ptx|pack [flags of nvcc...]
# all: machine code for sm_80, sm_90 and sm_100, and PTX; compressed.
# ptx: the PTX alone, uncompressed.
# pack: the same as an archive that differs only when the PTX does, for committing.
#
# The floating-point flags are part of the results: no contraction, no flush to zero, IEEE division.
# nvcc stamps PTX with its own version, which only a driver as new as itself accepts. The code needs
# less: the versions here are the lowest that ptxas accepts, so that drivers of CUDA 11.4 (12.2 for
# sm_90) take it.
set -eu
nvcc=$1
source=$2
file=$3
output=$4
kind=$5
shift 5
bin=$(dirname "$(command -v "$nvcc")")
work=$(mktemp -d "$output.XXXXXX")
trap 'rm -rf "$work"' EXIT

# ptx ARCH VERSION [flags...]
ptx() {
    arch=$1
    version=$2
    shift 2
    "$nvcc" -ptx -arch="compute_$arch" -std=c++17 -O3 -I "$source" -fmad=false -ftz=false \
        -prec-div=true -Werror all-warnings "$@" -o "$work/$arch.full" "$file"
    # The pragma says for debuggers which bytes of a vector are used, and needs a newer version.
    sed -e "s/^\.version .*/.version $version/" -e '/\.pragma "used_bytes_mask /d' "$work/$arch.full" \
        >"$work/$arch.ptx"
}

# sass SM PTX: spills to local memory would be a warning, and so an error.
sass() {
    "$bin/ptxas" -arch="sm_$1" --warn-on-spills --warning-as-error "$work/$2.ptx" \
        -o "$work/$1.cubin"
}

ptx 80 7.4 "$@" &
first=$!
ptx 90 8.2 "$@"
wait $first
set -- "--image3=kind=ptx,sm=80,file=$work/80.ptx" "--image3=kind=ptx,sm=90,file=$work/90.ptx"
if [ "$kind" = all ]; then
    sass 80 80 &
    first=$!
    sass 90 90
    wait $first
    sass 100 90
    for sm in 80 90 100; do
        set -- "$@" "--image3=kind=elf,sm=$sm,file=$work/$sm.cubin"
    done
    "$bin/fatbinary" --create="$output" -64 --compress-all "$@"
    exit
fi
"$bin/fatbinary" --create="$work/kernels.fatbin" -64 --compress=false "$@"
if [ "$kind" = ptx ]; then
    mv "$work/kernels.fatbin" "$output"
    exit
fi
tar -C "$work" --mtime=@0 --owner=0 --group=0 --numeric-owner --mode=644 -cf - kernels.fatbin |
    gzip -9 -n >"$output"
"$nvcc" --version | sed -n 's/.*V\([0-9.]*\)$/\1/p' >"$(dirname "$output")/nvcc_version"
