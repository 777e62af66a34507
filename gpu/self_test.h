#ifndef SYMTENSOR_GPU_SELF_TEST_H
#define SYMTENSOR_GPU_SELF_TEST_H

#include "gpu/allocation.h"

struct gpu_team;

#define GPU_SELF_TEST_BYTES 512u /**< Of each allocation that the test writes to. */

/**
 * Prove that a multicast mapping works: what is written through it is found in every unicast
 * mapping, and known values come back reduced. The first bytes of the memory are used and zeroed
 * again.
 *
 * Thread: a worker. Blocks: for driver calls.
 * @param allocations [world_size], one on each lane's device, of at least a granule.
 * @param multicast   address that reaches byte 0 of all of them.
 * @param devices     how many devices of the team try it, from the first.
 * @return false when something else came back, or could not be asked for.
 */
ST_MUST_CHECK bool gpu_self_test(const struct gpu_team *team,
                                 const struct gpu_allocation *allocations, uint64_t multicast,
                                 uint32_t devices);

#endif
