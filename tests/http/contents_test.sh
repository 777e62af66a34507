#!/usr/bin/env bash
# Order and contents: what a body that is on its way, stalls or breaks off does to its shard and to others.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/cases.sh"
server_start
make_group g
slow() { exec python3 "$(dirname "$0")/slow.py" "$SOCKET" "$@"; } # in the background only
# standing FILE: wait until the slow client of that output stands still.
standing() {
    local i
    for i in $(seq 100); do
        grep -q standing "$1" 2>/dev/null && return
        sleep 0.1
    done
    fail "the slow client never stood still"
}
# shard_state TENSOR RANK WANT: within 5 s.
shard_state() {
    local i got
    for i in $(seq 50); do
        got=$(request GET "/v1/tensors/$1" | jq -r ".shards[$2].contents.state")
        [ "$got" != "$3" ] || return 0
        sleep 0.1
    done
    fail "shard $2 of $1 is $got instead of $3"
}
MIB=1048576
make_tensor w g uint8 "[$((8 * MIB))]"
make_tensor other g uint8 "[$((8 * MIB))]"
head -c $((8 * MIB)) /dev/urandom >"$WORK/random"
data=/v1/tensors/w/shards

# A stalled PUT
slow put $data/1/data $((8 * MIB)) 3000000 13 >"$WORK/stalled" &
STALLED=$!
START=$SECONDS
standing "$WORK/stalled"
shard_state w 1 writing
expect 200 GET /v1/tensors/w
expect_json '.contents.state' writing
# its shard and every verb: busy at once; other shards and tensors go on
refusals <<CASES
409 TENSOR_BUSY - GET $data/1/data -
409 TENSOR_BUSY - POST /v1/tensors/w:fill {"value":1}
409 TENSOR_BUSY - POST /v1/tensors/w:fill {"value":1,"rank":0}
409 TENSOR_BUSY - POST /v1/tensors/w:all_reduce {}
409 TENSOR_BUSY - POST /v1/tensors/w:broadcast {}
409 TENSOR_BUSY - POST /v1/tensors/w:checksum {}
409 TENSOR_BUSY - POST /v1/tensors/w:copy {"dst_rank":2}
409 TENSOR_BUSY output POST /v1/tensors/other:all_reduce {"output":"w"}
409 TENSOR_BUSY dst_tensor POST /v1/tensors/other:copy {"dst_tensor":"w"}
CASES
expect_json '.error.retryable' true
expect_put 409 "$WORK/random" w 1
curl -s --head --unix-socket "$SOCKET" -o "$WORK/head" http://localhost$data/1/data
grep -q ' 409 ' "$WORK/head" || fail "HEAD of a shard that is being written"
expect_put 200 "$WORK/random" w 0
expect_get 200 "$WORK/out" w 0
expect_same "$WORK/random" "$WORK/out" "beside a stalled PUT"
expect 200 POST /v1/tensors/other:all_reduce
expect 200 PATCH /v1/tensors/w '{"labels":{"a":"1"}}'
# a delete waits, and the name stays meanwhile
[ $((SECONDS - START)) -lt 9 ] || fail "the checks before took too long to say anything"

# Given up after 10 s, which the client is told: undefined until a full overwrite
while [ $((SECONDS - START)) -lt 12 ]; do
    sleep 0.5
done
shard_state w 1 undefined
wait $STALLED
grep -aq 'HTTP/1.1 408' "$WORK/stalled" && grep -aq TRANSFER_STALLED "$WORK/stalled" ||
    fail "a stalled body is answered: $(tail -n 1 "$WORK/stalled")"
