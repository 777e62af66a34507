#include "tests/unit/gpu/software_fixture.h"

#include <string.h>
#include <time.h>

#include "base/clock.h"

/* Streams, events, launches and host functions of the software driver. */

#define SMALL (256ull << 10) /* traffic up to which a launch runs on the submitting thread */
#define LARGE (SMALL + 1)

static struct fixture fixture;
static struct fixture_memory memory;

static int setup_with(struct gpu_software_options options)
{
    fixture_open(&fixture, &options);
    fixture_map(&fixture, 0, 4 * FIXTURE_GRANULE, &memory);
    return 0;
}

static int setup(void **state)
{
    (void)state;
    return setup_with(fixture_options());
}

static int setup_delayed(void **state)
{
    (void)state;
    struct gpu_software_options options = fixture_options();
    options.launch_delay_ns = 100 * ST_NS_PER_MS;
    return setup_with(options);
}

static int teardown(void **state)
{
    (void)state;
    fixture_unmap(&fixture, &memory);
    fixture_close(&fixture);
    return 0;
}

static unsigned char *bytes_at(uint64_t offset)
{
    return (unsigned char *)(uintptr_t)(memory.address + offset);
}

/** A launch that holds stream @p device until *gate is set. */
static void hold(int device, _Atomic uint32_t *gate)
{
    struct touch_params params = {.traffic = LARGE, .gate = gate};
    assert_cuda(fixture_touch(&fixture, device, &params));
}

/* ---------------------------------------------------------------- launches */

static void a_small_launch_on_an_idle_stream_is_done_when_the_call_returns(void **state)
{
    (void)state;
    _Atomic uint32_t runs = 0;
    pthread_t thread;
    struct touch_params params = {.write = memory.address,
                                  .bytes = 4096,
                                  .traffic = SMALL,
                                  .value = 5,
                                  .runs = &runs,
                                  .thread = &thread};
    assert_cuda(fixture_touch(&fixture, 0, &params));
    assert_int_equal(atomic_load(&runs), 1);
    assert_true(pthread_equal(thread, pthread_self()));
    assert_int_equal(bytes_at(4095)[0], 5);
    assert_cuda(fixture.driver->cuStreamQuery(fixture.streams[0]));
}

static void a_larger_launch_runs_on_a_thread_of_the_pool(void **state)
{
    (void)state;
    pthread_t thread;
    struct touch_params params = {.traffic = LARGE, .thread = &thread};
    assert_cuda(fixture_touch(&fixture, 0, &params));
    fixture_synchronize(&fixture, 0);
    assert_false(pthread_equal(thread, pthread_self()));
}

static void a_small_launch_behind_others_waits_for_its_turn(void **state)
{
    (void)state;
    _Atomic uint32_t gate = 0;
    _Atomic uint32_t runs = 0;
    struct touch_params params = {.runs = &runs};
    hold(0, &gate);
    assert_cuda(fixture_touch(&fixture, 0, &params));
    assert_int_equal(fixture.driver->cuStreamQuery(fixture.streams[0]), CUDA_ERROR_NOT_READY);
    assert_int_equal(atomic_load(&runs), 0);
    atomic_store(&gate, 1);
    fixture_synchronize(&fixture, 0);
    assert_int_equal(atomic_load(&runs), 1);
}

static void a_queued_launch_keeps_the_parameters_it_was_given(void **state)
{
    (void)state;
    _Atomic uint32_t gate = 0;
    hold(0, &gate);
    struct touch_params params = {.write = memory.address, .bytes = 64, .value = 1};
    assert_cuda(fixture_touch(&fixture, 0, &params));
    params.value = 2;
    params.write = 0;
    atomic_store(&gate, 1);
    fixture_synchronize(&fixture, 0);
    assert_int_equal(bytes_at(63)[0], 1);
}

