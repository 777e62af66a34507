#include "tests/support/leak_check.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/shape.h"
#include "gpu/kernels/lines.h"
#include "gpu/kernels/strided.h"
#include "gpu/kernels/twin.h"
#include "tests/support/reduce_reference.h"

#define GUARD 64u
#define GUARD_BYTE 0xa5

/** @p bytes at @p shift off a line border, with guards around; free() the start. */
struct buffer {
    unsigned char *start, *data;
    size_t bytes, whole;
};

static struct buffer buffer_create(size_t bytes, size_t shift)
{
    struct buffer buffer = {.bytes = bytes, .whole = (bytes + shift + 2 * GUARD + 63) / 64 * 64};
    buffer.start = aligned_alloc(64, buffer.whole);
    assert_non_null(buffer.start);
    memset(buffer.start, GUARD_BYTE, buffer.whole);
    buffer.data = buffer.start + GUARD + shift;
    return buffer;
}

static void buffer_check_guards(const struct buffer *buffer)
{
    for (unsigned char *byte = buffer->start; byte < buffer->data; byte++) {
        assert_int_equal(*byte, GUARD_BYTE);
    }
    for (size_t i = buffer->bytes; buffer->data + i < buffer->start + buffer->whole; i++) {
        assert_int_equal(buffer->data[i], GUARD_BYTE);
    }
}

static void run_twin(const char *name, const void *params)
{
    const struct gpu_twin *twin = gpu_twin_find(name);
    for (uint64_t chunk = twin->chunks(params); chunk > 0; chunk--) {
        twin->run(params, chunk - 1, NULL);
    }
    gpu_twin_publish();
}

/** Bits of an integer in a dtype: integers wrap, floats round, bool is "not 0". */
static uint64_t integer_bits(enum st_dtype dtype, uint64_t value)
{
    const struct st_dtype_info *info = st_dtype_info(dtype);
    union st_scalar scalar = {0};
    if (info->kind == ST_KIND_BOOL) {
        return value != 0;
    }
    if (info->kind != ST_KIND_FLOAT) {
        return info->size_bytes == 8 ? value : value & ((1ull << (8 * info->size_bytes)) - 1);
    }
    if (st_dtype_from_uint64(dtype, value, &scalar)) {
        return scalar.bits;
    }
    return dtype == ST_DTYPE_FLOAT8_E4M3FN ? 0x7f : dtype == ST_DTYPE_FLOAT8_E5M2 ? 0x7c : 0x7c00;
}

/* ------------------------------------------------------------------ fill */

static void check_same(struct gpu_fill_params *params, uint64_t expected_bits, size_t shift)
{
    uint32_t size = st_dtype_info((enum st_dtype)params->dtype)->size_bytes;
    struct buffer buffer = buffer_create(params->element_count * size, shift);
    params->address = (uintptr_t)buffer.data;
    run_twin("symtensor_fill", params);
    for (uint64_t i = 0; i < params->element_count; i++) {
        assert_int_equal(test_element_bits((enum st_dtype)params->dtype, buffer.data, i),
                         expected_bits);
    }
    buffer_check_guards(&buffer);
    free(buffer.start);
}

static void fills_write_one_value_everywhere(void **state)
{
    (void)state;
    static const uint64_t counts[] = {0, 1, 7, 64, 65, 1003};
    for (unsigned dtype = 0; dtype < ST_DTYPE_COUNT; dtype++) {
        uint32_t size = st_dtype_info((enum st_dtype)dtype)->size_bytes;
        for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
            struct gpu_fill_params params = {.element_count = counts[i],
                                             .dtype = dtype,
                                             .pattern = GPU_FILL_VALUE,
                                             .value_bits = 0xf0e1d2c3b4a59687u,
                                             .row_major = 1};
            uint64_t mask = size == 8 ? UINT64_MAX : (1ull << (8 * size)) - 1;
            check_same(&params, params.value_bits & mask, i * size);
            check_same(&params, params.value_bits & mask, 3);
            params.pattern = GPU_FILL_RANK;
            params.value_bits = 37;
            check_same(&params, integer_bits((enum st_dtype)dtype, 37), i * size);
        }
    }
}

