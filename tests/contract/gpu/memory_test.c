#include "tests/contract/gpu/rig.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

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
        assert_int_equal(owned(0),
                         rig_fold(&rig, 4) * (rows[i].slab ? RIG_GRANULE : rows[i].allocated));
        gpu_memory_destroy(memory);
        rig_assert_no_memory(&rig);
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
    struct gpu_memory *memory =
        must_create(team, &(struct gpu_memory_spec){.size_bytes = 3 * ST_MIB,
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
    rig_needs_software("its memory is a descriptor of the process");
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
        struct gpu_memory *memory =
            must_create(team, &(struct gpu_memory_spec){.size_bytes = bytes});
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
    assert_int_equal(owned(0), rig_fold(&rig, 3) * RIG_GRANULE); /* one slab holds them all */
    for (unsigned i = 0; i < 64; i++) {
        for (uint32_t rank = 0; rank < 3; rank++) {
            assert_true(
                all_bytes(team, memories[i], rank, 1 + 97 * i, (unsigned char)(3 * i + rank)));
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

/** What a sweep makes and takes away again. */
struct sweep {
    struct gpu_memory_spec spec;
    bool used_slab; /**< There is a slab already, and its free space was used before. */
};

struct failure {
    CUresult result;
    enum st_reason reason;
};

/** Fail the n-th call. @return false when there were fewer. */
static bool sweep_once(struct gpu_team *team, const struct sweep *sweep, uint64_t nth,
                       const struct failure *failure)
{
    struct gpu_memory *memory;
    struct st_error err;
    struct gpu_software_usage before, after;
    rig_usage(&before);
    unsigned fds = rig_open_fds();
    gpu_faults_arm_any(nth, failure->result);
    enum st_status status = create(team, &sweep->spec, &memory, &err);
    bool fired = gpu_faults_disarm();
    bool required = sweep->spec.multicast == GPU_MULTICAST_REQUIRED;
    if (status != ST_OK && err.reason != failure->reason &&
        !(required && err.reason == ST_REASON_MULTICAST_UNAVAILABLE)) {
        fail_msg("call %llu: %s", (unsigned long long)nth, err.message);
    }
    assert_true(fired || status == ST_OK);
    if (memory) {
        assert_true(!required || gpu_memory_info(memory)->multicast_reason == GPU_MULTICAST_NONE);
        assert_true(all_bytes(team, memory, 0, sweep->spec.size_bytes, 0));
    }
    gpu_memory_destroy(memory);
    rig_usage(&after);
    assert_memory_equal(&before, &after, sizeof(before));
    assert_int_equal(rig_open_fds(), fds);
    return fired;
}

/** A slab whose first part stays and whose second was used. @return the first part. */
static struct gpu_memory *use_slab(struct gpu_team *team, const struct gpu_memory_spec *spec)
{
    struct gpu_memory *keeper = must_create(team, spec);
    struct gpu_memory *used = must_create(team, spec);
    write_bytes(team, used, 0, spec->size_bytes, 0xff);
    gpu_memory_destroy(used);
    return keeper;
}

/** Mappings of this process; a sanitizer's allocator and a real driver make some whenever they
 * like. */
static unsigned own_mappings(void)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    return 0;
#else
    return rig_is_hardware() ? 0 : test_mappings();
#endif
}

static void whatever_call_fails_a_creation_leaves_nothing(void **state)
{
    (void)state;
    static const struct sweep sweeps[] = {
        {{.size_bytes = RIG_GRANULE, .multicast = GPU_MULTICAST_DISABLED}, false},
        {{.size_bytes = RIG_GRANULE}, false},
        {{.size_bytes = RIG_GRANULE, .multicast = GPU_MULTICAST_REQUIRED}, false},
        {{.size_bytes = RIG_GRANULE, .type = GPU_MEMORY_GLOBAL}, false},
        {{.size_bytes = 300}, false},
        {{.size_bytes = 300}, true},
        {{.size_bytes = 300, .type = GPU_MEMORY_GLOBAL}, true},
    };
    static const struct failure failures[] = {
        {CUDA_ERROR_INVALID_VALUE, ST_REASON_DRIVER_ERROR},
        {CUDA_ERROR_OUT_OF_MEMORY, ST_REASON_GPU_MEMORY_EXHAUSTED},
    };
    rig_open(&rig, &(struct rig_options){0});
    struct gpu_team *team = rig_team(&rig, 3, 3);
    struct gpu_memory *first = must_create(team, &(struct gpu_memory_spec){.size_bytes = 1});
    assert_true(all_bytes(team, first, 0, 1, 0)); /* the buffer that transfers need is made now */
    gpu_memory_destroy(first);
    for (size_t i = 0; i < 2 * sizeof(sweeps) / sizeof(sweeps[0]); i++) {
        const struct sweep *sweep = &sweeps[i / 2];
        if (rig_is_hardware() && sweep->spec.multicast == GPU_MULTICAST_REQUIRED) {
            continue;
        }
        struct gpu_memory *keeper = sweep->used_slab ? use_slab(team, &sweep->spec) : NULL;
        unsigned mappings = own_mappings();
        uint64_t nth = 1;
        while (sweep_once(team, sweep, nth, &failures[i % 2])) {
            nth++;
        }
        assert_true(nth > 5);
        assert_int_equal(own_mappings(), mappings);
        gpu_memory_destroy(keeper);
        rig_assert_no_memory(&rig);
    }
    gpu_team_destroy(team);
    rig_close(&rig);
}

static void whatever_call_fails_a_team_leaves_nothing(void **state)
{
    (void)state;
    static const uint32_t wanted[] = {2, 0, 1, 2};
    uint32_t devices[4];
    rig_open(&rig, &(struct rig_options){0});
    rig_ordinals(&rig, wanted, 4, devices);
    bool fired = true;
    for (uint64_t nth = 1; fired; nth++) {
        struct gpu_team *team = NULL;
        struct st_error err = {0};
        gpu_faults_arm_any(nth, CUDA_ERROR_INVALID_VALUE);
        enum st_status status = gpu_team_create(rig.gpu, devices, 4, &team, &err);
        fired = gpu_faults_disarm();
        assert_int_equal(status == ST_OK, team != NULL);
        assert_int_equal(err.reason, status == ST_OK ? ST_REASON_NONE : ST_REASON_DRIVER_ERROR);
        gpu_team_destroy(team);
        rig_assert_clean(&rig);
    }
    rig_close(&rig);
}

/** Devices that did not open. */
static uint32_t unavailable_devices(const struct gpu *gpu)
{
    uint32_t unavailable = 0;
    for (uint32_t i = 0; i < gpu_device_count(gpu); i++) {
        unavailable += gpu_device_state(gpu, i) == GPU_DEVICE_UNAVAILABLE;
    }
    return unavailable;
}

/** A call about one device costs that device, or nothing; others cost the start. */
static void whatever_call_fails_opening_leaves_nothing(void **state)
{
    (void)state;
    const struct gpu_options options = {
        .driver = rig_driver(), .nvls = GPU_NVLS_OFF, .software_devices = 2};
    unsigned opened = 0, failed = 0, without = 0;
    rig_open(&rig, &(struct rig_options){0}); /* whatever a first opening makes for good */
    rig_close(&rig);
    unsigned fds = rig_open_fds();
    for (uint64_t nth = 1; opened < 5; nth++) {
        char fault[32];
        struct gpu *gpu = NULL;
        struct st_error err = {0};
        snprintf(fault, sizeof(fault), "any:%llu=1", (unsigned long long)nth);
        setenv("SYMTENSOR_FAULTS", fault, 1);
        enum st_status status = gpu_open(&options, &gpu, &err);
        bool fired = gpu_faults_disarm();
        assert_int_equal(status == ST_OK, gpu != NULL);
        assert_true(status == ST_OK || err.status == status);
        failed += status != ST_OK;
        without += gpu && unavailable_devices(gpu);
        assert_true(fired || (gpu && !unavailable_devices(gpu)));
        gpu_close(gpu);
        assert_int_equal(rig_open_fds(), fds);
        opened += !fired;
    }
    unsetenv("SYMTENSOR_FAULTS");
    assert_true(failed >= 3); /* cuInit, cuDriverGetVersion, cuDeviceGetCount */
    assert_true(without >= 10 || rig_is_hardware()); /* which may have one device only */
}

static void the_driver_that_is_asked_for_must_be_there(void **state)
{
    (void)state;
    struct gpu *gpu = NULL;
    struct st_error err = {0};
    const struct gpu_options options = {.driver = GPU_DRIVER_CUDA, .nvls = GPU_NVLS_OFF};
    setenv("SYMTENSOR_FAULTS", "cuInit:1=100", 1); /* where there is one */
    assert_int_equal(gpu_open(&options, &gpu, &err), ST_FAILED_PRECONDITION);
    assert_int_equal(err.reason, ST_REASON_NO_DRIVER);
    assert_non_null(strstr(err.message, "NVIDIA_VISIBLE_DEVICES"));
    assert_null(gpu);
    gpu_faults_disarm();
    setenv("SYMTENSOR_FAULTS", "cuNothing:1=1", 1);
    assert_int_equal(gpu_open(&(struct gpu_options){0}, &gpu, &err), ST_INVALID_ARGUMENT);
    unsetenv("SYMTENSOR_FAULTS");
}

/* ---------------------------------------------------------------- devices that do not open */

/** Open with a fault; the message of whatever fails must be about that. */
static enum st_status open_with_fault(const char *fault, uint32_t devices, struct gpu **ret_gpu,
                                      struct st_error *err)
{
    const struct gpu_options options = {.driver = GPU_DRIVER_SOFTWARE,
                                        .software_devices = devices,
                                        .software_memory_bytes = 64 * ST_MIB};
    *ret_gpu = NULL;
    *err = (struct st_error){0};
    setenv("SYMTENSOR_FAULTS", fault, 1);
    enum st_status status = gpu_open(&options, ret_gpu, err);
    unsetenv("SYMTENSOR_FAULTS");
    assert_true(gpu_faults_disarm());
    return status;
}

static void a_device_that_does_not_open_is_unavailable_and_the_others_go_on(void **state)
{
    (void)state;
    static const struct {
        const char *fault, *reason;
        bool known; /**< Name and uuid were learnt before. */
    } rows[] = {
        {"cuDevicePrimaryCtxRetain:2=46",
         "cuDevicePrimaryCtxRetain answered CUDA_ERROR_DEVICE_UNAV", true},
        {"cuDeviceGet:2=101", "cuDeviceGet answered CUDA_ERROR_INVALID_DEVICE (101)", false},
        {"cuStreamCreateWithPriority:2=719", "CUDA_ERROR_LAUNCH_FAILED (719)", true},
        {"cuMemGetAllocationGranularity:7=1", "cuMemGetAllocationGranularity", true},
        {"cuCtxSetCurrent:3=999", "cuCtxSetCurrent", true},
    };
    rig_needs_software("it has four devices");
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct gpu_team *team = NULL;
        struct st_error err;
        unsigned fds = test_open_fds();
        assert_status(open_with_fault(rows[i].fault, 4, &rig.gpu, &err), ST_OK);
        rig.device_count = 4;
        assert_int_equal(gpu_device_state(rig.gpu, 1), GPU_DEVICE_UNAVAILABLE);
        assert_int_equal(unavailable_devices(rig.gpu), 1);
        assert_non_null(strstr(gpu_device_state_reason(rig.gpu, 1), rows[i].reason));
        assert_int_equal(gpu_device_info(rig.gpu, 1)->uuid[0] != '\0', rows[i].known);
        assert_int_equal(gpu_team_create(rig.gpu, (uint32_t[]){0, 1}, 2, &team, &err),
                         ST_UNAVAILABLE);
        assert_int_equal(err.reason, ST_REASON_DEVICE_UNAVAILABLE);
        assert_string_equal(err.details[0].value, "1");
        assert_false(gpu_peer_access(rig.gpu, 0, 1));
        assert_true(gpu_peer_access(rig.gpu, 0, 2));
        /* What the watch of hanging calls says changes nothing. */
        gpu_device_mark_degraded(rig.gpu, 1);
        gpu_device_clear_degraded(rig.gpu, 1);
        assert_int_equal(gpu_device_state(rig.gpu, 1), GPU_DEVICE_UNAVAILABLE);
        team = rig_team_of(&rig, (uint32_t[]){0, 2, 3}, 3);
        struct gpu_memory *memory =
            must_create(team, &(struct gpu_memory_spec){.size_bytes = RIG_GRANULE});
        write_bytes(team, memory, 1, RIG_GRANULE, 7);
        assert_true(all_bytes(team, memory, 1, RIG_GRANULE, 7));
        gpu_memory_destroy(memory);
        gpu_team_destroy(team);
        gpu_close(rig.gpu);
        assert_int_equal(test_open_fds(), fds);
    }
}

static void with_no_device_that_opens_the_start_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *fault;
        enum st_reason reason;
        const char *message;
    } rows[] = {
        {"cuDevicePrimaryCtxRetain:1=46,cuDevicePrimaryCtxRetain:2=46",
         ST_REASON_DEVICE_UNAVAILABLE, "none of the 2 devices"},
        {"cuDevicePrimaryCtxRetain:1=46,cuDeviceGet:2=1", ST_REASON_DEVICE_UNAVAILABLE,
         "cuDevicePrimaryCtxRetain answered CUDA_ERROR_DEVICE_UNAVAILABLE (46)"},
        /* The attribute that is asked first: no virtual memory. */
        {"cuDeviceGetAttribute:1=1,cuDeviceGetAttribute:2=1", ST_REASON_NO_DRIVER,
         "no virtual memory"},
    };
    rig_needs_software("it has two devices");
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct gpu *gpu;
        struct st_error err;
        assert_int_not_equal(open_with_fault(rows[i].fault, 2, &gpu, &err), ST_OK);
        assert_null(gpu);
        assert_int_equal(err.reason, rows[i].reason);
        assert_non_null(strstr(err.message, rows[i].message));
    }
}

