#!/usr/bin/env bash
# clang-tidy over the modules. Usage: tidy.sh BUILD_FOLDER [FOLDER...]; the build folder is configured
# (it holds compile_commands.json). Folders: base gpu server api by default.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
build=${1:?usage: tidy.sh BUILD_FOLDER [FOLDER...]}
shift
folders=("$@")
[[ ${#folders[@]} -gt 0 ]] || folders=(base gpu server api)

for tool in run-clang-tidy clang-tidy; do
    if ! command -v "$tool" >/dev/null; then
        echo "tidy: skipped, $tool is missing"
        exit 77
    fi
done
if [[ ! -f $build/compile_commands.json ]]; then
    echo "tidy: $build is not configured" >&2
    exit 2
fi

alternatives=$(
    IFS='|'
    echo "${folders[*]}"
)
log=$(mktemp)
trap 'rm -f "$log"' EXIT
# The tool repeats its command line for every file: only what it found is of interest.
if run-clang-tidy -p "$build" -j2 -quiet "^$root/($alternatives)/.*\\.c\$" >"$log" 2>&1; then
    checked=$(grep -c '^clang-tidy' "$log" || true)
    echo "tidy: ${checked:-0} files"
    [[ ${checked:-0} -gt 0 ]]
else
    grep -v -e '^clang-tidy' -e 'warnings generated' -e '^Suppressed' "$log"
    echo "tidy: failed"
    exit 1
fi
