#!/usr/bin/env bash
# Every C file reads as clang-format leaves it. Usage: format.sh [ROOT]; exit 77 without the tools.
set -euo pipefail

cd "${1:-$(dirname "${BASH_SOURCE[0]}")/../..}"

# Debian 12's version decides: others break some lines differently.
formatter=$(command -v clang-format-14 || command -v clang-format || true)
if [[ -z $formatter ]] || ! command -v git >/dev/null; then
    echo "format: skipped, clang-format or git is missing"
    exit 77
fi

# A file deleted but still tracked is listed too: keep those that exist.
files=()
while IFS= read -r -d '' path; do
    [[ -f $path ]] && files+=("$path")
done < <(git ls-files -z -co --exclude-standard -- '*.c' '*.h')

if [[ ${#files[@]} -eq 0 ]]; then
    echo "format: no C files"
    exit 1
fi
"$formatter" --dry-run -Werror --style=file "${files[@]}"
echo "format: ${#files[@]} files"
