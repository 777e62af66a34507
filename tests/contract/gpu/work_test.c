#include "tests/contract/gpu/rig.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/kernels/params.h"
#include "gpu/memory.h"
#include "gpu/team.h"

/** Fills, copies, transfers and what becomes of work that fails. */

static struct rig rig;

#define ELEMENTS 3000

/* ---------------------------------------------------------------- helpers */

static enum st_status fill(struct gpu_team *team, struct gpu_memory *memory, int32_t rank,
                           enum gpu_fill_pattern pattern, int32_t value)
{
    struct gpu_fill_spec spec = {
        .memory = memory,
        .rank = rank,
        .dtype = ST_DTYPE_INT32,
        .shape = {.rank = 1, .dims = {ELEMENTS}},
        .strides = {.dims = {1}},
        .pattern = pattern,
    };
    assert_true(st_dtype_from_int64(ST_DTYPE_INT32, value, &spec.value));
    struct rig_wait wait = RIG_WAIT_INIT;
    gpu_fill_run(team, &spec, rig_completion(&wait));
    return rig_await(&wait);
}

static void assert_elements(struct gpu_team *team, struct gpu_memory *memory, uint32_t rank,
                            int32_t first, int32_t step)
{
    int32_t data[ELEMENTS];
    rig_read(&rig, team, memory, rank, data, sizeof(data));
    for (int32_t i = 0; i < ELEMENTS; i++) {
        assert_int_equal(data[i], first + step * i);
    }
}

static enum st_status run_all_reduce(struct gpu_team *team, struct gpu_memory *memory,
                                     uint64_t count, struct st_error *ret_err)
{
    struct rig_wait wait = RIG_WAIT_INIT;
    struct gpu_collective_spec spec = rig_all_reduce(team, memory, count);
    gpu_collective_run(team, &spec, rig_completion(&wait));
    enum st_status status = rig_await(&wait);
    *ret_err = wait.err;
    return status;
}

/* ---------------------------------------------------------------- fill */

static void fills_write_values_ranks_and_indices(void **state)
{
    (void)state;
    rig_open(&rig, &(struct rig_options){0});
    struct gpu_team *team = rig_team(&rig, 4, 3);
    struct gpu_memory *memory = rig_memory(team, 4 * ELEMENTS);
    assert_int_equal(fill(team, memory, -1, GPU_FILL_VALUE, -7), ST_OK);
    assert_int_equal(fill(team, memory, 2, GPU_FILL_VALUE, 9), ST_OK);
    assert_elements(team, memory, 1, -7, 0);
    assert_elements(team, memory, 2, 9, 0);
    assert_int_equal(fill(team, memory, -1, GPU_FILL_RANK, 0), ST_OK);
    for (uint32_t rank = 0; rank < 4; rank++) {
        assert_elements(team, memory, rank, (int32_t)rank, 0);
    }
    assert_int_equal(fill(team, memory, 3, GPU_FILL_IOTA, 0), ST_OK);
    assert_elements(team, memory, 3, 0, 1);
    assert_elements(team, memory, 0, 0, 0);
    gpu_memory_destroy(memory);
    gpu_team_destroy(team);
    rig_close(&rig);
}

/* ---------------------------------------------------------------- transfers */

static void logical_transfers_permute_and_plain_ones_do_not(void **state)
{
    (void)state;
    enum { ROWS = 30, COLUMNS = 50, FIRST = 17, COUNT = 900 };
    rig_open(&rig, &(struct rig_options){0});
    struct gpu_team *team = rig_team(&rig, 2, 2);
    struct gpu_memory *memory = rig_memory(team, 2 * ROWS * COLUMNS);
    uint16_t data[ROWS * COLUMNS];
    for (unsigned i = 0; i < ROWS * COLUMNS; i++) {
        data[i] = (uint16_t)i;
    }
    rig_write(&rig, team, memory, 1, data, sizeof(data)); /* memory order: column by column */
    struct gpu_transfer_spec spec = {
        .memory = memory,
        .rank = 1,
        .buffer = gpu_staging_acquire(rig.gpu),
        .offset_bytes = 2 * FIRST,
        .bytes = 2 * COUNT,
        .logical = true,
        .element_bytes = 2,
        .shape = {.rank = 2, .dims = {ROWS, COLUMNS}},
        .strides = {.dims = {1, ROWS}},
    };
    uint16_t *packed = spec.buffer;
    struct rig_wait out = RIG_WAIT_INIT, in = RIG_WAIT_INIT;
    gpu_transfer_run(team, &spec, rig_completion(&out));
    assert_int_equal(rig_await(&out), ST_OK);
    for (unsigned i = 0; i < COUNT; i++) {
        unsigned row = (FIRST + i) / COLUMNS, column = (FIRST + i) % COLUMNS;
        assert_int_equal(packed[i], column * ROWS + row);
        packed[i] = (uint16_t)(40000 + i);
    }
    spec.to_shard = true;
    gpu_transfer_run(team, &spec, rig_completion(&in));
    assert_int_equal(rig_await(&in), ST_OK);
    rig_read(&rig, team, memory, 1, data, sizeof(data));
    for (unsigned i = 0; i < ROWS * COLUMNS; i++) {
        unsigned at = i / COLUMNS + i % COLUMNS * ROWS; /* of logical element i */
        bool written = i >= FIRST && i < FIRST + COUNT;
        assert_int_equal(data[at], written ? 40000 + i - FIRST : at);
    }
    gpu_staging_release(rig.gpu, spec.buffer);
    gpu_memory_destroy(memory);
    gpu_team_destroy(team);
    rig_close(&rig);
}