/* ---------------------------------------------------------------- accounting */

/** What every device must own, told from what lives. */
static void assert_owned(uint64_t own_bytes, bool slab[static 3])
{
    for (uint32_t i = 0; i < 2 && i < rig.device_count; i++) {
        struct gpu_device_memory memory;
        struct gpu_software_usage usage;
        gpu_device_memory(rig.gpu, i, &memory);
        rig_usage(&usage);
        uint64_t slabs = (uint64_t)slab[0] + slab[1] + slab[2];
        assert_int_equal(memory.owned_bytes, rig_fold(&rig, 2) * (own_bytes + slabs * RIG_GRANULE));
        assert_true(rig_is_hardware() || usage.allocated_bytes == 2 * memory.owned_bytes);
    }
}

static struct gpu_memory_spec random_spec(void)
{
    static const uint64_t sizes[] = {0, 1, 30, 500, 9000, 50000, 100000, RIG_GRANULE + 1};
    int kind = rand() % 3;
    return (struct gpu_memory_spec){
        .size_bytes = sizes[(size_t)rand() % 8],
        .type = kind == 2 ? GPU_MEMORY_GLOBAL : GPU_MEMORY_SYMMETRIC,
        .multicast = kind == 1 ? GPU_MULTICAST_DISABLED : GPU_MULTICAST_AUTO,
        .attachable = rand() % 8 == 0,
    };
}

