#ifndef SYMTENSOR_GPU_KERNELS_TWIN_TABLE_H
#define SYMTENSOR_GPU_KERNELS_TWIN_TABLE_H

#include "gpu/kernels/twin.h"

/** The rows of gpu_twins[], each in the file of its kernel. */
extern const struct gpu_twin gpu_twin_move;
extern const struct gpu_twin gpu_twin_multicast;
extern const struct gpu_twin gpu_twin_fill;
extern const struct gpu_twin gpu_twin_permute;

#endif