static void staging_buffers_run_out_and_come_back(void **state)
{
    (void)state;
    void *buffers[ST_STAGING_BUFFERS_MAX];
    rig_open(&rig, &(struct rig_options){0});
    for (size_t i = 0; i < ST_STAGING_BUFFERS_MAX; i++) {
        buffers[i] = gpu_staging_acquire(rig.gpu);
        assert_non_null(buffers[i]);
        memset(buffers[i], (int)i, ST_STAGING_BYTES);
    }
    assert_null(gpu_staging_acquire(rig.gpu));
    gpu_staging_release(rig.gpu, buffers[5]);
    assert_ptr_equal(gpu_staging_acquire(rig.gpu), buffers[5]);
    for (size_t i = 0; i < ST_STAGING_BUFFERS_MAX; i++) {
        gpu_staging_release(rig.gpu, buffers[i]);
    }
    rig_close(&rig);
}

static void a_buffer_that_cannot_be_made_is_tried_again(void **state)
{
    (void)state;
    rig_open(&rig, &(struct rig_options){0});
    gpu_faults_arm(GPU_CALL_cuMemHostAlloc, 1, CUDA_ERROR_OUT_OF_MEMORY);
    assert_null(gpu_staging_acquire(rig.gpu));
    assert_true(gpu_faults_disarm());
    void *buffer = gpu_staging_acquire(rig.gpu);
    assert_non_null(buffer);
    gpu_staging_release(rig.gpu, buffer);
    rig_close(&rig);
}

/* ---------------------------------------------------------------- copies */

static void copies_go_between_ranks_teams_and_memory_types(void **state)
{
    (void)state;
    enum { BYTES = 3 * ST_STAGING_BYTES + 77 };
    static const struct {
        const char *no_peer;
        enum gpu_memory_type from, to;
        uint32_t from_rank, to_rank;
        bool other_team;
    } rows[] = {
        {NULL, GPU_MEMORY_SYMMETRIC, GPU_MEMORY_SYMMETRIC, 0, 1, false},
        {NULL, GPU_MEMORY_GLOBAL, GPU_MEMORY_SYMMETRIC, 1, 0, false},
        {NULL, GPU_MEMORY_SYMMETRIC, GPU_MEMORY_SYMMETRIC, 1, 1, true},
        {NULL, GPU_MEMORY_GLOBAL, GPU_MEMORY_GLOBAL, 0, 0, true},
        {"0:1", GPU_MEMORY_GLOBAL, GPU_MEMORY_GLOBAL, 0, 1, false},
        {"1:0", GPU_MEMORY_GLOBAL, GPU_MEMORY_GLOBAL, 0, 1, false},
        {"0:1,1:0", GPU_MEMORY_GLOBAL, GPU_MEMORY_GLOBAL, 0, 1, false},
    };
    unsigned char *data = malloc(BYTES), *found = malloc(BYTES);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct rig_options options = {.no_peer = rows[i].no_peer};
        if (!rig_can(&options)) {
            continue;
        }
        rig_open(&rig, &options);
        struct gpu_team *team = rig_team(&rig, 2, 2);
        struct gpu_team *other = rig_team_of(&rig, (uint32_t[]){3, 2}, 2);
        struct st_error err = {0};
        struct gpu_team *to_team = rows[i].other_team ? other : team;
        const struct gpu_memory_spec from = {.size_bytes = BYTES, .type = rows[i].from};
        const struct gpu_memory_spec to = {.size_bytes = BYTES, .type = rows[i].to};
        struct gpu_copy_spec spec = {.source_rank = rows[i].from_rank,
                                     .destination_rank = rows[i].to_rank,
                                     .source_offset = 3,
                                     .destination_offset = 10,
                                     .bytes = BYTES - 20};
        assert_status(gpu_memory_create(team, &from, &spec.source, &err), ST_OK);
        assert_status(gpu_memory_create(to_team, &to, &spec.destination, &err), ST_OK);
        for (size_t k = 0; k < BYTES; k++) {
            data[k] = (unsigned char)(k * 31 >> 3);
        }
        rig_write(&rig, team, spec.source, spec.source_rank, data, BYTES);
        struct rig_wait wait = RIG_WAIT_INIT;
        gpu_copy_run(team, &spec, rig_completion(&wait));
        assert_int_equal(rig_await(&wait), ST_OK);
        rig_read(&rig, to_team, spec.destination, spec.destination_rank, found, BYTES);
        assert_memory_equal(found + 10, data + 3, BYTES - 20);
        assert_int_equal(found[9], 0);
        assert_int_equal(found[BYTES - 10], 0);
        gpu_memory_destroy(spec.source);
        gpu_memory_destroy(spec.destination);
        gpu_team_destroy(team);
        gpu_team_destroy(other);
        rig_close(&rig);
    }
    free(data);
    free(found);
}