static void large_fills_bypass_the_cache_and_miss_nothing(void **state)
{
    (void)state;
    for (size_t shift = 0; shift <= 6; shift += 3) {
        struct gpu_fill_params params = {.element_count = (17u << 20) / 4 + 1,
                                         .dtype = ST_DTYPE_FLOAT32,
                                         .value_bits = 0x12345678,
                                         .row_major = 1};
        struct buffer buffer = buffer_create(params.element_count * 4, shift);
        params.address = (uintptr_t)buffer.data;
        assert_int_equal(gpu_twin_find("symtensor_fill")->chunks(&params), 18);
        run_twin("symtensor_fill", &params);
        uint32_t wrong = 0;
        for (uint64_t i = 0; i < params.element_count; i++) {
            uint32_t value;
            memcpy(&value, buffer.data + 4 * i, 4);
            wrong += value != 0x12345678;
        }
        assert_int_equal(wrong, 0);
        params.pattern = GPU_FILL_IOTA;
        run_twin("symtensor_fill", &params);
        for (uint64_t i = 0; i < params.element_count; i++) {
            float value;
            memcpy(&value, buffer.data + 4 * i, 4);
            wrong += value != (float)i;
        }
        assert_int_equal(wrong, 0);
        buffer_check_guards(&buffer);
        free(buffer.start);
    }
}

/** A shape and the order of its dimensions in memory, outermost first. */
struct layout {
    struct st_shape shape;
    uint32_t order[ST_SHAPE_RANK_MAX];
};

static const struct layout layouts[] = {
    {{1, {1000}}, {0}},
    {{0, {0}}, {0}},
    {{2, {37, 53}}, {0, 1}},
    {{2, {37, 53}}, {1, 0}},
    {{3, {5, 1, 211}}, {2, 1, 0}},
    {{3, {16, 9, 25}}, {2, 0, 1}},
    {{4, {3, 7, 11, 13}}, {1, 3, 0, 2}},
    {{4, {3, 7, 11, 13}}, {0, 2, 3, 1}},
    {{8, {2, 3, 2, 3, 2, 3, 2, 3}}, {7, 5, 3, 1, 0, 2, 4, 6}},
};
#define LAYOUTS (sizeof(layouts) / sizeof(layouts[0]))

static void layout_strides(const struct layout *layout, struct st_strides *ret)
{
    int64_t stride = 1;
    memset(ret, 0, sizeof(*ret));
    for (uint32_t i = layout->shape.rank; i > 0; i--) {
        uint32_t dim = layout->order[i - 1];
        ret->dims[dim] = layout->shape.dims[dim] == 1 ? -7 : stride; /* of 1: says nothing */
        stride *= layout->shape.dims[dim];
    }
}

static uint64_t layout_count(const struct layout *layout)
{
    uint64_t count = 1;
    for (uint32_t i = 0; i < layout->shape.rank; i++) {
        count *= (uint64_t)layout->shape.dims[i];
    }
    return count;
}

/** Where logical element @p index lies: plain arithmetic, dimension by dimension. */
static uint64_t layout_offset(const struct layout *layout, const struct st_strides *strides,
                              uint64_t index)
{
    uint64_t offset = 0;
    for (uint32_t i = layout->shape.rank; i > 0; i--) {
        uint64_t dim = (uint64_t)layout->shape.dims[i - 1];
        offset += dim == 1 ? 0 : index % dim * (uint64_t)strides->dims[i - 1];
        index /= dim;
    }
    return offset;
}

static void check_iota(enum st_dtype dtype, const struct layout *layout, bool row_major)
{
    uint32_t size = st_dtype_info(dtype)->size_bytes;
    struct st_strides strides;
    layout_strides(layout, &strides);
    struct gpu_fill_params params = {.element_count = layout_count(layout),
                                     .dtype = dtype,
                                     .pattern = GPU_FILL_IOTA,
                                     .dims_count = layout->shape.rank,
                                     .row_major = row_major};
    memcpy(params.dims, layout->shape.dims, sizeof(params.dims));
    memcpy(params.strides, strides.dims, sizeof(params.strides));
    struct buffer buffer = buffer_create(params.element_count * size, size);
    params.address = (uintptr_t)buffer.data;
    run_twin("symtensor_fill", &params);
    for (uint64_t i = 0; i < params.element_count; i++) {
        uint64_t at = row_major ? i : layout_offset(layout, &strides, i);
        assert_int_equal(test_element_bits(dtype, buffer.data, at), integer_bits(dtype, i));
    }
    buffer_check_guards(&buffer);
    free(buffer.start);
}

static void iota_is_the_logical_index_in_every_layout(void **state)
{
    (void)state;
    for (unsigned dtype = 0; dtype < ST_DTYPE_COUNT; dtype++) {
        for (size_t i = 0; i < LAYOUTS; i++) {
            check_iota((enum st_dtype)dtype, &layouts[i], false);
        }
        check_iota((enum st_dtype)dtype, &layouts[3], true);
    }
}

