#include "tests/contract/gpu/rig.h"

#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "gpu/driver/driver.h"

/** Memory of teams: sizes, refusals, zeroes, and the accounting behind them. */

static struct rig rig;

static enum st_status create(struct gpu_team *team, const struct gpu_memory_spec *spec,
                             struct gpu_memory **ret_memory, struct st_error *err)
{
    *ret_memory = NULL;
    *err = (struct st_error){0};
    enum st_status status = gpu_memory_create(team, spec, ret_memory, err);
    assert_int_equal(status == ST_OK, *ret_memory != NULL);
    return status;
}

static struct gpu_memory *must_create(struct gpu_team *team, const struct gpu_memory_spec *spec)
{
    struct gpu_memory *memory;
    struct st_error err;
    assert_status(create(team, spec, &memory, &err), ST_OK);
    return memory;
}

static uint64_t owned(uint32_t ordinal)
{
    struct gpu_device_memory memory;
    gpu_device_memory(rig.gpu, ordinal, &memory);
    return memory.owned_bytes;
}

static uint64_t quarantined(uint32_t ordinal)
{
    struct gpu_device_memory memory;
    gpu_device_memory(rig.gpu, ordinal, &memory);
    return memory.quarantined_bytes;
}

/** Whether [0, bytes) of a rank is @p value throughout. */
static bool all_bytes(struct gpu_team *team, struct gpu_memory *memory, uint32_t rank,
                      uint64_t bytes, unsigned char value)
{
    unsigned char *data = malloc(bytes);
    rig_read(&rig, team, memory, rank, data, bytes);
    uint64_t at = 0;
    while (at < bytes && data[at] == value) {
        at++;
    }
    free(data);
    return at == bytes;
}

static void write_bytes(struct gpu_team *team, struct gpu_memory *memory, uint32_t rank,
                        uint64_t bytes, unsigned char value)
{
    unsigned char *data = malloc(bytes);
    memset(data, value, bytes);
    rig_write(&rig, team, memory, rank, data, bytes);
    free(data);
}

/* ---------------------------------------------------------------- sizes */

static void sizes_are_rounded_and_small_ones_share_a_slab(void **state)
{
    (void)state;
    static const struct {
        struct gpu_memory_spec spec;
        uint64_t allocated;
        bool slab;
    } rows[] = {
        {{.size_bytes = 0}, 0, false},
        {{.size_bytes = 0, .attachable = true}, 0, false},
        {{.size_bytes = 1}, 256, true},
        {{.size_bytes = 256}, 256, true},
        {{.size_bytes = 257}, 512, true},
        {{.size_bytes = RIG_GRANULE - 1}, RIG_GRANULE, true},
        {{.size_bytes = RIG_GRANULE}, RIG_GRANULE, false},
        {{.size_bytes = RIG_GRANULE + 1}, 2 * RIG_GRANULE, false},
        {{.size_bytes = 1, .attachable = true}, RIG_GRANULE, false},
        {{.size_bytes = 1, .type = GPU_MEMORY_GLOBAL, .attachable = true}, 256, true},
        {{.size_bytes = 3 * RIG_GRANULE, .type = GPU_MEMORY_GLOBAL}, 3 * RIG_GRANULE, false},
        {{.size_bytes = 4, .multicast = GPU_MULTICAST_DISABLED}, 256, true},
    };
    rig_open(&rig, &(struct rig_options){0});
    struct gpu_team *team = rig_team(&rig, 4, 4);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct st_error err = {0};
        uint64_t allocated = 1;
        assert_status(gpu_memory_check(team, &rows[i].spec, &allocated, &err), ST_OK);
        assert_int_equal(allocated, rows[i].allocated);
        struct gpu_memory *memory = must_create(team, &rows[i].spec);
        const struct gpu_memory_info *info = gpu_memory_info(memory);
        assert_int_equal(info->size_bytes, rows[i].spec.size_bytes);
        assert_int_equal(info->allocated_bytes, rows[i].allocated);
        assert_int_equal(info->slab, rows[i].slab);
        assert_int_equal(owned(3), rows[i].slab ? RIG_GRANULE : rows[i].allocated);
        gpu_memory_destroy(memory);
        rig_assert_clean_but_teams(&rig);
    }
    gpu_team_destroy(team);
    rig_close(&rig);
}

