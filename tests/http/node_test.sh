#!/usr/bin/env bash
# The node, its devices and groups: what they show, and what is refused.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/cases.sh"
server_start --node-name node-a

# The node
expect 200 GET /v1/node
expect_json .name node-a
expect_json '.uid | test("^[0-9a-f]{8}-[0-9a-f]{4}-4")' true
expect_json '.incarnation | test("^[0-9a-f-]{36}$")' true
expect_json .driver software
expect_json .draining false
expect_json .devices_count 4
expect_json '.limits.json_integer' 9007199254740991
expect_json '.limits | length >= 25 and all(. >= 0)' true
expect_json '[.limits | has("fds", "mappings", "allocations", "connections_per_uid", "page_bytes", "scratch_kept_bytes")] | all' true
expect_json '.capabilities.multicast | has("usable") and has("reason")' true
expect_json '.capabilities.sharing | [.posix_fd, .fabric_handles, .rdma] | all(has("usable") and has("reason"))' true
expect_json '.capabilities.words.dtypes | length' 15
expect_json '.capabilities.words.collectives | index("all_reduce") != null' true
expect 200 HEAD /v1/node
refusals <<'CASES'
400 INVALID_QUERY x GET /v1/node?x=1 -
405 METHOD_NOT_ALLOWED - DELETE /v1/node -
CASES

# Devices
expect 200 GET /v1/devices
expect_json '.devices | length' 4
expect_json '[.devices[].ordinal]' '[0,1,2,3]'
expect_json '.next_page_token' ''
expect_json '.devices[0].memory | .total == 67108864 and .owned == 0 and .quarantined == 0 and .held_by_clients == 0' true
expect_json '.devices[0].granularity.minimum' 2097152
expect_json '.devices[0].node' node-a
expect_json '[.devices[].state] | unique' '["ok"]'
expect_json '.devices[1].capabilities.peers' '[0,2,3]'
UUID=$(jq -r '.devices[2].uuid' <<<"$BODY")
expect 200 GET "/v1/devices/$UUID"
expect_json .ordinal 2
expect 200 GET /v1/devices/3
expect_json .ordinal 3
expect 200 GET '/v1/devices?page_size=3'
expect_json '[.devices[].ordinal]' '[0,1,2]'
TOKEN=$(jq -r .next_page_token <<<"$BODY")
expect 200 GET "/v1/devices?page_size=3&page_token=$TOKEN"
expect_json '[.devices[].ordinal]' '[3]'
expect_json '.next_page_token' ''
refusals <<CASES
404 DEVICE_NOT_FOUND device GET /v1/devices/4 -
404 DEVICE_NOT_FOUND device GET /v1/devices/00 -
404 DEVICE_NOT_FOUND device GET /v1/devices/00000000-0000-4000-8000-000000000000 -
400 INVALID_PAGE_TOKEN page_token GET /v1/groups?page_token=$TOKEN -
CASES
expect 200 GET /v1/multicast_groups
expect_json '.multicast_groups | type' array
refused 404 MULTICAST_GROUP_NOT_FOUND multicast_group GET /v1/multicast_groups/nothing

# Groups: every way to name devices
expect 201 POST /v1/groups '{"id":"all","devices":"all"}'
expect_json '[.id, .world_size, .state, .epoch > 0, .tensors_count]' '["all",4,"ready",true,0]'
expect_json '[.ranks[].device]' '[0,1,2,3]'
expect_json '[.ranks[].node] | unique' '["node-a"]'
expect_json '.failed_ranks' '[]'
expect_json '.multicast | has("usable") and has("reason")' true
expect_json '.uid | length' 36
expect_json '.owner | length > 0' true
expect_json '.create_time | test("^20..-..-..T..:..:...*Z$")' true
expect_json '.etag | test("^\".*\"$")' true
GROUP_UID=$(jq -r .uid <<<"$BODY")
expect 201 POST /v1/groups '{"id":"order","devices":[3,1],"labels":{"env":"prod"}}'
expect_json '[.ranks[].device]' '[3,1]'
expect_json '.labels.env' prod
expect 201 POST /v1/groups "{\"id\":\"uuid\",\"devices\":[0,\"$UUID\"]}"
expect_json '[.ranks[].device]' '[0,2]'
expect 201 POST /v1/groups '{"id":"twice","devices":[0,0,1]}'
expect_json '[.ranks[].device]' '[0,0,1]'
expect_json '.multicast.reason' SHARED_DEVICE
expect 201 POST /v1/groups '{"id":"ranks","ranks":[{"node":"node-a","device":1},{"node":"local","device":0},{"device":2}]}'
expect_json '[.ranks[].device]' '[1,0,2]'
expect 201 POST /v1/groups '{"id":"nodes","nodes":"all"}'
expect_json .world_size 4
expect 201 POST /v1/groups '{"devices":[0]}'
expect_json '.id | length > 0' true
MADE=$(jq -r .id <<<"$BODY")
expect 200 GET "/v1/groups/$MADE"
expect_json .world_size 1
expect 204 DELETE "/v1/groups/$MADE"