/** Between teams of one device each. */
static void a_copy_between_teams_goes_directly_where_devices_reach_each_other(void **state)
{
    (void)state;
    static const struct {
        const char *no_peer;
        uint32_t to_device;
        bool denied; /**< The driver refuses to give access. */
        bool wants, direct;
    } rows[] = {
        {NULL, 1, false, true, true},        {NULL, 0, false, false, true},
        {"0:1", 1, false, true, true},       {"1:0", 1, false, true, true},
        {"0:1,1:0", 1, false, false, false}, {NULL, 1, true, true, false},
    };
    enum { BYTES = 2 * ST_STAGING_BYTES + 5 };
    static unsigned char data[BYTES], found[BYTES];
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct rig_options options = {.no_peer = rows[i].no_peer, .distinct = 2};
        if (!rig_can(&options)) {
            continue;
        }
        rig_open(&rig, &options);
        struct gpu_team *from = rig_team(&rig, 1, 1), *to = NULL;
        struct st_error err = {0};
        assert_status(gpu_team_create(rig.gpu, &rows[i].to_device, 1, &to, &err), ST_OK);
        struct gpu_copy_spec spec = {.source = rig_memory(from, BYTES),
                                     .destination = rig_memory(to, BYTES),
                                     .bytes = BYTES};
        memset(data, (int)i + 1, BYTES);
        rig_write(&rig, from, spec.source, 0, data, BYTES);
        assert_int_equal(gpu_copy_wants_access(&spec), rows[i].wants);
        if (rows[i].denied) {
            gpu_faults_arm(GPU_CALL_cuMemSetAccess, 1, CUDA_ERROR_INVALID_DEVICE);
        }
        gpu_copy_prepare(&spec);
        (void)gpu_faults_disarm();
        assert_int_equal(gpu_copy_wants_access(&spec), rows[i].wants && !rows[i].direct);
        /* A second copy between devices, or a first one to the host, would fail. */
        gpu_faults_arm(rows[i].direct ? GPU_CALL_cuMemcpyDtoDAsync : GPU_CALL_cuMemcpyDtoHAsync,
                       rows[i].direct ? 2 : 4, CUDA_ERROR_INVALID_VALUE);
        struct rig_wait wait = RIG_WAIT_INIT;
        gpu_copy_run(to, &spec, rig_completion(&wait));
        assert_int_equal(rig_await(&wait), ST_OK);
        assert_false(gpu_faults_disarm());
        gpu_faults_arm(rows[i].direct ? GPU_CALL_cuMemcpyDtoHAsync : GPU_CALL_cuMemcpyDtoDAsync, 1,
                       CUDA_ERROR_INVALID_VALUE);
        wait = (struct rig_wait)RIG_WAIT_INIT;
        gpu_copy_run(to, &spec, rig_completion(&wait));
        assert_int_equal(rig_await(&wait), ST_OK);
        assert_false(gpu_faults_disarm());
        rig_read(&rig, to, spec.destination, 0, found, BYTES);
        assert_memory_equal(found, data, BYTES);
        gpu_memory_destroy(spec.source);
        gpu_memory_destroy(spec.destination);
        gpu_team_destroy(from);
        gpu_team_destroy(to);
        rig_close(&rig);
    }
}