static void a_recommended_granularity_of_512_mib_is_taken_only_where_it_adds_little(void **state)
{
    (void)state;
    rig_open(&rig, &(struct rig_options){.devices = 2,
                                         .memory_bytes = 2 * ST_GIB,
                                         .multicast_recommended = "512MiB"});
    struct gpu_team *team = rig_team(&rig, 2, 2);
    assert_int_equal(gpu_device_info(rig.gpu, 0)->multicast_granularity_recommended_bytes,
                     512 * ST_MIB);
    static const struct {
        uint64_t bytes, allocated;
    } rows[] = {
        {3 * ST_MIB, 4 * ST_MIB},
        {400 * ST_MIB, 400 * ST_MIB},
        {490 * ST_MIB, 512 * ST_MIB}, /* 22 MiB are less than 1/16 */
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct gpu_memory_spec spec = {.size_bytes = rows[i].bytes};
        struct st_error err = {0};
        uint64_t allocated = 0;
        assert_status(gpu_memory_check(team, &spec, &allocated, &err), ST_OK);
        assert_int_equal(allocated, rows[i].allocated);
    }
    struct gpu_memory *memory = must_create(
        team, &(struct gpu_memory_spec){.size_bytes = 3 * ST_MIB,
                                        .multicast = GPU_MULTICAST_REQUIRED});
    struct gpu_multicast_info info;
    assert_int_equal(gpu_multicast_list(rig.gpu, &info, 1), 1);
    assert_int_equal(info.size_bytes % (512 * ST_MIB), 0);
    assert_int_equal(info.used_bytes, 4 * ST_MIB);
    gpu_memory_destroy(memory);
    gpu_team_destroy(team);
    rig_close(&rig);
}

static void too_large_for_ever_is_not_no_room_now(void **state)
{
    (void)state;
    static const struct {
        uint32_t ranks, devices;
        uint64_t limit, bytes;
        enum st_reason reason;
    } rows[] = {
        {2, 2, 0, 64 * ST_MIB, ST_REASON_NONE},
        {2, 2, 0, 64 * ST_MIB + 1, ST_REASON_EXCEEDS_DEVICE_CAPACITY},
        {4, 2, 0, 32 * ST_MIB, ST_REASON_NONE},
        {4, 2, 0, 34 * ST_MIB, ST_REASON_EXCEEDS_DEVICE_CAPACITY},
        {2, 2, 16 * ST_MIB, 16 * ST_MIB, ST_REASON_NONE},
        {2, 2, 16 * ST_MIB, 18 * ST_MIB, ST_REASON_EXCEEDS_DEVICE_CAPACITY},
        {1, 1, 0, UINT64_MAX, ST_REASON_EXCEEDS_DEVICE_CAPACITY},
        {1, 1, 0, 1ull << 62, ST_REASON_EXCEEDS_DEVICE_CAPACITY},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        rig_open(&rig, &(struct rig_options){.devices = 2, .limit_bytes = rows[i].limit});
        struct gpu_team *team = rig_team(&rig, rows[i].ranks, rows[i].devices);
        const struct gpu_memory_spec spec = {.size_bytes = rows[i].bytes, .attachable = true};
        struct gpu_memory *memory;
        struct st_error err;
        enum st_status status = create(team, &spec, &memory, &err);
        assert_int_equal(status, rows[i].reason ? ST_FAILED_PRECONDITION : ST_OK);
        assert_int_equal(err.reason, rows[i].reason);
        if (status == ST_OK) {
            struct gpu_memory *second;
            assert_int_equal(create(team, &spec, &second, &err), ST_RESOURCE_EXHAUSTED);
            assert_int_equal(err.reason, ST_REASON_GPU_MEMORY_EXHAUSTED);
            assert_string_equal(err.details[0].key, "device");
            assert_string_equal(err.details[1].key, "bytes");
        }
        gpu_memory_destroy(memory);
        gpu_team_destroy(team);
        rig_close(&rig);
    }
}

