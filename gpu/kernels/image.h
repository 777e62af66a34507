#ifndef SYMTENSOR_GPU_KERNELS_IMAGE_H
#define SYMTENSOR_GPU_KERNELS_IMAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/**
 * The kernels of gpu/kernels/kernels.cu as one image for cuModuleLoadData(): a fat binary. Its
 * functions are the rows of GPU_KERNELS; each takes its struct of gpu/kernels/params.h by value as
 * the only parameter and is right for any one-dimensional grid of blocks of GPU_KERNEL_THREADS
 * threads.
 *
 * Built with nvcc it holds machine code for sm_80, sm_90 and sm_100 (where that nvcc knows it) and
 * PTX for compute_80 and compute_90; without nvcc it is the committed file, which holds the PTX
 * alone. The versions in the PTX are the lowest that its instructions allow (cmake/nvcc.sh), so
 * that drivers from GPU_KERNEL_DRIVER_MIN on take it; a driver that is older answers
 * cuModuleLoadData() with an error.
 *
 * What a launch may rely on, beyond params.h: every address plus offset is aligned to the element.
 * Parameters that make no sense (an unknown dtype, an op that the dtype does not have) trap before
 * anything is read or written: the launch ends in a sticky error, as it does on the software
 * driver. symtensor_multicast traps on devices below sm_90, where no multicast address exists.
 */
extern const unsigned char gpu_kernel_image[];
extern const size_t gpu_kernel_image_bytes;

/** CUDA versions, as of cuDriverGetVersion(), that PTX 7.4 and, on compute capability 9 and later,
 * PTX 8.2 need (PTX ISA, release history). */
#define GPU_KERNEL_DRIVER_MIN 11040
#define GPU_KERNEL_DRIVER_MIN_SM90 12020

/** Threads of a block. */
#define GPU_KERNEL_THREADS 128u
/** Blocks that a multiprocessor runs at a time: each thread has 64 registers. */
#define GPU_KERNEL_BLOCKS_AT_ONCE 8u
/**
 * Blocks of one launch on a multiprocessor. Measured 2026-12-01 on an H200
 * (tests/gpu/kernels_bench.c, 4 x 256 MiB; share of the copy's bandwidth; all_reduce,
 * reduce_scatter, broadcast, all_to_all): twice as many as run at a time, of 512 threads: 0.92,
 * 0.93, 0.89, 0.91; a block for each tile of 32 KiB: 0.94, 0.94, 0.93, 0.93; this, a block of 128
 * threads for each tile of 8 KiB: 0.95, 0.94, 0.92, 0.93. Blocks that end and begin stay closer
 * together in memory than blocks that stride over all of it. Further blocks stride: a launch of
 * more gains nothing.
 */
#define GPU_KERNEL_BLOCKS_PER_PROCESSOR 256u
/** Bytes read and written that are one block's: a tile of symtensor_move on two sides. */
#define GPU_KERNEL_BLOCK_TRAFFIC (16u * 1024u)
/** Into how many a tile is cut for gpu_move_params.fine. */
#define GPU_KERNEL_FINE_PARTS 4u

/**
 * Whether symtensor_move should be told to take fine tiles: when less tiles than blocks run at a
 * time. With tiles of 32 and 8 KiB that made 4.7 us of 8.2 for an all_reduce of 4 x 512 KiB on the
 * H200, and 6.4 of 9.0 for 4 x 2 MiB.
 */
static inline bool gpu_kernel_is_fine(uint32_t processors, uint64_t traffic_bytes)
{
    return traffic_bytes <
           (uint64_t)processors * GPU_KERNEL_BLOCKS_AT_ONCE * GPU_KERNEL_BLOCK_TRAFFIC;
}

/** The grid for a launch that reads and writes so many bytes. */
static inline uint32_t gpu_kernel_blocks(uint32_t processors, uint64_t traffic_bytes, bool fine)
{
    uint64_t wanted =
        traffic_bytes / (GPU_KERNEL_BLOCK_TRAFFIC / (fine ? GPU_KERNEL_FINE_PARTS : 1)) + 1;
    uint32_t most = processors * GPU_KERNEL_BLOCKS_PER_PROCESSOR;
    return wanted < most ? (uint32_t)wanted : most;
}

#endif
