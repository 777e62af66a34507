#include "server/shapes.h"

#include <stddef.h>

/** One check: the sides, and which of them is the larger one. */
struct shapes_check {
    const struct gpu_collective *collective;
    int64_t world_size;
    const struct server_side *small, *large; /**< Equal pointers in place. */
    const char *field;
};

static uint64_t shapes_elements(const struct st_shape *shape)
{
    uint64_t elements = 1;
    for (uint32_t i = 0; i < shape->rank; i++) {
        elements *= (uint64_t)shape->dims[i];
    }
    return elements;
}

/** Slices along the first dimension are contiguous exactly when it is the outermost in memory. */
static bool shapes_first_is_outermost(const struct server_side *side)
{
    uint64_t elements = shapes_elements(&side->shape);
    if (elements == 0 || side->shape.dims[0] == 1) {
        return true;
    }
    return (uint64_t)side->strides.dims[0] * (uint64_t)side->shape.dims[0] == elements;
}

static enum st_status shapes_mismatch(const struct shapes_check *check, const char *expected,
                                      const struct st_shape *shape, struct st_error *err)
{
    char text[200];
    enum st_status status =
        st_fail(err, ST_REASON_SHAPE_MISMATCH, check->field,
                "%s over %lld ranks expects %s, not %s", check->collective->name,
                (long long)check->world_size, expected, st_shape_format(shape, text));
    st_error_add_detail(err, "expected", "%s", expected);
    return status;
}

/** The tensor is cut into world_size slices along its first dimension. */
static enum st_status shapes_check_sliced(const struct shapes_check *check,
                                          const struct server_side *side, uint64_t *ret_slice_count,
                                          struct st_error *err)
{
    if (side->shape.rank == 0 || side->shape.dims[0] % check->world_size != 0) {
        return shapes_mismatch(check, "a first dimension that is a multiple of world_size",
                               &side->shape, err);
    }
    if (check->world_size > 1 && !shapes_first_is_outermost(side)) {
        return st_fail(err, ST_REASON_SHAPE_MISMATCH, check->field,
                       "%s needs slices that are contiguous: the first dimension must have the "
                       "largest stride",
                       check->collective->name);
    }
    *ret_slice_count = shapes_elements(&side->shape) / (uint64_t)check->world_size;
    return ST_OK;
}

static enum st_status shapes_check_equal(const struct shapes_check *check, struct st_error *err)
{
    const struct server_side *input = check->small;
    const struct server_side *output = check->large;
    if (!st_shape_equal(&input->shape, &output->shape)) {
        char expected[200];
        return shapes_mismatch(check, st_shape_format(&input->shape, expected), &output->shape,
                               err);
    }
    if (!st_strides_equal(&input->shape, &input->strides, &output->strides)) {
        return st_fail(err, ST_REASON_SHAPE_MISMATCH, check->field,
                       "the strides must be those of the tensor");
    }
    return ST_OK;
}

/** Whether @p large is [world_size * d0, ...] of @p small's [d0, ...]. */
static bool shapes_is_stretched(const struct shapes_check *check)
{
    const struct st_shape *small = &check->small->shape;
    const struct st_shape *large = &check->large->shape;
    int64_t first = 0;
    if (small->rank == 0 || small->rank != large->rank ||
        __builtin_mul_overflow(small->dims[0], check->world_size, &first)) {
        return false;
    }
    struct st_shape stretched = *small;
    stretched.dims[0] = first;
    return st_shape_equal(&stretched, large);
}

/** Whether @p large is [world_size, d0, ...] of @p small's [d0, ...]. */
static bool shapes_is_stacked(const struct shapes_check *check)
{
    const struct st_shape *small = &check->small->shape;
    const struct st_shape *large = &check->large->shape;
    if (large->rank != small->rank + 1 || large->dims[0] != check->world_size) {
        return false;
    }
    for (uint32_t i = 0; i < small->rank; i++) {
        if (large->dims[i + 1] != small->dims[i]) {
            return false;
        }
    }
    return true;
}

static enum st_status shapes_check_sized(const struct shapes_check *check,
                                         uint64_t *ret_slice_count, struct st_error *err)
{
    const struct server_side *small = check->small;
    const struct server_side *large = check->large;
    if (!shapes_is_stretched(check) && !shapes_is_stacked(check)) {
        const char *expected = check->collective->rule == GPU_SHAPE_GATHERED
                                   ? "[world_size * d0, ...] or [world_size, d0, ...] of the "
                                     "tensor's [d0, ...]"
                                   : "[d0, ...] of the tensor's [world_size * d0, ...] or "
                                     "[world_size, d0, ...]";
        bool gathered = check->collective->rule == GPU_SHAPE_GATHERED;
        return shapes_mismatch(check, expected, gathered ? &large->shape : &small->shape, err);
    }
    bool same = st_shape_equal(&small->shape, &large->shape) &&
                st_strides_equal(&small->shape, &small->strides, &large->strides);
    if (!same && (!st_shape_is_row_major(&small->shape, &small->strides) ||
                  !st_shape_is_row_major(&large->shape, &large->strides))) {
        return st_fail(err, ST_REASON_SHAPE_MISMATCH, check->field,
                       "both sides must be row-major where their shapes differ");
    }
    *ret_slice_count = shapes_elements(&small->shape);
    return ST_OK;
}

static enum st_status shapes_check_rule(const struct shapes_check *check, bool in_place,
                                        uint64_t *ret_slice_count, struct st_error *err)
{
    enum gpu_shape_rule rule = check->collective->rule;
    bool sized = rule == GPU_SHAPE_GATHERED || rule == GPU_SHAPE_SCATTERED;
    if (sized && !in_place) {
        return shapes_check_sized(check, ret_slice_count, err);
    }
    if (!in_place) {
        enum st_status status = shapes_check_equal(check, err);
        if (status != ST_OK) {
            return status;
        }
    }
    if (rule != GPU_SHAPE_EQUAL) {
        return shapes_check_sliced(check, check->large, ret_slice_count, err);
    }
    *ret_slice_count = shapes_elements(&check->large->shape);
    return ST_OK;
}

enum st_status server_shapes_check(const struct gpu_collective *collective, uint32_t world_size,
                                   const struct server_side *input,
                                   const struct server_side *output, uint64_t *ret_slice_count,
                                   struct st_error *err)
{
    bool in_place = output == NULL;
    if (!in_place && input->dtype != output->dtype) {
        return st_fail(err, ST_REASON_DTYPE_MISMATCH, "output", "is %s, the tensor is %s",
                       st_dtype_info(output->dtype)->name, st_dtype_info(input->dtype)->name);
    }
    const struct server_side *other = in_place ? input : output;
    bool input_is_large = collective->rule == GPU_SHAPE_SCATTERED;
    struct shapes_check check = {
        .collective = collective,
        .world_size = (int64_t)world_size,
        .small = input_is_large ? other : input,
        .large = input_is_large ? input : other,
        .field = in_place ? "tensor" : "output",
    };
    return shapes_check_rule(&check, in_place, ret_slice_count, err);
}
