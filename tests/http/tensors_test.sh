#!/usr/bin/env bash
# Tensors: create, show, patch, delete, batches; every refusal with its reason and field.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/cases.sh"
server_start --node-name node-a
make_group g
make_group h '[0,1]'

# What a tensor shows
expect 201 POST /v1/tensors '{"id":"w","group":"g","dtype":"bfloat16","shape":[3,5],"labels":{"layer":"0"},"access":{"read":["uid:7"],"write":[]}}'
expect_json '[.id,.group,.dtype,.shape,.strides,.memory_type,.shard_bytes,.state]' '["w","g","bfloat16",[3,5],[5,1],"symmetric",30,"ready"]'
expect_json '.allocated_bytes >= .shard_bytes' true
expect_json '.contents' '{"generation":0,"state":"valid"}'
expect_json '[.shards[] | [.rank,.node,.device,.contents.state]]' '[[0,"node-a",0,"valid"],[1,"node-a",1,"valid"],[2,"node-a",2,"valid"],[3,"node-a",3,"valid"]]'
expect_json '.dlpack' '{"code":4,"bits":16,"lanes":1}'
expect_json '[.attachable,.attachments]' '[false,0]'
expect_json '.labels' '{"layer":"0"}'
expect_json '.access' '{"read":["uid:7"],"write":[]}'
expect_json '.multicast | has("usable") and has("reason")' true
expect_json '(.owner | length > 0) and (.uid | length == 36)' true
W_UID=$(jq -r .uid <<<"$BODY")
expect 200 GET /v1/tensors/w
expect_json .uid "$W_UID"
curl -s -D "$WORK/head" -o /dev/null --unix-socket "$SOCKET" http://localhost/v1/tensors/w
expect_head etag "$(jq -r .etag <<<"$BODY")"
curl -s -D "$WORK/head" -o /dev/null --unix-socket "$SOCKET" --json '{"id":"loc","group":"g","dtype":"int8","shape":[1]}' http://localhost/v1/tensors
expect_head location /v1/tensors/loc
expect 204 DELETE /v1/tensors/loc

# Shapes, strides and sizes that are allowed
make_tensor scalar g float64 '[]'
expect_json '[.shape,.strides,.shard_bytes]' '[[],[],8]'
make_tensor none g float64 '[3,0,5]'
expect_json '[.shard_bytes,.allocated_bytes]' '[0,0]'
make_tensor columns g int32 '[2,3]' '"strides":[1,2]'
expect_json .strides '[1,2]'
make_tensor global g uint8 '[7]' '"memory_type":"global","multicast":"disabled"'
expect_json '[.memory_type,.multicast.reason]' '["global","NOT_REQUESTED"]'
make_tensor big g uint8 '[2097152]'
expect_json .attachable true
make_tensor small g uint8 '[16]' '"attachable":true'
expect_json '[.attachable, .allocated_bytes >= 2097152]' '[true,true]'
expect 201 POST /v1/tensors '{"group":"g","dtype":"bool","shape":[1,1,1,1,1,1,1,1]}'
MADE=$(jq -r .id <<<"$BODY")
expect 204 DELETE "/v1/tensors/$MADE"
for dtype in $(request GET /v1/node | jq -r '.capabilities.words.dtypes[]'); do
    make_tensor "d.$dtype" g "$dtype" '[2]'
    expect_values "$(case $dtype in bool) echo '[false,false]' ;; *) echo '[0,0]' ;; esac)" "d.$dtype" 3
    expect 204 DELETE "/v1/tensors/d.$dtype"
done

