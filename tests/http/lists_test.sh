#!/usr/bin/env bash
# Lists: pages, tokens, filters.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/cases.sh"
server_start
make_group a
make_group b '[0]'

batch() { # batch PREFIX COUNT GROUP LABELS
    local i items=
    for i in $(seq "$2"); do
        items+=${items:+,}$(printf '{"id":"%s%03d","group":"%s","dtype":"int8","shape":[1],"labels":%s}' "$1" "$i" "$3" "$4")
    done
    expect 200 POST /v1/tensors:batch_create "{\"tensors\":[$items]}"
}
batch x 120 a '{"env":"prod","half":"1"}'
batch y 40 b '{"env":"test"}'

# walk PATH KEY: all ids of all pages, one a line; also checks that no page is larger than page_size.
walk() {
    local token= page
    while :; do
        page=$(request GET "$1${token:+&page_token=$token}")
        [ "$(code)" = 200 ] || {
            echo "page: $(code) $page"
            return
        }
        jq -r ".$2[].id" <<<"$page"
        token=$(jq -r .next_page_token <<<"$page")
        [ -n "$token" ] || return
    done
}
expect_walk() { # expect_walk COUNT PATH [KEY]
    local got
    walk "$2" "${3:-tensors}" >"$WORK/ids"
    got=$(wc -l <"$WORK/ids")
    [ "$got" = "$1" ] || fail "$2 lists $got instead of $1: $(tail -n 1 "$WORK/ids")"
    LC_ALL=C sort -c "$WORK/ids" 2>/dev/null || fail "$2 is not in the order of ids"
    [ -z "$(uniq -d "$WORK/ids")" ] || fail "$2 lists an id twice"
}
expect_walk 160 '/v1/tensors?page_size=7'
expect_walk 160 '/v1/tensors?page_size=0'
expect_walk 160 '/v1/tensors?page_size=160'
expect_walk 160 '/v1/tensors?page_size=4000000000'
expect_walk 40 '/v1/tensors?group=b&page_size=39'
expect_walk 120 '/v1/tensors?label.env=prod&page_size=50'
expect_walk 120 '/v1/tensors?label.env=prod&label.half=1&page_size=1000'
expect_walk 0 '/v1/tensors?label.env=prod&label.half=2&page_size=5'
expect_walk 0 '/v1/tensors?group=b&label.env=prod&page_size=5'
expect_walk 160 '/v1/tensors?state=ready&page_size=50'
expect_walk 0 '/v1/tensors?state=failed&page_size=50'
expect_walk 0 '/v1/tensors?group=none&page_size=50'
expect_walk 2 '/v1/groups?page_size=1' groups
expect_walk 2 '/v1/groups?state=ready&page_size=1' groups
expect 200 GET /v1/tensors
expect_json '.tensors | length' 50
expect_json '.next_page_token | test("^[A-Za-z0-9_-]+$")' true
expect_json '.tensors[0] | has("uid") and has("shards")' true
TOKEN=$(jq -r .next_page_token <<<"$BODY")

# A token goes on where its page ended, also when that item has gone since; another page_size is allowed.
expect 204 DELETE /v1/tensors/x050
expect 200 GET "/v1/tensors?page_token=$TOKEN&page_size=2"
expect_json '[.tensors[].id]' '["x051","x052"]'
# It is bound to the list and the filters that it was made with.
refusals <<CASES
400 INVALID_PAGE_TOKEN page_token GET /v1/groups?page_token=$TOKEN -
400 INVALID_PAGE_TOKEN page_token GET /v1/operations?page_token=$TOKEN -
400 INVALID_PAGE_TOKEN page_token GET /v1/tensors?group=a&page_token=$TOKEN -
400 INVALID_PAGE_TOKEN page_token GET /v1/tensors?state=ready&page_token=$TOKEN -
400 INVALID_PAGE_TOKEN page_token GET /v1/tensors?label.env=prod&page_token=$TOKEN -
400 INVALID_PAGE_TOKEN page_token GET /v1/tensors?page_token=${TOKEN}A -
400 INVALID_PAGE_TOKEN page_token GET /v1/tensors?page_token=$(tr A-Za-z B-ZAb-za <<<"$TOKEN") -
400 INVALID_PAGE_TOKEN page_token GET /v1/tensors?page_token=x050 -
# Parameters
400 INVALID_QUERY page_size GET /v1/tensors?page_size=-1 -
400 INVALID_QUERY page_size GET /v1/tensors?page_size=ten -
400 INVALID_QUERY page_size GET /v1/tensors?page_size=1.5 -
400 INVALID_QUERY page_size GET /v1/tensors?page_size=1&page_size=1 -
400 INVALID_QUERY state GET /v1/tensors?state=happy -
400 INVALID_QUERY state GET /v1/operations?state=ready -
400 INVALID_QUERY group GET /v1/tensors?group=a/b -
400 INVALID_QUERY filter GET /v1/tensors?filter=x -
400 INVALID_QUERY group GET /v1/groups?group=a -
400 INVALID_QUERY label.env GET /v1/tensors?label.env=a&label.env=b -
400 INVALID_QUERY label. GET /v1/tensors?label.=b -
CASES

# Operations, in the order of their acceptance
for i in 1 2 3; do
    expect 200 POST /v1/tensors/y00$i:fill '{"value":1}'
done
expect 200 POST /v1/tensors/x001:fill '{"value":1}'
request GET '/v1/operations?page_size=1000' | jq -r '.operations[].create_time' >"$WORK/times"
sort -c "$WORK/times" 2>/dev/null || fail "operations are not in the order of their acceptance"
expect 200 GET '/v1/operations?group=b&page_size=1000'
expect_json '[.operations[] | select(.verb == "fill") | .target]' '["tensors/y001","tensors/y002","tensors/y003"]'
expect 200 GET '/v1/operations?state=running'
expect_json '.operations' '[]'
walk '/v1/operations?page_size=2' operations | sort | uniq -d | grep -q . && fail "an operation is listed twice"
[ "$(walk '/v1/operations?page_size=2' operations | wc -l)" = "$(wc -l <"$WORK/times")" ] || fail "pages of operations miss some"
server_stop
