# For tests/http/*.sh: the real server on a Unix socket in a folder of its own, on software devices.
#
#   . "$(dirname "$0")/lib.sh"
#   server_start [options...]        # sets SERVER_PID, SOCKET, LOG, WORK
#   body=$(request GET /v1/groups)   # prints the body; the code is in $CODE_FILE, see code()
#   expect 201 POST /v1/groups '{"devices":"all"}'
#   server_stop                      # SIGTERM; asserts exit 0 and that nothing is left
#
# SYMTENSORD names the program. With SYMTENSOR_TEST_DRIVER=cuda the devices are real ones; see make_group() in
# cases.sh. Everything a test prints after a failure goes to standard error.
set -u

SYMTENSORD=${SYMTENSORD:-symtensord}
WORK=$(mktemp -d "${TMPDIR:-/tmp}/symtensor-http.XXXXXX")
SOCKET=$WORK/run/symtensord.sock
LOG=$WORK/log
CODE_FILE=$WORK/code
SERVER_PID=
FAILURES=0

lib_clean_up() {
    local result=$?
    if [ -n "$SERVER_PID" ] && kill -0 "$SERVER_PID" 2>/dev/null; then
        kill -KILL "$SERVER_PID"
        wait "$SERVER_PID" 2>/dev/null
    fi
    if [ "$FAILURES" != 0 ] || [ "$result" != 0 ]; then
        echo "--- server log" >&2
        tail -n 40 "$LOG" >&2 2>/dev/null
    fi
    rm -rf "$WORK"
    if [ "$result" = 0 ] && [ "$FAILURES" != 0 ]; then
        exit 1
    fi
}
trap lib_clean_up EXIT

fail() {
    echo "FAIL: $*" >&2
    FAILURES=$((FAILURES + 1))
}

TEST_DRIVER=${SYMTENSOR_TEST_DRIVER:-software}
DEVICE_OPTIONS=(--driver software --software-devices 4 --software-memory 64MiB)
# Multicast of real devices is shared with every other program of the machine: tests leave it alone. The four ranks
# share one device there, which may take what four software devices have.
[ "$TEST_DRIVER" = software ] || DEVICE_OPTIONS=(--driver "$TEST_DRIVER" --nvls=off --device-memory-limit 256MiB)

# server_spawn [options...]: start without waiting for anything.
server_spawn() {
    mkdir -p -m 0750 "$WORK/run"
    "$SYMTENSORD" "${DEVICE_OPTIONS[@]}" \
        --health-listen off --unix-socket "$SOCKET" "$@" 2>>"$LOG" &
    SERVER_PID=$!
}

# server_wait_ready: until /readyz answers 200 (30 s).
server_wait_ready() {
    local i
    for i in $(seq 300); do
        if [ -S "$SOCKET" ] &&
            curl -sf -o /dev/null --unix-socket "$SOCKET" http://localhost/readyz 2>/dev/null; then
            return 0
        fi
        if ! kill -0 "$SERVER_PID" 2>/dev/null; then
            echo "the server ended while it started" >&2
            exit 1
        fi
        sleep 0.1
    done
    echo "the server is not ready after 30 s" >&2
    exit 1
}

server_start() {
    server_spawn "$@"
    server_wait_ready
}

# server_stop: SIGTERM, exit 0 within 30 s, no socket left.
server_stop() {
    local result i
    kill -TERM "$SERVER_PID"
    for i in $(seq 300); do
        kill -0 "$SERVER_PID" 2>/dev/null || break
        sleep 0.1
    done
    if kill -0 "$SERVER_PID" 2>/dev/null; then
        fail "the server runs 30 s after SIGTERM"
        kill -KILL "$SERVER_PID"
    fi
    wait "$SERVER_PID"
    result=$?
    SERVER_PID=
    [ "$result" = 0 ] || fail "the server ended with $result after SIGTERM"
    [ ! -e "$SOCKET" ] || fail "the socket is left after the end"
}

# request METHOD PATH [JSON body] [curl options...]: prints the body; see code().
request() {
    local method=$1 path=$2
    shift 2
    local arguments=(-X "$method")
    [ "$method" != HEAD ] || arguments=(--head)
    if [ $# -gt 0 ]; then
        [ -z "$1" ] || arguments+=(--json "$1")
        shift
    fi
    : >"$WORK/body"
    curl -s --max-time 60 --unix-socket "$SOCKET" -o "$WORK/body" -w '%{http_code}' \
        "${arguments[@]}" "$@" "http://localhost$path" >"$CODE_FILE" 2>"$WORK/curl_errors"
    cat "$WORK/body"
}

code() { cat "$CODE_FILE"; }

# expect CODE METHOD PATH [JSON body] [curl options...]: the body goes to $BODY.
expect() {
    local want=$1
    shift
    BODY=$(request "$@")
    local got
    got=$(code)
    [ "$got" = "$want" ] || fail "$1 $2: $got instead of $want: $BODY"
}

# expect_json JQ_FILTER WANT: of the last $BODY.
expect_json() {
    local got
    got=$(jq -rc "$1" <<<"$BODY" 2>&1)
    [ "$got" = "$2" ] || fail "$1 is $got instead of $2 in: $BODY"
}

# expect_error CODE REASON METHOD PATH [JSON body] [curl options...]
expect_error() {
    local want=$1 reason=$2
    shift 2
    expect "$want" "$@"
    expect_json '.error.details[0].reason' "$reason"
    expect_json '.error.code' "$want"
}
