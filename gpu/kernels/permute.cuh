#ifndef SYMTENSOR_GPU_KERNELS_PERMUTE_CUH
#define SYMTENSOR_GPU_KERNELS_PERMUTE_CUH

#include "gpu/kernels/piece.cuh"

/**
 * symtensor_permute: a thread for each packed element, so that the packed side, which may be host
 * memory, is gone through in order.
 */

/** Elements from the start of the shard to the one with this row-major index. */
template <typename Index>
INLINE uint64_t permute_offset(const gpu_permute_params &permute, Index index)
{
    uint64_t offset = 0;
#pragma unroll 1
    for (uint32_t i = permute.dims_count; i > 0; i--) {
        Index dim = static_cast<Index>(permute.dims[i - 1]);
        if (dim != 1) { /* its stride says nothing */
            Index outer = index / dim;
            offset += (index - outer * dim) * static_cast<uint64_t>(permute.strides[i - 1]);
            index = outer;
        }
    }
    return offset;
}

template <typename T> INLINE void permute_elements(const gpu_permute_params &permute)
{
    uint64_t stride = static_cast<uint64_t>(gridDim.x) * threads;
    uint64_t first = static_cast<uint64_t>(blockIdx.x) * threads + threadIdx.x;
    bool narrow = permute.shard_bytes <= UINT32_MAX;
    for (uint64_t i = first; i < permute.element_count; i += stride) {
        uint64_t index = permute.first_index + i;
        uint64_t offset = narrow ? permute_offset<uint32_t>(permute, static_cast<uint32_t>(index))
                                 : permute_offset<uint64_t>(permute, index);
        uint64_t shard = permute.shard + offset * sizeof(T),
                 packed = permute.packed + i * sizeof(T);
        if (permute.to_shard) {
            machine_store_element(shard, machine_load_element<T>(packed));
        } else {
            machine_store_element(packed, machine_load_element<T>(shard));
        }
    }
}

INLINE void permute_run(const gpu_permute_params &permute)
{
    if (permute.dims_count > sizeof(permute.dims) / sizeof(permute.dims[0])) {
        machine_trap();
    }
    switch (permute.element_bytes) {
    case 1:
        return permute_elements<uint8_t>(permute);
    case 2:
        return permute_elements<uint16_t>(permute);
    case 4:
        return permute_elements<uint32_t>(permute);
    case 8:
        return permute_elements<uint64_t>(permute);
    default:
        machine_trap();
    }
}

#endif
