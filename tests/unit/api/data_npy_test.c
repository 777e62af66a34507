#include "tests/support/leak_check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/data/npy.h"

/** A file's begin of version @p major around a dictionary; sized exactly, so that ASan sees a read
 * behind it. */
static char *file_make(int major, const char *dictionary, size_t *ret_bytes)
{
    size_t length = strlen(dictionary), prelude = major == 1 ? 10 : 12;
    char *file = malloc(prelude + length);
    assert_non_null(file);
    memcpy(file, "\x93NUMPY", 6);
    file[6] = (char)major;
    file[7] = 0;
    for (size_t i = 0; i < prelude - 8; i++) {
        file[8 + i] = (char)(length >> (8 * i));
    }
    memcpy(file + prelude, dictionary, length);
    *ret_bytes = prelude + length;
    return file;
}

static enum st_status read_dictionary(int major, const char *dictionary, struct data_npy *npy,
                                      struct st_error *err)
{
    size_t bytes, header_bytes = 0;
    char *file = file_make(major, dictionary, &bytes);
    enum st_status status = data_npy_measure(file, bytes, &header_bytes, err);
    if (status == ST_OK) {
        assert_int_equal(header_bytes, bytes);
        status = data_npy_parse(file, bytes, npy, err);
    }
    free(file);
    return status;
}

static const struct {
    const char *dictionary;
    const char *descr;
    bool fortran_order;
    struct st_shape shape;
} good[] = {
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }      \n",
     "<f4",
     false,
     {2, {3, 4}}},
    {"{'descr': '|b1', 'fortran_order': True, 'shape': (7,), }\n", "|b1", true, {1, {7}}},
    {"{'descr': '<i8', 'fortran_order': False, 'shape': (), }\n", "<i8", false, {0, {0}}},
    {"{\"shape\":(1,2,3,),\"fortran_order\":False,\"descr\":\"<u2\"}",
     "<u2",
     false,
     {3, {1, 2, 3}}},
    {"{'descr':'<f8','fortran_order':False,'shape':(0,5)}\n", "<f8", false, {2, {0, 5}}},
    {"{'descr':'<f8','fortran_order':False,'shape':(1,2,3,4,5,6,7,8)}",
     "<f8",
     false,
     {8, {1, 2, 3, 4, 5, 6, 7, 8}}},
    {"{'descr':'<f8','fortran_order':False,'shape':(9223372036854775807,)}",
     "<f8",
     false,
     {1, {INT64_MAX}}},
};

static void a_header_as_numpy_writes_it_is_read(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        for (int major = 1; major <= 3; major++) {
            struct data_npy npy;
            struct st_error error = {0};
            if (read_dictionary(major, good[i].dictionary, &npy, &error) != ST_OK) {
                fail_msg("case %zu: %s", i, error.message);
            }
            assert_string_equal(npy.descr, good[i].descr);
            assert_int_equal(npy.fortran_order, good[i].fortran_order);
            assert_true(st_shape_equal(&npy.shape, &good[i].shape));
        }
    }
}

