#include "tests/contract/gpu/rig.h"

#include <stdlib.h>
#include <string.h>

#include "gpu/device.h"
#include "gpu/kernels/params.h"

/** Multicast: when it is there, when it is not and why, and how it goes away. */

static struct rig rig;

/* The program is linked with --wrap=gpu_device_launch: a switch that loses what it is given. */
static bool switch_is_broken;

enum st_status __real_gpu_device_launch(struct gpu_device *device, CUstream stream,
                                        const struct gpu_launch *launch, struct st_error *err);
enum st_status __wrap_gpu_device_launch(struct gpu_device *device, CUstream stream,
                                        const struct gpu_launch *launch, struct st_error *err);

enum st_status __wrap_gpu_device_launch(struct gpu_device *device, CUstream stream,
                                        const struct gpu_launch *launch, struct st_error *err)
{
    if (switch_is_broken && launch->kernel == GPU_KERNEL_MULTICAST) {
        return ST_OK;
    }
    return __real_gpu_device_launch(device, stream, launch, err);
}

static enum st_status create(struct gpu_team *team, uint64_t bytes, enum gpu_multicast_mode mode,
                             struct gpu_memory **ret_memory, struct st_error *err)
{
    const struct gpu_memory_spec spec = {.size_bytes = bytes, .multicast = mode};
    *ret_memory = NULL;
    *err = (struct st_error){0};
    return gpu_memory_create(team, &spec, ret_memory, err);
}

/** Create with auto. @return the memory; *ret_reason what it says about multicast. */
static struct gpu_memory *create_auto(struct gpu_team *team, uint64_t bytes,
                                      enum gpu_multicast_reason *ret_reason)
{
    struct gpu_memory *memory;
    struct st_error err;
    assert_status(create(team, bytes, GPU_MULTICAST_AUTO, &memory, &err), ST_OK);
    *ret_reason = gpu_memory_info(memory)->multicast_reason;
    return memory;
}

/* ---------------------------------------------------------------- known beforehand */

static void what_is_known_beforehand_is_said_and_required_refused(void **state)
{
    (void)state;
    static const struct {
        struct rig_options options;
        uint32_t ranks, devices;
        enum gpu_multicast_reason reason;
    } rows[] = {
        {{0}, 4, 4, GPU_MULTICAST_NONE},
        {{.nvls = GPU_NVLS_ON}, 2, 2, GPU_MULTICAST_NONE},
        {{.nvls = GPU_NVLS_OFF}, 2, 2, GPU_MULTICAST_DISABLED_BY_CONFIG},
        {{0}, 1, 1, GPU_MULTICAST_SINGLE_RANK},
        {{0}, 4, 2, GPU_MULTICAST_SHARED_DEVICE},
        {{.no_multicast = "1"}, 4, 4, GPU_MULTICAST_NOT_SUPPORTED_BY_DEVICE},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        rig_open(&rig, &rows[i].options);
        struct gpu_team *team = rig_team(&rig, rows[i].ranks, rows[i].devices);
        enum gpu_multicast_reason reason;
        struct gpu_memory *memory = create_auto(team, RIG_GRANULE, &reason);
        assert_int_equal(reason, rows[i].reason);
        assert_int_equal(gpu_team_multicast_reason(team), rows[i].reason);
        gpu_memory_destroy(memory);
        struct st_error err;
        enum st_status status = create(team, RIG_GRANULE, GPU_MULTICAST_REQUIRED, &memory, &err);
        if (rows[i].reason == GPU_MULTICAST_NONE) {
            assert_int_equal(status, ST_OK);
        } else {
            assert_int_equal(status, ST_FAILED_PRECONDITION);
            assert_int_equal(err.reason, ST_REASON_MULTICAST_UNAVAILABLE);
            assert_string_equal(err.details[0].value, gpu_multicast_reason_name(rows[i].reason));
        }
        gpu_memory_destroy(memory);
        gpu_team_destroy(team);
        rig_close(&rig);
    }
}

static void nccl_nvls_enable_0_switches_it_off(void **state)
{
    (void)state;
    setenv("NCCL_NVLS_ENABLE", "0", 1);
    rig_open(&rig, &(struct rig_options){.nvls = GPU_NVLS_ON});
    unsetenv("NCCL_NVLS_ENABLE");
    struct gpu_capabilities capabilities;
    gpu_capabilities(rig.gpu, &capabilities);
    assert_int_equal(capabilities.multicast_reason, GPU_MULTICAST_DISABLED_BY_CONFIG);
    assert_false(capabilities.nvls_planned);
    rig_close(&rig);
}

