#!/usr/bin/env bash
# What users of similar services ran into, replayed: each case names the report and gets the right answer here.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/cases.sh"
server_start
make_group g
make_tensor w g float32 '[16]'
alive() { # after each case: the server is the same one, and answers
    kill -0 "$SERVER_PID" 2>/dev/null || {
        fail "$1: the server ended"
        exit 1
    }
    expect 200 GET /v1/node
    [ "$(jq -r .incarnation <<<"$BODY")" = "$INCARNATION" ] || fail "$1: another incarnation"
    [ "$BEFORE" = "$(accounting)" ] || fail "$1: something changed"
}
rss_kib() { awk '/^VmRSS/ {print $2}' "/proc/$SERVER_PID/status"; }
fds() { ls "/proc/$SERVER_PID/fd" | wc -l; }
INCARNATION=$(request GET /v1/node | jq -r .incarnation)
BEFORE=$(accounting)
create() { # create CODE REASON FIELD SHAPE
    refused "$1" "$2" "$3" POST /v1/tensors "{\"id\":\"x\",\"group\":\"g\",\"dtype\":\"float32\",\"shape\":$4}"
}

# triton server#1649: a negative dimension shuts the server down
create 400 INVALID_VALUE 'shape[0]' '[-1,16]'
create 400 INVALID_VALUE 'shape[1]' '[16,-9223372036854775808]'
alive "negative dimension"

# triton core#434: a dimension is cast to 32 bits, and something small is allocated
create 400 EXCEEDS_DEVICE_CAPACITY - '[4294967295]'
create 400 EXCEEDS_DEVICE_CAPACITY - '[2147483648]'
create 400 EXCEEDS_DEVICE_CAPACITY - '[4294967297]'
create 400 SHAPE_OVERFLOW shape '[4294967296,4294967296]'
create 400 SHAPE_OVERFLOW shape '[4294967296,4294967296,0]'
alive "32-bit dimension"

# triton server#7787: very long text overflows a length
head -c 900000 /dev/zero | tr '\0' A >"$WORK/long"
printf '{"id":"%s","group":"g","dtype":"float32","shape":[1]}' "$(cat "$WORK/long")" >"$WORK/long.json"
refused 400 INVALID_ID id POST /v1/tensors '' --json "@$WORK/long.json"
printf '{"group":"g","dtype":"float32","shape":[1],"labels":{"a":"%s"}}' "$(cat "$WORK/long")" >"$WORK/long.json"
refused 400 INVALID_VALUE labels.a POST /v1/tensors '' --json "@$WORK/long.json"
head -c 3145728 /dev/zero | tr '\0' A >"$WORK/body.json"
refused 413 BODY_TOO_LARGE Content-Length POST /v1/tensors '' --json "@$WORK/body.json"
alive "long text"

# triton server#1702: an error does not say which field it means
refusals POST /v1/tensors <<'CASES'
400 INVALID_TYPE shape[2] {"group":"g","dtype":"float32","shape":[1,2,"3"]}
400 INVALID_TYPE labels.rank {"group":"g","dtype":"float32","shape":[1],"labels":{"rank":3}}
400 INVALID_TYPE access.read[1] {"group":"g","dtype":"float32","shape":[1],"access":{"read":["a",7]}}
CASES
refused 400 INVALID_VALUE 'tensors[1].shape[0]' POST /v1/tensors:batch_create '{"tensors":[{"group":"g","dtype":"int8","shape":[1]},{"group":"g","dtype":"int8","shape":[-1]}]}'
alive "field names"

# triton server#3711: NaN and infinities give JSON that nobody can parse
for value in NaN Infinity -Infinity; do
    expect 200 POST /v1/tensors/w:fill "{\"value\":\"$value\"}"
    expect 200 POST /v1/tensors/w:all_reduce '{"op":"max"}'
    expect 200 GET '/v1/tensors/w/shards/0/data?count=1' '' -H 'Accept: application/json'
    expect_json '.values' "[\"$value\"]"
    refused 400 INVALID_JSON value POST /v1/tensors/w:fill "{\"value\":$value}"
    expect_error 400 INVALID_JSON POST /v1/tensors "{\"group\":\"g\",\"labels\":{\"a\":$value}}"
