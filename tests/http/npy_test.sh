#!/usr/bin/env bash
# npy both ways, made and checked by numpy.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/cases.sh"
python -c 'import numpy' 2>/dev/null || {
    echo "numpy is not installed" >&2
    exit 77
}
server_start
make_group g '[0,1]'
npy=(-H 'Content-Type: application/x-npy')

# make FILE PYTHON: save what the expression gives.
make() { python -c "import numpy as np, sys; np.save(open(sys.argv[1], 'wb'), $2)" "$1"; }
# check FILE FILE: the same dtype, shape and bits.
check() {
    python - "$1" "$2" <<'PYTHON' || fail "$3: numpy reads something else"
import sys, numpy as np
a, b = (np.load(name, allow_pickle=False) for name in sys.argv[1:3])
if a.dtype != b.dtype or a.shape != b.shape or np.ascontiguousarray(a).tobytes() != np.ascontiguousarray(b).tobytes():
    sys.exit(f"{a.dtype}{a.shape} {b.dtype}{b.shape}")
PYTHON
}

# Every dtype that npy has, in shapes of several kinds
for dtype in bool uint8 int8 int16 uint16 int32 uint32 int64 uint64 float16 float32 float64; do
    make_tensor t g $dtype '[7,11]'
    make "$WORK/in.npy" "np.random.default_rng(1).integers(0, 100, (7, 11)).astype('$dtype')"
    expect_put 200 "$WORK/in.npy" t 1 '' "${npy[@]}"
    expect_get 200 "$WORK/out.npy" t 1 '' -H 'Accept: application/x-npy'
    expect_head content-type application/x-npy
    check "$WORK/in.npy" "$WORK/out.npy" $dtype
    expect_get 200 "$WORK/raw" t 1
    tail -c "$(stat -c %s "$WORK/raw")" "$WORK/in.npy" | cmp -s - "$WORK/raw" || fail "$dtype: raw bytes differ"
    expect 204 DELETE /v1/tensors/t
done
while read -r shape numpy; do
    make_tensor t g float32 "$shape"
    make "$WORK/in.npy" "np.random.default_rng(2).random($numpy, dtype='f4')"
    expect_put 200 "$WORK/in.npy" t 0 '' "${npy[@]}"
    expect_get 200 "$WORK/out.npy" t 0 '' -H 'Accept: application/x-npy'
    check "$WORK/in.npy" "$WORK/out.npy" "$shape"
    expect 204 DELETE /v1/tensors/t
done <<'SHAPES'
[] ()
[0] (0,)
[3,0,2] (3,0,2)
[1] (1,)
[2,1,2,1,2,1,2,1] (2,1,2,1,2,1,2,1)
[700001] (700001,)
[1000,701] (1000,701)
SHAPES

# A tensor with other strides: the file is in logical order, the raw bytes are in memory order.
make_tensor columns g int32 '[3,4]' '"strides":[1,3]'
make "$WORK/in.npy" "np.arange(12, dtype='i4').reshape(3, 4)"
expect_put 200 "$WORK/in.npy" columns 0 '' "${npy[@]}"
expect_values '[0,1,2,3,4,5,6,7,8,9,10,11]' columns 0
expect_get 200 "$WORK/raw" columns 0
python -c "import numpy as np, sys; sys.exit(np.fromfile(sys.argv[1], 'i4').tolist() != np.arange(12).reshape(3, 4).T.ravel().tolist())" "$WORK/raw" || fail "raw bytes are not in memory order"
expect_get 200 "$WORK/out.npy" columns 0 '' -H 'Accept: application/x-npy'
check "$WORK/in.npy" "$WORK/out.npy" columns
# A Fortran-ordered file fits the tensor that lies so.
make "$WORK/fortran.npy" "np.asfortranarray(np.arange(12, dtype='i4').reshape(3, 4))"
expect_put 200 "$WORK/fortran.npy" columns 1 '' "${npy[@]}"
expect_values '[0,1,2,3,4,5,6,7,8,9,10,11]' columns 1
make_tensor rows g int32 '[3,4]'
make_tensor line g int32 '[12]'
make "$WORK/line.npy" "np.arange(12, dtype='i4')"
# versions 2 and 3, chunked, with a digest over the whole file
python - "$WORK" <<'PYTHON'
import sys, numpy as np
for version in (2, 3):
    with open(f"{sys.argv[1]}/v{version}.npy", "wb") as f:
        np.lib.format.write_array(f, np.arange(12, dtype="i4"), version=(version, 0))