static void memory_that_does_not_want_multicast_takes_no_slot(void **state)
{
    (void)state;
    rig_open(&rig, &(struct rig_options){0});
    struct gpu_team *team = rig_team(&rig, 4, 4);
    struct gpu_memory *memories[2];
    struct st_error err;
    assert_status(create(team, RIG_GRANULE, GPU_MULTICAST_DISABLED, &memories[0], &err), ST_OK);
    assert_status(create(team, 10, GPU_MULTICAST_DISABLED, &memories[1], &err), ST_OK);
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(gpu_memory_info(memories[i])->multicast_reason,
                         GPU_MULTICAST_NOT_REQUESTED);
        gpu_memory_destroy(memories[i]);
    }
    assert_int_equal(gpu_multicast_list(rig.gpu, NULL, 0), 0);
    const struct gpu_memory_spec global = {
        .size_bytes = 1, .type = GPU_MEMORY_GLOBAL, .multicast = GPU_MULTICAST_REQUIRED};
    assert_int_equal(gpu_memory_create(team, &global, &memories[0], &err), ST_FAILED_PRECONDITION);
    assert_int_equal(err.reason, ST_REASON_MULTICAST_UNAVAILABLE);
    gpu_team_destroy(team);
    rig_close(&rig);
}

/* ---------------------------------------------------------------- chunks and slots */

static void memories_of_a_team_share_one_object_that_goes_with_the_last(void **state)
{
    (void)state;
    rig_open(&rig, &(struct rig_options){0});
    struct gpu_team *team = rig_team(&rig, 3, 3);
    struct gpu_memory *memories[4];
    enum gpu_multicast_reason reason;
    for (size_t i = 0; i < 4; i++) {
        memories[i] = create_auto(team, i < 2 ? 300 : 2 * RIG_GRANULE, &reason);
        assert_int_equal(reason, GPU_MULTICAST_NONE);
    }
    struct gpu_multicast_info info;
    assert_int_equal(gpu_multicast_list(rig.gpu, &info, 1), 1);
    assert_int_equal(info.device_count, 3);
    assert_int_equal(info.devices[2], 2);
    assert_true(info.usable);
    assert_int_equal(info.bound_count, 4); /* two of them in one slab */
    assert_int_equal(info.used_bytes, 5 * RIG_GRANULE);
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(info.bound_ids[3 - i], gpu_memory_info(memories[i])->serial);
    }
    struct gpu_capabilities capabilities;
    gpu_capabilities(rig.gpu, &capabilities);
    assert_int_equal(capabilities.multicast_slots_used, 1);
    assert_int_equal(capabilities.multicast_slots_limit, 16);
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(gpu_multicast_list(rig.gpu, &info, 1), 1);
        assert_int_equal(info.bound_count, 4 - i);
        gpu_memory_destroy(memories[i]);
    }
    assert_int_equal(gpu_multicast_list(rig.gpu, &info, 1), 0);
    gpu_team_destroy(team);
    rig_close(&rig);
}

static void of_129_teams_those_beyond_the_slots_are_unicast(void **state)
{
    (void)state;
    enum { TEAMS = 129 };
    static const struct {
        uint32_t ours;
        const char *drivers;
        unsigned wanted;
    } rows[] = {{0, "128", 16}, {200, "128", 128}, {200, "3", 3}};
    static struct gpu_team *teams[TEAMS];
    static struct gpu_memory *memories[TEAMS];
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        rig_open(&rig, &(struct rig_options){.devices = 2,
                                             .memory_bytes = 512 * ST_MIB,
                                             .nvls_slots = rows[i].ours,
                                             .multicast_slots = rows[i].drivers});
        unsigned usable = 0;
        enum gpu_multicast_reason reason;
        for (unsigned t = 0; t < TEAMS; t++) {
            teams[t] = rig_team(&rig, 2, 2);
            memories[t] = create_auto(teams[t], 100, &reason);
            assert_true(reason == GPU_MULTICAST_NONE || reason == GPU_MULTICAST_SLOTS_EXHAUSTED);
            usable += reason == GPU_MULTICAST_NONE;
        }
        assert_int_equal(usable, rows[i].wanted);
        assert_int_equal(gpu_multicast_list(rig.gpu, NULL, 0), rows[i].wanted);
        struct gpu_memory *required;
        struct st_error err;
        assert_int_equal(create(teams[TEAMS - 1], 100, GPU_MULTICAST_REQUIRED, &required, &err),
                         ST_FAILED_PRECONDITION);
        gpu_memory_destroy(memories[0]); /* a slot is free again, and the next one takes it */
        assert_status(create(teams[TEAMS - 1], 100, GPU_MULTICAST_REQUIRED, &required, &err),
                      ST_OK);
        struct gpu_multicast_info infos[TEAMS];
        assert_int_equal(gpu_multicast_list(rig.gpu, infos, TEAMS), rows[i].wanted);
        assert_int_equal(infos[rows[i].wanted - 1].slot, 0);
        gpu_memory_destroy(required);
        for (unsigned t = 0; t < TEAMS; t++) {
            gpu_memory_destroy(t ? memories[t] : NULL);
            gpu_team_destroy(teams[t]);
        }
        rig_close(&rig);
    }
}

