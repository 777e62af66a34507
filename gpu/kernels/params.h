#ifndef SYMTENSOR_GPU_KERNELS_PARAMS_H
#define SYMTENSOR_GPU_KERNELS_PARAMS_H

/**
 * Parameter structs of the kernels, shared by the CUDA sources and their software twins. Plain C
 * with fixed sizes; each fits into the 4 KiB of kernel parameters that every driver accepts.
 * Addresses are device addresses. dtype and op are the values of enum st_dtype and enum
 * st_reduce_op.
 */

#include <stdint.h>

#if defined(__CUDACC__)
#define GPU_KERNEL_SHARED __host__ __device__ /**< Of a function that both sides call. */
#else
#define GPU_KERNEL_SHARED
#endif

#define GPU_KERNEL_RANKS_MAX 64u
#define GPU_KERNEL_MOVEMENTS_MAX 64u
#define GPU_KERNEL_PARAMS_MAX 4096u
#define GPU_RANK_ALL 0xffffu /**< A movement from (reduce) or to (replicate) every rank. */

/** What a movement does with the elements it reads. */
enum gpu_movement_kind {
    GPU_MOVEMENT_COPY,   /**< One source rank to one rank or all. */
    GPU_MOVEMENT_REDUCE, /**< All ranks, folded left to right in rank order, to one rank or all. */
    GPU_MOVEMENT_EXCHANGE, /**< Swap [source] and [destination], both in the output buffers. */
};

/**
 * One piece of a collective. Every collective is a list of these (gpu/collective.h), every
 * algorithm a way of running them. Offsets and counts are in elements.
 *
 * A COPY whose source and destination are the same place (in place) is left out for that rank.
 */
struct gpu_movement {
    uint64_t source_offset;      /**< In the source rank's (for REDUCE: every rank's) input. */
    uint64_t destination_offset; /**< In the destination rank's (ALL: every rank's) output. */
    uint64_t count;
    uint16_t source_rank;      /**< GPU_RANK_ALL for REDUCE. */
    uint16_t destination_rank; /**< Or GPU_RANK_ALL. */
    uint16_t kind;             /**< enum gpu_movement_kind. */
    uint16_t reserved;
};

/**
 * symtensor_move: run part @p part_index of @p part_count of each movement. Parts cut each
 * movement's elements into contiguous pieces whose borders are multiples of 64 elements (the last
 * takes the rest), so that no two parts write the same cache line of an aligned buffer; see
 * gpu_movement_part(). All elements that a part reads of an address range are read before that
 * range is written, element by element: running in place is right for every list that
 * gpu_collective gives.
 */
struct gpu_move_params {
    uint64_t inputs[GPU_KERNEL_RANKS_MAX];  /**< [world_size] address of element 0 of each rank. */
    uint64_t outputs[GPU_KERNEL_RANKS_MAX]; /**< [world_size]; equal to inputs when in place. 0: not
                                               written. */
    struct gpu_movement movements[GPU_KERNEL_MOVEMENTS_MAX];
    uint32_t movement_count;
    uint32_t world_size;
    uint32_t dtype;
    uint32_t op; /**< For REDUCE movements. */
    uint32_t part_index;
    uint32_t part_count;
    uint32_t
        streaming; /**< 1: the whole job exceeds the last-level cache; bypass it when writing. */
    uint32_t fine; /**< 1: few tiles; cut them smaller, so that more of the device has some. The
                        results are the same. */
};

/**
 * symtensor_multicast: the same movements through multicast addresses. REDUCE reads with
 * multimem.ld_reduce from @p multicast_input; destination ALL writes with multimem.st to
 * @p multicast_output. Single ranks go through inputs/outputs as above. The order of a float sum is
 * the switch's: not deterministic.
 */
struct gpu_multicast_params {
    struct gpu_move_params move;
    uint64_t multicast_input;  /**< 0 when no movement reduces. */
    uint64_t multicast_output; /**< 0 when no movement writes to all. */
};

/** What symtensor_fill writes. */
enum gpu_fill_pattern { GPU_FILL_VALUE, GPU_FILL_RANK, GPU_FILL_IOTA };

/**
 * symtensor_fill: element i (row-major logical index) of one shard. Integers wrap, floats round,
 * bool is "not 0".
 */
struct gpu_fill_params {
    uint64_t address;
    uint64_t element_count;
    uint64_t value_bits; /**< VALUE: bits of the element. RANK: the rank. */
    int64_t dims[8];     /**< IOTA: shape and strides (elements), for the logical index. */
    int64_t strides[8];
    uint32_t dims_count;
    uint32_t dtype;
    uint32_t pattern;   /**< enum gpu_fill_pattern. */
    uint32_t row_major; /**< 1: memory order is logical order. */
};

/**
 * symtensor_permute: copy logical (row-major) elements [first_index, first_index + element_count)
 * of a strided shard to a packed buffer, or back.
 */
struct gpu_permute_params {
    uint64_t shard;  /**< Address of logical element 0 of the shard (dense permutation). */
    uint64_t packed; /**< Packed elements, first_index first; device or pinned host address. */
    uint64_t first_index;
    uint64_t element_count;
    uint64_t shard_bytes; /**< Of the whole shard, for the operand check. */
    int64_t dims[8];
    int64_t strides[8];
    uint32_t dims_count;
    uint32_t element_bytes;
    uint32_t to_shard; /**< 0: shard to packed; 1: packed to shard. */
    uint32_t reserved;
};

_Static_assert(sizeof(struct gpu_move_params) <= GPU_KERNEL_PARAMS_MAX, "must fit a launch");
_Static_assert(sizeof(struct gpu_multicast_params) <= GPU_KERNEL_PARAMS_MAX, "must fit a launch");

/** Elements [*ret_first, *ret_first + *ret_count) of a movement of @p count that belong to a part.
 */
GPU_KERNEL_SHARED static inline void gpu_movement_part(uint64_t count, uint32_t part_index,
                                                       uint32_t part_count, uint64_t *ret_first,
                                                       uint64_t *ret_count)
{
    uint64_t lines = (count + 63) / 64;
    uint64_t first = (uint64_t)part_index * (lines / part_count) * 64 +
                     64 * (part_index < lines % part_count ? part_index : lines % part_count);
    uint64_t share = 64 * (lines / part_count + (part_index < lines % part_count ? 1 : 0));
    if (first > count) {
        first = count;
    }
    *ret_first = first;
    *ret_count = share < count - first ? share : count - first;
}

#endif