static void long_iotas_wrap_round_and_overflow(void **state)
{
    (void)state;
    static const struct layout long_one = {{2, {70000, 2}}, {1, 0}};
    for (unsigned dtype = 0; dtype < ST_DTYPE_COUNT; dtype++) {
        check_iota((enum st_dtype)dtype, &long_one, false);
        check_iota((enum st_dtype)dtype, &long_one, true);
    }
}

static void fill_operands_are_the_range(void **state)
{
    (void)state;
    struct gpu_fill_params params = {
        .address = 4096, .element_count = 10, .dtype = ST_DTYPE_INT32, .row_major = 1};
    const struct gpu_twin *twin = gpu_twin_find("symtensor_fill");
    struct gpu_operand operand;
    assert_int_equal(twin->operands(&params, &operand), 1);
    assert_true(operand.address == 4096 && operand.bytes == 40 && operand.write);
    assert_int_equal(twin->traffic_bytes(&params), 40);
    params.element_count = UINT64_MAX / 2;
    assert_int_equal(twin->operands(&params, &operand), 1);
    assert_true(operand.address + operand.bytes == UINT64_MAX);
    params.element_count = 0;
    assert_int_equal(twin->operands(&params, &operand), 0);
    assert_int_equal(twin->chunks(&params), 1);
}

static void fills_that_make_no_sense_are_refused(void **state)
{
    (void)state;
    static const struct gpu_fill_params bad[] = {
        {.element_count = 4, .dtype = ST_DTYPE_COUNT},
        {.element_count = 4, .pattern = 3},
        {.element_count = 4, .pattern = GPU_FILL_IOTA, .dims_count = 9},
        {.element_count = 4,
         .pattern = GPU_FILL_IOTA,
         .dims_count = 1,
         .dims = {3},
         .strides = {1}},
        {.element_count = 4,
         .pattern = GPU_FILL_IOTA,
         .dims_count = 1,
         .dims = {4},
         .strides = {2}},
        {.element_count = 4, .pattern = GPU_FILL_IOTA, .dims_count = 1, .dims = {-4}},
        {.element_count = 4,
         .pattern = GPU_FILL_IOTA,
         .dims_count = 2,
         .dims = {2, 2},
         .strides = {1, 1}},
        {.element_count = 0x100000000u,
         .pattern = GPU_FILL_IOTA,
         .dims_count = 2,
         .dims = {INT64_MAX, 4},
         .strides = {4, 1}},
    };
    const struct gpu_twin *twin = gpu_twin_find("symtensor_fill");
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct gpu_operand operand;
        assert_int_equal(twin->operands(&bad[i], &operand), 1);
        assert_true(operand.address == 0 && operand.bytes == UINT64_MAX && operand.write);
        assert_int_equal(twin->traffic_bytes(&bad[i]), 0);
        assert_int_equal(twin->chunks(&bad[i]), 1);
        twin->run(&bad[i], 0, NULL); /* touches nothing: address 0 would crash */
    }
}

/* ------------------------------------------------------------------ permute */

/** Logical elements [first, first + count) out to a packed buffer and back into an empty shard. */
static void check_permute(uint32_t size, const struct layout *layout, uint64_t first,
                          uint64_t count)
{
    uint64_t total = layout_count(layout);
    struct st_strides strides;
    layout_strides(layout, &strides);
    struct buffer shard = buffer_create(total * size, size);
    struct buffer packed = buffer_create(count * size, 2 * size);
    uint64_t seed = total;
    for (size_t i = 0; i < shard.bytes; i++) {
        shard.data[i] = (unsigned char)test_random(&seed);
    }
    struct gpu_permute_params params = {.shard = (uintptr_t)shard.data,
                                        .packed = (uintptr_t)packed.data,
                                        .first_index = first,
                                        .element_count = count,
                                        .shard_bytes = total * size,
                                        .dims_count = layout->shape.rank,
                                        .element_bytes = size};
    memcpy(params.dims, layout->shape.dims, sizeof(params.dims));
    memcpy(params.strides, strides.dims, sizeof(params.strides));
    run_twin("symtensor_permute", &params);
    for (uint64_t i = 0; i < count; i++) {
        assert_memory_equal(packed.data + i * size,
                            shard.data + layout_offset(layout, &strides, first + i) * size, size);
    }
    buffer_check_guards(&packed);

    struct buffer copy = buffer_create(total * size, size);
    memcpy(shard.start, copy.start, copy.whole);
    for (uint64_t i = 0; i < count; i++) {
        memcpy(shard.data + layout_offset(layout, &strides, first + i) * size,
               packed.data + i * size, size);
    }
    params.shard = (uintptr_t)copy.data;
    params.to_shard = 1;
    run_twin("symtensor_permute", &params);
    assert_memory_equal(copy.start, shard.start, copy.whole);
    free(shard.start);
    free(packed.start);
    free(copy.start);
}

