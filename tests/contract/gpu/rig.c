#include "tests/contract/gpu/rig.h"

#include <stdlib.h>
#include <string.h>

#include "gpu/team.h"

static void set_variable(const char *name, const char *value)
{
    if (value) {
        setenv(name, value, 1);
    } else {
        unsetenv(name);
    }
}

/* A real driver keeps some memory of what it makes for a first launch, copy or stream. */
#define HARDWARE_SLACK (64 * ST_MIB)

bool rig_is_hardware(void)
{
    const char *driver = getenv("SYMTENSOR_TEST_DRIVER");
    return driver && strcmp(driver, "cuda") == 0;
}

enum gpu_driver_choice rig_driver(void)
{
    return rig_is_hardware() ? GPU_DRIVER_CUDA : GPU_DRIVER_SOFTWARE;
}

bool rig_can(const struct rig_options *options)
{
    bool software = options->no_multicast || options->no_fabric || options->multicast_slots ||
                    options->multicast_recommended || options->no_peer || options->launch_delay_us;
    return !rig_is_hardware() || !software;
}

void rig_needs_software(const char *why)
{
    if (rig_is_hardware()) {
        print_message("needs the software driver: %s\n", why);
        skip();
    }
}

/** The options as gpu_open() takes them. @p devices are there: those that are missing are folded.
 */
static struct gpu_options rig_gpu_options(const struct rig_options *options, uint32_t devices)
{
    uint32_t wanted = options->devices ? options->devices : 4;
    uint64_t memory = options->memory_bytes ? options->memory_bytes : 64 * ST_MIB;
    uint64_t fold = (wanted + devices - 1) / devices;
    struct gpu_options gpu = {
        .driver = rig_driver(),
        .software_devices = wanted,
        .software_memory_bytes = memory,
        .device_memory_limit = options->limit_bytes,
        .nvls = options->nvls,
        .nvls_slots = options->nvls_slots,
        .graphs = options->graphs,
    };
    const char *graphs = getenv("SYMTENSOR_TEST_GRAPHS");
    if (gpu.graphs == GPU_GRAPHS_AUTO && graphs && strcmp(graphs, "on") == 0) {
        gpu.graphs = GPU_GRAPHS_ON;
    }
    if (rig_is_hardware()) {
        gpu.nvls = GPU_NVLS_OFF;
        gpu.device_memory_limit = fold * (options->limit_bytes ? options->limit_bytes : memory);
    }
    return gpu;
}

/** How many devices a real driver has; learnt once. */
static uint32_t rig_hardware_devices(void)
{
    static uint32_t devices;
    if (!devices) {
        struct gpu *gpu = NULL;
        struct st_error err = {0};
        const struct gpu_options options = {.driver = GPU_DRIVER_CUDA, .nvls = GPU_NVLS_OFF};
        assert_status(gpu_open(&options, &gpu, &err), ST_OK);
        devices = gpu_device_count(gpu);
        gpu_close(gpu);
    }
    return devices;
}

static void rig_note_base(struct rig *rig)
{
    rig_usage(&rig->base);
    for (uint32_t i = 0; i < gpu_device_count(rig->gpu); i++) {
        struct gpu_device_memory memory;
        gpu_device_memory(rig->gpu, i, &memory);
        rig->base_free[i] = memory.free_bytes;
    }
}