BEFORE=$(accounting)
refusals POST /v1/groups <<CASES
# which devices
400 MISSING_FIELD devices {}
400 MISSING_FIELD devices {"id":"g"}
400 INVALID_VALUE ranks {"devices":"all","ranks":[{"device":0}]}
400 INVALID_VALUE nodes {"devices":"all","nodes":"all"}
400 INVALID_VALUE devices {"devices":[]}
400 INVALID_TYPE devices {"devices":"some"}
400 INVALID_TYPE devices {"devices":0}
400 INVALID_TYPE devices[1] {"devices":[0,null]}
400 INVALID_TYPE devices[0] {"devices":[0.0]}
400 INVALID_VALUE devices[0] {"devices":[-1]}
404 DEVICE_NOT_FOUND devices[1] {"devices":[0,4]}
404 DEVICE_NOT_FOUND devices[0] {"devices":["gpu"]}
404 DEVICE_NOT_FOUND devices[0] {"devices":[4294967295]}
400 INVALID_VALUE devices {"devices":[$(seq -s, 0 64)]}
400 INVALID_VALUE ranks {"ranks":[]}
400 MISSING_FIELD ranks[0].device {"ranks":[{"node":"local"}]}
400 UNKNOWN_FIELD ranks[0].rank {"ranks":[{"device":0,"rank":0}]}
404 NODE_NOT_FOUND ranks[1].node {"ranks":[{"device":0},{"device":1,"node":"node-b"}]}
404 DEVICE_NOT_FOUND ranks[1].device {"ranks":[{"device":0},{"device":9}]}
400 INVALID_VALUE nodes {"nodes":"some"}
400 INVALID_TYPE nodes {"nodes":true}
# ids and labels
409 ID_TAKEN id {"id":"all","devices":"all"}
400 INVALID_ID id {"id":"","devices":"all"}
400 INVALID_ID id {"id":"a/b","devices":"all"}
400 INVALID_ID id {"id":"..","devices":"all"}
400 INVALID_ID id {"id":"a.","devices":"all"}
400 INVALID_ID id {"id":"-a","devices":"all"}
400 INVALID_ID id {"id":"$(printf 'a%.0s' $(seq 256))","devices":"all"}
400 INVALID_TYPE id {"id":7,"devices":"all"}
400 INVALID_TYPE labels {"devices":"all","labels":[]}
400 INVALID_TYPE labels.a {"devices":"all","labels":{"a":1}}
400 UNKNOWN_FIELD device {"device":[0]}
CASES
expect_error 409 ID_TAKEN POST /v1/groups '{"id":"all","devices":[0]}'
expect_json '.error.details[0].uid' "$GROUP_UID"
[ "$BEFORE" = "$(accounting)" ] || fail "a refusal changed something"

# Barrier
expect 200 POST /v1/groups/all:barrier '{}'
expect_json '[.verb,.state,.done,.target]' '["barrier","succeeded",true,"groups/all"]'
expect 200 POST /v1/groups/all:barrier
refused 404 GROUP_NOT_FOUND - POST /v1/groups/none:barrier
refused 400 UNKNOWN_FIELD x POST /v1/groups/all:barrier '{"x":1}'

# Delete
make_tensor t all float32 '[4]'
refusals <<'CASES'
404 GROUP_NOT_FOUND - GET /v1/groups/none -
404 GROUP_NOT_FOUND - DELETE /v1/groups/none -
400 GROUP_NOT_EMPTY - DELETE /v1/groups/all -
400 INVALID_QUERY force DELETE /v1/groups/all?force=2 -
400 INVALID_QUERY x DELETE /v1/groups/all?x=1 -
CASES
# Multicast objects
expect 200 GET /v1/multicast_groups
if [ "$(jq '.multicast_groups | length' <<<"$BODY")" != 0 ]; then
    expect_json '.multicast_groups[0] | [.devices,.usable,.reason]' '[[0,1,2,3],true,""]'
    expect_json '.multicast_groups[0] | .used <= .size and .bound_count >= 1 and .granularity > 0' true
    expect 200 GET "/v1/multicast_groups/$(jq -r '.multicast_groups[0].id' <<<"$BODY")"
    expect_json '.devices' '[0,1,2,3]'
else
    expect 200 GET /v1/tensors/t
    expect_json '.multicast | [.usable, (.reason | length > 0)]' '[false,true]'
fi
refused 412 ETAG_MISMATCH If-Match DELETE '/v1/groups/all?force=true' '' -H 'If-Match: "x"'
expect 204 DELETE '/v1/groups/all?force=true'
refused 404 TENSOR_NOT_FOUND - GET /v1/tensors/t
for group in order uuid twice ranks nodes; do
    expect 204 DELETE "/v1/groups/$group"
done
expect 200 GET /v1/devices
expect_json '[.devices[].memory.owned] | add' 0
server_stop
