#!/usr/bin/env bash
# GET of a tensor over 16 keep-alive connections, beside a bare libmicrohttpd server that sends the same bytes.
# Both run for the whole time; rounds are interleaved, since machines change speed. Bar: 0.7 of the bare server,
# p99 at most 1.5 times its p99. Then a 4 KiB all_reduce with wait over one connection (wait_bench): bar 80 us above
# a bare POST and the same call in process.
#
# usage: http_bench.sh BIN_FOLDER [ROUNDS [SECONDS]]      needs wrk, curl
set -euo pipefail
bin=$1
rounds=${2:-5}
seconds=${3:-3}
port=${HTTP_BENCH_PORT:-17411}
work=$(mktemp -d)
pids=()
clean_up() {
    for pid in "${pids[@]}"; do
        kill -TERM "$pid" 2>/dev/null || true
    done
    wait
    rm -rf "$work"
}
trap clean_up EXIT

"$bin/symtensord" --driver software --software-devices 4 --health-listen off --unix-socket off \
    --listen "127.0.0.1:$port" --insecure --log-level error 2>"$work/log" &
pids+=($!)
url=http://127.0.0.1:$port
for _ in $(seq 100); do
    curl -sf -o /dev/null "$url/readyz" && break
    sleep 0.1
done
curl -sf --json '{"id":"g","devices":"all"}' -o /dev/null "$url/v1/groups?wait=60"
curl -sf --json '{"id":"x","group":"g","dtype":"float32","shape":[1024]}' -o /dev/null "$url/v1/tensors?wait=60"
curl -sf --json '{"id":"y","group":"g","dtype":"float32","shape":[1024]}' -o /dev/null "$url/v1/tensors?wait=60"
curl -sf -i -o "$work/reply" "$url/v1/tensors/x"
"$bin/bare_mhd" $((port + 1)) <"$work/reply" &
pids+=($!)
curl -sf -i --json '{"op":"sum"}' -o "$work/reply_post" "$url/v1/tensors/y:all_reduce?wait=60"
"$bin/bare_mhd" $((port + 2)) <"$work/reply_post" &
pids+=($!)
sleep 0.3
bare=http://127.0.0.1:$((port + 1))
[ "$(curl -sf "$bare/v1/tensors/x")" = "$(curl -sf "$url/v1/tensors/x")" ]

measure() { # URL: requests a second, p99 in microseconds
    wrk -t1 -c16 -d"${seconds}s" --latency "$1/v1/tensors/x" | awk '
        /99%/ {
            p99 = $2
            if (sub(/us$/, "", p99)) p99 *= 1
            else if (sub(/ms$/, "", p99)) p99 *= 1000
            else { sub(/s$/, "", p99); p99 *= 1000000 }
        }
        /Non-2xx/ { failed = 1 }
        /Requests\/sec/ { rate = $2 }
        END { if (failed) exit 1; print rate, p99 }'
}
measure "$url" >/dev/null
measure "$bare" >/dev/null
for _ in $(seq "$rounds"); do
    echo "ours $(measure "$url")"
    echo "bare $(measure "$bare")"
done | tee "$work/rows" >&2
median() { grep "^$1" "$work/rows" | awk -v c="$2" '{print $c}' | sort -n | awk '{v[NR] = $1} END {print v[int((NR + 1) / 2)]}'; }
awk -v o="$(median ours 2)" -v b="$(median bare 2)" -v op="$(median ours 3)" -v bp="$(median bare 3)" 'BEGIN {
    printf "GET tensor, 16 connections: ours %.0f/s p99 %d us, bare %.0f/s p99 %d us, ratio %.2f (bar 0.70), p99 ratio %.2f (bar 1.50)\n",
        o, op, b, bp, o / b, op / bp }'
"$bin/wait_bench" "$port" $((port + 2)) "/v1/tensors/y:all_reduce?wait=60" $((rounds * 4))
