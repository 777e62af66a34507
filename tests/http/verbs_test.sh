#!/usr/bin/env bash
# Collectives, fill, copy, checksum: their results, and every refusal with its reason and field.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/cases.sh"
server_start
make_group g
make_group h '[0,1]'
fill() { expect 200 POST "/v1/tensors/$1:fill" "$2"; }
run() { expect 200 POST "/v1/tensors/$1:$2" "${3:-{\}}"; }

# Fill
make_tensor f g float32 '[2,3]'
fill f '{"pattern":"iota"}'
expect_json '[.verb,.state,.done,.target,.generation]' '["fill","succeeded",true,"tensors/f",1]'
expect_values '[0,1,2,3,4,5]' f 3
fill f '{"pattern":"rank"}'
for rank in 0 1 2 3; do
    expect_values "[$rank,$rank,$rank,$rank,$rank,$rank]" f $rank
done
fill f '{"value":1.5,"rank":2}'
expect_values '[1.5,1.5]' f 2 2
expect_values '[3,3]' f 3 2
for value in NaN Infinity -Infinity; do
    fill f "{\"value\":\"$value\"}"
    expect_values "[\"$value\"]" f 0 1
done
fill f '{"value":"0.1"}'
expect_values '[0.10000000149011612]' f 0 1
make_tensor i64 g int64 '[2]'
fill i64 '{"value":"-9223372036854775808"}'
expect_values '["-9223372036854775808"]' i64 0 1
make_tensor u64 g uint64 '[2]'
fill u64 '{"value":"18446744073709551615"}'
expect_values '["18446744073709551615"]' u64 0 1
make_tensor b g bool '[2]'
fill b '{"value":true}'
expect_values '[true,true]' b 1
make_tensor u8 g uint8 '[300]'
fill u8 '{"pattern":"iota"}'
[ "$(values u8 0 300 | jq -c '.[254:258]')" = '[254,255,0,1]' ] || fail "iota does not wrap"
make_tensor columns g int16 '[2,3]' '"strides":[1,2]'
fill columns '{"pattern":"iota"}'
expect_values '[0,1,2,3,4,5]' columns 0
BEFORE=$(accounting)
refusals <<'CASES'
400 MISSING_FIELD value POST /v1/tensors/f:fill {}
400 INVALID_VALUE pattern POST /v1/tensors/f:fill {"value":1,"pattern":"rank"}
400 INVALID_VALUE pattern POST /v1/tensors/f:fill {"pattern":"random"}
400 INVALID_TYPE value POST /v1/tensors/f:fill {"value":[1]}
400 INVALID_TYPE value POST /v1/tensors/f:fill {"value":null}
400 INVALID_VALUE value POST /v1/tensors/f:fill {"value":"0x10"}
400 INVALID_VALUE value POST /v1/tensors/f:fill {"value":"nan"}
400 OUT_OF_RANGE_VALUE value POST /v1/tensors/f:fill {"value":1e39}
400 OUT_OF_RANGE_VALUE value POST /v1/tensors/u8:fill {"value":256}
400 OUT_OF_RANGE_VALUE value POST /v1/tensors/u8:fill {"value":-1}
400 OUT_OF_RANGE_VALUE value POST /v1/tensors/u8:fill {"value":1.5}
400 OUT_OF_RANGE_VALUE value POST /v1/tensors/u8:fill {"value":"NaN"}
400 OUT_OF_RANGE_VALUE value POST /v1/tensors/u64:fill {"value":"18446744073709551616"}
400 OUT_OF_RANGE_VALUE value POST /v1/tensors/b:fill {"value":2}
400 RANK_OUT_OF_RANGE rank POST /v1/tensors/f:fill {"value":1,"rank":4}
400 INVALID_VALUE rank POST /v1/tensors/f:fill {"value":1,"rank":-1}
409 GENERATION_MISMATCH expected_generation POST /v1/tensors/f:fill {"value":1,"expected_generation":1}
404 TENSOR_NOT_FOUND - POST /v1/tensors/none:fill {"value":1}
400 UNKNOWN_FIELD x POST /v1/tensors/f:fill {"value":1,"x":1}
404 ROUTE_NOT_FOUND - POST /v1/tensors/f:nothing {}
405 METHOD_NOT_ALLOWED - GET /v1/tensors/f:fill -
CASES
[ "$BEFORE" = "$(accounting)" ] || fail "a refused fill changed something"