shard_state w 1 undefined
refusals <<CASES
400 CONTENTS_UNDEFINED - GET $data/1/data -
400 CONTENTS_UNDEFINED - POST /v1/tensors/w:all_reduce {}
400 CONTENTS_UNDEFINED - POST /v1/tensors/w:checksum {}
400 CONTENTS_UNDEFINED - POST /v1/tensors/w:broadcast {"root":1}
400 CONTENTS_UNDEFINED - POST /v1/tensors/w:copy {"src_rank":1,"dst_rank":0}
CASES
expect_get 200 "$WORK/out" w 1 '?allow_undefined=true'
printf abc >"$WORK/abc"
expect_put 200 "$WORK/abc" w 1 '?offset=5'
shard_state w 1 undefined
expect_put 200 "$WORK/random" w 1
shard_state w 1 valid
expect_get 200 "$WORK/out" w 1
expect_same "$WORK/random" "$WORK/out" "after the overwrite"

# Each of these makes an undefined shard valid again: what overwrites all of it
break_off() { # break_off RANK: a PUT that the client leaves in the middle
    slow put $data/"$1"/data $((8 * MIB)) 100000 60 >"$WORK/broken" &
    shard_state w "$1" writing
    kill $!
    wait $! 2>/dev/null
    shard_state w "$1" undefined
}
break_off 2
expect 200 POST /v1/tensors/w:fill '{"value":7,"rank":2}'
shard_state w 2 valid
break_off 2
expect 200 POST /v1/tensors/w:broadcast '{"root":0}'
shard_state w 2 valid
break_off 2
expect 200 POST /v1/tensors/w:copy '{"src_rank":0,"dst_rank":2}'
shard_state w 2 valid
break_off 2
expect 200 POST /v1/tensors/w:copy '{"src_rank":0,"dst_rank":2,"bytes":10}'
shard_state w 2 undefined
expect 200 POST /v1/tensors/other:all_reduce '{"output":"w"}'
shard_state w 2 valid
# The npy header is read before anything is written.
GENERATION=$(request GET /v1/tensors/w | jq .shards[2].contents.generation)
expect_put 400 "$WORK/random" w 2 '' -H 'Content-Type: application/x-npy'
[ "$(request GET /v1/tensors/w | jq -c .shards[2].contents)" = "{\"generation\":$GENERATION,\"state\":\"valid\"}" ] || fail "a body that is no npy file touched the shard"

# A slow reader holds writers of its shard off, not others; a write waits for it, and is not lost.
expect_put 200 "$WORK/random" w 3
rm -f "$WORK/reader"
slow get $data/3/data 100000 3 >"$WORK/reader" &
READER=$!
standing "$WORK/reader"
expect_put 200 "$WORK/random" w 2
expect 202 POST '/v1/tensors/w:fill?wait=0' '{"value":9,"rank":3}'
expect_json .state queued
OPERATION=$(jq -r .id <<<"$BODY")
expect_get 200 "$WORK/out" w 2
expect 200 POST "/v1/operations/$OPERATION:wait?wait=20"
expect_json .state succeeded
wait $READER
expect_values '[9,9]' w 3 2

# A reader that stands still loses its place after 10 s.
expect_put 200 "$WORK/random" w 3
START=$SECONDS
rm -f "$WORK/reader"
slow get $data/3/data 100000 14 >"$WORK/reader" &
READER=$!
standing "$WORK/reader"
expect 200 POST '/v1/tensors/w:fill?wait=20' '{"value":8,"rank":3}'
[ $((SECONDS - START)) -ge 8 ] || fail "the write did not wait for the reader"
[ $((SECONDS - START)) -le 13 ] || fail "the write waited $((SECONDS - START)) s for a reader that stands still"
wait $READER
grep -q '^closed' "$WORK/reader" || fail "the reader's connection is still open: $(tail -n 1 "$WORK/reader")"

# A delete waits for a reader; the memory comes back.
rm -f "$WORK/reader"
slow get $data/0/data 100000 2 >"$WORK/reader" &
READER=$!
standing "$WORK/reader"
expect 202 DELETE '/v1/tensors/w?wait=0'
expect_json '[.verb,.done]' '["delete",false]'
wait $READER
expect 204 DELETE '/v1/groups/g?force=true&wait=20'
expect 200 GET /v1/devices
expect_json '[.devices[].memory.owned] | add' 0
server_stop