done
expect 200 POST /v1/tensors/w:fill '{"value":0}'
BEFORE=$(accounting)

# v6d#913, #483: JSON of one client crashes the daemon for everyone
WRONG=0
while read -r body; do
    expect_error 400 "$(case $body in '{"'* | '{}') echo "$(request POST /v1/tensors "$body" | jq -r '.error.details[0].reason')" ;; *) echo INVALID_JSON ;; esac)" POST /v1/tensors "$body"
    WRONG=$((WRONG + 1))
    expect 200 GET /v1/tensors/w
done <<'BODIES'
[]
null
1
"text"
{
{"group"
{"group":
{"group":"g",}
{'group':'g'}
{"group":"g"}}
{"group":"g"} {"group":"g"}
{"group":null,"dtype":null,"shape":null}
{"group":[],"dtype":{},"shape":{}}
{"group":true,"dtype":false,"shape":true}
{"group":1e308,"dtype":-1e308,"shape":1e308}
{"group":{"group":{"group":"g"}}}
{"\u0000":1}
{"group":"g\u0000h","dtype":"float32","shape":[1]}
{"group":"\ud800","dtype":"float32","shape":[1]}
{"group":"g","group":"g","dtype":"float32","shape":[1]}
{"group":"g","dtype":"float32","shape":[1],"labels":{"a":"b","a":"c"}}
{}
BODIES
[ $WRONG = 22 ] || fail "only $WRONG bodies were tried"
alive "wrong bodies"

# jarust#158: integers above 2^63-1 fail without a field; above 2^53-1 they lose digits
create 400 INVALID_VALUE 'shape[0]' '[9007199254740992]'
create 400 INVALID_VALUE 'shape[0]' '[9223372036854775807]'
expect_error 400 INVALID_JSON POST /v1/tensors '{"group":"g","dtype":"float32","shape":[1,9223372036854775808]}'
expect_json '.error.details[0].field' 'shape[1]'
alive "large integers"

# CVE-2016-4425, CVE-2013-6401: deep nesting crashes; many keys take long
deep() { printf '%*s' "$1" '' | tr ' ' "$2"; }
for depth in 33 2049 200000; do
    printf '{"group":%s%s}' "$(deep $depth '[')" "$(deep $depth ']')" >"$WORK/deep.json"
    expect_error 400 INVALID_JSON POST /v1/tensors '' --json "@$WORK/deep.json"
done
python3 -c 'print("{" + ",".join(f"\"k{i}\":1" for i in range(80000)) + "}")' >"$WORK/keys.json"
START=$SECONDS
refused 400 UNKNOWN_FIELD k0 POST /v1/tensors '' --json "@$WORK/keys.json" || :
[ $((SECONDS - START)) -le 5 ] || fail "many keys took $((SECONDS - START)) s"
alive "nesting and keys"

# triton server#8770: millions of tiny chunks grow the memory
RSS=$(rss_kib)
python3 - "$WORK/chunks" <<'PYTHON'
import sys
with open(sys.argv[1], "wb") as file:
    file.write(b"PUT /v1/tensors/w/shards/0/data HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n")
    file.write(b"1\r\nA\r\n" * 1000000)
PYTHON
timeout 30 python3 "$(dirname "$0")/slow.py" "$SOCKET" raw "$WORK/chunks" 5 >"$WORK/chunks.out"
GROWN=$(($(rss_kib) - RSS))
[ "$GROWN" -lt 32768 ] || fail "a million chunks grew the memory by $GROWN KiB"
expect 200 POST /v1/tensors/w:fill '{"value":0}'
BEFORE=$(accounting)

# httpwg#618: Content-Range on PUT has no defined meaning
head -c 64 /dev/zero >"$WORK/zeros"
expect_put 400 "$WORK/zeros" w 0 '' -H 'Content-Range: bytes 0-63/64'
expect_json '.error.details[0] | [.reason,.field]' '["INVALID_HEADER","Content-Range"]'
alive "Content-Range"

# Mooncake PR#1513: an address plus a length wraps around
refused 400 INVALID_QUERY offset GET '/v1/tensors/w/shards/0/data?offset=18446744073709551615'
refused 400 INVALID_QUERY length GET '/v1/tensors/w/shards/0/data?offset=60&length=2'
refused 400 RANGE_OUT_OF_BOUNDS src_offset POST /v1/tensors/w:copy '{"src_offset":9007199254740991,"bytes":9007199254740991,"dst_rank":1}'
expect_put 400 "$WORK/zeros" w 0 '?offset=18446744073709551615'
expect_json '.error.details[0].reason' INVALID_QUERY
# triton's register check: each failure leaks a file descriptor
FDS=$(fds)
for batch in $(seq 20); do
    # 100 requests of one curl: a failing PUT, a failing create, each over one connection
    { for i in $(seq 50); do
        printf 'next\nurl=http://localhost/v1/tensors/w/shards/0/data?offset=9007199254740991\nupload-file=%s\noutput=/dev/null\n' "$WORK/zeros"
        printf 'next\nurl=http://localhost/v1/tensors\njson="{\\"group\\":\\"g\\",\\"dtype\\":\\"int8\\",\\"shape\\":[1099511627776]}"\noutput=/dev/null\n'
    done; } >"$WORK/many"
    sed -i "s#^next#next\nunix-socket=$SOCKET#" "$WORK/many"
    curl -s -K "$WORK/many" >/dev/null
done
sleep 0.2
[ "$(fds)" -le $((FDS + 1)) ] || fail "file descriptors went from $FDS to $(fds)"
alive "failing transfers and creates"

# systemd#1729, #2525: connections take little memory, and large heads are refused, not fatal
RSS=$(rss_kib)
python3 - "$SOCKET" <<'PYTHON' &
import socket, sys, time
held = []
for _ in range(500):
    client = socket.socket(socket.AF_UNIX)
    client.connect(sys.argv[1])
    held.append(client)
time.sleep(4)
PYTHON
HOLDER=$!
sleep 2
GROWN=$(($(rss_kib) - RSS))
[ "$GROWN" -lt $((500 * 160)) ] || fail "500 idle connections take $GROWN KiB"
expect 200 GET /v1/tensors/w
got=$(curl -s -o /dev/null -w '%{http_code}' --unix-socket "$SOCKET" -H "x-large: $(head -c 24000 /dev/zero | tr '\0' A)" http://localhost/v1/tensors/w)
[ "$got" = 200 ] || fail "a head of 24 KB answers $got"
got=$(curl -s -o /dev/null -w '%{http_code}' --unix-socket "$SOCKET" -H "x-large: $(head -c 120000 /dev/zero | tr '\0' A)" -H "y-large: $(head -c 100000 /dev/zero | tr '\0' A)" http://localhost/v1/tensors/w)
[ "$got" = 431 ] || fail "a head of 220 KB answers $got"
wait $HOLDER
alive "connections"

# CVE-2026-24208, CVE-2026-24209: names that are paths, or too long
long_id=$(head -c 256 /dev/zero | tr '\0' a)
for path in "/v1/tensors/%2e%2e" "/v1/tensors/a%2Fb" "/v1/tensors/a%00b" "/v1/tensors/%77"; do
    refused 400 INVALID_PATH - GET "$path" '' --path-as-is
done
expect 404 GET /v1/tensors/w/../w '' --path-as-is
expect_error 400 INVALID_ID GET /v1/tensors/.. '' --path-as-is
expect_error 400 INVALID_ID GET "/v1/tensors/$long_id"
expect 404 GET "/v1/tensors/${long_id%a}"
for id in .. a/b "a b" "../etc/passwd" "$long_id" . "-a" "a..b" "ä"; do
    refused 400 INVALID_ID id POST /v1/tensors "{\"id\":\"$id\",\"group\":\"g\",\"dtype\":\"int8\",\"shape\":[1]}"
done
alive "names"

expect 204 DELETE '/v1/groups/g?force=true'
expect 200 GET /v1/devices
expect_json '[.devices[].memory.owned] | add' 0
server_stop
