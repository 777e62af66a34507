#ifndef SYMTENSOR_GPU_KERNELS_MOVEMENT_H
#define SYMTENSOR_GPU_KERNELS_MOVEMENT_H

#include <stdint.h>

#include "gpu/kernels/twin.h"

/**
 * What symtensor_move and symtensor_multicast share: running movements, and cutting them into
 * chunks.
 *
 * The work of a launch is laid out on a line of bytes of traffic, movement after movement; chunk k
 * is the k-th of equal pieces of that line, its borders moved down to multiples of 64 elements of a
 * movement.
 */

/** One launch. Addresses of 0 mean: not through multicast. */
struct gpu_movement_launch {
    const struct gpu_move_params *move;
    uint64_t multicast_input;
    uint64_t multicast_output;
    const struct gpu_twin_services
        *services; /**< Only gpu_movement_run() with multicast needs it. */
};

/**
 * gpu_twin.operands: at most one range read and one written for each rank, and one each for
 * multicast. Parameters that make no sense (an unknown dtype, a rank outside the group) give the
 * range of all addresses, which no driver maps: such a launch is refused, not run.
 */
uint32_t gpu_movement_operands(const struct gpu_movement_launch *launch, struct gpu_operand *ret);
/** gpu_twin.traffic_bytes. */
uint64_t gpu_movement_traffic(const struct gpu_movement_launch *launch);
/** gpu_twin.chunks. */
uint64_t gpu_movement_chunks(const struct gpu_movement_launch *launch);
/** gpu_twin.run. */
void gpu_movement_run(const struct gpu_movement_launch *launch, uint64_t chunk);

#endif