PYTHON
for version in 2 3; do
    expect_put 200 "$WORK/v$version.npy" line 0 '' "${npy[@]}" -H 'Transfer-Encoding: chunked'
    expect_values '[0,1,2,3]' line 0 4
done
expect_put 200 "$WORK/line.npy" line 1 '' "${npy[@]}" -H "Content-Digest: sha-256=:$(openssl dgst -sha256 -binary "$WORK/line.npy" | base64 -w0):"
expect_get 200 "$WORK/out.npy" line 1 '' -H 'Accept: application/x-npy' -H 'Want-Repr-Digest: sha-256=5'
expect_head repr-digest "sha-256=:$(openssl dgst -sha256 -binary "$WORK/out.npy" | base64 -w0):"
check "$WORK/line.npy" "$WORK/out.npy" "with a digest"

# Files that are refused: nothing has changed afterwards
head -c 100 "$WORK/line.npy" >"$WORK/cut_header"
head -c 170 "$WORK/line.npy" >"$WORK/cut_data"
(cat "$WORK/line.npy" && printf x) >"$WORK/longer"
head -c 176 /dev/zero >"$WORK/zeros"
make "$WORK/float.npy" "np.arange(12, dtype='f4')"
make "$WORK/swapped.npy" "np.arange(12, dtype='>i4')"
make "$WORK/shape.npy" "np.arange(12, dtype='i4').reshape(4, 3)"
make "$WORK/struct.npy" "np.zeros(12, dtype=[('a', 'i4')])"
make "$WORK/object.npy" "np.array([None] * 12)"
BEFORE=$(accounting)
while read -r reason field file tensor; do
    expect_put 400 "$WORK/$file" "$tensor" 0 '' "${npy[@]}"
    expect_json '.error.details[0].reason' "$reason"
    expect_json '.error.details[0].field // "-"' "$field"
done <<'CASES'
NPY_INVALID - zeros line
NPY_INVALID - cut_header line
BODY_LENGTH_MISMATCH Content-Length cut_data line
BODY_LENGTH_MISMATCH Content-Length longer line
NPY_INVALID descr float.npy line
NPY_INVALID descr swapped.npy line
NPY_INVALID - struct.npy line
NPY_INVALID descr object.npy line
NPY_INVALID shape shape.npy rows
NPY_INVALID shape line.npy rows
NPY_INVALID fortran_order fortran.npy rows
CASES
make_tensor brain g bfloat16 '[4]'
make_tensor eight g float8_e5m2 '[4]'
for tensor in brain eight; do
    refused 400 NPY_DTYPE - GET /v1/tensors/$tensor/shards/0/data '' -H 'Accept: application/x-npy'
    expect_put 400 "$WORK/line.npy" $tensor 0 '' "${npy[@]}"
    expect_json '.error.details[0].reason' NPY_DTYPE
    expect 204 DELETE /v1/tensors/$tensor
done
refused 400 INVALID_QUERY offset GET '/v1/tensors/line/shards/0/data?offset=4' '' -H 'Accept: application/x-npy'
expect_put 400 "$WORK/line.npy" line 0 '?offset=0' "${npy[@]}"
[ "$BEFORE" = "$(accounting)" ] || fail "a refused file changed something"

# A wrong digest is known only at the end: the contents are undefined then.
expect_put 400 "$WORK/line.npy" line 0 '' "${npy[@]}" -H 'Content-Digest: sha-256=:LXEWQrcmsEQBYnyp+6wy9chTD7GQPMTbAiWHF5IaSIE=:'
expect_json '.error.details[0].reason' DIGEST_MISMATCH
refused 400 CONTENTS_UNDEFINED - GET /v1/tensors/line/shards/0/data '' -H 'Accept: application/x-npy'
expect_put 200 "$WORK/line.npy" line 0 '' "${npy[@]}"
server_stop