static void chunks_of_one_launch_run_on_all_threads_at_once(void **state)
{
    (void)state;
    _Atomic uint32_t gate = 0;
    _Atomic uint32_t inside = 0;
    _Atomic uint32_t runs = 0;
    struct touch_params params = {.write = memory.address,
                                  .bytes = 4 * FIXTURE_GRANULE,
                                  .chunks = 64,
                                  .value = 3,
                                  .gate = &gate,
                                  .inside = &inside,
                                  .runs = &runs};
    assert_cuda(fixture_touch(&fixture, 0, &params));
    fixture_await(&inside, 2); /* both threads are in a chunk at the same time */
    atomic_store(&gate, 1);
    fixture_synchronize(&fixture, 0);
    assert_int_equal(atomic_load(&runs), 64);
    for (uint64_t i = 0; i < 4 * FIXTURE_GRANULE; i += 4096) {
        assert_int_equal(bytes_at(i)[0], 3);
    }
}

static void other_streams_go_on_beside_the_chunks_of_a_large_launch(void **state)
{
    (void)state;
    _Atomic uint32_t inside = 0;
    _Atomic uint32_t runs = 0;
    CUevent event;
    struct touch_params large = {.chunks = 1000, .traffic = LARGE, .pauses = 1, .inside = &inside};
    struct touch_params other = {.traffic = LARGE, .runs = &runs};
    const struct gpu_driver *driver = fixture.driver;
    fixture_use(&fixture, 2);
    assert_cuda(driver->cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    assert_cuda(fixture_touch(&fixture, 0, &large));
    fixture_await(&inside, 2);
    assert_cuda(driver->cuMemsetD8Async(memory.address, 1, 2 * SMALL, fixture.streams[2]));
    assert_cuda(driver->cuEventRecord(event, fixture.streams[2]));
    assert_cuda(driver->cuStreamWaitEvent(fixture.streams[1], event, 0));
    assert_cuda(fixture_touch(&fixture, 1, &other));
    fixture_synchronize(&fixture, 1);
    assert_int_equal(atomic_load(&runs), 1);
    assert_true(atomic_load(&inside) < 1000);
    fixture_synchronize(&fixture, 0);
    assert_int_equal(atomic_load(&inside), 1000);
    assert_cuda(driver->cuEventDestroy(event));
    fixture_use(&fixture, 0);
}

static void commands_of_a_stream_run_in_order(void **state)
{
    (void)state;
    _Atomic uint32_t gate = 0;
    hold(0, &gate);
    for (uint32_t i = 1; i <= 200; i++) {
        struct touch_params params = {
            .write = memory.address, .bytes = FIXTURE_GRANULE, .chunks = i % 7 + 1, .value = i};
        if (i % 3 == 0) {
            assert_cuda(fixture.driver->cuMemsetD8Async(memory.address, (unsigned char)i,
                                                        FIXTURE_GRANULE, fixture.streams[0]));
        } else {
            assert_cuda(fixture_touch(&fixture, 0, &params));
        }
    }
    atomic_store(&gate, 1);
    fixture_synchronize(&fixture, 0);
    assert_int_equal(bytes_at(0)[0], 200);
}

/* ---------------------------------------------------------------- copies */

static void copies_of_every_length_and_alignment_move_exactly_their_bytes(void **state)
{
    (void)state;
    static const uint64_t lengths[] = {1, 15, 63, 64, 65, 4097, 1 << 20, (1 << 20) + 77};
    for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
        for (uint64_t shift = 0; shift < 66; shift += 13) {
            uint64_t from = shift;
            uint64_t to = 2 * FIXTURE_GRANULE + 1 + 2 * shift;
            memset(bytes_at(0), 0x11, 4 * FIXTURE_GRANULE);
            memset(bytes_at(from), 0x22, lengths[i]);
            assert_cuda(fixture.driver->cuMemcpyDtoDAsync(
                memory.address + to, memory.address + from, lengths[i], fixture.streams[0]));
            fixture_synchronize(&fixture, 0);
            assert_int_equal(bytes_at(to - 1)[0], 0x11);
            assert_int_equal(bytes_at(to)[0], 0x22);
            assert_int_equal(bytes_at(to + lengths[i] - 1)[0], 0x22);
            assert_int_equal(bytes_at(to + lengths[i])[0], 0x11);
        }
    }
}