static void after_ten_thousand_random_steps_the_books_are_exact(void **state)
{
    (void)state;
    enum { SLOTS = 24, STEPS = 10000 };
    struct gpu_memory *memories[SLOTS] = {NULL};
    struct gpu_memory_spec specs[SLOTS] = {{0}};
    rig_open(&rig, &(struct rig_options){.memory_bytes = 16 * ST_MIB});
    struct gpu_team *team = rig_team(&rig, 2, 2);
    srand(7);
    for (int step = 0; step < STEPS; step++) {
        int i = rand() % SLOTS;
        if (memories[i]) {
            gpu_memory_destroy(memories[i]);
            memories[i] = NULL;
        } else {
            struct st_error err;
            specs[i] = random_spec();
            if (rand() % 3 == 0) {
                gpu_faults_arm_any(1 + (uint64_t)rand() % 40, CUDA_ERROR_INVALID_VALUE);
            }
            enum st_status status = create(team, &specs[i], &memories[i], &err);
            assert_true(gpu_faults_disarm() || status == ST_OK ||
                        err.reason == ST_REASON_GPU_MEMORY_EXHAUSTED);
        }
        if (step % 50 == 0) {
            uint64_t own_bytes = 0;
            bool slab[3] = {false};
            for (int k = 0; k < SLOTS; k++) {
                const struct gpu_memory_info *info =
                    memories[k] ? gpu_memory_info(memories[k]) : NULL;
                own_bytes += info && !info->slab ? info->allocated_bytes : 0;
                bool unicast = specs[k].multicast == GPU_MULTICAST_DISABLED || rig_is_hardware();
                int kind = specs[k].type == GPU_MEMORY_GLOBAL ? 2 : unicast ? 1 : 0;
                slab[kind] |= info && info->slab;
            }
            assert_owned(own_bytes, slab);
        }
    }
    for (int i = 0; i < SLOTS; i++) {
        gpu_memory_destroy(memories[i]);
    }
    gpu_team_destroy(team);
    rig_close(&rig);
}