void rig_open(struct rig *rig, const struct rig_options *options)
{
    struct st_error err = {0};
    *rig = (struct rig){0};
    if (!rig_can(options)) {
        rig_needs_software("the test is about a condition that only it can make");
    }
    uint32_t wanted = options->devices ? options->devices : 4;
    uint32_t devices = rig_is_hardware() ? rig_hardware_devices() : wanted;
    rig->device_count = devices < wanted ? devices : wanted;
    if (rig->device_count < options->distinct) {
        print_message("needs %u devices, %u are there\n", options->distinct, devices);
        skip();
    }
    set_variable("SYMTENSOR_SOFTWARE_NO_MULTICAST", options->no_multicast);
    set_variable("SYMTENSOR_SOFTWARE_NO_FABRIC", options->no_fabric);
    set_variable("SYMTENSOR_SOFTWARE_MULTICAST_SLOTS", options->multicast_slots);
    set_variable("SYMTENSOR_SOFTWARE_MULTICAST_RECOMMENDED", options->multicast_recommended);
    set_variable("SYMTENSOR_SOFTWARE_NO_PEER", options->no_peer);
    set_variable("SYMTENSOR_SOFTWARE_LAUNCH_DELAY_US", options->launch_delay_us);
    if (options->watch) {
        assert_status(st_timers_create(&rig->timers, &err), ST_OK);
    }
    struct gpu_options gpu = rig_gpu_options(options, rig->device_count);
    gpu.timers = rig->timers;
    assert_status(gpu_open(&gpu, &rig->gpu, &err), ST_OK);
    rig_note_base(rig);
}

void rig_usage(struct gpu_software_usage *ret)
{
    *ret = (struct gpu_software_usage){0};
    if (!rig_is_hardware()) {
        gpu_software_usage(ret);
    }
}

unsigned rig_open_fds(void)
{
    return rig_is_hardware() ? 0 : test_open_fds();
}

void rig_assert_no_memory(const struct rig *rig)
{
    struct gpu_software_usage usage;
    rig_usage(&usage);
    assert_int_equal(usage.allocations, 0);
    assert_int_equal(usage.allocated_bytes, 0);
    assert_int_equal(usage.reservations, 0);
    assert_int_equal(usage.mappings, 0);
    assert_int_equal(usage.multicast_objects, 0);
    assert_int_equal(usage.bindings, 0);
    for (uint32_t i = 0; i < gpu_device_count(rig->gpu); i++) {
        struct gpu_device_memory memory;
        gpu_device_memory(rig->gpu, i, &memory);
        uint64_t slack = rig_is_hardware() ? HARDWARE_SLACK : 0;
        assert_int_equal(memory.owned_bytes, 0);
        assert_int_equal(memory.quarantined_bytes, 0);
        assert_true(memory.free_bytes + slack >= rig->base_free[i]);
    }
    assert_int_equal(gpu_multicast_list(rig->gpu, NULL, 0), 0);
}

void rig_assert_clean(const struct rig *rig)
{
    struct gpu_software_usage usage;
    rig_usage(&usage);
    rig_assert_no_memory(rig);
    assert_int_equal(usage.streams, rig->base.streams);
    assert_int_equal(usage.events, rig->base.events);
}

void rig_close(struct rig *rig)
{
    rig_assert_clean(rig);
    gpu_close(rig->gpu);
    st_timers_destroy(rig->timers);
}

uint32_t rig_fold(const struct rig *rig, uint32_t devices)
{
    return (devices + rig->device_count - 1) / rig->device_count;
}

void rig_ordinals(const struct rig *rig, const uint32_t *wanted, uint32_t ranks, uint32_t *ret)
{
    for (uint32_t rank = 0; rank < ranks; rank++) {
        ret[rank] = wanted[rank] % rig->device_count;
    }
}

struct gpu_team *rig_team_of(const struct rig *rig, const uint32_t *ordinals, uint32_t ranks)
{
    uint32_t there[ST_NODE_RANKS_MAX];
    struct gpu_team *team = NULL;
    struct st_error err = {0};
    rig_ordinals(rig, ordinals, ranks, there);
    assert_status(gpu_team_create(rig->gpu, there, ranks, &team, &err), ST_OK);
    return team;
}

struct gpu_team *rig_team(const struct rig *rig, uint32_t ranks, uint32_t devices)
{
    uint32_t ordinals[ST_NODE_RANKS_MAX];
    for (uint32_t rank = 0; rank < ranks; rank++) {
        ordinals[rank] = rank % devices;
    }
    return rig_team_of(rig, ordinals, ranks);
}