/** Between devices of which no two reach each other: rank r's slices afterwards. */
static void collectives_without_peer_access_go_by_copy_engine(void **state)
{
    (void)state;
    enum { RANKS = 3, SLICE = 400000 };
    static const struct {
        const char *name;
        bool in_place;
    } rows[] = {{"all_to_all", true}, {"all_to_all", false}, {"all_gather", true}};
    rig_open(&rig, &(struct rig_options){.no_peer = "0:1,0:2,1:0,1:2,2:0,2:1"});
    struct gpu_team *team = rig_team(&rig, RANKS, RANKS);
    static unsigned char data[RANKS * SLICE];
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct gpu_memory_spec memory = {.size_bytes = sizeof(data),
                                               .type = GPU_MEMORY_GLOBAL};
        struct gpu_memory *memories[3];
        struct st_error err = {0};
        for (size_t m = 0; m < 3; m++) {
            assert_status(gpu_memory_create(team, &memory, &memories[m], &err), ST_OK);
        }
        for (uint32_t rank = 0; rank < RANKS; rank++) {
            for (uint32_t slice = 0; slice < RANKS; slice++) {
                memset(data + slice * SLICE, (int)(10 * rank + slice + 1), SLICE);
            }
            rig_write(&rig, team, memories[0], rank, data, sizeof(data));
        }
        struct gpu_collective_spec spec = {
            .algorithm = gpu_algorithm_find("copy_engine"),
            .plan = {.collective = gpu_collective_find(rows[i].name),
                     .shape = {RANKS, 0, SLICE, rows[i].in_place},
                     .dtype = ST_DTYPE_UINT8,
                     .large_bytes = sizeof(data)},
            .input = memories[0],
            .output = memories[rows[i].in_place ? 0 : 1],
            .scratch = memories[2],
        };
        gpu_plan_fill(team, spec.input, spec.output, &spec.plan);
        assert_false(spec.plan.peer_access);
        struct rig_wait wait = RIG_WAIT_INIT;
        gpu_collective_run(team, &spec, rig_completion(&wait));
        assert_int_equal(rig_await(&wait), ST_OK);
        bool gathers = strcmp(rows[i].name, "all_gather") == 0;
        for (uint32_t rank = 0; rank < RANKS; rank++) {
            rig_read(&rig, team, spec.output, rank, data, sizeof(data));
            for (uint32_t at = 0; at < sizeof(data); at++) {
                uint32_t from = at / SLICE;
                assert_int_equal(data[at], 10 * from + (gathers ? from : rank) + 1);
            }
        }
        for (size_t m = 0; m < 3; m++) {
            gpu_memory_destroy(memories[m]);
        }
    }
    gpu_team_destroy(team);
    rig_close(&rig);
}

/* ---------------------------------------------------------------- failures */

/** What a sweep over failing calls runs. */
typedef enum st_status swept(struct gpu_team *team, struct gpu_memory *memory,
                             struct st_error *ret_err);

static enum st_status swept_small(struct gpu_team *team, struct gpu_memory *memory,
                                  struct st_error *ret_err)
{
    return run_all_reduce(team, memory, 16, ret_err);
}

static enum st_status swept_large(struct gpu_team *team, struct gpu_memory *memory,
                                  struct st_error *ret_err)
{
    return run_all_reduce(team, memory, RIG_GRANULE / 4, ret_err);
}

static enum st_status swept_copy(struct gpu_team *team, struct gpu_memory *memory,
                                 struct st_error *ret_err)
{
    struct rig_wait wait = RIG_WAIT_INIT;
    const struct gpu_copy_spec spec = {
        .source = memory, .destination = memory, .destination_rank = 1, .bytes = RIG_GRANULE};
    gpu_copy_run(team, &spec, rig_completion(&wait));
    enum st_status status = rig_await(&wait);
    *ret_err = wait.err;
    return status;
}

static void whatever_call_fails_work_ends_once_and_with_the_error(void **state)
{
    (void)state;
    swept *const runs[] = {swept_small, swept_large, swept_copy};
    for (size_t i = 0; i < 2 * sizeof(runs) / sizeof(runs[0]); i++) {
        /* A graph that cannot be made fails nothing: graph_test.c has those calls. */
        rig_open(&rig, &(struct rig_options){.watch = i % 2, .graphs = GPU_GRAPHS_OFF});
        struct gpu_team *team = rig_team(&rig, 3, 3);
        struct gpu_memory *memory = rig_memory(team, RIG_GRANULE);
        bool fired = true;
        for (uint64_t nth = 1; fired; nth++) {
            struct st_error err = {0};
            gpu_faults_arm_any(nth, CUDA_ERROR_INVALID_VALUE);
            enum st_status status = runs[i / 2](team, memory, &err);
            fired = gpu_faults_disarm();
            /* With the watch, the call that failed may have been one of its own. */
            assert_true(status == ST_OK ? !fired || i % 2 : err.reason == ST_REASON_DRIVER_ERROR);
            assert_int_equal(gpu_device_state(rig.gpu, 0), GPU_DEVICE_OK);
        }
        gpu_memory_destroy(memory);
        gpu_team_destroy(team);
        rig_close(&rig);
    }
}