static void permutes_go_both_ways_in_every_layout(void **state)
{
    (void)state;
    for (uint32_t size = 1; size <= 8; size *= 2) {
        for (size_t i = 0; i < LAYOUTS; i++) {
            uint64_t total = layout_count(&layouts[i]);
            check_permute(size, &layouts[i], 0, total);
            check_permute(size, &layouts[i], total / 3, total / 2);
            check_permute(size, &layouts[i], total - 1, 1);
            check_permute(size, &layouts[i], total / 2, 0);
        }
    }
}

static void large_permutes_run_in_chunks(void **state)
{
    (void)state;
    static const struct layout large[] = {
        {{3, {60, 500, 30}}, {2, 0, 1}},
        {{2, {1000, 900}}, {1, 0}},
        {{3, {10, 300, 300}}, {0, 1, 2}},
    };
    for (size_t i = 0; i < sizeof(large) / sizeof(large[0]); i++) {
        check_permute(4, &large[i], 12345, layout_count(&large[i]) - 20000);
    }
}

static void permute_operands_are_shard_and_packed(void **state)
{
    (void)state;
    struct gpu_permute_params params = {.shard = 4096,
                                        .packed = 8192,
                                        .first_index = 3,
                                        .element_count = 4,
                                        .shard_bytes = 24,
                                        .dims = {4, 3},
                                        .strides = {1, 4},
                                        .dims_count = 2,
                                        .element_bytes = 2};
    const struct gpu_twin *twin = gpu_twin_find("symtensor_permute");
    struct gpu_operand operands[GPU_TWIN_OPERANDS_MAX];
    for (params.to_shard = 0; params.to_shard < 2; params.to_shard++) {
        assert_int_equal(twin->operands(&params, operands), 2);
        assert_true(operands[0].address == 4096 && operands[0].bytes == 24);
        assert_true(operands[1].address == 8192 && operands[1].bytes == 8);
        assert_int_equal(operands[0].write, params.to_shard);
        assert_int_equal(operands[1].write, !params.to_shard);
    }
    params.element_count = 0;
    assert_int_equal(twin->operands(&params, operands), 0);
}

static void permutes_that_make_no_sense_are_refused(void **state)
{
    (void)state;
    const struct gpu_permute_params good = {.element_count = 4,
                                            .shard_bytes = 24,
                                            .dims = {4, 3},
                                            .strides = {1, 4},
                                            .dims_count = 2,
                                            .element_bytes = 2};
    struct gpu_permute_params bad[6] = {good, good, good, good, good, good};
    bad[0].element_bytes = 3;
    bad[1].element_bytes = 16;
    bad[2].first_index = 9;
    bad[3].first_index = UINT64_MAX;
    bad[4].shard_bytes = 22;
    bad[5].strides[0] = 2;
    const struct gpu_twin *twin = gpu_twin_find("symtensor_permute");
    struct gpu_operand operands[GPU_TWIN_OPERANDS_MAX];
    assert_int_equal(twin->operands(&good, operands), 2);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_int_equal(twin->operands(&bad[i], operands), 1);
        assert_true(operands[0].address == 0 && operands[0].bytes == UINT64_MAX);
        assert_int_equal(twin->chunks(&bad[i]), 1);
        twin->run(&bad[i], 0, NULL); /* touches nothing: address 0 would crash */
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fills_write_one_value_everywhere),
        cmocka_unit_test(large_fills_bypass_the_cache_and_miss_nothing),
        cmocka_unit_test(iota_is_the_logical_index_in_every_layout),
        cmocka_unit_test(long_iotas_wrap_round_and_overflow),
        cmocka_unit_test(fill_operands_are_the_range),
        cmocka_unit_test(fills_that_make_no_sense_are_refused),
        cmocka_unit_test(permutes_go_both_ways_in_every_layout),
        cmocka_unit_test(large_permutes_run_in_chunks),
        cmocka_unit_test(permute_operands_are_shard_and_packed),
        cmocka_unit_test(permutes_that_make_no_sense_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
