#include "gpu/kernels/movement.h"
#include "gpu/kernels/twin_table.h"

static struct gpu_movement_launch move_launch(const void *params)
{
    return (struct gpu_movement_launch){.move = params};
}

static uint32_t move_operands(const void *params, struct gpu_operand *ret)
{
    struct gpu_movement_launch launch = move_launch(params);
    return gpu_movement_operands(&launch, ret);
}

static uint64_t move_traffic_bytes(const void *params)
{
    struct gpu_movement_launch launch = move_launch(params);
    return gpu_movement_traffic(&launch);
}

static uint64_t move_chunks(const void *params)
{
    struct gpu_movement_launch launch = move_launch(params);
    return gpu_movement_chunks(&launch);
}

static void move_run(const void *params, uint64_t chunk, const struct gpu_twin_services *services)
{
    (void)services;
    struct gpu_movement_launch launch = move_launch(params);
    gpu_movement_run(&launch, chunk);
}

const struct gpu_twin gpu_twin_move = {
    .name = "symtensor_move",
    .params_bytes = sizeof(struct gpu_move_params),
    .operands = move_operands,
    .traffic_bytes = move_traffic_bytes,
    .chunks = move_chunks,
    .run = move_run,
};