static void a_copy_larger_than_the_cache_is_right_too(void **state)
{
    (void)state;
    struct fixture_memory large[2];
    uint64_t bytes = 24ull << 20;
    for (int i = 0; i < 2; i++) {
        fixture_map(&fixture, 1 + i, bytes, &large[i]);
    }
    assert_cuda(fixture.driver->cuMemsetD8Async(large[0].address, 0, bytes, fixture.streams[0]));
    fixture_synchronize(&fixture, 0);
    uint32_t *words = (uint32_t *)(uintptr_t)large[0].address;
    for (uint32_t i = 0; i < bytes / 4; i++) {
        words[i] = i;
    }
    assert_cuda(fixture.driver->cuMemcpyDtoDAsync(large[1].address + 5, large[0].address + 5,
                                                  bytes - 9, fixture.streams[0]));
    fixture_synchronize(&fixture, 0);
    const char *copied = (const char *)(uintptr_t)large[1].address;
    assert_memory_equal(copied + 5, (const char *)words + 5, bytes - 9);
    assert_int_equal(copied[4] | copied[bytes - 4], 0);
    fixture_unmap(&fixture, &large[0]);
    fixture_unmap(&fixture, &large[1]);
}

static void a_copy_to_ordinary_memory_is_done_when_the_call_returns(void **state)
{
    (void)state;
    static unsigned char host[1 << 20];
    memset(host, 4, sizeof(host));
    assert_cuda(
        fixture.driver->cuMemcpyHtoDAsync(memory.address, host, sizeof(host), fixture.streams[0]));
    memset(host, 0, sizeof(host));
    assert_cuda(
        fixture.driver->cuMemcpyDtoHAsync(host, memory.address, sizeof(host), fixture.streams[0]));
    assert_int_equal(host[sizeof(host) - 1], 4);
}

/* ---------------------------------------------------------------- events */

