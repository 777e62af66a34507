#include "gpu/self_test.h"

#include "gpu/kernels/params.h"
#include "gpu/team.h"

#define TEST_COUNT 64u /* elements of uint32; one half is read, the other written */
#define TEST_BYTES (TEST_COUNT * sizeof(uint32_t))
#define TEST_PATTERN 0x5eed0000u

_Static_assert(2 * TEST_BYTES == GPU_SELF_TEST_BYTES, "both halves");

/** One device's turn. Everything goes through its service stream, in order. */
struct self_test {
    const struct gpu_team *team;
    const struct gpu_allocation *allocations;
    uint64_t multicast;
    uint32_t turn; /**< Lane, and rank, of the device. */
    struct gpu_device *device;
};

/** Zero both halves of a rank and fill the first. */
static enum st_status test_prepare(const struct self_test *test, uint32_t rank, uint32_t value,
                                   struct st_error *err)
{
    uint64_t address = test->allocations[rank].address;
    struct gpu_fill_params params = {
        .address = address,
        .element_count = TEST_COUNT,
        .value_bits = value,
        .dims = {TEST_COUNT},
        .strides = {1},
        .dims_count = 1,
        .dtype = ST_DTYPE_UINT32,
        .pattern = GPU_FILL_VALUE,
        .row_major = 1,
    };
    enum st_status status = gpu_device_zero(test->device, address, GPU_SELF_TEST_BYTES, err);
    const struct gpu_launch launch = {GPU_KERNEL_FILL, &params, TEST_BYTES, false};
    return status == ST_OK ? gpu_device_launch(test->device, test->device->service, &launch, err)
                           : status;
}

static enum st_status test_move(const struct self_test *test, const struct gpu_movement *movement,
                                struct st_error *err)
{
    struct gpu_multicast_params params = {
        .move = {.movement_count = 1,
                 .world_size = test->team->world_size,
                 .dtype = ST_DTYPE_UINT32,
                 .op = ST_OP_SUM,
                 .part_count = 1},
        .multicast_input = test->multicast,
        .multicast_output = test->multicast,
    };
    params.move.movements[0] = *movement;
    for (uint32_t rank = 0; rank < test->team->world_size; rank++) {
        params.move.inputs[rank] = test->allocations[rank].address;
        params.move.outputs[rank] = test->allocations[rank].address;
    }
    const struct gpu_launch launch = {GPU_KERNEL_MULTICAST, &params, GPU_SELF_TEST_BYTES, false};
    return gpu_device_launch(test->device, test->device->service, &launch, err);
}

/** Whether the second half of a rank is @p value throughout. */
static bool test_holds(const struct self_test *test, uint32_t rank, uint32_t value)
{
    uint32_t found[TEST_COUNT] = {0};
    struct st_error unused;
    CUresult result = test->device->gpu->driver->cuMemcpyDtoHAsync(
        found, test->allocations[rank].address + TEST_BYTES, TEST_BYTES, test->device->service);
    if (result != CUDA_SUCCESS) {
        gpu_result_fail(test->device, GPU_CALL_cuMemcpyDtoHAsync, result, &unused);
    }
    /* The copy writes to this stack: wait for it in any case. */
    bool holds = gpu_device_settle(test->device, &unused) == ST_OK && result == CUDA_SUCCESS;
    for (uint32_t i = 0; i < TEST_COUNT && holds; i++) {
        holds = found[i] == value;
    }
    return holds;
}

/** Write through multicast, read from each. */
static bool test_write(const struct self_test *test)
{
    const struct gpu_movement movement = {
        .destination_offset = TEST_COUNT,
        .count = TEST_COUNT,
        .source_rank = (uint16_t)test->turn,
        .destination_rank = GPU_RANK_ALL,
        .kind = GPU_MOVEMENT_COPY,
    };
    struct st_error unused;
    for (uint32_t rank = 0; rank < test->team->world_size; rank++) {
        /* A value of its own, so that what is read cannot be an earlier turn's. */
        if (test_prepare(test, rank, TEST_PATTERN + rank, &unused) != ST_OK) {
            return false;
        }
    }
    bool holds = test_move(test, &movement, &unused) == ST_OK;
    for (uint32_t rank = 0; rank < test->team->world_size && holds; rank++) {
        holds = test_holds(test, rank, TEST_PATTERN + test->turn);
    }
    return holds;
}

/** Write to each, reduce through multicast. */
static bool test_reduce(const struct self_test *test)
{
    const struct gpu_movement movement = {
        .destination_offset = TEST_COUNT,
        .count = TEST_COUNT,
        .source_rank = GPU_RANK_ALL,
        .destination_rank = (uint16_t)test->turn,
        .kind = GPU_MOVEMENT_REDUCE,
    };
    struct st_error unused;
    uint32_t sum = 0;
    for (uint32_t rank = 0; rank < test->team->world_size; rank++) {
        sum += TEST_PATTERN + rank;
        if (test_prepare(test, rank, TEST_PATTERN + rank, &unused) != ST_OK) {
            return false;
        }
    }
    return test_move(test, &movement, &unused) == ST_OK && test_holds(test, test->turn, sum);
}

/** New memory reads as zeros, tested or not. */
static bool test_clean(const struct self_test *test)
{
    struct st_error unused;
    bool clean = gpu_device_enter(test->device, &unused) == ST_OK;
    for (uint32_t rank = 0; rank < test->team->world_size && clean; rank++) {
        clean = gpu_device_zero(test->device, test->allocations[rank].address, GPU_SELF_TEST_BYTES,
                                &unused) == ST_OK;
    }
    return gpu_device_settle(test->device, &unused) == ST_OK && clean;
}

bool gpu_self_test(const struct gpu_team *team, const struct gpu_allocation *allocations,
                   uint64_t multicast, uint32_t devices)
{
    bool passed = true;
    for (uint32_t turn = 0; turn < devices && passed; turn++) {
        struct st_error unused;
        const struct self_test test = {
            .team = team,
            .allocations = allocations,
            .multicast = multicast,
            .turn = turn,
            .device = team->lanes[turn].device,
        };
        passed = gpu_device_enter(test.device, &unused) == ST_OK && test_write(&test) &&
                 test_reduce(&test);
        /* Also when it failed: the memory stays in use without multicast. */
        passed &= test_clean(&test);
    }
    return passed;
}