/** Memory that is made while a driver call hangs. */
struct hanging {
    struct gpu_team *team;
    struct gpu_memory *memory;
    enum st_status status;
    struct st_error err;
};

static void *hang_in_thread(void *arg)
{
    struct hanging *hanging = arg;
    const struct gpu_memory_spec spec = {.size_bytes = 4 * ST_MIB};
    hanging->status = gpu_memory_create(hanging->team, &spec, &hanging->memory, &hanging->err);
    return NULL;
}

static void what_a_hanging_call_works_on_is_quarantined_and_other_devices_go_on(void **state)
{
    (void)state;
    rig_open(&rig, &(struct rig_options){.distinct = 2});
    struct hanging hanging = {.team = rig_team(&rig, 1, 1)};
    struct gpu_team *other = rig_team_of(&rig, (uint32_t[]){1}, 1);
    struct st_error err = {0};
    pthread_t thread;
    uint64_t calls = gpu_faults_calls(GPU_CALL_cuMemMap);
    gpu_faults_arm_hang(GPU_CALL_cuMemMap, 1, 400);
    assert_int_equal(pthread_create(&thread, NULL, hang_in_thread, &hanging), 0);
    while (gpu_faults_calls(GPU_CALL_cuMemMap) == calls) {
        sched_yield();
    }
    assert_int_equal(owned(0), 4 * ST_MIB);
    gpu_device_mark_degraded(rig.gpu, 0);
    assert_int_equal(owned(0), 0);
    assert_int_equal(quarantined(0), 4 * ST_MIB);
    assert_int_equal(gpu_device_state(rig.gpu, 0), GPU_DEVICE_DEGRADED);
    assert_true(strlen(gpu_device_state_reason(rig.gpu, 0)) > 0);
    struct gpu_memory *memory;
    assert_int_equal(
        create(hanging.team, &(struct gpu_memory_spec){.size_bytes = 1}, &memory, &err),
        ST_UNAVAILABLE);
    assert_int_equal(err.reason, ST_REASON_DEVICE_DEGRADED);
    gpu_memory_destroy(must_create(other, &(struct gpu_memory_spec){.size_bytes = 1}));
    pthread_join(thread, NULL);
    gpu_faults_disarm();
    /* Nobody waits for it any more: what the call made goes back when it returns. */
    assert_int_equal(hanging.status, ST_UNAVAILABLE);
    assert_int_equal(hanging.err.reason, ST_REASON_DEVICE_DEGRADED);
    gpu_team_destroy(hanging.team);
    gpu_team_destroy(other);
    rig_close(&rig);
}