static void a_stream_waits_for_the_record_that_was_current_when_it_asked(void **state)
{
    (void)state;
    _Atomic uint32_t first = 0;
    _Atomic uint32_t runs = 0;
    CUevent event;
    struct touch_params params = {.runs = &runs};
    assert_cuda(fixture.driver->cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    hold(0, &first);
    assert_cuda(fixture.driver->cuEventRecord(event, fixture.streams[0]));
    assert_cuda(fixture.driver->cuStreamWaitEvent(fixture.streams[1], event, 0));
    fixture_use(&fixture, 1);
    assert_cuda(fixture_touch(&fixture, 1, &params));
    /* Recording again, on an idle stream, must not let the waiting stream go. */
    CUstream idle;
    fixture_use(&fixture, 0);
    assert_cuda(fixture.driver->cuStreamCreateWithPriority(&idle, 0, 0));
    assert_cuda(fixture.driver->cuEventRecord(event, idle));
    assert_cuda(fixture.driver->cuEventQuery(event));
    nanosleep(&(struct timespec){.tv_nsec = 20 * 1000000}, NULL);
    assert_int_equal(atomic_load(&runs), 0);
    assert_int_equal(fixture.driver->cuStreamQuery(fixture.streams[1]), CUDA_ERROR_NOT_READY);
    atomic_store(&first, 1);
    fixture_synchronize(&fixture, 1);
    assert_int_equal(atomic_load(&runs), 1);
    assert_cuda(fixture.driver->cuStreamDestroy(idle));
    assert_cuda(fixture.driver->cuEventDestroy(event));
}

static void an_event_joins_four_devices(void **state)
{
    (void)state;
    CUevent events[FIXTURE_DEVICES];
    for (int i = 0; i < FIXTURE_DEVICES; i++) {
        fixture_use(&fixture, i);
        assert_cuda(fixture.driver->cuEventCreate(&events[i], CU_EVENT_DISABLE_TIMING));
    }
    for (uint32_t round = 1; round <= 100; round++) {
        struct touch_params last = {.write = memory.address, .bytes = 4096, .value = round};
        for (int i = 1; i < FIXTURE_DEVICES; i++) {
            struct touch_params params = {.write = memory.address + 4096u * (unsigned)i,
                                          .bytes = 4096,
                                          .traffic = round % 2 ? LARGE : 1,
                                          .value = round};
            assert_cuda(fixture_touch(&fixture, i, &params));
            assert_cuda(fixture.driver->cuEventRecord(events[i], fixture.streams[i]));
            assert_cuda(fixture.driver->cuStreamWaitEvent(fixture.streams[0], events[i], 0));
        }
        assert_cuda(fixture_touch(&fixture, 0, &last));
        fixture_synchronize(&fixture, 0);
        for (unsigned i = 0; i < FIXTURE_DEVICES; i++) {
            assert_int_equal(bytes_at(4096 * i)[4095], round);
        }
    }
    for (int i = 0; i < FIXTURE_DEVICES; i++) {
        assert_cuda(fixture.driver->cuEventDestroy(events[i]));
    }
    fixture_use(&fixture, 0);
}

static void an_event_never_recorded_is_done_and_destroying_one_in_use_is_safe(void **state)
{
    (void)state;
    _Atomic uint32_t gate = 0;
    CUevent event;
    assert_cuda(fixture.driver->cuEventCreate(&event, 0));
    assert_cuda(fixture.driver->cuEventQuery(event));
    assert_cuda(fixture.driver->cuEventSynchronize(event));
    assert_cuda(fixture.driver->cuStreamWaitEvent(fixture.streams[1], event, 0));
    hold(0, &gate);
    assert_cuda(fixture.driver->cuEventRecord(event, fixture.streams[0]));
    assert_int_equal(fixture.driver->cuEventQuery(event), CUDA_ERROR_NOT_READY);
    assert_cuda(fixture.driver->cuStreamWaitEvent(fixture.streams[1], event, 0));
    assert_cuda(fixture.driver->cuEventDestroy(event));
    atomic_store(&gate, 1);
    fixture_synchronize(&fixture, 1);
}

static void elapsed_time_is_that_between_two_records(void **state)
{
    (void)state;
    CUevent start;
    CUevent end;
    float milliseconds;
    assert_cuda(fixture.driver->cuEventCreate(&start, 0));
    assert_cuda(fixture.driver->cuEventCreate(&end, 0));
    assert_cuda(fixture.driver->cuEventRecord(start, fixture.streams[0]));
    nanosleep(&(struct timespec){.tv_nsec = 20 * 1000000}, NULL);
    assert_cuda(fixture.driver->cuEventRecord(end, fixture.streams[0]));
    assert_cuda(fixture.driver->cuEventElapsedTime(&milliseconds, start, end));
    assert_true(milliseconds >= 20 && milliseconds < 10000);
    assert_cuda(fixture.driver->cuEventElapsedTime(&milliseconds, end, start));
    assert_true(milliseconds <= -20);
    assert_cuda(fixture.driver->cuEventDestroy(start));
    assert_cuda(fixture.driver->cuEventDestroy(end));
}

/* ---------------------------------------------------------------- host functions */

struct host_call {
    _Atomic uint32_t calls;
    pthread_t thread;
    CUresult result; /**< Of a driver call made inside. */
};

static void host_function(void *data)
{
    struct host_call *call = data;
    CUevent event;
    call->result = fixture.driver->cuEventCreate(&event, 0);
    call->thread = pthread_self();
    atomic_fetch_add(&call->calls, 1);
}

static void a_host_function_runs_here_when_the_stream_is_idle_and_may_not_call_back(void **state)
{
    (void)state;
    struct host_call call = {0};
    assert_cuda(fixture.driver->cuLaunchHostFunc(fixture.streams[0], host_function, &call));
    assert_int_equal(atomic_load(&call.calls), 1);
    assert_true(pthread_equal(call.thread, pthread_self()));
    assert_int_equal(call.result, CUDA_ERROR_NOT_PERMITTED);
    CUevent event; /* outside again, calls are permitted */
    assert_cuda(fixture.driver->cuEventCreate(&event, 0));
    assert_cuda(fixture.driver->cuEventDestroy(event));
}

static void a_host_function_behind_work_runs_after_it(void **state)
{
    (void)state;
    _Atomic uint32_t gate = 0;
    struct host_call call = {0};
    hold(0, &gate);
    assert_cuda(fixture.driver->cuLaunchHostFunc(fixture.streams[0], host_function, &call));
    assert_int_equal(atomic_load(&call.calls), 0);
    atomic_store(&gate, 1);
    fixture_synchronize(&fixture, 0);
    assert_int_equal(atomic_load(&call.calls), 1);
    assert_int_equal(call.result, CUDA_ERROR_NOT_PERMITTED);
}

/* ---------------------------------------------------------------- errors */

static void a_bad_operand_kills_its_context_and_no_other(void **state)
{
    (void)state;
    struct host_call call = {0};
    CUevent event;
    size_t left;
    size_t total;
    fixture_use(&fixture, 1);
    assert_cuda(fixture.driver->cuEventCreate(&event, 0));
    struct touch_params params = {.write = memory.address + memory.bytes - 8, .bytes = 16};
    assert_cuda(fixture_touch(&fixture, 1, &params)); /* asynchronous: the launch itself is fine */
    CUstream stream = fixture.streams[1];
    const struct gpu_driver *driver = fixture.driver;
    assert_int_equal(driver->cuStreamSynchronize(stream), CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_int_equal(driver->cuStreamQuery(stream), CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_int_equal(driver->cuEventRecord(event, stream), CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_int_equal(driver->cuEventQuery(event), CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_int_equal(driver->cuMemGetInfo(&left, &total), CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_int_equal(driver->cuLaunchHostFunc(stream, host_function, &call),
                     CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_int_equal(atomic_load(&call.calls), 0);
    assert_int_equal(driver->cuEventDestroy(event), CUDA_ERROR_ILLEGAL_ADDRESS);
    fixture_use(&fixture, 0);
    assert_cuda(driver->cuMemsetD8Async(memory.address, 1, 64, fixture.streams[0]));
    /* A new primary context is a new life. */
    assert_int_equal(driver->cuStreamDestroy(stream), CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_int_equal(driver->cuModuleUnload(fixture.modules[1]), CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_cuda(driver->cuDevicePrimaryCtxRelease(1));
    assert_cuda(driver->cuDevicePrimaryCtxRetain(&fixture.contexts[1], 1));
    fixture_use(&fixture, 1);
    assert_cuda(driver->cuMemGetInfo(&left, &total));
    fixture_use(&fixture, 0);
}

static void commands_behind_a_bad_launch_do_not_run_but_events_release_others(void **state)
{
    (void)state;
    _Atomic uint32_t gate = 0;
    _Atomic uint32_t runs = 0;
    struct host_call call = {0};
    CUevent event;
    const struct gpu_driver *driver = fixture.driver;
    fixture_use(&fixture, 1);
    assert_cuda(driver->cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    struct touch_params bad = {.read = 4096, .bytes = 1};
    struct touch_params after = {.runs = &runs};
    hold(1, &gate);
    assert_cuda(fixture_touch(&fixture, 1, &bad));
    assert_cuda(fixture_touch(&fixture, 1, &after));
    assert_cuda(driver->cuLaunchHostFunc(fixture.streams[1], host_function, &call));
    assert_cuda(driver->cuEventRecord(event, fixture.streams[1]));
    assert_cuda(driver->cuStreamWaitEvent(fixture.streams[0], event, 0));
    atomic_store(&gate, 1);
    fixture_synchronize(&fixture, 0);
    assert_int_equal(driver->cuStreamSynchronize(fixture.streams[1]), CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_int_equal(atomic_load(&runs), 0);
    assert_int_equal(atomic_load(&call.calls), 0);
    (void)driver->cuEventDestroy(event);
    fixture_use(&fixture, 0);
}

static void memory_unmapped_before_a_launch_starts_is_an_illegal_address(void **state)
{
    (void)state;
    _Atomic uint32_t gate = 0;
    struct fixture_memory gone;
    fixture_map(&fixture, 1, FIXTURE_GRANULE, &gone);
    hold(1, &gate);
    struct touch_params params = {.write = gone.address, .bytes = 64};
    assert_cuda(fixture_touch(&fixture, 1, &params));
    fixture_unmap(&fixture, &gone);
    atomic_store(&gate, 1);
    assert_int_equal(fixture.driver->cuStreamSynchronize(fixture.streams[1]),
                     CUDA_ERROR_ILLEGAL_ADDRESS);
}

struct unmapper {
    struct fixture_memory memory;
    _Atomic uint32_t done;
};

static void *unmap_thread(void *arg)
{
    struct unmapper *unmapper = arg;
    fixture_unmap(&fixture, &unmapper->memory);
    atomic_store(&unmapper->done, 1);
    return NULL;
}

static void unmapping_waits_for_the_launch_that_uses_the_memory(void **state)
{
    (void)state;
    _Atomic uint32_t gate = 0;
    _Atomic uint32_t inside = 0;
    struct unmapper unmapper = {0};
    pthread_t thread;
    fixture_map(&fixture, 0, FIXTURE_GRANULE, &unmapper.memory);
    struct touch_params params = {.write = unmapper.memory.address,
                                  .bytes = FIXTURE_GRANULE,
                                  .chunks = 4,
                                  .gate = &gate,
                                  .inside = &inside};
    assert_cuda(fixture_touch(&fixture, 0, &params));
    fixture_await(&inside, 1);
    assert_int_equal(pthread_create(&thread, NULL, unmap_thread, &unmapper), 0);
    nanosleep(&(struct timespec){.tv_nsec = 50 * 1000000}, NULL);
    assert_int_equal(atomic_load(&unmapper.done), 0);
    /* Meanwhile other memory can be made, and the range is not there to be unmapped again. */
    struct fixture_memory other;
    fixture_map(&fixture, 0, FIXTURE_GRANULE, &other);
    fixture_unmap(&fixture, &other);
    assert_int_equal(fixture.driver->cuMemUnmap(unmapper.memory.address, FIXTURE_GRANULE),
                     CUDA_ERROR_INVALID_VALUE);
    atomic_store(&gate, 1);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(atomic_load(&unmapper.done), 1);
    fixture_synchronize(&fixture, 0);
}

static void destroying_a_busy_stream_lets_its_work_finish(void **state)
{
    (void)state;
    _Atomic uint32_t gate = 0;
    _Atomic uint32_t runs = 0;
    struct touch_params params = {.traffic = LARGE, .gate = &gate, .runs = &runs};
    CUstream stream;
    assert_cuda(fixture.driver->cuStreamCreateWithPriority(&stream, 0, 0));
    void *arguments[] = {&params};
    assert_cuda(fixture.driver->cuLaunchKernel(fixture.touch[0], 1, 1, 1, 1, 1, 1, 0, stream,
                                               arguments, NULL));
    assert_cuda(fixture.driver->cuStreamDestroy(stream));
    assert_int_equal(fixture.driver->cuStreamQuery(stream), CUDA_ERROR_INVALID_HANDLE);
    atomic_store(&gate, 1);
    fixture_await(&runs, 1);
}

/* ---------------------------------------------------------------- delay and load */

static void delayed_launches_of_independent_streams_overlap(void **state)
{
    (void)state;
    _Atomic uint32_t runs = 0;
    struct touch_params params = {.runs = &runs};
    uint64_t start = st_clock_now_ns();
    for (int i = 0; i < FIXTURE_DEVICES; i++) {
        assert_cuda(fixture_touch(&fixture, i, &params));
    }
    for (int i = 0; i < FIXTURE_DEVICES; i++) {
        fixture_synchronize(&fixture, i);
    }
    uint64_t passed = st_clock_now_ns() - start;
    assert_int_equal(atomic_load(&runs), FIXTURE_DEVICES);
    assert_true(passed >= 100 * ST_NS_PER_MS);
    assert_true(passed < 300 * ST_NS_PER_MS); /* four in a row would be 400 */
}

struct submitter {
    pthread_t thread;
    CUstream stream;
    int device;
    _Atomic uint32_t calls;
};

static void count_call(void *data)
{
    atomic_fetch_add(&((struct submitter *)data)->calls, 1);
}

static void *submit_thread(void *arg)
{
    struct submitter *submitter = arg;
    fixture_use(&fixture, submitter->device);
    CUevent event;
    assert_cuda(fixture.driver->cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    uint64_t place = memory.address + 65536u * (unsigned)submitter->device;
    for (uint32_t i = 0; i < 500; i++) {
        struct touch_params params = {.write = place,
                                      .bytes = 4096,
                                      .chunks = i % 3 + 1,
                                      .traffic = i % 2 ? LARGE : 1,
                                      .value = i};
        assert_cuda(fixture_touch(&fixture, submitter->device, &params));
        assert_cuda(fixture.driver->cuEventRecord(event, submitter->stream));
        assert_cuda(fixture.driver->cuStreamWaitEvent(
            fixture.streams[(submitter->device + 1) % FIXTURE_DEVICES], event, 0));
        assert_cuda(fixture.driver->cuLaunchHostFunc(submitter->stream, count_call, submitter));
        if (i % 50 == 0) {
            struct fixture_memory other;
            fixture_map(&fixture, submitter->device, FIXTURE_GRANULE, &other);
            fixture_unmap(&fixture, &other);
        }
    }
    assert_cuda(fixture.driver->cuEventSynchronize(event));
    assert_cuda(fixture.driver->cuStreamSynchronize(submitter->stream));
    assert_cuda(fixture.driver->cuEventDestroy(event));
    return NULL;
}

static void four_threads_submit_to_four_streams_that_wait_for_each_other(void **state)
{
    (void)state;
    struct submitter submitters[FIXTURE_DEVICES] = {0};
    for (int i = 0; i < FIXTURE_DEVICES; i++) {
        submitters[i].stream = fixture.streams[i];
        submitters[i].device = i;
        assert_int_equal(pthread_create(&submitters[i].thread, NULL, submit_thread, &submitters[i]),
                         0);
    }
    for (int i = 0; i < FIXTURE_DEVICES; i++) {
        assert_int_equal(pthread_join(submitters[i].thread, NULL), 0);
    }
    for (int i = 0; i < FIXTURE_DEVICES; i++) {
        fixture_synchronize(&fixture, i);
        assert_int_equal(atomic_load(&submitters[i].calls), 500);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
        TEST(a_small_launch_on_an_idle_stream_is_done_when_the_call_returns),
        TEST(a_larger_launch_runs_on_a_thread_of_the_pool),
        TEST(a_small_launch_behind_others_waits_for_its_turn),
        TEST(a_queued_launch_keeps_the_parameters_it_was_given),
        TEST(chunks_of_one_launch_run_on_all_threads_at_once),
        TEST(other_streams_go_on_beside_the_chunks_of_a_large_launch),
        TEST(commands_of_a_stream_run_in_order),
        TEST(copies_of_every_length_and_alignment_move_exactly_their_bytes),
        TEST(a_copy_larger_than_the_cache_is_right_too),
        TEST(a_copy_to_ordinary_memory_is_done_when_the_call_returns),
        TEST(a_stream_waits_for_the_record_that_was_current_when_it_asked),
        TEST(an_event_joins_four_devices),
        TEST(an_event_never_recorded_is_done_and_destroying_one_in_use_is_safe),
        TEST(elapsed_time_is_that_between_two_records),
        TEST(a_host_function_runs_here_when_the_stream_is_idle_and_may_not_call_back),
        TEST(a_host_function_behind_work_runs_after_it),
        TEST(a_bad_operand_kills_its_context_and_no_other),
        TEST(commands_behind_a_bad_launch_do_not_run_but_events_release_others),
        TEST(memory_unmapped_before_a_launch_starts_is_an_illegal_address),
        TEST(unmapping_waits_for_the_launch_that_uses_the_memory),
        TEST(destroying_a_busy_stream_lets_its_work_finish),
        TEST(four_threads_submit_to_four_streams_that_wait_for_each_other),
#undef TEST
        cmocka_unit_test_setup_teardown(delayed_launches_of_independent_streams_overlap,
                                        setup_delayed, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
