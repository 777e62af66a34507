#include "tests/contract/gpu/rig.h"

#include <stdlib.h>
#include <string.h>

#include "gpu/kernels/params.h"
#include "gpu/memory.h"
#include "gpu/team.h"
#include "tests/support/cuda_there.h"

/**
 * A device whose context is in error for good, after a kernel that wrote where nothing is mapped:
 * no host function comes any more, and everything must still end. In a program of its own, since a
 * real driver is not to be used by the process any more afterwards.
 */

#define COUNT 100000

static struct rig rig;

static enum st_status run_all_reduce(struct gpu_team *team, struct gpu_memory *memory,
                                     struct st_error *ret_err)
{
    struct gpu_collective_spec spec = rig_all_reduce(team, memory, COUNT);
    struct rig_wait wait = RIG_WAIT_INIT;
    gpu_collective_run(team, &spec, rig_completion(&wait));
    enum st_status status = rig_await(&wait);
    *ret_err = wait.err;
    return status;
}

static void poison(struct gpu_team *team, uint64_t address)
{
    struct gpu_fill_params params = {.address = address,
                                     .element_count = 64,
                                     .dims = {64},
                                     .strides = {1},
                                     .dims_count = 1,
                                     .dtype = ST_DTYPE_INT32,
                                     .row_major = 1};
    struct st_error err = {0};
    struct gpu_lane *lane = &team->lanes[0];
    assert_status(gpu_device_enter(lane->device, &err), ST_OK);
    const struct gpu_launch launch = {
        .kernel = GPU_KERNEL_FILL, .params = &params, .traffic_bytes = 256};
    (void)!gpu_device_launch(lane->device, lane->stream, &launch, &err);
}

static void everything_ends_on_a_device_whose_context_is_in_error(void **state)
{
    (void)state;
    struct st_error err = {0};
    rig_open(&rig, &(struct rig_options){.devices = 1, .watch = true});
    struct gpu_team *team = rig_team(&rig, 2, 1);
    struct gpu_memory *gone = rig_memory(team, RIG_GRANULE);
    struct gpu_memory *memory = rig_memory(team, RIG_GRANULE);
    uint64_t address = gpu_memory_address(gone, 1);
    assert_status(run_all_reduce(team, memory, &err), ST_OK);
    gpu_memory_destroy(gone);
    poison(team, address);
    uint64_t start_ns = st_clock_now_ns();
    assert_int_equal(run_all_reduce(team, memory, &err), ST_UNAVAILABLE);
    assert_int_equal(err.reason, ST_REASON_DEVICE_LOST);
    assert_true(st_clock_now_ns() - start_ns < 5 * ST_NS_PER_SECOND);
    assert_int_equal(gpu_device_state(rig.gpu, 0), GPU_DEVICE_LOST);
    print_message("%s\n", gpu_device_state_reason(rig.gpu, 0));
    start_ns = st_clock_now_ns();
    assert_int_equal(run_all_reduce(team, memory, &err), ST_UNAVAILABLE);
    assert_true(st_clock_now_ns() - start_ns < ST_NS_PER_SECOND / 10);
    gpu_memory_destroy(memory);
    gpu_team_destroy(team);
    struct gpu_device_memory books;
    gpu_device_memory(rig.gpu, 0, &books);
    print_message("quarantined: %llu bytes\n", (unsigned long long)books.quarantined_bytes);
    assert_int_equal(books.owned_bytes, 0);
    gpu_close(rig.gpu);
    st_timers_destroy(rig.timers);
    assert_true(st_clock_now_ns() - start_ns < 20 * ST_NS_PER_SECOND);
}

int main(void)
{
    if (!test_cuda_there()) {
        return TEST_SKIPPED;
    }
    setenv("SYMTENSOR_TEST_DRIVER", "cuda", 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(everything_ends_on_a_device_whose_context_is_in_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