# Collectives in place and with an output: rank r holds r in every element.
fresh() { # fresh DTYPE SHAPE...: tensors in, out
    request DELETE '/v1/tensors/in' >/dev/null
    request DELETE '/v1/tensors/out' >/dev/null
    make_tensor in g "$1" "$2"
    make_tensor out g "$1" "${3:-$2}"
    fill in '{"pattern":"rank"}'
}
fresh float32 '[4]'
run in all_reduce
expect_json '[.verb,.state,.generation]' '["all_reduce","succeeded",2]'
expect_json '[.algorithm,.reason] | all(length > 0)' true
expect_json '.deterministic' true
expect_json '[.bytes,.progress.bytes_total >= .progress.bytes_done]' '[16,true]'
expect_json '.timing | .queued_ns >= 0 and .run_ns > 0' true
expect_json '.bandwidth | .bus_bytes_per_second > 0 and .algorithm_bytes_per_second > 0' true
expect_json '[.create_time,.start_time,.end_time] | all(. != null)' true
expect_values '[6,6,6,6]' in 3
while read -r op want; do
    fresh float32 '[4]'
    fill in '{"value":2}'
    fill in '{"value":3,"rank":1}'
    run in all_reduce "{\"op\":\"$op\",\"output\":\"out\"}"
    expect_values "[$want,$want,$want,$want]" out 2
    expect_values '[3]' in 1 1
done <<'OPS'
sum 9
avg 2.25
prod 24
min 2
max 3
OPS
fresh int32 '[4]'
while read -r op want; do
    run in all_reduce "{\"op\":\"$op\",\"output\":\"out\"}"
    expect_values "[$want,$want,$want,$want]" out 0
done <<'OPS'
band 0
bor 3
bxor 0
avg 1
OPS
fresh float32 '[4]'
run in broadcast '{"root":2}'
expect_values '[2,2,2,2]' in 0
fresh float32 '[4]'
run in reduce '{"root":1,"output":"out"}'
expect_values '[6,6,6,6]' out 1
expect_values '[0,0,0,0]' out 0
fresh float32 '[2]' '[8]'
run in all_gather '{"output":"out"}'
expect_values '[0,0,1,1,2,2,3,3]' out 3
fresh float32 '[2]' '[4,2]'
run in gather '{"output":"out","root":3}'
expect_values '[0,0,1,1,2,2,3,3]' out 3
expect_values '[0,0,0,0,0,0,0,0]' out 0
fresh float32 '[8]' '[2]'
fill in '{"pattern":"iota"}'
run in reduce_scatter '{"output":"out"}'
expect_values '[16,20]' out 2
run in scatter '{"output":"out","root":1}'
expect_values '[6,7]' out 3
fresh float32 '[4]'
run in all_to_all '{"output":"out"}'
expect_values '[0,1,2,3]' out 2
fresh float32 '[8]'
run in all_gather
expect_values '[0,0,1,1,2,2,3,3]' in 1
for algorithm in $(request GET /v1/node | jq -r '.capabilities.words.algorithms[] | select(.deterministic) | .name'); do
    fresh int32 '[64]'
    BODY=$(request POST /v1/tensors/in:all_reduce "{\"algorithm\":\"$algorithm\"}")
    if [ "$(code)" = 200 ]; then
        expect_json .algorithm "$algorithm"
        expect_values '[6]' in 0 1
    else
        expect_json '.error.details[0].reason' UNSUPPORTED_ALGORITHM
        expect_json '.error.details[0].algorithms | length > 0' true
    fi
done

fresh float32 '[4]'
make_tensor other h float32 '[4]'
make_tensor half g float16 '[4]'
make_tensor long g float32 '[5]'
make_tensor five g float32 '[5]'
BEFORE=$(accounting)
refusals <<'CASES'
404 TENSOR_NOT_FOUND - POST /v1/tensors/none:all_reduce {}
404 TENSOR_NOT_FOUND output POST /v1/tensors/in:all_reduce {"output":"none"}
400 GROUP_MISMATCH output POST /v1/tensors/in:all_reduce {"output":"other"}
400 DTYPE_MISMATCH output POST /v1/tensors/in:all_reduce {"output":"half"}
400 SHAPE_MISMATCH output POST /v1/tensors/in:all_reduce {"output":"long"}
400 SHAPE_MISMATCH output POST /v1/tensors/in:all_gather {"output":"long"}
400 SHAPE_MISMATCH tensor POST /v1/tensors/five:all_to_all {}
400 INVALID_VALUE op POST /v1/tensors/in:all_reduce {"op":"median"}
400 UNSUPPORTED_OP op POST /v1/tensors/in:all_reduce {"op":"band"}
400 UNKNOWN_FIELD op POST /v1/tensors/in:broadcast {"op":"sum"}
400 UNKNOWN_FIELD root POST /v1/tensors/in:all_reduce {"root":0}
400 RANK_OUT_OF_RANGE root POST /v1/tensors/in:broadcast {"root":4}
400 INVALID_TYPE root POST /v1/tensors/in:broadcast {"root":"0"}
400 UNSUPPORTED_ALGORITHM algorithm POST /v1/tensors/in:all_reduce {"algorithm":"ring"}
400 UNSUPPORTED_ALGORITHM algorithm POST /v1/tensors/in:all_reduce {"algorithm":"copy_engine"}
400 INVALID_TYPE deterministic POST /v1/tensors/in:all_reduce {"deterministic":"no"}
409 GENERATION_MISMATCH expected_generation POST /v1/tensors/in:all_reduce {"expected_generation":7}
400 INVALID_ID output POST /v1/tensors/in:all_reduce {"output":"../in"}
400 INVALID_QUERY wait POST /v1/tensors/in:all_reduce?wait=601 {}
400 INVALID_QUERY wait POST /v1/tensors/in:all_reduce?wait=-1 {}
400 INVALID_QUERY wait POST /v1/tensors/in:all_reduce?wait=soon {}
CASES
[ "$BEFORE" = "$(accounting)" ] || fail "a refused collective changed something"
run in all_reduce '{"expected_generation":1}'

