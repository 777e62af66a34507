# Beside lib.sh, for tests that are lists of cases.

# refused CODE REASON FIELD METHOD PATH [JSON body] [curl options...]: the refusal, and the field it names
# ("-": none). Every refusal has a message.
refused() {
    local code=$1 reason=$2 field=$3
    shift 3
    [ "$field" != - ] || field=
    expect_error "$code" "$reason" "$@"
    expect_json '.error.details[0].field // ""' "$field"
    expect_json '.error.message | length > 0' true
}

# refusals [METHOD PATH]: run a table from standard input, one case a line:
#   CODE REASON FIELD BODY            with METHOD and PATH given
#   CODE REASON FIELD METHOD PATH BODY    without
# A body "-" is none. Lines that begin with # are titles.
refusals() {
    local code reason field method=${1:-} path=${2:-} body
    while read -r code reason field body; do
        case "$code" in
        '' | \#*) continue ;;
        esac
        if [ $# = 0 ]; then
            read -r method path body <<<"$body"
        fi
        [ "$body" != - ] || body=
        refused "$code" "$reason" "$field" "$method" "$path" "$body"
    done
}

# make_group ID [JSON of devices]: of the four devices; on real ones as many ranks, all on the first.
make_group() {
    local devices=${2:-\"all\"}
    if [ "$TEST_DRIVER" != software ]; then
        devices=$(sed 's/"all"/[0,1,2,3]/; s/[0-9][0-9]*/0/g' <<<"$devices")
    fi
    expect 201 POST /v1/groups "{\"id\":\"$1\",\"devices\":$devices}"
}

# make_tensor ID GROUP DTYPE SHAPE [more members]
make_tensor() {
    expect 201 POST /v1/tensors \
        "{\"id\":\"$1\",\"group\":\"$2\",\"dtype\":\"$3\",\"shape\":$4${5:+,$5}}"
}

# values TENSOR RANK [COUNT]: the first elements as one line of JSON.
values() {
    request GET "/v1/tensors/$1/shards/$2/data?count=${3:-16}" '' -H 'Accept: application/json' |
        jq -c .values
}

# expect_values WANT TENSOR RANK [COUNT]
expect_values() {
    local want=$1 got
    shift
    got=$(values "$@")
    [ "$got" = "$want" ] || fail "values of $1 rank $2: $got instead of $want"
}

# accounting: everything that a refusal must not change.
accounting() {
    request GET /v1/devices | jq -Sc '[.devices[].memory]'
    request GET '/v1/groups?page_size=1000' | jq -Sc '[.groups[]|{id,uid,etag,tensors_count}]'
    request GET '/v1/tensors?page_size=1000' | jq -Sc '[.tensors[]|{id,uid,etag,contents,shards}]'
}

# put FILE TENSOR RANK [QUERY] [curl options...]: print the code, the body goes to $WORK/body.
put() {
    local file=$1 tensor=$2 rank=$3 query=${4:-}
    shift $(($# < 4 ? $# : 4))
    curl -s --max-time 30 --unix-socket "$SOCKET" -o "$WORK/body" -w '%{http_code}' -T "$file" "$@" \
        "http://localhost/v1/tensors/$tensor/shards/$rank/data$query" || true
}

# expect_put CODE FILE TENSOR RANK [QUERY] [curl options...]: the body goes to $BODY.
expect_put() {
    local want=$1 got
    shift
    got=$(put "$@")
    BODY=$(cat "$WORK/body")
    [ "$got" = "$want" ] || fail "PUT $*: $got instead of $want: $BODY"
}

# get FILE TENSOR RANK [QUERY] [curl options...]: the body goes to FILE, the head to $WORK/head; prints the code.
get() {
    local file=$1 tensor=$2 rank=$3 query=${4:-}
    shift $(($# < 4 ? $# : 4))
    rm -f "$file" "$WORK/head"
    curl -s --max-time 30 --unix-socket "$SOCKET" -o "$file" -D "$WORK/head" -w '%{http_code}' "$@" \
        "http://localhost/v1/tensors/$tensor/shards/$rank/data$query" || true
    [ -e "$file" ] || : >"$file"
}

# expect_get CODE FILE TENSOR RANK [QUERY] [curl options...]
expect_get() {
    local want=$1 got
    shift
    got=$(get "$@")
    [ "$got" = "$want" ] || fail "GET $*: $got instead of $want: $(head -c 300 "$1")"
}

# head_value NAME: a header of the last get().
head_value() { sed -n "s/^$1: *//Ip" "$WORK/head" | tr -d '\r'; }

# expect_head NAME WANT
expect_head() {
    local got
    got=$(head_value "$1")
    [ "$got" = "$2" ] || fail "header $1 is \"$got\" instead of \"$2\""
}

# expect_same FILE FILE TITLE
expect_same() { cmp -s "$1" "$2" || fail "$3: the bytes differ"; }

# python ARGS...: the one that has numpy.
python() { "${PYTHON:-/usr/bin/python3}" "$@"; }