/* ---------------------------------------------------------------- failures */

static void every_failing_call_degrades_to_unicast_with_its_reason(void **state)
{
    (void)state;
    static const struct {
        enum gpu_driver_call call;
        uint64_t nth;
        CUresult result;
        enum gpu_multicast_reason reason;
    } rows[] = {
        {GPU_CALL_cuMulticastCreate, 1, CUDA_ERROR_OUT_OF_MEMORY, GPU_MULTICAST_SLOTS_EXHAUSTED},
        {GPU_CALL_cuMulticastCreate, 1, CUDA_ERROR_INVALID_VALUE, GPU_MULTICAST_DENIED},
        {GPU_CALL_cuMulticastCreate, 1, CUDA_ERROR_NOT_PERMITTED, GPU_MULTICAST_DENIED},
        {GPU_CALL_cuMulticastCreate, 1, CUDA_ERROR_NOT_SUPPORTED,
         GPU_MULTICAST_NOT_SUPPORTED_BY_DEVICE},
        {GPU_CALL_cuMulticastCreate, 1, CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER,
         GPU_MULTICAST_DRIVER_TOO_OLD},
        {GPU_CALL_cuMulticastAddDevice, 1, CUDA_ERROR_ILLEGAL_STATE,
         GPU_MULTICAST_FABRIC_MANAGER_ERROR},
        {GPU_CALL_cuMulticastAddDevice, 3, CUDA_ERROR_INVALID_DEVICE,
         GPU_MULTICAST_DIFFERENT_DOMAIN},
        {GPU_CALL_cuMulticastBindMem, 1, CUDA_ERROR_SYSTEM_NOT_READY, GPU_MULTICAST_NOT_READY},
        {GPU_CALL_cuMulticastBindMem, 2, CUDA_ERROR_OUT_OF_MEMORY, GPU_MULTICAST_SLOTS_EXHAUSTED},
        {GPU_CALL_cuMemMap, 4, CUDA_ERROR_ILLEGAL_STATE, GPU_MULTICAST_FABRIC_MANAGER_ERROR},
        {GPU_CALL_cuMemSetAccess, 4, CUDA_ERROR_INVALID_DEVICE, GPU_MULTICAST_DIFFERENT_DOMAIN},
        {GPU_CALL_cuLaunchKernel, 1, CUDA_ERROR_INVALID_VALUE, GPU_MULTICAST_SELF_TEST_FAILED},
        {GPU_CALL_cuMemcpyDtoHAsync, 2, CUDA_ERROR_INVALID_VALUE, GPU_MULTICAST_SELF_TEST_FAILED},
    };
    rig_open(&rig, &(struct rig_options){0});
    struct gpu_team *team = rig_team(&rig, 3, 3);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        enum gpu_multicast_reason reason;
        gpu_faults_arm(rows[i].call, rows[i].nth, rows[i].result);
        struct gpu_memory *memory = create_auto(team, RIG_GRANULE, &reason);
        assert_true(gpu_faults_disarm());
        assert_int_equal(reason, rows[i].reason);
        assert_int_equal(gpu_multicast_list(rig.gpu, NULL, 0), 0);
        struct gpu_software_usage usage;
        gpu_software_usage(&usage);
        assert_int_equal(usage.multicast_objects, 0);
        gpu_memory_destroy(memory);
        struct st_error err;
        gpu_faults_arm(rows[i].call, rows[i].nth, rows[i].result);
        assert_int_equal(create(team, RIG_GRANULE, GPU_MULTICAST_REQUIRED, &memory, &err),
                         ST_FAILED_PRECONDITION);
        assert_true(gpu_faults_disarm());
        assert_string_equal(err.details[0].value, gpu_multicast_reason_name(reason));
        rig_assert_no_memory(&rig);
    }
    gpu_team_destroy(team);
    rig_close(&rig);
}