BEFORE=$(accounting)
refusals POST /v1/tensors <<CASES
# what is missing or wrong
400 MISSING_FIELD group {"dtype":"int8","shape":[1]}
400 MISSING_FIELD dtype {"group":"g","shape":[1]}
400 MISSING_FIELD shape {"group":"g","dtype":"int8"}
400 UNKNOWN_FIELD size {"group":"g","dtype":"int8","shape":[1],"size":1}
404 GROUP_NOT_FOUND group {"group":"none","dtype":"int8","shape":[1]}
409 ID_TAKEN id {"id":"w","group":"g","dtype":"bfloat16","shape":[3,5]}
400 INVALID_VALUE dtype {"group":"g","dtype":"float31","shape":[1]}
400 INVALID_TYPE dtype {"group":"g","dtype":5,"shape":[1]}
400 INVALID_TYPE shape {"group":"g","dtype":"int8","shape":5}
400 INVALID_TYPE shape[0] {"group":"g","dtype":"int8","shape":["5"]}
400 INVALID_TYPE shape[1] {"group":"g","dtype":"int8","shape":[1,4096.0]}
400 INVALID_TYPE shape[0] {"group":"g","dtype":"int8","shape":[1e3]}
400 INVALID_VALUE shape[1] {"group":"g","dtype":"int8","shape":[1,-1]}
400 INVALID_VALUE shape[0] {"group":"g","dtype":"int8","shape":[9007199254740992]}
400 INVALID_VALUE shape {"group":"g","dtype":"int8","shape":[1,1,1,1,1,1,1,1,1]}
400 SHAPE_OVERFLOW shape {"group":"g","dtype":"int8","shape":[9007199254740991,2]}
400 SHAPE_OVERFLOW shape {"group":"g","dtype":"float64","shape":[4503599627370496]}
400 SHAPE_OVERFLOW shape {"group":"g","dtype":"int8","shape":[9007199254740991,9007199254740991,0]}
400 EXCEEDS_DEVICE_CAPACITY - {"group":"g","dtype":"int8","shape":[1099511627776]}
400 EXCEEDS_DEVICE_CAPACITY - {"group":"g","dtype":"int8","shape":[67108865]}
400 INVALID_VALUE strides {"group":"g","dtype":"int8","shape":[2,3],"strides":[1]}
400 NOT_CONTIGUOUS strides {"group":"g","dtype":"int8","shape":[2,3],"strides":[4,1]}
400 NOT_CONTIGUOUS strides {"group":"g","dtype":"int8","shape":[2,3],"strides":[1,1]}
400 INVALID_VALUE strides[0] {"group":"g","dtype":"int8","shape":[2],"strides":[-1]}
400 INVALID_VALUE memory_type {"group":"g","dtype":"int8","shape":[1],"memory_type":"local"}
400 INVALID_VALUE multicast {"group":"g","dtype":"int8","shape":[1],"multicast":"yes"}
400 INVALID_TYPE attachable {"group":"g","dtype":"int8","shape":[1],"attachable":1}
400 INVALID_VALUE attachable {"group":"g","dtype":"int8","shape":[1],"attachable":true,"memory_type":"global"}
400 UNKNOWN_FIELD access.all {"group":"g","dtype":"int8","shape":[1],"access":{"all":[]}}
400 INVALID_TYPE access.read {"group":"g","dtype":"int8","shape":[1],"access":{"read":"uid:7"}}
400 INVALID_VALUE access.read[0] {"group":"g","dtype":"int8","shape":[1],"access":{"read":[""]}}
400 INVALID_VALUE labels {"group":"g","dtype":"int8","shape":[1],"labels":{$(for i in $(seq 33); do printf '%s"k%d":"v"' "$([ $i = 1 ] || echo ,)" $i; done)}}
400 INVALID_TYPE labels.k {"group":"g","dtype":"int8","shape":[1],"labels":{"k":null}}
CASES
expect_error 409 ID_TAKEN POST /v1/tensors '{"id":"w","group":"g","dtype":"bfloat16","shape":[3,5]}'
expect_json '.error.details[0].uid' "$W_UID"
# No room now is not the same as larger than the device.
make_tensor fill.1 g uint8 '[41943040]'
expect_error 429 GPU_MEMORY_EXHAUSTED POST /v1/tensors '{"id":"fill.2","group":"g","dtype":"uint8","shape":[41943040]}'
expect_json '.error.retryable' true
refused 404 TENSOR_NOT_FOUND - GET /v1/tensors/fill.2
expect 204 DELETE /v1/tensors/fill.1
[ "$BEFORE" = "$(accounting)" ] || fail "a refusal changed something"

# Patch
refused 404 TENSOR_NOT_FOUND - PATCH /v1/tensors/nothing '{"labels":{}}'
expect 200 GET /v1/tensors/w
ETAG=$(jq -r .etag <<<"$BODY")
expect 200 PATCH /v1/tensors/w '{"labels":{"layer":null,"env":"prod"}}' -H "If-Match: $ETAG"
expect_json .labels '{"env":"prod"}'
expect_json .uid "$W_UID"
expect_json ".etag != \"$(sed 's/"/\\"/g' <<<"$ETAG")\"" true
refused 412 ETAG_MISMATCH If-Match PATCH /v1/tensors/w '{"labels":{"env":"test"}}' -H "If-Match: $ETAG"
refused 412 ETAG_MISMATCH If-Match PATCH /v1/tensors/w '{"labels":{"env":"test"}}' -H 'If-Match: "x"'
refused 400 INVALID_HEADER If-Match PATCH /v1/tensors/w '{"labels":{"env":"test"}}' -H 'If-Match: x'
expect 200 GET /v1/tensors/w
expect_json .labels '{"env":"prod"}'
ETAG=$(jq -r .etag <<<"$BODY")
expect 200 PATCH /v1/tensors/w '{"labels":{"a":"1"}}' -H "If-Match: \"x\", $ETAG"
expect_json .labels '{"a":"1","env":"prod"}'
expect 200 PATCH /v1/tensors/w '{"labels":{"b":"2"}}' -H 'If-Match: *'
expect 200 PATCH /v1/tensors/w '{"access":{"write":["uid:8"]}}'
expect_json .access '{"read":["uid:7"],"write":["uid:8"]}'
expect 200 PATCH /v1/tensors/w '{"access":{"read":null}}'
expect_json .access '{"read":[],"write":["uid:8"]}'
expect 200 PATCH /v1/tensors/w '{"access":null,"labels":null}'
expect_json '[.access,.labels]' '[{"read":[],"write":[]},{}]'
expect 200 PATCH /v1/tensors/w '{}'
refusals PATCH /v1/tensors/w <<'CASES'
400 UNKNOWN_FIELD shape {"shape":[1]}
400 UNKNOWN_FIELD dtype {"dtype":"int8"}
400 INVALID_TYPE labels {"labels":"x"}
400 INVALID_TYPE labels.a {"labels":{"a":1}}
400 INVALID_VALUE labels.-a {"labels":{"-a":"1"}}
400 INVALID_VALUE labels.-a {"labels":{"-a":null}}
400 INVALID_TYPE access {"access":[]}
400 INVALID_VALUE access.read[0] {"access":{"read":["a b"]}}
CASES

