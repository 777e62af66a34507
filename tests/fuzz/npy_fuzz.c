#include "tests/fuzz/fuzz.h"

#include "api/data/npy.h"

/** What was read, written and read again is the same. */
static void check_again(const struct data_npy *npy)
{
    struct data_npy again;
    char buffer[DATA_NPY_HEADER_WRITTEN_MAX];
    size_t measured;
    for (int dtype = 0; dtype < ST_DTYPE_COUNT; dtype++) {
        const char *name = st_dtype_info((enum st_dtype)dtype)->npy;
        if (!name || strcmp(name, npy->descr) != 0) {
            continue;
        }
        size_t bytes = data_npy_write((enum st_dtype)dtype, &npy->shape, buffer);
        fuzz_check(data_npy_measure(buffer, bytes, &measured, NULL) == ST_OK && measured == bytes);
        fuzz_check(data_npy_parse(buffer, bytes, &again, NULL) == ST_OK);
        fuzz_check(st_shape_equal(&again.shape, &npy->shape));
        uint64_t elements, size_bytes;
        bool logical;
        struct st_strides strides;
        if (st_shape_measure(&npy->shape, (enum st_dtype)dtype, &elements, &size_bytes, NULL) ==
            ST_OK) {
            st_shape_row_major(&npy->shape, &strides);
            enum st_status status =
                data_npy_check(npy, (enum st_dtype)dtype, &npy->shape, &strides, &logical, NULL);
            fuzz_check(status == ST_OK || npy->fortran_order);
        }
        return;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    size_t header_bytes;
    struct data_npy npy;
    char *file = malloc(size ? size : 1);
    fuzz_check(file != NULL);
    memcpy(file, data, size);
    if (data_npy_measure(file, size, &header_bytes, NULL) == ST_OK && header_bytes <= size) {
        /* A block of exactly the header: nothing behind it may be read. */
        char *header = malloc(header_bytes);
        fuzz_check(header != NULL);
        memcpy(header, file, header_bytes);
        if (data_npy_parse(header, header_bytes, &npy, NULL) == ST_OK) {
            fuzz_check(npy.shape.rank <= ST_SHAPE_RANK_MAX);
            check_again(&npy);
        }
        free(header);
    }
    free(file);
    return 0;
}
