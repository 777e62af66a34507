#!/usr/bin/env bash
# Shard data over HTTP: raw bytes, ranges, offsets, npy, JSON, digests.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/cases.sh"
server_start
make_group g
BYTES=3000000 # more than two staging buffers, and no multiple of anything
head -c $BYTES /dev/urandom >"$WORK/random"

# Whole shards
make_tensor raw g uint8 "[$BYTES]"
for rank in 0 3; do
    expect_put 200 "$WORK/random" raw $rank
    expect_json '.generation > 0' true
    expect_get 200 "$WORK/out" raw $rank
    expect_same "$WORK/random" "$WORK/out" "raw, rank $rank"
done
expect_head content-length $BYTES
expect_head content-type application/octet-stream
expect_head accept-ranges bytes
ETAG=$(head_value etag)
[[ $ETAG =~ ^\"$(jq .generation <<<"$BODY")-[0-9a-f]{8}\"$ ]] || fail "etag $ETAG"
expect_get 200 "$WORK/out" raw 1
head -c $BYTES /dev/zero | cmp -s - "$WORK/out" || fail "new memory is not zero"
# chunked, and with the content type said
got=$(curl -s --max-time 30 --unix-socket "$SOCKET" -o "$WORK/body" -w '%{http_code}' -T - -H 'Content-Type: application/octet-stream' \
    http://localhost/v1/tensors/raw/shards/2/data <"$WORK/random")
[ "$got" = 200 ] || fail "a chunked PUT answers $got"
expect_get 200 "$WORK/out" raw 2
expect_same "$WORK/random" "$WORK/out" chunked
curl -s --unix-socket "$SOCKET" --head -D "$WORK/head" -o /dev/null http://localhost/v1/tensors/raw/shards/0/data
expect_head content-length $BYTES
ETAG=$(head_value etag)

# Ranges: CODE FIRST BYTES RANGE; FIRST and BYTES say what comes
while read -r code first bytes range; do
    expect_get "$code" "$WORK/out" raw 0 '' -H "Range: $range"
    if [ "$code" = 416 ]; then
        expect_head content-range "bytes */$BYTES"
        [ "$(jq -r '.error.details[0].reason' "$WORK/out")" = RANGE_NOT_SATISFIABLE ] || fail "reason of $range"
        continue
    fi
    tail -c +$((first + 1)) "$WORK/random" | head -c "$bytes" | cmp -s - "$WORK/out" || fail "$range: other bytes"
    [ "$code" = 200 ] || expect_head content-range "bytes $first-$((first + bytes - 1))/$BYTES"
    expect_head content-length "$bytes"
done <<RANGES
206 0 1 bytes=0-0
206 0 10 bytes=0-9
206 1048570 20 bytes=1048570-1048589
206 2999999 1 bytes=2999999-
206 2999990 10 bytes=-10
206 0 $BYTES bytes=-99999999999999999999
206 5 2999995 bytes=5-18446744073709551615
416 0 0 bytes=3000000-
416 0 0 bytes=18446744073709551615-
416 0 0 bytes=-0
200 0 $BYTES bytes=0-1,5-6
200 0 $BYTES bytes=9-5
200 0 $BYTES bytes=x
200 0 $BYTES lines=1-2
RANGES
expect_get 206 "$WORK/out" raw 0 '' -H 'Range: bytes=1-2' -H "If-Range: $ETAG"
expect_get 200 "$WORK/out" raw 0 '' -H 'Range: bytes=1-2' -H 'If-Range: "0-00000000"'

# Conditions: CODE METHOD HEADERS; a PUT that is refused changes nothing
OTHER='"1-00000000"'
condition_put() {
    local want=$1 bytes=$2
    shift 2
    expect_put "$want" "$WORK/$bytes" raw 0 '' "$@"
    [ "$want" = 200 ] || expect_json '.error.details[0].reason' ETAG_MISMATCH
}
head -c $BYTES /dev/zero >"$WORK/zeros"
condition_put 412 zeros -H "If-Match: $OTHER"
expect_json '.error.details[0].field' If-Match
condition_put 412 zeros -H "If-Match: W/$ETAG"
condition_put 412 zeros -H 'If-None-Match: *'
expect_json '.error.details[0].field' If-None-Match
condition_put 412 zeros -H "If-None-Match: $OTHER, W/$ETAG"
condition_put 412 zeros -H "If-Match: $ETAG" -H "If-None-Match: $ETAG"
expect_put 400 "$WORK/zeros" raw 0 '' -H 'If-Match: x'
expect_json '.error.details[0].field' If-Match
expect_get 200 "$WORK/out" raw 0 '' -H "If-Match: $OTHER, $ETAG" -H "If-None-Match: $OTHER"
expect_same "$WORK/random" "$WORK/out" "a PUT that was refused"
expect_head etag "$ETAG"
expect_get 412 "$WORK/out" raw 0 '' -H "If-Match: $OTHER"
expect_get 412 "$WORK/out" raw 0 '' -H "If-Match: $OTHER" -H "If-None-Match: $ETAG"
for tags in "$ETAG" "W/$ETAG" "$OTHER, $ETAG" '*'; do
    expect_get 304 "$WORK/out" raw 0 '' -H "If-None-Match: $tags"
    expect_head etag "$ETAG"
    [ ! -s "$WORK/out" ] || fail "a 304 has a body"
    expect_get 304 "$WORK/out" raw 0 '?count=2' -H "If-None-Match: $tags" -H 'Accept: application/json'
    got=$(curl -s --unix-socket "$SOCKET" --head -o /dev/null -w '%{http_code}' -H "If-None-Match: $tags" \
        http://localhost/v1/tensors/raw/shards/0/data)
    [ "$got" = 304 ] || fail "HEAD with If-None-Match: $tags answers $got"
done
condition_put 200 random -H "If-Match: $ETAG"
condition_put 412 zeros -H "If-Match: $ETAG"
condition_put 200 random -H 'If-Match: *' -H "If-None-Match: $ETAG"
expect_get 200 "$WORK/out" raw 0 '' -H "If-None-Match: $ETAG"
ETAG=$(head_value etag)
# A PUT that ends early leaves the generation, so that its shard has no tag any more
curl -s --max-time 1 --unix-socket "$SOCKET" -o /dev/null -T - --limit-rate 1000 \
    http://localhost/v1/tensors/raw/shards/0/data <"$WORK/zeros"
for _ in $(seq 50); do
    expect 200 GET /v1/tensors/raw
    [ "$(jq -r '.shards[0].contents.state' <<<"$BODY")" != undefined ] || break
    sleep 0.1
done
expect_json '.shards[0].contents.state' undefined
condition_put 412 zeros -H "If-Match: $ETAG"
expect_get 200 "$WORK/out" raw 0 '?allow_undefined=true' -H "If-None-Match: $ETAG"
[ -z "$(head_value etag)" ] || fail "undefined contents have an etag"
expect_get 200 "$WORK/out" raw 0 '?allow_undefined=true' -H "If-Range: $ETAG" -H 'Range: bytes=0-3'
expect_put 200 "$WORK/random" raw 0
expect_get 200 "$WORK/out" raw 0
ETAG=$(head_value etag)

# The sign of zero
make_tensor signs g float32 '[1]'
for value in -0 -0.0 '"-0"' '"-0.0"' -0e1; do
    expect 200 POST /v1/tensors/signs:fill '{"value":1}'
    expect 200 POST /v1/tensors/signs:fill "{\"value\":$value,\"rank\":0}"
    expect_get 200 "$WORK/out" signs 0
    [ "$(xxd -p "$WORK/out")" = 00000080 ] || fail "$value is written as $(xxd -p "$WORK/out")"
    expect_get 200 "$WORK/out" signs 0 '' -H 'Accept: application/json'
    grep -q '"values":\[-0\.0\]' "$WORK/out" || fail "$value is shown as $(cat "$WORK/out")"
done
make_tensor whole g int32 '[1]'
expect 200 POST /v1/tensors/whole:fill '{"value":-0}'
expect_values '[0]' whole 0

# Offsets
expect_get 200 "$WORK/out" raw 0 '?offset=2999990'
tail -c 10 "$WORK/random" | cmp -s - "$WORK/out" || fail "?offset="
expect_get 200 "$WORK/out" raw 0 '?offset=3000000'
[ ! -s "$WORK/out" ] || fail "an offset at the end gives bytes"
printf abc >"$WORK/abc"
expect_put 200 "$WORK/abc" raw 0 '?offset=1048575'
expect_get 200 "$WORK/out" raw 0
[ "$(head_value etag)" != "$ETAG" ] || fail "a write does not change the etag"
expect_get 206 "$WORK/out" raw 0 '' -H 'Range: bytes=1048574-1048578'
(tail -c +1048575 "$WORK/random" | head -c 1 && printf abc && tail -c +1048579 "$WORK/random" | head -c 1) | cmp -s - "$WORK/out" || fail "a PUT with an offset"
: >"$WORK/nothing"
expect_put 200 "$WORK/nothing" raw 0 '?offset=3000000'

BEFORE=$(accounting)
shard=/v1/tensors/raw/shards
while read -r code reason field file query options; do
    case $code in '' | \#*) continue ;; esac
    [ "$query" != - ] || query=
    # shellcheck disable=SC2086
    eval "expect_put $code '$WORK/$file' raw \"\${RANK:-0}\" '$query' $options"
    expect_json '.error.details[0].reason' "$reason"
    expect_json '.error.details[0].field // "-"' "$field"
done <<'CASES'
400 BODY_LENGTH_MISMATCH Content-Length abc -
400 RANGE_OUT_OF_BOUNDS offset abc ?offset=2999998
400 RANGE_OUT_OF_BOUNDS offset abc ?offset=9007199254740991
400 INVALID_QUERY offset abc ?offset=18446744073709551615
400 INVALID_QUERY offset abc ?offset=-1
400 INVALID_QUERY length abc ?offset=1&length=2
400 INVALID_QUERY allow_undefined abc ?allow_undefined=true
400 INVALID_HEADER Content-Range random - -H 'Content-Range: bytes 0-2/3000000'
400 INVALID_HEADER Content-Digest random - -H 'Content-Digest: sha-256=abc'
400 INVALID_HEADER Content-Digest random - -H 'Content-Digest: md5=:AAAA:'
400 INVALID_HEADER Content-Digest random - -H 'Content-Digest: sha-256=:AAAA:'
400 INVALID_HEADER Content-Digest random - -H 'Content-Digest: sha-512=::'
409 GENERATION_MISMATCH expected_generation random ?expected_generation=0
415 UNSUPPORTED_MEDIA_TYPE Content-Encoding random - -H 'Content-Encoding: gzip'
415 UNSUPPORTED_MEDIA_TYPE Content-Type random - -H 'Content-Type: application/json'
CASES
expect_put 415 "$WORK/abc" raw 0 '' -H 'Content-Type: application/x-www-form-urlencoded'
expect_json '.error.message | test("curl.*-T")' true
# An offset needs a length.
got=$(printf abc | curl -s --unix-socket "$SOCKET" -o "$WORK/body" -w '%{http_code}' -T - "http://localhost$shard/0/data?offset=0")
[ "$got" = 411 ] || fail "chunked with an offset answers $got"
refusals <<CASES
404 TENSOR_NOT_FOUND - GET /v1/tensors/none/shards/0/data -
400 RANK_OUT_OF_RANGE rank GET $shard/4/data -
400 INVALID_VALUE rank GET $shard/first/data -
400 INVALID_VALUE rank GET $shard/00/data -
400 INVALID_VALUE rank GET $shard/01/data -
400 INVALID_VALUE rank GET $shard/99999999999999999999/data -
400 RANGE_OUT_OF_BOUNDS offset GET $shard/0/data?offset=3000001 -
400 INVALID_QUERY count GET $shard/0/data?count=5 -
400 INVALID_QUERY offset GET $shard/0/data?offset=x -
CASES
refused 400 INVALID_HEADER Range GET "$shard/0/data?offset=1" '' -H 'Range: bytes=0-1'
refused 406 UNSUPPORTED_MEDIA_TYPE Accept GET "$shard/0/data" '' -H 'Accept: image/png'
[ "$BEFORE" = "$(accounting)" ] || fail "a refusal changed something"
GENERATION=$(request GET /v1/tensors/raw | jq '.shards[0].contents.generation')
expect_put 200 "$WORK/random" raw 0 "?expected_generation=$GENERATION"

# Digests
digest="sha-256=:$(openssl dgst -sha256 -binary "$WORK/random" | base64 -w0):"
expect_put 200 "$WORK/random" raw 1 '' -H "Content-Digest: $digest"
expect_put 200 "$WORK/random" raw 1 '' -H "Content-Digest: sha-512=:$(openssl dgst -sha512 -binary "$WORK/random" | base64 -w0):"
expect_put 400 "$WORK/random" raw 1 '' -H 'Content-Digest: sha-256=:LXEWQrcmsEQBYnyp+6wy9chTD7GQPMTbAiWHF5IaSIE=:'
expect_json '.error.details[0].reason' DIGEST_MISMATCH
expect_get 400 "$WORK/out" raw 1
[ "$(jq -r '.error.details[0].reason' "$WORK/out")" = CONTENTS_UNDEFINED ] || fail "contents after a wrong digest"
expect_put 200 "$WORK/random" raw 1
make_tensor small g uint8 '[6]'
printf 'hello\n' >"$WORK/hello"
expect_put 200 "$WORK/hello" small 0
expect_get 200 "$WORK/out" small 0 '' -H 'Want-Repr-Digest: sha-256=1'
expect_head repr-digest "sha-256=:$(openssl dgst -sha256 -binary "$WORK/hello" | base64 -w0):"
expect_same "$WORK/hello" "$WORK/out" "with a digest"

# Nothing to move
make_tensor empty g float32 '[0,4]'
expect_get 200 "$WORK/out" empty 0
[ ! -s "$WORK/out" ] || fail "an empty shard gives bytes"
expect_put 200 "$WORK/nothing" empty 0
expect_get 416 "$WORK/out" empty 0 '' -H 'Range: bytes=0-0'
expect_values '[]' empty 0

# JSON: the first elements in logical order
make_tensor json g int32 '[2,3]' '"strides":[1,2]'
expect 200 POST /v1/tensors/json:fill '{"pattern":"iota"}'
expect 200 GET /v1/tensors/json/shards/1/data '' -H 'Accept: application/json'
expect_json . '{"dtype":"int32","shape":[2,3],"offset_bytes":0,"count":6,"generation":1,"values":[0,1,2,3,4,5]}'
expect 200 GET '/v1/tensors/json/shards/1/data?offset=8&count=3' '' -H 'Accept: application/json'
expect_json '[.offset_bytes,.count,.values]' '[8,3,[2,3,4]]'
expect 200 GET '/v1/tensors/json/shards/1/data?offset=24' '' -H 'Accept: application/json'
expect_json '[.count,.values]' '[0,[]]'
expect 200 GET /v1/tensors/raw/shards/1/data '' -H 'Accept: application/json'
expect_json '.count' 1024
refusals <<'CASES'
400 INVALID_QUERY count GET /v1/tensors/json/shards/1/data?count=1025 -
400 INVALID_QUERY count GET /v1/tensors/json/shards/1/data?count=-1 -
CASES
refused 400 INVALID_QUERY offset GET '/v1/tensors/json/shards/1/data?offset=3' '' -H 'Accept: application/json'
refused 400 RANGE_OUT_OF_BOUNDS offset GET '/v1/tensors/json/shards/1/data?offset=28' '' -H 'Accept: application/json'
server_stop