static void what_the_driver_does_not_take_back_stays_counted(void **state)
{
    (void)state;
    rig_open(&rig, &(struct rig_options){0});
    struct gpu_team *team = rig_team(&rig, 1, 1);
    struct gpu_memory *memory =
        must_create(team, &(struct gpu_memory_spec){.size_bytes = RIG_GRANULE});
    gpu_faults_arm(GPU_CALL_cuMemRelease, 1, CUDA_ERROR_INVALID_VALUE);
    gpu_memory_destroy(memory);
    assert_true(gpu_faults_disarm());
    assert_int_equal(owned(0), 0);
    assert_int_equal(quarantined(0), RIG_GRANULE);
    gpu_team_destroy(team);
    gpu_close(rig.gpu);
}

/* ---------------------------------------------------------------- devices that do not reach each
 * other */

static void without_peer_access_symmetric_memory_is_refused_with_the_pair(void **state)
{
    (void)state;
    rig_open(&rig, &(struct rig_options){.no_peer = "1:2"});
    struct gpu_team *team = rig_team(&rig, 4, 4);
    struct gpu_memory *memory;
    struct st_error err;
    assert_int_equal(create(team, &(struct gpu_memory_spec){.size_bytes = 1}, &memory, &err),
                     ST_FAILED_PRECONDITION);
    assert_int_equal(err.reason, ST_REASON_NO_PEER_ACCESS);
    assert_string_equal(err.details[0].value, "1,2");
    assert_true(gpu_peer_access(rig.gpu, 2, 1));
    assert_false(gpu_peer_access(rig.gpu, 1, 2));
    assert_true(gpu_peer_access(rig.gpu, 1, 1));
    gpu_memory_destroy(
        must_create(team, &(struct gpu_memory_spec){.size_bytes = 1, .type = GPU_MEMORY_GLOBAL}));
    gpu_team_destroy(team);
    rig_close(&rig);
}

