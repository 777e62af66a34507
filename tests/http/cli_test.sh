#!/usr/bin/env bash
# The command line against the real server: its commands come from the route tables, so this goes through
# each kind once: list, create, show, verb, data in and out, refusals and their exit codes.
. "$(dirname "$0")/lib.sh"

SYMTENSOR=${SYMTENSOR:-$(dirname "$SYMTENSORD")/symtensor}
server_start
export SYMTENSOR_UNIX_SOCKET=$SOCKET

# exits CODE WORDS...: run the command line; its output goes to $OUT, its errors to $ERR.
exits() {
    local want=$1 got=0
    shift
    OUT=$("$SYMTENSOR" "$@" 2>"$WORK/cli_errors") || got=$?
    ERR=$(cat "$WORK/cli_errors")
    [ "$got" = "$want" ] || fail "symtensor $*: exit $got instead of $want: $OUT $ERR"
}
says() {
    case "$OUT$ERR" in
    *"$1"*) ;;
    *) fail "expected '$1' in: $OUT $ERR" ;;
    esac
}

exits 0 help
says "tensors all_reduce TENSOR"
exits 0 help groups
says "--devices"
exits 0 help data
says "unless the tensor has this generation"
exits 0 help tensors
says "unless the tensor that is written has this generation"
exits 0 groups create --id g --devices all
exits 0 --output json tensors create --id t --group g --dtype float32 --shape '[6]' --labels '{"k":"v"}'
says '"shard_bytes": 24'
exits 0 tensors list --label.k=v
says "float32"
exits 0 tensors list --label.k=other
[ -z "$OUT" ] || fail "a label that no tensor has lists: $OUT"
exits 0 tensors fill t --value 1.5
exits 0 tensors all_reduce t --op sum --wait 5
says two_shot
exits 0 data get t 3 --format json
says '"values":[6,6,6,6,6,6]'

printf '\0\0\200?\0\0\0@\0\0@@\0\0\200@\0\0\240@\0\0\300@' >"$WORK/raw" # 1 2 3 4 5 6
exits 0 data put t 1 --file "$WORK/raw"
exits 0 data get t 1 --file "$WORK/back"
cmp "$WORK/raw" "$WORK/back" || fail "what came back is not what was sent"

OUT=$("$SYMTENSOR" data put t 2 <<<"0123456789abcdefghijklm") || fail "data put from standard input"
OUT=$(printf 0123456789abcdefghijklmn | "$SYMTENSOR" data put t 2) || fail "data put from a pipe"
exits 2 tensors delete '../groups/g?force=true'
says "is not an id"

exits 1 tensors get nothing
says "NOT_FOUND"
exits 1 tensors create --group g --dtype float33 --shape '[1]'
says "dtype"
exits 2 tensors get
says "needs TENSOR"
exits 2 tensors get t u
exits 2 tensors get t --nonsense 1
says "no option --nonsense"
exits 2 nonsense
exits 2 --output xml node
exits 3 --unix-socket "$WORK/nobody" node
says "nobody"

exits 0 groups delete g --force true
server_stop