struct gpu_memory *rig_memory(struct gpu_team *team, uint64_t bytes)
{
    const struct gpu_memory_spec spec = {.size_bytes = bytes, .attachable = true};
    struct gpu_memory *memory = NULL;
    struct st_error err = {0};
    assert_status(gpu_memory_create(team, &spec, &memory, &err), ST_OK);
    return memory;
}

/* ---------------------------------------------------------------- completions */

static void wait_done(void *arg, enum st_status status, const struct st_error *err)
{
    struct rig_wait *wait = arg;
    pthread_mutex_lock(&wait->lock);
    wait->calls++;
    wait->status = status;
    if (err) {
        wait->err = *err;
    }
    pthread_cond_broadcast(&wait->cond);
    pthread_mutex_unlock(&wait->lock);
}

struct gpu_completion rig_completion(struct rig_wait *wait)
{
    return (struct gpu_completion){wait_done, wait};
}

enum st_status rig_await(struct rig_wait *wait)
{
    uint64_t end_ns = st_clock_now_ns() + 30 * ST_NS_PER_SECOND;
    const struct timespec until = {.tv_sec = (time_t)(end_ns / ST_NS_PER_SECOND),
                                   .tv_nsec = (long)(end_ns % ST_NS_PER_SECOND)};
    int failure = 0;
    pthread_mutex_lock(&wait->lock);
    while (!wait->calls && !failure) {
        failure = pthread_cond_clockwait(&wait->cond, &wait->lock, CLOCK_MONOTONIC, &until);
    }
    unsigned calls = wait->calls;
    pthread_mutex_unlock(&wait->lock);
    assert_int_equal(calls, 1);
    return wait->status;
}

/* ---------------------------------------------------------------- bytes */

static void move(const struct rig *rig, struct gpu_team *team, struct gpu_transfer_spec *spec,
                 unsigned char *data, uint64_t bytes)
{
    spec->buffer = gpu_staging_acquire(rig->gpu);
    assert_non_null(spec->buffer);
    for (uint64_t at = 0; at < bytes; at += spec->bytes) {
        struct rig_wait wait = RIG_WAIT_INIT;
        spec->offset_bytes = at;
        spec->bytes = bytes - at < ST_STAGING_BYTES ? bytes - at : ST_STAGING_BYTES;
        if (spec->to_shard) {
            memcpy(spec->buffer, data + at, spec->bytes);
        }
        gpu_transfer_run(team, spec, rig_completion(&wait));
        assert_int_equal(rig_await(&wait), ST_OK);
        if (!spec->to_shard) {
            memcpy(data + at, spec->buffer, spec->bytes);
        }
    }
    gpu_staging_release(rig->gpu, spec->buffer);
}

void rig_write(const struct rig *rig, struct gpu_team *team, struct gpu_memory *memory,
               uint32_t rank, const void *data, uint64_t bytes)
{
    struct gpu_transfer_spec spec = {.memory = memory, .rank = rank, .to_shard = true};
    move(rig, team, &spec, (unsigned char *)(uintptr_t)data, bytes);
}

void rig_read(const struct rig *rig, struct gpu_team *team, struct gpu_memory *memory,
              uint32_t rank, void *data, uint64_t bytes)
{
    struct gpu_transfer_spec spec = {.memory = memory, .rank = rank};
    move(rig, team, &spec, data, bytes);
}

struct gpu_collective_spec rig_all_reduce(struct gpu_team *team, struct gpu_memory *memory,
                                          uint64_t count)
{
    struct gpu_collective_spec spec = {
        .algorithm = gpu_algorithm_find("two_shot"),
        .plan = {.collective = gpu_collective_find("all_reduce"),
                 .shape = {.world_size = team->world_size, .slice_count = count, .in_place = true},
                 .dtype = ST_DTYPE_INT32,
                 .op = ST_OP_SUM,
                 .large_bytes = 4 * count},
        .input = memory,
        .output = memory,
    };
    gpu_plan_fill(team, memory, memory, &spec.plan);
    return spec;
}
