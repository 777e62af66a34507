#include "gpu/kernels/movement.h"
#include "gpu/kernels/twin_table.h"

static struct gpu_movement_launch multicast_launch(const void *params,
                                                   const struct gpu_twin_services *services)
{
    const struct gpu_multicast_params *multicast = params;
    return (struct gpu_movement_launch){
        .move = &multicast->move,
        .multicast_input = multicast->multicast_input,
        .multicast_output = multicast->multicast_output,
        .services = services,
    };
}

static uint32_t multicast_operands(const void *params, struct gpu_operand *ret)
{
    struct gpu_movement_launch launch = multicast_launch(params, NULL);
    return gpu_movement_operands(&launch, ret);
}

static uint64_t multicast_traffic_bytes(const void *params)
{
    struct gpu_movement_launch launch = multicast_launch(params, NULL);
    return gpu_movement_traffic(&launch);
}

static uint64_t multicast_chunks(const void *params)
{
    struct gpu_movement_launch launch = multicast_launch(params, NULL);
    return gpu_movement_chunks(&launch);
}

static void multicast_run(const void *params, uint64_t chunk,
                          const struct gpu_twin_services *services)
{
    struct gpu_movement_launch launch = multicast_launch(params, services);
    gpu_movement_run(&launch, chunk);
}

const struct gpu_twin gpu_twin_multicast = {
    .name = "symtensor_multicast",
    .params_bytes = sizeof(struct gpu_multicast_params),
    .operands = multicast_operands,
    .traffic_bytes = multicast_traffic_bytes,
    .chunks = multicast_chunks,
    .run = multicast_run,
};