static const char *const bad_dictionaries[] = {
    "                         ",
    "[]                       ",
    "{}                       ",
    "{'descr':'<f4','fortran_order':False,'shape':(3,)",
    "{'descr':'<f4','fortran_order':False,'shape':(3}",
    "{'descr':'<f4','fortran_order':False,'shape':(3,)} x",
    "{'descr':'<f4','fortran_order':False}",
    "{'descr':'<f4','shape':(3,)}",
    "{'fortran_order':False,'shape':(3,)}",
    "{'descr':'<f4','descr':'<f4','fortran_order':False,'shape':(3,)}",
    "{'descr':'<f4','fortran_order':False,'shape':(3,),'more':1}",
    "{'descr':'<f4' 'fortran_order':False,'shape':(3,)}",
    "{'descr':'<f4',,'fortran_order':False,'shape':(3,)}",
    "{'descr':'<f4\",'fortran_order':False,'shape':(3,)}",
    "{'descr':'<f4\\x41','fortran_order':False,'shape':(3,)}",
    "{'descr':'a descr longer than any','fortran_order':False,'shape':(3,)}",
    "{'descr':[('a','<f4')],'fortran_order':False,'shape':(3,)}",
    "{'descr':'<f4','fortran_order':false,'shape':(3,)}",
    "{'descr':'<f4','fortran_order':0,'shape':(3,)}",
    "{'descr':'<f4','fortran_order':False,'shape':(3)}",
    "{'descr':'<f4','fortran_order':False,'shape':[3]}",
    "{'descr':'<f4','fortran_order':False,'shape':3}",
    "{'descr':'<f4','fortran_order':False,'shape':(-3,)}",
    "{'descr':'<f4','fortran_order':False,'shape':(3L,)}",
    "{'descr':'<f4','fortran_order':False,'shape':(03,)}",
    "{'descr':'<f4','fortran_order':False,'shape':(3,,4)}",
    "{'descr':'<f4','fortran_order':False,'shape':(,)}",
    "{'descr':'<f4','fortran_order':False,'shape':(3 4)}",
    "{'descr':'<f4','fortran_order':False,'shape':(9223372036854775808,)}",
    "{'descr':'<f4','fortran_order':False,'shape':(1,2,3,4,5,6,7,8,9)}",
    "{'descr':'<f4','fortran_order':False,'shape':(3,)}\t",
    "x",
};

static void a_header_that_is_anything_else_is_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(bad_dictionaries) / sizeof(bad_dictionaries[0]); i++) {
        struct data_npy npy;
        struct st_error error = {0};
        if (read_dictionary(1, bad_dictionaries[i], &npy, &error) == ST_OK) {
            fail_msg("accepted: %s", bad_dictionaries[i]);
        }
        assert_int_equal(error.reason, ST_REASON_NPY_INVALID);
    }
}

static void a_file_that_is_no_npy_file_is_refused_by_its_first_bytes(void **state)
{
    (void)state;
    static const struct {
        const char *bytes; /* [12] */
    } starts[] = {
        {"\x93NUMPX\x01\x00\x40\x00{'"},       /* magic */
        {"\x93NUMPY\x00\x00\x40\x00{'"},       /* version 0 */
        {"\x93NUMPY\x04\x00\x40\x00{'"},       /* version 4 */
        {"\x93NUMPY\x01\x01\x40\x00{'"},       /* version 1.1 */
        {"\x93NUMPY\x01\x00\xff\xff{'"},       /* more than 64 KiB with its prelude */
        {"\x93NUMPY\x02\x00\xff\xff\xff\xff"}, /* 4 GiB */
        {"\x93NUMPY\x01\x00\x01\x00{}"},       /* too short for anything */
    };
    size_t header_bytes;
    struct st_error error;
    for (size_t i = 0; i < sizeof(starts) / sizeof(starts[0]); i++) {
        assert_int_not_equal(data_npy_measure(starts[i].bytes, 12, &header_bytes, &error), ST_OK);
        assert_int_equal(error.reason, ST_REASON_NPY_INVALID);
    }
    assert_int_not_equal(data_npy_measure("\x93NUMPY\x01\x00\x40\x00{", 11, &header_bytes, &error),
                         ST_OK);
}