# Delete, and the id again
refused 404 TENSOR_NOT_FOUND - DELETE /v1/tensors/nothing
refused 400 INVALID_QUERY force DELETE '/v1/tensors/w?force=yes'
refused 412 ETAG_MISMATCH If-Match DELETE /v1/tensors/w '' -H 'If-Match: "x"'
expect 200 GET /v1/tensors/w
expect 204 DELETE /v1/tensors/w '' -H "If-Match: $(jq -r .etag <<<"$BODY")"
refused 404 TENSOR_NOT_FOUND - GET /v1/tensors/w
make_tensor w h float32 '[2]'
expect_json ".uid != \"$W_UID\"" true
refused 412 ETAG_MISMATCH If-Match PATCH /v1/tensors/w '{"labels":{"env":"test"}}' -H "If-Match: $ETAG"

# Batches: all or nothing
BEFORE=$(accounting)
refusals POST /v1/tensors:batch_create <<'CASES'
400 MISSING_FIELD tensors {}
400 INVALID_VALUE tensors {"tensors":[]}
400 INVALID_TYPE tensors {"tensors":{}}
400 INVALID_TYPE tensors[0] {"tensors":[1]}
400 MISSING_FIELD tensors[0].group {"tensors":[{"id":"b1","dtype":"int8","shape":[1]}]}
400 INVALID_VALUE tensors[1].shape[0] {"tensors":[{"id":"b1","group":"g","dtype":"int8","shape":[1]},{"id":"b2","group":"g","dtype":"int8","shape":[-1]}]}
400 SHAPE_OVERFLOW tensors[1].shape {"tensors":[{"id":"b1","group":"g","dtype":"int8","shape":[1]},{"id":"b2","group":"g","dtype":"int8","shape":[9007199254740991,2]}]}
404 GROUP_NOT_FOUND tensors[1].group {"tensors":[{"id":"b1","group":"g","dtype":"int8","shape":[1]},{"id":"b2","group":"none","dtype":"int8","shape":[1]}]}
409 ID_TAKEN tensors[1].id {"tensors":[{"id":"b1","group":"g","dtype":"int8","shape":[1]},{"id":"w","group":"g","dtype":"int8","shape":[1]}]}
409 ID_TAKEN tensors[1].id {"tensors":[{"id":"b1","group":"g","dtype":"int8","shape":[1]},{"id":"b1","group":"g","dtype":"int8","shape":[1]}]}
CASES
expect_error 429 GPU_MEMORY_EXHAUSTED POST /v1/tensors:batch_create '{"tensors":[{"id":"b1","group":"g","dtype":"uint8","shape":[41943040]},{"id":"b2","group":"g","dtype":"uint8","shape":[41943040]}]}'
[ "$BEFORE" = "$(accounting)" ] || fail "a refused batch changed something"
expect 200 POST /v1/tensors:batch_create "{\"tensors\":[$(for i in $(seq 100); do printf '%s{"id":"b%d","group":"g","dtype":"float16","shape":[%d]}' "$([ $i = 1 ] || echo ,)" $i $i; done)]}"
expect_json '[.verb,.state,(.result.tensors | length)]' '["batch_create","succeeded",100]'
expect 200 GET /v1/tensors/b100
expect_json '[.shape,.state]' '[[100],"ready"]'
refusals POST /v1/tensors:batch_delete <<'CASES'
400 MISSING_FIELD tensors {}
400 INVALID_VALUE tensors {"tensors":[]}
400 INVALID_ID tensors[1] {"tensors":["b1",".."]}
404 TENSOR_NOT_FOUND tensors[1] {"tensors":["b1","nothing","b2"]}
400 INVALID_VALUE tensors {"tensors":["b1","b2","b1"]}
CASES
expect 200 GET /v1/tensors/b1
expect 200 POST /v1/tensors:batch_delete "{\"tensors\":[$(for i in $(seq 100); do printf '%s"b%d"' "$([ $i = 1 ] || echo ,)" $i; done)]}"
expect_json '[.verb,.state]' '["batch_delete","succeeded"]'
[ "$BEFORE" = "$(accounting)" ] || fail "batches leave something behind"
server_stop
