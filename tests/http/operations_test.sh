#!/usr/bin/env bash
# Operations: wait, cancel, 202, what they show, how long they stay.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/cases.sh"
server_start
make_group g
MIB=1048576
make_tensor w g uint8 "[$((8 * MIB))]"
READER=
# hold SECONDS: a slow reader of rank 0, which writers have to wait for.
hold() {
    local i
    rm -f "$WORK/reader"
    python3 "$(dirname "$0")/slow.py" "$SOCKET" get /v1/tensors/w/shards/0/data 1000 "$1" >"$WORK/reader" &
    READER=$!
    for i in $(seq 100); do
        grep -q standing "$WORK/reader" 2>/dev/null && return
        sleep 0.1
    done
    fail "the reader never stood still"
}
release() {
    kill "$READER" 2>/dev/null
    wait "$READER" 2>/dev/null
}

# Done in time: 200 with the operation, which stays
expect 200 POST /v1/tensors/w:fill '{"value":1}' -H 'x-request-id: my-request.1'
expect_json '[.name == "operations/" + .id, .done, .request_id]' '[true,true,"my-request.1"]'
expect_json '.owner | length > 0' true
DONE=$(jq -r .id <<<"$BODY")
expect 200 GET "/v1/operations/$DONE"
expect_json '[.state,.error,.result,.verb]' '["succeeded",null,null,"fill"]'
expect 200 POST "/v1/operations/$DONE:wait"
expect_json .state succeeded
refused 400 OPERATION_DONE - POST "/v1/operations/$DONE:cancel"

# Not done in time: 202 with Location
hold 30
curl -s -D "$WORK/head" -o "$WORK/body" --unix-socket "$SOCKET" --json '{"value":2}' 'http://localhost/v1/tensors/w:fill?wait=0'
head -n 1 "$WORK/head" | grep -q ' 202 ' || fail "a verb that waits answers $(head -n 1 "$WORK/head")"
QUEUED=$(jq -r .id "$WORK/body")
expect_head location "/v1/operations/$QUEUED"
expect 200 GET "/v1/operations/$QUEUED"
expect_json '[.state,.done,.start_time,.end_time]' '["queued",false,null,null]'
START=$SECONDS
expect 202 POST "/v1/operations/$QUEUED:wait?wait=1"
[ $((SECONDS - START)) -ge 1 ] && [ $((SECONDS - START)) -le 4 ] || fail "?wait=1 took $((SECONDS - START)) s"
expect 202 POST "/v1/operations/$QUEUED:wait?wait=0.1"
expect 200 GET '/v1/operations?state=queued'
expect_json '[.operations[].id] | length' 1

# Everything behind it in the order of the tensor waits too; another tensor does not.
expect 202 POST '/v1/tensors/w:all_reduce?wait=0' '{"op":"max"}'
SECOND=$(jq -r .id <<<"$BODY")
make_tensor free g uint8 '[16]'
expect 200 POST /v1/tensors/free:all_reduce

# Cancel while queued: at once, and its request says so
expect 200 POST "/v1/operations/$SECOND:cancel"
expect_json '[.state,.done,.error.status]' '["cancelled",true,"CANCELLED"]'
expect 499 POST "/v1/operations/$SECOND:wait"
expect_json '.error.details[0].reason' OPERATION_CANCELLED
expect_json '.operation.state' cancelled
expect 200 GET "/v1/operations/$SECOND"
expect_json '.error.details[0].reason' OPERATION_CANCELLED
refused 400 OPERATION_DONE - POST "/v1/operations/$SECOND:cancel"
# A request that waits is told when another one cancels its operation.
(curl -s -o "$WORK/waited" -w '%{http_code}' --unix-socket "$SOCKET" --json '{"value":3}' 'http://localhost/v1/tensors/w:fill?wait=30' >"$WORK/waited_code") &
WAITER=$!
for i in $(seq 50); do
    THIRD=$(request GET '/v1/operations?state=queued' | jq -r --arg first "$QUEUED" '[.operations[] | select(.id != $first) | .id][0] // empty')
    [ -z "$THIRD" ] || break
    sleep 0.1
done
expect 200 POST "/v1/operations/$THIRD:cancel"
wait $WAITER
[ "$(cat "$WORK/waited_code")" = 499 ] || fail "the request of a cancelled operation answers $(cat "$WORK/waited_code")"
[ "$(jq -r .operation.id "$WORK/waited")" = "$THIRD" ] || fail "no operation beside the error"

# A client that goes away cancels nothing.
curl -s -m 1 -o /dev/null --unix-socket "$SOCKET" --json '{"value":4}' 'http://localhost/v1/tensors/w:fill?wait=60'
expect 200 GET '/v1/operations?state=queued'
expect_json '.operations | length' 2
FOURTH=$(jq -r '.operations[1].id' <<<"$BODY")
# Deadlines: an expired one has no effect, a later one cancels.
refused 504 OPERATION_DEADLINE grpc-timeout POST /v1/tensors/free:fill '{"value":5}' -H 'grpc-timeout: 1n'
expect 504 POST '/v1/tensors/w:fill?wait=20' '{"value":5}' -H 'grpc-timeout: 500m'
expect_json '.operation.state' cancelled
expect_json '.error.details[0].reason' OPERATION_DEADLINE
release
expect 200 POST "/v1/operations/$QUEUED:wait?wait=20"
expect 200 POST "/v1/operations/$FOURTH:wait?wait=20"
expect_json .state succeeded
expect_values '[4,4]' w 0 2

# Creates and deletes past their wait
hold 30
expect 202 DELETE '/v1/tensors/w?wait=0'
DELETE=$(jq -r .id <<<"$BODY")
expect_json '[.verb,.state]' '["delete","queued"]'
expect 202 DELETE '/v1/groups/g?force=true&wait=0.2'
GROUP=$(jq -r .id <<<"$BODY")
release
expect 200 POST "/v1/operations/$DELETE:wait?wait=20"
expect 200 POST "/v1/operations/$GROUP:wait?wait=20"
expect_json '[.state,.target]' '["succeeded","groups/g"]'
refused 404 GROUP_NOT_FOUND - GET /v1/groups/g
BODY=$(request POST '/v1/groups?wait=0' '{"id":"later","devices":"all"}')
case $(code) in
201) ;;
202) expect 200 POST "/v1/operations/$(jq -r .id <<<"$BODY"):wait?wait=20" ;;
*) fail "a create without a wait answers $(code)" ;;
esac
expect 200 GET /v1/groups/later
# A create that fails carries its operation.
make_tensor large later uint8 "[$((40 * MIB))]"
expect 429 POST /v1/tensors "{\"id\":\"more\",\"group\":\"later\",\"dtype\":\"uint8\",\"shape\":[$((40 * MIB))]}"
expect_json '[.error.details[0].reason, (.operation.state // "failed")]' '["GPU_MEMORY_EXHAUSTED","failed"]'

refusals <<'CASES'
404 OPERATION_NOT_FOUND - GET /v1/operations/none -
404 OPERATION_NOT_FOUND - POST /v1/operations/none:wait -
404 OPERATION_NOT_FOUND - POST /v1/operations/none:cancel -
400 INVALID_QUERY wait POST /v1/operations/none:wait?wait=1s -
400 UNKNOWN_FIELD x POST /v1/operations/none:cancel {"x":1}
405 METHOD_NOT_ALLOWED - DELETE /v1/operations/none -
CASES
server_stop