static void a_switch_that_loses_data_fails_the_self_test(void **state)
{
    (void)state;
    rig_open(&rig, &(struct rig_options){0});
    struct gpu_team *team = rig_team(&rig, 4, 4);
    enum gpu_multicast_reason reason;
    switch_is_broken = true;
    struct gpu_memory *memory = create_auto(team, RIG_GRANULE, &reason);
    switch_is_broken = false;
    assert_int_equal(reason, GPU_MULTICAST_SELF_TEST_FAILED);
    for (uint32_t rank = 0; rank < 4; rank++) {
        unsigned char data[4096], zeros[4096] = {0};
        rig_read(&rig, team, memory, rank, data, sizeof(data));
        assert_memory_equal(data, zeros, sizeof(data));
    }
    gpu_memory_destroy(memory);
    gpu_team_destroy(team);
    rig_close(&rig);
}

static void what_cannot_be_unbound_is_quarantined_until_its_object_goes(void **state)
{
    (void)state;
    rig_open(&rig, &(struct rig_options){0});
    struct gpu_team *team = rig_team(&rig, 2, 2);
    enum gpu_multicast_reason reason;
    struct gpu_memory *stays = create_auto(team, RIG_GRANULE, &reason);
    struct gpu_memory *goes = create_auto(team, 2 * RIG_GRANULE, &reason);
    struct gpu_device_memory memory[2];
    gpu_faults_arm(GPU_CALL_cuMulticastUnbind, 2, CUDA_ERROR_INVALID_VALUE);
    gpu_memory_destroy(goes);
    assert_true(gpu_faults_disarm());
    for (uint32_t i = 0; i < 2; i++) {
        gpu_device_memory(rig.gpu, i, &memory[i]);
        assert_int_equal(memory[i].owned_bytes, RIG_GRANULE);
        assert_int_equal(memory[i].quarantined_bytes, i == 1 ? 2 * RIG_GRANULE : 0);
        assert_int_equal(memory[i].free_bytes + memory[i].owned_bytes + memory[i].quarantined_bytes,
                         gpu_device_info(rig.gpu, i)->total_bytes);
    }
    goes = create_auto(team, 2 * RIG_GRANULE, &reason); /* at another offset */
    assert_int_equal(reason, GPU_MULTICAST_NONE);
    gpu_memory_destroy(goes);
    gpu_memory_destroy(stays);
    rig_assert_no_memory(&rig);
    gpu_team_destroy(team);
    rig_close(&rig);
}

static void what_stays_with_the_driver_is_counted_once_and_keeps_its_slot(void **state)
{
    (void)state;
    static const struct {
        enum gpu_driver_call call;
        uint64_t nth, also; /**< Of these calls; 0: no other. */
        uint64_t quarantined_bytes;
        uint32_t slots;
    } rows[] = {
        {GPU_CALL_cuMemRelease, 1, 0, RIG_GRANULE, 1}, /* the object, with what is bound to it */
        {GPU_CALL_cuMemRelease, 1, 2, RIG_GRANULE, 1}, /* both */
        {GPU_CALL_cuMemRelease, 2, 0, RIG_GRANULE, 0}, /* the memory, bound or not */
        {GPU_CALL_cuMemUnmap, 1, 0, RIG_GRANULE, 1},   /* the object stays mapped */
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        rig_open(&rig, &(struct rig_options){0});
        struct gpu_team *team = rig_team(&rig, 2, 2);
        enum gpu_multicast_reason reason;
        struct gpu_memory *memory = create_auto(team, RIG_GRANULE, &reason);
        assert_int_equal(reason, GPU_MULTICAST_NONE);
        gpu_faults_arm(GPU_CALL_cuMulticastUnbind, 1, CUDA_ERROR_INVALID_VALUE);
        gpu_faults_arm(rows[i].call, rows[i].nth, CUDA_ERROR_INVALID_VALUE);
        gpu_faults_arm(rows[i].call, rows[i].also, CUDA_ERROR_INVALID_VALUE);
        gpu_memory_destroy(memory);
        assert_true(gpu_faults_disarm());
        struct gpu_device_memory figures;
        struct gpu_capabilities capabilities;
        gpu_device_memory(rig.gpu, 0, &figures);
        gpu_capabilities(rig.gpu, &capabilities);
        assert_int_equal(figures.owned_bytes, 0);
        assert_int_equal(figures.quarantined_bytes, rows[i].quarantined_bytes);
        assert_int_equal(capabilities.multicast_slots_used, rows[i].slots);
        assert_false(capabilities.calls_may_block);
        gpu_team_destroy(team);
        gpu_close(rig.gpu);
    }
}

