/**
 * The CUDA kernels, one module: the same names, parameter structs and bits as the twins in the C
 * files beside this one. gpu/kernels/image.h says what a launch may rely on.
 */
#define _Static_assert static_assert /* C's name for it, in the headers that both share */

#include "gpu/kernels/fill.cuh"
#include "gpu/kernels/move.cuh"
#include "gpu/kernels/multicast.cuh"
#include "gpu/kernels/permute.cuh"

#define KERNEL                                                                                     \
    extern "C" __global__ void __launch_bounds__(GPU_KERNEL_THREADS, GPU_KERNEL_BLOCKS_AT_ONCE)

KERNEL symtensor_move(const __grid_constant__ struct gpu_move_params params)
{
    move_run(params);
}

KERNEL symtensor_multicast(const __grid_constant__ struct gpu_multicast_params params)
{
    multicast_run(params);
}

KERNEL symtensor_fill(const __grid_constant__ struct gpu_fill_params params)
{
    fill_run(params);
}

KERNEL symtensor_permute(const __grid_constant__ struct gpu_permute_params params)
{
    permute_run(params);
}