# Copy
fresh uint8 '[16]'
fill in '{"pattern":"iota"}'
run in copy '{"dst_tensor":"out","dst_rank":3}'
expect_json '[.verb,.bytes]' '["copy",16]'
[ "$(values out 3 | jq -c .[15])" = 15 ] || fail "a whole copy"
expect_values '[0,0]' out 2 2
run in copy '{"src_rank":1,"dst_tensor":"out","dst_rank":2,"src_offset":4,"dst_offset":1,"bytes":3}'
expect_values '[0,4,5,6,0]' out 2 5
run in copy '{"src_rank":0,"dst_rank":1,"src_offset":15}'
expect_values '[15,1]' in 1 2
run in copy '{"src_rank":0,"dst_rank":0,"src_offset":0,"dst_offset":8,"bytes":8}'
run in copy '{"bytes":0,"src_offset":16}'
make_tensor peer h uint8 '[16]'
run in copy '{"dst_tensor":"peer","dst_rank":1}'
expect_values '[0,1,2]' peer 1 3
BEFORE=$(accounting)
refusals <<'CASES'
400 RANK_OUT_OF_RANGE src_rank POST /v1/tensors/in:copy {"src_rank":4}
400 RANK_OUT_OF_RANGE dst_rank POST /v1/tensors/in:copy {"dst_rank":4}
400 RANK_OUT_OF_RANGE dst_rank POST /v1/tensors/in:copy {"dst_tensor":"peer","dst_rank":2}
404 TENSOR_NOT_FOUND dst_tensor POST /v1/tensors/in:copy {"dst_tensor":"none"}
400 RANGE_OUT_OF_BOUNDS src_offset POST /v1/tensors/in:copy {"src_offset":17,"dst_rank":1}
400 RANGE_OUT_OF_BOUNDS src_offset POST /v1/tensors/in:copy {"src_offset":9007199254740991,"bytes":9007199254740991,"dst_rank":1}
400 RANGE_OUT_OF_BOUNDS dst_offset POST /v1/tensors/in:copy {"dst_offset":1,"dst_rank":1}
400 OVERLAP dst_offset POST /v1/tensors/in:copy {"dst_offset":1,"bytes":8}
400 INVALID_VALUE bytes POST /v1/tensors/in:copy {"bytes":-1}
400 INVALID_VALUE bytes POST /v1/tensors/in:copy {"bytes":9007199254740992}
409 GENERATION_MISMATCH expected_generation POST /v1/tensors/in:copy {"dst_rank":1,"expected_generation":99}
400 UNKNOWN_FIELD dst POST /v1/tensors/in:copy {"dst":"out"}
CASES
[ "$BEFORE" = "$(accounting)" ] || fail "a refused copy changed something"

# Checksum: of the bytes in memory order, against other programs
make_tensor c g uint8 '[9]'
printf 123456789 >"$WORK/nine"
expect_put 200 "$WORK/nine" c 1
run c checksum
expect_json '.result.algorithm' crc32c
expect_json '.result.shards[1]' '{"rank":1,"checksum":"e3069283"}'
expect_json '.result.shards | length' 4
run c checksum '{"algorithm":"sha256"}'
expect_json '.result.shards[1].checksum' "$(sha256sum <"$WORK/nine" | cut -d' ' -f1)"
refused 400 INVALID_VALUE algorithm POST /v1/tensors/c:checksum '{"algorithm":"md5"}'
refused 404 TENSOR_NOT_FOUND - POST /v1/tensors/none:checksum
expect 204 DELETE '/v1/groups/g?force=true'
expect 204 DELETE '/v1/groups/h?force=true'
expect 200 GET /v1/devices
expect_json '[.devices[].memory.owned] | add' 0
server_stop
