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

# A refused or broken-off download leaves the old file and nothing beside it; stdout works as "-" too.
mkdir "$WORK/files"
echo precious >"$WORK/files/keep"
# only_keep WHEN: the folder holds the old file alone.
only_keep() {
    [ "$(ls -A "$WORK/files")" = keep ] || fail "$1: beside the file: $(ls -A "$WORK/files")"
    [ "$(cat "$WORK/files/keep")" = precious ] || fail "$1: the old file is gone"
}
exits 1 data get nope 0 --format npy --file "$WORK/files/keep"
only_keep "refused"
exits 1 data get nope 0 --file "$WORK/files/new"
only_keep "refused, a new file"
exits 3 --unix-socket "$WORK/nobody" data get t 0 --file "$WORK/files/keep"
only_keep "no server"
python3 - "$WORK/half" <<'END' & # half of a reply, then the end; then half of one and no end
import socket, sys, time
with socket.socket(socket.AF_UNIX) as listener:
    listener.bind(sys.argv[1])
    listener.listen()
    for pause in (0, 30):
        connection, _ = listener.accept()
        connection.recv(4096)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n" + b"x" * 50)
        time.sleep(pause)
        connection.close()
END
HALF=$!
for _ in $(seq 100); do [ -S "$WORK/half" ] || sleep 0.1; done
exits 3 --unix-socket "$WORK/half" data get t 0 --file "$WORK/files/keep"
only_keep "broken off"
"$SYMTENSOR" --unix-socket "$WORK/half" data get t 0 --file "$WORK/files/keep" 2>"$WORK/cli_errors" &
GET=$!
for _ in $(seq 100); do [ "$(ls -A "$WORK/files" | wc -l)" = 2 ] || sleep 0.1; done
[ "$(ls -A "$WORK/files" | wc -l)" = 2 ] || fail "no temporary file while a download runs"
kill -TERM "$GET"
wait "$GET" 2>/dev/null && fail "a terminated download exits 0"
only_keep "terminated"
kill "$HALF"
wait "$HALF" 2>/dev/null
chmod 0640 "$WORK/files/keep"
ln -s files/keep "$WORK/link"
exits 0 data get t 1 --file "$WORK/link"
cmp "$WORK/raw" "$WORK/files/keep" || fail "a symbolic link is not followed"
[ -L "$WORK/link" ] || fail "a symbolic link is replaced"
[ "$(stat -c %a "$WORK/files/keep")" = 640 ] || fail "the mode is not kept"
"$SYMTENSOR" data get t 1 --file - | cmp - "$WORK/raw" || fail "--file - is not standard output"
[ ! -e ./- ] || fail "there is a file called -"
mkfifo "$WORK/pipe"
timeout 10 cat "$WORK/pipe" >"$WORK/piped" &
PIPED=$!
exits 0 data get t 1 --file "$WORK/pipe"
wait "$PIPED" || fail "a pipe is not written"
[ -p "$WORK/pipe" ] || fail "a pipe is replaced"
cmp "$WORK/piped" "$WORK/raw" || fail "a pipe gets something else"
"$SYMTENSOR" data put t 1 --file - <"$WORK/raw" >/dev/null || fail "--file - is not standard input"
exits 2 data get t 1 --file "$WORK/no/folder"
says "cannot write $WORK/no/folder: No such file"

exits 2 data get t 0 --format xml
says "no format 'xml'; there are: raw npy json"
exits 2 data put t 0 --format json --file "$WORK/raw"
says "no format 'json'; there are: raw npy"
exits 2 tensors list --format npy
says "no option --format"

# Without a verb: the list, or the thing itself.
for noun in tensors groups operations devices multicast_groups; do
    exits 0 "$noun"
    list=$OUT
    exits 0 "$noun" list
    [ "$OUT" = "$list" ] || fail "symtensor $noun is not symtensor $noun list"
done
exits 0 tensors --label.k=v
says "float32"
exits 0 devices 0
says "ordinal"

# --output of every command, and that of a collective.
exits 0 tensors --output json
says '"tensors": ['
exits 0 tensors --output=json get t
says '"id": "t"'
exits 0 tensors get t --output json
says '"id": "t"'
exits 2 tensors all_reduce t --output json
says "symtensor --output json tensors all_reduce"
exits 1 tensors all_reduce t --output '"json"' --wait 5
says "NOT_FOUND"
exits 0 tensors create --id o --group g --dtype float32 --shape '[6]'
exits 0 tensors all_reduce t --output o --wait 5
exits 2 tensors get t --output xml
says "json"

exits 0 tensors delete --force o
exits 2 tensors delete t --force true t
says "unexpected argument 't'"
exits 2 tensors create --id
says "--id needs a value"

# Help.
for words in --help -h help; do
    exits 0 $words
    says "usage: symtensor"
    exits 0 $words tensors
    says "tensors all_reduce TENSOR"
done
for words in "tensors --help" "tensors -h" "--output json tensors --help"; do
    exits 0 $words
    says "tensors all_reduce TENSOR"
    says "tensors create"
done
exits 0 tensors create --help
says "--dtype"
case "$OUT" in *all_reduce*) fail "help of a verb shows others" ;; esac
exits 0 help tensors
for option in wait json force output dtype; do
    [ "$(grep -c "^ *--$option " <<<"$OUT")" = 1 ] || fail "--$option is not printed once: $OUT"
done
exits 0 help data
says "--file"
says "--format"
exits 2 help nope
says "nothing is called 'nope'; there are:"
says "tensors"
exits 2 help tensors nope
says "no such command: 'tensors nope'; tensors has:"
exits 0 --version
says "symtensor "
case "$OUT" in *[0-9].[0-9]*) ;; *) fail "no version: $OUT" ;; esac

# The wrong word is the one that is blamed.
exits 2 tensor get t
says "nothing is called 'tensor'; there are:"
exits 2 tensors gett t
says "no such command: 'tensors gett'"
exits 2 groups creat --id h
says "no such command: 'groups creat'"
exits 2 version x y
says "no such command: 'version x'"
exits 2 --nonsense
says "no option --nonsense"

# No server: which socket, and why.
exits 3 --unix-socket "$WORK/nobody" devices
says "$WORK/nobody: there is no such socket; start a server with: symtensord --unix-socket $WORK/nobody"
python3 -c 'import socket, sys; socket.socket(socket.AF_UNIX).bind(sys.argv[1])' "$WORK/left"
exits 3 --unix-socket "$WORK/left" devices
says "$WORK/left: no server listens on this socket"
if [ "$(id -u)" != 0 ]; then
    chmod 0 "$WORK/left"
    exits 3 --unix-socket "$WORK/left" devices
    says "$WORK/left: no permission"
fi

exits 0 groups delete g --force
server_stop