static void a_team_must_name_devices_that_exist(void **state)
{
    (void)state;
    static const uint32_t devices[65] = {0, ST_DEVICES_MAX - 1};
    struct gpu_team *team = NULL;
    struct st_error err = {0};
    rig_open(&rig, &(struct rig_options){0});
    assert_int_equal(gpu_team_create(rig.gpu, devices, 2, &team, &err), ST_NOT_FOUND);
    assert_int_equal(err.reason, ST_REASON_DEVICE_NOT_FOUND);
    assert_int_equal(gpu_team_create(rig.gpu, devices, 0, &team, &err), ST_INVALID_ARGUMENT);
    assert_int_equal(gpu_team_create(rig.gpu, devices, 65, &team, &err), ST_INVALID_ARGUMENT);
    rig_close(&rig);
}

static void a_device_is_degraded_until_every_call_that_hung_has_returned(void **state)
{
    (void)state;
    rig_open(&rig, &(struct rig_options){0});
    struct gpu_team *team = rig_team(&rig, 1, 1);
    gpu_device_mark_degraded(rig.gpu, 0);
    gpu_device_mark_degraded(rig.gpu, 0);
    gpu_device_clear_degraded(rig.gpu, 0);
    assert_int_equal(gpu_device_state(rig.gpu, 0), GPU_DEVICE_DEGRADED);
    gpu_device_clear_degraded(rig.gpu, 0);
    assert_int_equal(gpu_device_state(rig.gpu, 0), GPU_DEVICE_OK);
    assert_string_equal(gpu_device_state_reason(rig.gpu, 0), "");
    gpu_memory_destroy(must_create(team, &(struct gpu_memory_spec){.size_bytes = 1}));
    gpu_team_destroy(team);
    rig_close(&rig);
}