/* ---------------------------------------------------------------- order of calls */

struct call_log {
    unsigned count;
    enum gpu_driver_call calls[64];
};

static void log_calls(void *arg, const struct gpu_call_record *record)
{
    static const enum gpu_driver_call kept[] = {
        GPU_CALL_cuMulticastCreate,  GPU_CALL_cuMulticastAddDevice,
        GPU_CALL_cuMulticastBindMem, GPU_CALL_cuMulticastUnbind,
        GPU_CALL_cuMemMap,           GPU_CALL_cuMemUnmap,
        GPU_CALL_cuMemRelease,
    };
    struct call_log *log = arg;
    for (size_t i = 0; i < sizeof(kept) / sizeof(kept[0]); i++) {
        if (record->call == kept[i] && log->count < 64) {
            log->calls[log->count++] = record->call;
        }
    }
}

static void assert_calls(const struct call_log *log, const enum gpu_driver_call *wanted,
                         unsigned count)
{
    assert_int_equal(log->count, count);
    for (unsigned i = 0; i < count; i++) {
        assert_string_equal(gpu_driver_call_name(log->calls[i]), gpu_driver_call_name(wanted[i]));
    }
}

static void all_devices_are_added_before_any_bind_and_teardown_unmaps_first(void **state)
{
    (void)state;
    static const enum gpu_driver_call creation[] = {
        GPU_CALL_cuMemMap,
        GPU_CALL_cuMemMap,
        GPU_CALL_cuMulticastCreate,
        GPU_CALL_cuMulticastAddDevice,
        GPU_CALL_cuMulticastAddDevice,
        GPU_CALL_cuMulticastBindMem,
        GPU_CALL_cuMulticastBindMem,
        GPU_CALL_cuMemMap,
    };
    static const enum gpu_driver_call destruction[] = {
        GPU_CALL_cuMemUnmap,   GPU_CALL_cuMulticastUnbind, GPU_CALL_cuMulticastUnbind,
        GPU_CALL_cuMemRelease, GPU_CALL_cuMemUnmap,        GPU_CALL_cuMemRelease,
        GPU_CALL_cuMemUnmap,   GPU_CALL_cuMemRelease,
    };
    rig_open(&rig, &(struct rig_options){0});
    struct gpu_team *team = rig_team(&rig, 2, 2);
    struct call_log log = {0};
    enum gpu_multicast_reason reason;
    gpu_faults_log(log_calls, &log);
    struct gpu_memory *memory = create_auto(team, RIG_GRANULE, &reason);
    assert_calls(&log, creation, sizeof(creation) / sizeof(creation[0]));
    log.count = 0;
    gpu_memory_destroy(memory);
    assert_calls(&log, destruction, sizeof(destruction) / sizeof(destruction[0]));
    gpu_faults_log(NULL, NULL);
    gpu_team_destroy(team);
    rig_close(&rig);
}

int main(void)
{
    if (rig_is_hardware()) {
        print_message("multicast is not used on a real driver by tests\n");
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_known_beforehand_is_said_and_required_refused),
        cmocka_unit_test(nccl_nvls_enable_0_switches_it_off),
        cmocka_unit_test(memory_that_does_not_want_multicast_takes_no_slot),
        cmocka_unit_test(memories_of_a_team_share_one_object_that_goes_with_the_last),
        cmocka_unit_test(of_129_teams_those_beyond_the_slots_are_unicast),
        cmocka_unit_test(every_failing_call_degrades_to_unicast_with_its_reason),
        cmocka_unit_test(a_switch_that_loses_data_fails_the_self_test),
        cmocka_unit_test(what_stays_with_the_driver_is_counted_once_and_keeps_its_slot),
        cmocka_unit_test(what_cannot_be_unbound_is_quarantined_until_its_object_goes),
        cmocka_unit_test(all_devices_are_added_before_any_bind_and_teardown_unmaps_first),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
