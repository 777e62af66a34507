#ifndef SYMTENSOR_GPU_KERNELS_IMAGE_H
#define SYMTENSOR_GPU_KERNELS_IMAGE_H

#include <stddef.h>

/**
 * The kernels of gpu/kernels/kernels.cu as one image for cuModuleLoadData(): a fat binary. Its
 * functions are the rows of GPU_KERNELS; each takes its struct of gpu/kernels/params.h by value as
 * the only parameter and is right for any one-dimensional grid of blocks of GPU_KERNEL_THREADS
 * threads.
 *
 * Built with nvcc it holds machine code for sm_80, sm_90 and sm_100 (where that nvcc knows it) and
 * PTX for compute_80 and compute_90; without nvcc it is the committed file, which holds the PTX
 * alone. Machine code needs a driver of the nvcc's major version, as does the PTX: a driver that is
 * older answers cuModuleLoadData() with an error.
 *
 * What a launch may rely on, beyond params.h: every address plus offset is aligned to the element.
 * Parameters that make no sense (an unknown dtype, an op that the dtype does not have) trap before
 * anything is read or written: the launch ends in a sticky error, as it does on the software
 * driver. symtensor_multicast traps on devices below sm_90, where no multicast address exists.
 */
extern const unsigned char gpu_kernel_image[];
extern const size_t gpu_kernel_image_bytes;

/** Threads of a block. */
#define GPU_KERNEL_THREADS 512u

#endif