static void what_is_written_is_read_back(void **state)
{
    (void)state;
    static const struct st_shape shapes[] = {
        {0, {0}},
        {1, {0}},
        {1, {7}},
        {2, {1024, 1024}},
        {3, {1, 0, 9}},
        {8,
         {INT64_MAX, INT64_MAX, INT64_MAX, INT64_MAX, INT64_MAX, INT64_MAX, INT64_MAX, INT64_MAX}},
    };
    for (int dtype = 0; dtype < ST_DTYPE_COUNT; dtype++) {
        for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
            char buffer[DATA_NPY_HEADER_WRITTEN_MAX];
            struct data_npy npy;
            struct st_error error;
            size_t measured;
            if (data_npy_check_dtype((enum st_dtype)dtype, &error) != ST_OK) {
                assert_int_equal(error.reason, ST_REASON_NPY_DTYPE);
                continue;
            }
            size_t bytes = data_npy_write((enum st_dtype)dtype, &shapes[i], buffer);
            assert_int_equal(bytes % 64, 0);
            assert_int_equal(buffer[bytes - 1], '\n');
            assert_int_equal(data_npy_measure(buffer, bytes, &measured, &error), ST_OK);
            assert_int_equal(measured, bytes);
            assert_int_equal(data_npy_parse(buffer, bytes, &npy, &error), ST_OK);
            assert_string_equal(npy.descr, st_dtype_info((enum st_dtype)dtype)->npy);
            assert_true(st_shape_equal(&npy.shape, &shapes[i]));
            assert_false(npy.fortran_order);
        }
    }
}

static void a_file_fits_a_tensor_of_its_dtype_shape_and_order_only(void **state)
{
    (void)state;
    static const struct {
        struct data_npy npy;
        enum st_dtype dtype;
        struct st_shape shape;
        struct st_strides strides;
        bool fits, logical;
        const char *field;
    } rows[] = {
        {{"<f4", false, {2, {2, 3}}}, ST_DTYPE_FLOAT32, {2, {2, 3}}, {{3, 1}}, true, true, ""},
        {{"<f4", false, {2, {2, 3}}}, ST_DTYPE_FLOAT32, {2, {2, 3}}, {{1, 2}}, true, true, ""},
        {{"<f4", true, {2, {2, 3}}}, ST_DTYPE_FLOAT32, {2, {2, 3}}, {{1, 2}}, true, false, ""},
        {{"<f4", true, {2, {2, 3}}},
         ST_DTYPE_FLOAT32,
         {2, {2, 3}},
         {{3, 1}},
         false,
         true,
         "fortran_order"},
        {{"<f4", true, {1, {6}}}, ST_DTYPE_FLOAT32, {1, {6}}, {{1}}, true, true, ""},
        {{"<f4", true, {3, {1, 6, 1}}},
         ST_DTYPE_FLOAT32,
         {3, {1, 6, 1}},
         {{6, 1, 1}},
         true,
         true,
         ""},
        {{"<f4", true, {2, {0, 6}}}, ST_DTYPE_FLOAT32, {2, {0, 6}}, {{6, 1}}, true, true, ""},
        {{"<f4", false, {2, {3, 2}}},
         ST_DTYPE_FLOAT32,
         {2, {2, 3}},
         {{3, 1}},
         false,
         true,
         "shape"},
        {{"<f4", false, {1, {6}}}, ST_DTYPE_FLOAT32, {2, {2, 3}}, {{3, 1}}, false, true, "shape"},
        {{">f4", false, {1, {6}}}, ST_DTYPE_FLOAT32, {1, {6}}, {{1}}, false, true, "descr"},
        {{"<f8", false, {1, {6}}}, ST_DTYPE_FLOAT32, {1, {6}}, {{1}}, false, true, "descr"},
        {{"<u2", false, {1, {6}}}, ST_DTYPE_BFLOAT16, {1, {6}}, {{1}}, false, true, ""},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        bool logical = true;
        struct st_error error = {0};
        enum st_status status = data_npy_check(&rows[i].npy, rows[i].dtype, &rows[i].shape,
                                               &rows[i].strides, &logical, &error);
        if ((status == ST_OK) != rows[i].fits || (rows[i].fits && logical != rows[i].logical) ||
            strcmp(error.field, rows[i].field) != 0) {
            fail_msg("row %zu: %s", i, error.message);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_header_as_numpy_writes_it_is_read),
        cmocka_unit_test(a_header_that_is_anything_else_is_refused),
        cmocka_unit_test(a_file_that_is_no_npy_file_is_refused_by_its_first_bytes),
        cmocka_unit_test(what_is_written_is_read_back),
        cmocka_unit_test(a_file_fits_a_tensor_of_its_dtype_shape_and_order_only),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