static void running_out_of_descriptors_is_said(void **state)
{
    (void)state;
    rig_open(&rig, &(struct rig_options){.memory_bytes = ST_GIB});
    struct gpu_team *team = rig_team(&rig, 4, 4);
    struct gpu_memory *memories[64] = {NULL};
    struct rlimit before, few;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    few = (struct rlimit){test_open_fds() + 30, before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    const struct gpu_memory_spec spec = {.size_bytes = 1, .attachable = true};
    enum st_status status = ST_OK;
    struct st_error err;
    size_t made = 0;
    while (status == ST_OK && made < 64) {
        status = create(team, &spec, &memories[made], &err);
        made += status == ST_OK;
    }
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_int_equal(status, ST_RESOURCE_EXHAUSTED);
    assert_int_equal(err.reason, ST_REASON_FD_LIMIT);
    assert_int_equal(owned(0), made * RIG_GRANULE);
    for (size_t i = 0; i < made; i++) {
        gpu_memory_destroy(memories[i]);
    }
    gpu_team_destroy(team);
    rig_close(&rig);
}

/* ---------------------------------------------------------------- contents */

static void new_memory_is_zero_and_reused_slab_space_too(void **state)
{
    (void)state;
    rig_open(&rig, &(struct rig_options){0});
    struct gpu_team *team = rig_team(&rig, 4, 4);
    struct gpu_memory *keeper = must_create(team, &(struct gpu_memory_spec){.size_bytes = 100});
    static const uint64_t sizes[] = {100, 1000, 700, 4096, 3000, RIG_GRANULE + 5};
    for (size_t i = 0; i < 4 * sizeof(sizes) / sizeof(sizes[0]); i++) {
        uint64_t bytes = sizes[i % (sizeof(sizes) / sizeof(sizes[0]))];
        struct gpu_memory *memory = must_create(team,
                                                &(struct gpu_memory_spec){.size_bytes = bytes});
        for (uint32_t rank = 0; rank < 4; rank++) {
            assert_true(all_bytes(team, memory, rank, bytes, 0));
            write_bytes(team, memory, rank, bytes, 0xee);
        }
        assert_true(all_bytes(team, keeper, 1, 100, 0));
        gpu_memory_destroy(memory);
    }
    gpu_memory_destroy(keeper);
    gpu_team_destroy(team);
    rig_close(&rig);
}

static void parts_of_a_slab_do_not_touch_each_other(void **state)
{
    (void)state;
    rig_open(&rig, &(struct rig_options){0});
    struct gpu_team *team = rig_team(&rig, 3, 3);
    struct gpu_memory *memories[64];
    for (unsigned i = 0; i < 64; i++) {
        memories[i] = must_create(team, &(struct gpu_memory_spec){.size_bytes = 1 + 97 * i});
        for (uint32_t rank = 0; rank < 3; rank++) {
            write_bytes(team, memories[i], rank, 1 + 97 * i, (unsigned char)(3 * i + rank));
        }
    }
    assert_int_equal(owned(0), RIG_GRANULE); /* one slab holds them all */
    for (unsigned i = 0; i < 64; i++) {
        for (uint32_t rank = 0; rank < 3; rank++) {
            assert_true(all_bytes(team, memories[i], rank, 1 + 97 * i,
                                  (unsigned char)(3 * i + rank)));
        }
        gpu_memory_destroy(memories[i]);
    }
    assert_int_equal(owned(0), 0);
    gpu_team_destroy(team);
    rig_close(&rig);
}

static void a_full_slab_is_followed_by_another(void **state)
{
    (void)state;
    rig_open(&rig, &(struct rig_options){.devices = 1});
    struct gpu_team *team = rig_team(&rig, 2, 1);
    struct gpu_memory *memories[5];
    for (unsigned i = 0; i < 5; i++) {
        memories[i] = must_create(team, &(struct gpu_memory_spec){.size_bytes = ST_MIB});
    }
    assert_int_equal(owned(0), 2 * 3 * RIG_GRANULE);
    gpu_memory_destroy(memories[4]);
    assert_int_equal(owned(0), 2 * 2 * RIG_GRANULE);
    for (unsigned i = 0; i < 4; i++) {
        gpu_memory_destroy(memories[i]);
    }
    gpu_team_destroy(team);
    rig_close(&rig);
}

/* ---------------------------------------------------------------- handle types */

struct create_log {
    unsigned count;
    uint32_t handle_types[8];
    CUresult results[8];
};

static void log_creates(void *arg, const struct gpu_call_record *record)
{
    struct create_log *log = arg;
    if (record->call == GPU_CALL_cuMemCreate && log->count < 8) {
        log->handle_types[log->count] = record->handle_types;
        log->results[log->count++] = record->result;
    }
}

static void symmetric_memory_is_shareable_and_global_memory_is_not(void **state)
{
    (void)state;
    static const struct {
        const char *no_fabric;
        enum gpu_memory_type type;
        bool fault;
        uint32_t types[2];
    } rows[] = {
        {"0", GPU_MEMORY_SYMMETRIC, false, {9}},
        {"0", GPU_MEMORY_SYMMETRIC, true, {9, 1}}, /* a channel that has gone since */
        {"1", GPU_MEMORY_SYMMETRIC, false, {1}},
        {"0", GPU_MEMORY_GLOBAL, false, {0}},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        rig_open(&rig, &(struct rig_options){.no_fabric = rows[i].no_fabric});
        assert_int_equal(gpu_device_info(rig.gpu, 0)->fabric, rows[i].no_fabric[0] == '0');
        struct gpu_team *team = rig_team(&rig, 1, 1);
        struct create_log log = {0};
        gpu_faults_log(log_creates, &log);
        if (rows[i].fault) {
            gpu_faults_arm(GPU_CALL_cuMemCreate, 1, CUDA_ERROR_NOT_PERMITTED);
        }
        struct gpu_memory *memory = must_create(
            team, &(struct gpu_memory_spec){.size_bytes = RIG_GRANULE, .type = rows[i].type});
        gpu_faults_log(NULL, NULL);
        gpu_faults_disarm();
        assert_int_equal(log.count, rows[i].fault ? 2 : 1);
        assert_int_equal(log.handle_types[0], rows[i].types[0]);
        assert_int_equal(log.handle_types[1], rows[i].types[1]);
        gpu_memory_destroy(memory);
        gpu_team_destroy(team);
        rig_close(&rig);
    }
}

/* ---------------------------------------------------------------- roll-back */

static void no_reason_but(enum st_status status, const struct st_error *err,
                          enum st_reason expected, uint64_t nth)
{
    if (status != ST_OK && err->reason != expected) {
        fail_msg("call %llu: %s", (unsigned long long)nth, err->message);
    }
}

/** What the sweep makes and takes away again. */
struct sweep {
    const char *name;
    struct gpu_memory_spec spec;
    bool slab_exists; /**< A part of a slab that is there and was used before. */
};

/** After the n-th call failed: nothing is left, whatever it was, and what was made works. */
static bool sweep_once(const struct sweep *sweep, struct gpu_team *team, uint64_t nth,
                       CUresult result, enum st_reason expected)
{
    struct gpu_memory *memory;
    struct st_error err;
    struct gpu_software_usage before, after;
    gpu_software_usage(&before);
    unsigned fds = test_open_fds();
    gpu_faults_arm_any(nth, result);
    enum st_status status = create(team, &sweep->spec, &memory, &err);
    bool fired = gpu_faults_disarm();
    no_reason_but(status, &err, expected, nth);
    if (memory) {
        assert_true(all_bytes(team, memory, 0, sweep->spec.size_bytes, 0));
        assert_true(fired || gpu_memory_info(memory)->multicast_reason == GPU_MULTICAST_NONE ||
                    sweep->spec.type == GPU_MEMORY_GLOBAL ||
                    sweep->spec.multicast == GPU_MULTICAST_DISABLED);
    }
    gpu_memory_destroy(memory);
    gpu_software_usage(&after);
    after.host_allocations = before.host_allocations;
    assert_memory_equal(&before, &after, sizeof(before));
    assert_int_equal(test_open_fds(), fds);
    return fired;
}

static void whatever_call_fails_creation_leaves_nothing(void **state)
{
    (void)state;
    static const struct sweep sweeps[] = {
        {"symmetric", {.size_bytes = 3 * ST_MIB, .multicast = GPU_MULTICAST_DISABLED}, false},
        {"multicast", {.size_bytes = 3 * ST_MIB}, false},
        {"required", {.size_bytes = 3 * ST_MIB, .multicast = GPU_MULTICAST_REQUIRED}, false},
        {"global", {.size_bytes = 3 * ST_MIB, .type = GPU_MEMORY_GLOBAL}, false},
        {"slab", {.size_bytes = 300}, false},
        {"used slab", {.size_bytes = 300}, true},
        {"global slab", {.size_bytes = 300, .type = GPU_MEMORY_GLOBAL}, false},
    };
    static const struct {
        CUresult result;
        enum st_reason reason, required; /**< Of all memory; of multicast that is required. */
    } failures[] = {
        {CUDA_ERROR_INVALID_VALUE, ST_REASON_DRIVER_ERROR, ST_REASON_MULTICAST_UNAVAILABLE},
        {CUDA_ERROR_OUT_OF_MEMORY, ST_REASON_GPU_MEMORY_EXHAUSTED, ST_REASON_MULTICAST_UNAVAILABLE},
    };
    rig_open(&rig, &(struct rig_options){0});
    struct gpu_team *team = rig_team(&rig, 3, 3);
    rig_warm_staging(&rig);
    for (size_t i = 0; i < 2 * sizeof(sweeps) / sizeof(sweeps[0]); i++) {
        const struct sweep *sweep = &sweeps[i / 2];
        struct gpu_memory *keeper = NULL;
        if (sweep->slab_exists) {
            keeper = must_create(team, &(struct gpu_memory_spec){.size_bytes = 300});
            struct gpu_memory *used = must_create(team, &sweep->spec);
            write_bytes(team, used, 0, 300, 0xff);
            gpu_memory_destroy(used);
        }
        unsigned mappings = test_mappings();
        uint64_t nth = 1;
        bool more = true;
        while (more) {
            enum st_reason reason = failures[i % 2].reason;
            /* Of the two calls before it, allocation and access are the memory's own. */
            struct gpu_memory *probe = NULL;
            (void)probe;
            if (sweep->spec.multicast == GPU_MULTICAST_REQUIRED) {
                reason = ST_REASON_COUNT;
            }
            more = reason == ST_REASON_COUNT
                       ? rig_sweep_required(&rig, team, &sweep->spec, nth, failures[i % 2].result,
                                            failures[i % 2].reason, failures[i % 2].required)
                       : sweep_once(sweep, team, nth, failures[i % 2].result, reason);
            nth++;
        }
        assert_true(nth > 5);
        assert_int_equal(test_mappings(), mappings);
        gpu_memory_destroy(keeper);
        rig_assert_clean_but_teams(&rig);
    }
    gpu_team_destroy(team);
    rig_close(&rig);
}