static uint64_t driver_calls(void)
{
    uint64_t calls = 0;
    for (unsigned call = 0; call < GPU_CALL_COUNT; call++) {
        calls += gpu_faults_calls((enum gpu_driver_call)call);
    }
    return calls;
}

static void count_progress(void *arg)
{
    ++*(uint64_t *)arg;
}

static void every_driver_call_of_a_watched_thread_is_progress(void **state)
{
    (void)state;
    rig_open(&rig, &(struct rig_options){0});
    uint64_t told = 0, calls = driver_calls();
    gpu_thread_progress(count_progress, &told);
    struct gpu_team *team = rig_team(&rig, 4, 4);
    gpu_memory_destroy(must_create(team, &(struct gpu_memory_spec){.size_bytes = RIG_GRANULE}));
    gpu_team_destroy(team);
    gpu_thread_progress(NULL, NULL);
    assert_true(told >= 4 * 8);
    assert_int_equal(told, driver_calls() - calls);
    rig_close(&rig);
    assert_true(told < driver_calls() - calls);
}

static void a_driver_without_a_device_is_no_driver_and_is_closed(void **state)
{
    (void)state;
    static const char *const faults[] = {"cuInit:1=100", "cuDeviceGetCount:1=100"};
    const struct gpu_options options = {.driver = rig_driver(), .nvls = GPU_NVLS_OFF};
    unsigned fds = rig_open_fds();
    for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++) {
        struct gpu *gpu = NULL;
        struct st_error err = {0};
        setenv("SYMTENSOR_FAULTS", faults[i], 1);
        assert_int_equal(gpu_open(&options, &gpu, &err), ST_FAILED_PRECONDITION);
        unsetenv("SYMTENSOR_FAULTS");
        assert_true(gpu_faults_disarm());
        assert_int_equal(err.reason, ST_REASON_NO_DRIVER);
        assert_int_equal(rig_open_fds(), fds);
        rig_open(&rig, &(struct rig_options){0});
        rig_close(&rig);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_device_is_degraded_until_every_call_that_hung_has_returned),
        cmocka_unit_test(every_driver_call_of_a_watched_thread_is_progress),
        cmocka_unit_test(a_driver_without_a_device_is_no_driver_and_is_closed),
        cmocka_unit_test(sizes_are_rounded_and_small_ones_share_a_slab),
        cmocka_unit_test(a_recommended_granularity_of_512_mib_is_taken_only_where_it_adds_little),
        cmocka_unit_test(too_large_for_ever_is_not_no_room_now),
        cmocka_unit_test(running_out_of_descriptors_is_said),
        cmocka_unit_test(new_memory_is_zero_and_reused_slab_space_too),
        cmocka_unit_test(parts_of_a_slab_do_not_touch_each_other),
        cmocka_unit_test(a_full_slab_is_followed_by_another),
        cmocka_unit_test(symmetric_memory_is_shareable_and_global_memory_is_not),
        cmocka_unit_test(whatever_call_fails_a_creation_leaves_nothing),
        cmocka_unit_test(whatever_call_fails_a_team_leaves_nothing),
        cmocka_unit_test(whatever_call_fails_opening_leaves_nothing),
        cmocka_unit_test(the_driver_that_is_asked_for_must_be_there),
        cmocka_unit_test(a_device_that_does_not_open_is_unavailable_and_the_others_go_on),
        cmocka_unit_test(with_no_device_that_opens_the_start_is_refused),
        cmocka_unit_test(after_ten_thousand_random_steps_the_books_are_exact),
        cmocka_unit_test(what_a_hanging_call_works_on_is_quarantined_and_other_devices_go_on),
        cmocka_unit_test(what_the_driver_does_not_take_back_stays_counted),
        cmocka_unit_test(without_peer_access_symmetric_memory_is_refused_with_the_pair),
        cmocka_unit_test(a_team_must_name_devices_that_exist),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
