#!/usr/bin/env bash
# The benchmark: prints tables; --json FILE writes rows. See tests/bench/README.md.
# usage: tests/bench/run.sh [--no-install] [--quick | --tiny] [--json FILE] [--only NAME,...] [--rounds N]
#                           [--driver software|cuda] [--one-device] [--no-peers] [--python PYTHON]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
if [ "${1-}" = --no-install ]; then
    shift
else
    deploy/install-packages.sh build bench
fi
cmake --preset release >/dev/null
cmake --build --preset release --target collectives_bench create_bench >/dev/null
exec python3 tests/bench/run.py --build build/release "$@"