/** Let the lane's kernel run into memory that is not mapped. */
static void poison(struct gpu_team *team, uint32_t lane, uint64_t address)
{
    struct gpu_device *device = team->lanes[lane].device;
    struct gpu_fill_params params = {.address = address,
                                     .element_count = 64,
                                     .dims = {64},
                                     .strides = {1},
                                     .dims_count = 1,
                                     .dtype = ST_DTYPE_INT32,
                                     .row_major = 1};
    struct st_error err = {0};
    assert_status(gpu_device_enter(device, &err), ST_OK);
    const struct gpu_launch launch = {
        .kernel = GPU_KERNEL_FILL, .params = &params, .traffic_bytes = 256};
    (void)!gpu_device_launch(device, team->lanes[lane].stream, &launch, &err);
}

static void a_sticky_error_ends_the_work_behind_it_in_bounded_time(void **state)
{
    (void)state;
    static const char *const delays[] = {NULL, "50000"}; /* seen at once, or when it is too late */
    rig_needs_software("a real driver is not to be used by the process any more afterwards");
    for (size_t i = 0; i < 2; i++) {
        rig_open(&rig, &(struct rig_options){.watch = true, .launch_delay_us = delays[i]});
        struct gpu_team *team = rig_team(&rig, 2, 2);
        struct gpu_team *other = NULL;
        struct st_error err = {0};
        assert_status(gpu_team_create(rig.gpu, (uint32_t[]){2}, 1, &other, &err), ST_OK);
        struct gpu_memory *gone = rig_memory(team, RIG_GRANULE);
        uint64_t address = gpu_memory_address(gone, 1);
        struct gpu_memory *memory = rig_memory(team, RIG_GRANULE);
        struct gpu_memory *others = rig_memory(other, RIG_GRANULE);
        gpu_memory_destroy(gone);
        poison(team, 1, address);
        uint64_t start_ns = st_clock_now_ns();
        assert_int_equal(run_all_reduce(team, memory, RIG_GRANULE / 4, &err), ST_UNAVAILABLE);
        assert_int_equal(err.reason, ST_REASON_DEVICE_LOST);
        assert_true(st_clock_now_ns() - start_ns < 5 * ST_NS_PER_SECOND);
        assert_int_equal(gpu_device_state(rig.gpu, 1), GPU_DEVICE_LOST);
        assert_int_equal(gpu_device_state(rig.gpu, 0), GPU_DEVICE_OK);
        assert_non_null(strstr(gpu_device_state_reason(rig.gpu, 1), "ILLEGAL_ADDRESS"));
        /* From now on it is refused at once; other devices go on. */
        assert_int_equal(run_all_reduce(team, memory, 16, &err), ST_UNAVAILABLE);
        assert_int_equal(err.reason, ST_REASON_DEVICE_LOST);
        assert_status(run_all_reduce(other, others, 16, &err), ST_OK);
        gpu_memory_destroy(others);
        gpu_memory_destroy(memory);
        gpu_team_destroy(other);
        gpu_team_destroy(team);
        gpu_close(rig.gpu);
        st_timers_destroy(rig.timers);
    }
}

static void a_job_on_a_lost_device_waits_for_its_other_devices(void **state)
{
    (void)state;
    rig_open(&rig, &(struct rig_options){.watch = true, .launch_delay_us = "700000"});
    struct gpu_team *team = rig_team(&rig, 2, 2);
    const struct gpu_memory_spec plain = {.size_bytes = RIG_GRANULE,
                                          .multicast = GPU_MULTICAST_DISABLED};
    struct gpu_memory *memory = NULL;
    struct st_error err = {0};
    assert_status(gpu_memory_create(team, &plain, &memory, &err), ST_OK);
    struct rig_wait wait = RIG_WAIT_INIT;
    struct gpu_collective_spec spec = rig_all_reduce(team, memory, RIG_GRANULE / 4);
    uint64_t start_ns = st_clock_now_ns();
    gpu_collective_run(team, &spec, rig_completion(&wait));
    gpu_device_mark_lost(team->lanes[1].device, CUDA_ERROR_LAUNCH_FAILED);
    (void)rig_await(&wait);
    assert_true(st_clock_now_ns() - start_ns > 600 * ST_NS_PER_MS);
    assert_status(gpu_device_enter(team->lanes[0].device, &err), ST_OK);
    assert_int_equal(rig.gpu->driver->cuStreamQuery(team->lanes[0].stream), CUDA_SUCCESS);
    gpu_memory_destroy(memory);
    gpu_team_destroy(team);
    rig_close(&rig);
}

