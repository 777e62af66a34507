#ifndef SYMTENSOR_GPU_KERNELS_FILL_CUH
#define SYMTENSOR_GPU_KERNELS_FILL_CUH

#include "gpu/kernels/piece.cuh"

/** symtensor_fill: one value everywhere, or the logical index of each element. */

/** From here on nobody finds what was written in the cache. */
constexpr uint64_t fill_streaming_bytes = 16u << 20;

/* ------------------------------------------------------------------ elements from integers */

/**
 * The float32 between which and the next one the index lies, its last bit set when the index is not
 * the float itself: rounding that to a narrower format gives what rounding the index gives.
 */
INLINE float float_odd(uint64_t index)
{
    float below = machine_float_below(index);
    bool exact = below < 18446744073709551616.0f && static_cast<uint64_t>(below) == index;
    return exact ? below : machine_float(machine_float_bits(below) | 1);
}

/** Element that stands for an integer: integers wrap, floats round, bool is "not 0". */
template <uint32_t dtype> INLINE uint64_t fill_element_of(uint64_t index)
{
    using R = Row<dtype>;
    if constexpr (R::kind == ST_KIND_BOOL) {
        return index != 0;
    } else if constexpr (R::kind == ST_KIND_FLOAT && R::bytes == 8) {
        return machine_double_bits(static_cast<double>(index));
    } else if constexpr (R::kind == ST_KIND_FLOAT && R::bytes == 4) {
        return machine_float_bits(static_cast<float>(index));
    } else if constexpr (R::kind == ST_KIND_FLOAT) {
        return Float<R::bytes, R::mantissa, R::specials>::encode(float_odd(index));
    } else {
        return index; /* wraps where it is stored */
    }
}

INLINE uint64_t fill_element(uint32_t dtype, uint64_t index)
{
    switch (dtype) {
#define X(name, ...)                                                                               \
    case ST_DTYPE_##name:                                                                          \
        return fill_element_of<ST_DTYPE_##name>(index);
        ST_DTYPES(X)
#undef X
    default:
        return 0;
    }
}

/* ------------------------------------------------------------------ filling */

INLINE void fill_same(const gpu_fill_params &fill)
{
    uint32_t size = element_size(fill.dtype);
    uint64_t bits =
        fill.pattern == GPU_FILL_RANK ? fill_element(fill.dtype, fill.value_bits) : fill.value_bits;
    uint64_t word = bits & (~uint64_t{0} >> (64 - 8 * size));
    for (uint32_t width = 8 * size; width < 64; width *= 2) {
        word |= word << width;
    }
    uint32_t low = static_cast<uint32_t>(word), high = static_cast<uint32_t>(word >> 32);
    const Vector vector = {{low, high, low, high}};
    Cut cut = cut_elements(fill.element_count, size, fill.address, 0);
    bool streaming = fill.element_count * size >= fill_streaming_bytes;
    uint64_t stride = static_cast<uint64_t>(gridDim.x) * threads;
    uint64_t first = static_cast<uint64_t>(blockIdx.x) * threads + threadIdx.x;
    for (uint64_t i = first; i < cut.vectors; i += stride) {
        uint64_t address = fill.address + cut.head * size + i * sizeof(Vector);
        if (streaming) {
            machine_store_streaming(address, vector);
        } else {
            machine_store(address, vector);
        }
    }
    Elements elements = tile_elements(cut, fill.element_count, size, blockIdx.x, 0);
    if (elements.index < elements.end) {
        element_store(fill.address + elements.index * size, size, bits);
    }
}

/**
 * The row-major logical index of the element at @p position in memory. Strides are a dense
 * permutation, so that each coordinate can be read off the position alone.
 */
template <typename Index> INLINE Index fill_logical(const gpu_fill_params &fill, Index position)
{
    Index logical = 0;
#pragma unroll 1
    for (uint32_t i = 0; i < fill.dims_count; i++) {
        Index dim = static_cast<Index>(fill.dims[i]);
        if (dim != 1) { /* its stride says nothing */
            logical = logical * dim + position / static_cast<Index>(fill.strides[i]) % dim;
        }
    }
    return logical;
}

INLINE void fill_iota(const gpu_fill_params &fill)
{
    uint32_t size = element_size(fill.dtype);
    uint64_t stride = static_cast<uint64_t>(gridDim.x) * threads;
    uint64_t first = static_cast<uint64_t>(blockIdx.x) * threads + threadIdx.x;
    bool narrow = fill.element_count <= UINT32_MAX; /* divisions are cheaper then */
#pragma unroll 1
    for (uint64_t i = first; i < fill.element_count; i += stride) {
        uint64_t logical = i;
        if (!fill.row_major && narrow) {
            logical = fill_logical<uint32_t>(fill, static_cast<uint32_t>(i));
        } else if (!fill.row_major) {
            logical = fill_logical<uint64_t>(fill, i);
        }
        element_store(fill.address + i * size, size, fill_element(fill.dtype, logical));
    }
}

INLINE void fill_run(const gpu_fill_params &fill)
{
    if (fill.dtype >= ST_DTYPE_COUNT || fill.pattern > GPU_FILL_IOTA ||
        fill.dims_count > sizeof(fill.dims) / sizeof(fill.dims[0])) {
        machine_trap();
    } else if (fill.pattern == GPU_FILL_IOTA) {
        fill_iota(fill);
    } else {
        fill_same(fill);
    }
}

#endif
