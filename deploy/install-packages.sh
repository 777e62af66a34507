#!/usr/bin/env bash
# Every Debian package that symtensor needs, with its reason. Debian 12 or newer; root, or with sudo.
# Usage: deploy/install-packages.sh [--list] GROUP...    groups: build test lint bench
set -euo pipefail

build_packages=(
    gcc              # the reference compiler
    libc6-dev        # headers of the C library
    cmake            # the build's description
    ninja-build      # the generator of every preset
    pkg-config       # finds the libraries below
    libmicrohttpd-dev        # HTTP/1.1 listeners of api/
    libjansson-dev           # JSON of api/
    libgnutls28-dev          # TLS of api/, digests of server/
    libcurl4-gnutls-dev      # HTTP client of api/client
    libisal-dev              # CRC of data bodies
    libcmocka-dev            # unit tests: they are part of the default build
    python3          # the lints, which CMake registers
)
test_packages=(
    git              # the list of files that the lints read
    curl             # drives the real server in tests/http
    jq               # reads its replies
    python3-numpy    # an independent reader of npy, and reference results
    openssl          # an independent digest of what was sent
    procps           # ps and pgrep: memory and threads of the server under test
)
lint_packages=(
    clang            # the second compiler; its sanitizers and libFuzzer
    libclang-rt-14-dev       # run-time libraries of clang's sanitizers
    llvm             # llvm-symbolizer: readable sanitizer reports
    clang-tidy       # tests/lint/tidy.sh
    clang-format     # tests/lint/format.sh
    g++              # the C++ library that libFuzzer links
)
bench_packages=(
    openmpi-bin      # a peer to compare with, and its launcher
    libopenmpi-dev   # the same, to compile against
    mpich            # a second peer
    libmpich-dev     # the same, to compile against
    wrk              # load on the HTTP listeners
)

usage() {
    sed -n '2,3s/^# //p' "$0" >&2
    exit 2
}

is_installed() {
    [[ $(dpkg-query -W -f='${Status}' "$1" 2>/dev/null) == "install ok installed" ]]
}

list_only=false
wanted=()
for argument in "$@"; do
    case $argument in
    build) wanted+=("${build_packages[@]}") ;;
    test) wanted+=("${test_packages[@]}") ;;
    lint) wanted+=("${lint_packages[@]}") ;;
    bench) wanted+=("${bench_packages[@]}") ;;
    --list) list_only=true ;;
    *) usage ;;
    esac
done
[[ ${#wanted[@]} -gt 0 ]] || usage
if $list_only; then
    printf '%s\n' "${wanted[@]}"
    exit 0
fi

missing=()
for package in "${wanted[@]}"; do
    is_installed "$package" || missing+=("$package")
done
if [[ ${#missing[@]} -eq 0 ]]; then
    echo "install-packages: all ${#wanted[@]} packages are there"
    exit 0
fi

as_root=()
if [[ $(id -u) -ne 0 ]]; then
    as_root=(sudo)
fi
echo "install-packages: installing ${missing[*]}"
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get update -q
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get install -q -y --no-install-recommends "${missing[@]}"