/* ---------------------------------------------------------------- others keep a lane busy */

static bool has_ended(struct rig_wait *wait)
{
    pthread_mutex_lock(&wait->lock);
    bool ended = wait->calls > 0;
    pthread_mutex_unlock(&wait->lock);
    return ended;
}

/** Keep several fills on the team's first lane until other work has ended, at most 4 s. @return
 * whether it has. */
static bool ends_while_busy(struct gpu_team *team, struct gpu_memory *memory,
                            struct rig_wait *other)
{
    enum { AT_ONCE = 3 };
    const struct gpu_fill_spec spec = {.memory = memory,
                                       .dtype = ST_DTYPE_INT32,
                                       .shape = {.rank = 1, .dims = {64}},
                                       .strides = {.dims = {1}}};
    struct rig_wait waits[AT_ONCE];
    uint64_t until_ns = st_clock_now_ns() + 4 * ST_NS_PER_SECOND;
    uint32_t started = 0;
    bool ended = false;
    while (!ended && st_clock_now_ns() < until_ns) {
        struct rig_wait *wait = &waits[started % AT_ONCE];
        if (started >= AT_ONCE) {
            assert_int_equal(rig_await(wait), ST_OK);
        }
        *wait = (struct rig_wait)RIG_WAIT_INIT;
        gpu_fill_run(team, &spec, rig_completion(wait));
        started++;
        ended = has_ended(other);
    }
    for (uint32_t i = 0; i < started && i < AT_ONCE; i++) {
        assert_int_equal(rig_await(&waits[i]), ST_OK);
    }
    return ended;
}

static void a_copy_to_a_lost_device_ends_though_others_use_its_other_lane(void **state)
{
    (void)state;
    rig_open(&rig, &(struct rig_options){
                       .watch = true, .launch_delay_us = "30000", .no_peer = "0:1,1:0"});
    struct gpu_team *team = rig_team(&rig, 1, 1), *other = NULL;
    struct st_error err = {0};
    assert_status(gpu_team_create(rig.gpu, (uint32_t[]){1}, 1, &other, &err), ST_OK);
    struct gpu_memory *gone = rig_memory(other, RIG_GRANULE);
    uint64_t address = gpu_memory_address(gone, 0);
    struct gpu_copy_spec spec = {.source = rig_memory(team, RIG_GRANULE),
                                 .destination = rig_memory(other, RIG_GRANULE),
                                 .bytes = RIG_GRANULE};
    gpu_memory_destroy(gone);
    struct rig_wait wait = RIG_WAIT_INIT;
    poison(other, 0, address);
    gpu_copy_run(team, &spec, rig_completion(&wait));
    assert_true(ends_while_busy(team, spec.source, &wait));
    assert_int_equal(wait.calls, 1);
    assert_int_equal(wait.err.reason, ST_REASON_DEVICE_LOST);
    assert_int_equal(gpu_device_state(rig.gpu, 0), GPU_DEVICE_OK);
    struct gpu_software_usage usage;
    gpu_software_usage(&usage);
    assert_int_equal(usage.events, rig.base.events + 2); /* a lane's each */
    gpu_memory_destroy(spec.source);
    gpu_memory_destroy(spec.destination);
    gpu_team_destroy(team);
    gpu_team_destroy(other);
    gpu_close(rig.gpu);
    st_timers_destroy(rig.timers);
}

static void a_job_without_its_host_function_ends_though_others_use_its_lanes(void **state)
{
    (void)state;
    rig_open(&rig, &(struct rig_options){.watch = true, .launch_delay_us = "30000"});
    struct gpu_team *team = rig_team(&rig, 2, 2);
    struct gpu_memory *memory = rig_memory(team, RIG_GRANULE);
    struct rig_wait wait = RIG_WAIT_INIT;
    struct gpu_collective_spec spec = rig_all_reduce(team, memory, RIG_GRANULE / 4);
    gpu_faults_arm(GPU_CALL_cuLaunchHostFunc, 1, CUDA_ERROR_INVALID_VALUE);
    gpu_collective_run(team, &spec, rig_completion(&wait));
    assert_true(gpu_faults_disarm());
    assert_true(ends_while_busy(team, memory, &wait));
    assert_int_equal(wait.calls, 1);
    assert_int_equal(wait.err.reason, ST_REASON_DRIVER_ERROR);
    gpu_memory_destroy(memory);
    gpu_team_destroy(team);
    rig_close(&rig);
}

static void tell_time(void *arg)
{
    atomic_store((_Atomic uint64_t *)arg, st_clock_now_ns());
}

static void a_driver_that_hangs_does_not_hold_the_timers(void **state)
{
    (void)state;
    rig_open(&rig, &(struct rig_options){.watch = true, .launch_delay_us = "400000"});
    struct gpu_team *team = rig_team(&rig, 2, 2);
    struct gpu_memory *memory = NULL;
    struct st_error err = {0};
    const struct gpu_memory_spec plain = {.size_bytes = RIG_GRANULE,
                                          .multicast = GPU_MULTICAST_DISABLED};
    assert_status(gpu_memory_create(team, &plain, &memory, &err), ST_OK);
    struct rig_wait wait = RIG_WAIT_INIT;
    struct gpu_collective_spec spec = rig_all_reduce(team, memory, RIG_GRANULE / 4);
    _Atomic uint64_t fired_ns = 0;
    struct st_timer timer = {0};
    gpu_faults_arm_hang(GPU_CALL_cuStreamQuery, 1, 1500);
    gpu_collective_run(team, &spec, rig_completion(&wait));
    uint64_t due_ns = st_clock_now_ns() + 300 * ST_NS_PER_MS;
    assert_true(st_timer_start(rig.timers, &timer, due_ns, tell_time, &fired_ns));
    assert_int_equal(rig_await(&wait), ST_OK);
    while (st_clock_now_ns() < due_ns + 600 * ST_NS_PER_MS && !atomic_load(&fired_ns)) {
        sched_yield();
    }
    assert_true(atomic_load(&fired_ns) > 0);
    gpu_memory_destroy(memory);
    gpu_team_destroy(team);
    st_timer_stop(rig.timers, &timer);
    rig_close(&rig);
    assert_true(gpu_faults_disarm());
}

/* ---------------------------------------------------------------- what a failure leaves */

static void a_failure_says_whether_anything_was_queued(void **state)
{
    (void)state;
    struct st_error err = {0};
    rig_open(&rig, &(struct rig_options){.distinct = 2});
    struct gpu_team *team = rig_team(&rig, 2, 2);
    struct gpu_memory *memory = rig_memory(team, RIG_GRANULE);
    for (uint64_t nth = 1; nth <= 2; nth++) {
        gpu_faults_arm(GPU_CALL_cuLaunchKernel, nth, CUDA_ERROR_INVALID_VALUE);
        assert_int_equal(run_all_reduce(team, memory, RIG_GRANULE / 4, &err), ST_INTERNAL);
        assert_true(gpu_faults_disarm());
        assert_int_equal(err.untouched, nth == 1);
    }
    gpu_device_mark_degraded(rig.gpu, 1);
    assert_int_equal(run_all_reduce(team, memory, 16, &err), ST_UNAVAILABLE);
    assert_true(err.untouched);
    gpu_memory_destroy(memory);
    gpu_team_destroy(team);
    rig_close(&rig);
}

static void without_kernels_the_plan_says_so_and_work_leaves_all_as_it_was(void **state)
{
    (void)state;
    rig_needs_software("it has two devices");
    setenv("SYMTENSOR_FAULTS", "cuModuleLoadData:2=209", 1);
    rig_open(&rig, &(struct rig_options){0});
    unsetenv("SYMTENSOR_FAULTS");
    assert_true(gpu_faults_disarm());
    struct gpu_team *able = rig_team(&rig, 1, 1), *unable = rig_team(&rig, 2, 2);
    struct gpu_memory *memories[2] = {rig_memory(able, 4096), rig_memory(unable, 4096)};
    assert_true(rig_all_reduce(able, memories[0], 16).plan.kernels);
    assert_false(rig_all_reduce(unable, memories[1], 16).plan.kernels);
    struct rig_wait wait = RIG_WAIT_INIT;
    struct gpu_collective_spec spec = rig_all_reduce(unable, memories[1], 16);
    spec.algorithm = gpu_algorithm_find("one_shot");
    spec.plan.collective = gpu_collective_find("all_to_all");
    gpu_collective_run(unable, &spec, rig_completion(&wait));
    (void)rig_await(&wait);
    assert_int_equal(wait.err.reason, ST_REASON_NO_KERNELS);
    gpu_memory_destroy(memories[0]);
    gpu_memory_destroy(memories[1]);
    gpu_team_destroy(able);
    gpu_team_destroy(unable);
    rig_close(&rig);
}

static void a_copy_finds_a_buffer_when_transfers_have_all_of_theirs(void **state)
{
    (void)state;
    void *buffers[ST_STAGING_BUFFERS_MAX];
    rig_open(&rig, &(struct rig_options){0});
    struct gpu_team *team = rig_team(&rig, 1, 1), *other = rig_team_of(&rig, (uint32_t[]){1}, 1);
    struct gpu_copy_spec spec = {.source = rig_memory(team, RIG_GRANULE),
                                 .destination = rig_memory(other, RIG_GRANULE),
                                 .bytes = RIG_GRANULE};
    for (size_t i = 0; i < ST_STAGING_BUFFERS_MAX; i++) {
        buffers[i] = gpu_staging_acquire(rig.gpu);
        assert_non_null(buffers[i]);
    }
    struct rig_wait wait = RIG_WAIT_INIT;
    gpu_copy_run(team, &spec, rig_completion(&wait));
    assert_int_equal(rig_await(&wait), ST_OK);
    assert_null(gpu_staging_acquire(rig.gpu));
    for (size_t i = 0; i < ST_STAGING_BUFFERS_MAX; i++) {
        gpu_staging_release(rig.gpu, buffers[i]);
    }
    gpu_memory_destroy(spec.source);
    gpu_memory_destroy(spec.destination);
    gpu_team_destroy(team);
    gpu_team_destroy(other);
    rig_close(&rig);
}

/* ---------------------------------------------------------------- threads */

struct runner {
    struct gpu_team *team;
    const char *failure;
};

/** Make memory, run on it, check, take it away; together with others on the same team. */
static void *run_in_thread(void *arg)
{
    struct runner *runner = arg;
    for (unsigned i = 0; i < 60; i++) {
        uint64_t count = i % 3 == 0 ? 100000 : 50;
        const struct gpu_memory_spec spec = {.size_bytes = 4 * count, .attachable = i % 2};
        struct gpu_memory *memory = NULL;
        struct st_error err = {0};
        if (gpu_memory_create(runner->team, &spec, &memory, &err) != ST_OK) {
            runner->failure = "creation failed";
            return NULL;
        }
        struct rig_wait wait = RIG_WAIT_INIT;
        struct gpu_collective_spec run = rig_all_reduce(runner->team, memory, count);
        gpu_collective_run(runner->team, &run, rig_completion(&wait));
        enum st_status status = rig_await(&wait);
        gpu_memory_destroy(memory);
        if (status != ST_OK) {
            runner->failure = "work failed";
            return NULL;
        }
    }
    return NULL;
}

static void threads_share_teams_and_devices(void **state)
{
    (void)state;
    enum { THREADS = 4 };
    rig_open(&rig, &(struct rig_options){.watch = true, .memory_bytes = 256 * ST_MIB});
    struct gpu_team *teams[2] = {rig_team(&rig, 3, 3), rig_team(&rig, 4, 4)};
    pthread_t threads[THREADS];
    struct runner runners[THREADS];
    for (unsigned i = 0; i < THREADS; i++) {
        runners[i] = (struct runner){teams[i % 2], NULL};
        assert_int_equal(pthread_create(&threads[i], NULL, run_in_thread, &runners[i]), 0);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        assert_null(runners[i].failure);
    }
    gpu_team_destroy(teams[0]);
    gpu_team_destroy(teams[1]);
    rig_close(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fills_write_values_ranks_and_indices),
        cmocka_unit_test(logical_transfers_permute_and_plain_ones_do_not),
        cmocka_unit_test(staging_buffers_run_out_and_come_back),
        cmocka_unit_test(a_buffer_that_cannot_be_made_is_tried_again),
        cmocka_unit_test(copies_go_between_ranks_teams_and_memory_types),
        cmocka_unit_test(a_copy_between_teams_goes_directly_where_devices_reach_each_other),
        cmocka_unit_test(collectives_without_peer_access_go_by_copy_engine),
        cmocka_unit_test(whatever_call_fails_work_ends_once_and_with_the_error),
        cmocka_unit_test(a_sticky_error_ends_the_work_behind_it_in_bounded_time),
        cmocka_unit_test(a_job_on_a_lost_device_waits_for_its_other_devices),
        cmocka_unit_test(a_copy_to_a_lost_device_ends_though_others_use_its_other_lane),
        cmocka_unit_test(a_job_without_its_host_function_ends_though_others_use_its_lanes),
        cmocka_unit_test(a_driver_that_hangs_does_not_hold_the_timers),
        cmocka_unit_test(a_failure_says_whether_anything_was_queued),
        cmocka_unit_test(without_kernels_the_plan_says_so_and_work_leaves_all_as_it_was),
        cmocka_unit_test(a_copy_finds_a_buffer_when_transfers_have_all_of_theirs),
        cmocka_unit_test(threads_share_teams_and_devices),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
