#include "gpu/software/software.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/software/internal.h"

#define OPTIONS_DELAY_US_MAX 10000000ull
#define OPTIONS_RECOMMENDED_MAX (512 * ST_MIB)

struct software software;
static bool software_opened;

static const struct gpu_driver software_driver = {.name = "software",
#define X(call, params, args) .call = software_##call,
                                                  GPU_DRIVER_CALLS(X)
#undef X
};

/* ---------------------------------------------------------------- options and environment */

/** Parse one variable's value into the options; false when it is malformed. */
typedef bool knob_parse(const char *value, struct gpu_software_options *options);

static bool knob_bool(const char *value, bool *ret)
{
    bool on = !strcmp(value, "1");
    if (!on && strcmp(value, "0") != 0) {
        return false;
    }
    *ret = on;
    return true;
}

static bool knob_no_multicast(const char *value, struct gpu_software_options *options)
{
    return knob_bool(value, &options->no_multicast);
}

static bool knob_no_fabric(const char *value, struct gpu_software_options *options)
{
    return knob_bool(value, &options->no_fabric);
}

static bool knob_slots(const char *value, struct gpu_software_options *options)
{
    uint64_t slots;
    if (!st_uint_parse(value, UINT32_MAX, &slots) || slots == 0) {
        return false;
    }
    options->multicast_slots = (uint32_t)slots;
    return true;
}

static bool knob_recommended(const char *value, struct gpu_software_options *options)
{
    return st_size_parse(value, &options->multicast_recommended_bytes) &&
           options->multicast_recommended_bytes > 0;
}

static bool knob_launch_delay(const char *value, struct gpu_software_options *options)
{
    uint64_t microseconds;
    if (!st_uint_parse(value, OPTIONS_DELAY_US_MAX, &microseconds)) {
        return false;
    }
    options->launch_delay_ns = microseconds * 1000;
    return true;
}

/** "0:1,1:0": device 0 cannot reach 1, nor 1 device 0. */
static bool knob_no_peer(const char *value, struct gpu_software_options *options)
{
    uint64_t pairs = 0;
    for (const char *at = value;; at += 4) {
        if (at[0] < '0' || at[0] > '7' || at[1] != ':' || at[2] < '0' || at[2] > '7' ||
            (at[3] != ',' && at[3] != '\0')) {
            return false;
        }
        pairs |= 1ull << ((at[0] - '0') * 8 + (at[2] - '0'));
        if (!at[3]) {
            break;
        }
    }
    options->no_peer_pairs = pairs;
    return true;
}

static const struct {
    const char *variable;
    knob_parse *parse;
    const char *form;
} software_knobs[] = {
    {"SYMTENSOR_SOFTWARE_NO_MULTICAST", knob_no_multicast, "0 or 1"},
    {"SYMTENSOR_SOFTWARE_NO_FABRIC", knob_no_fabric, "0 or 1"},
    {"SYMTENSOR_SOFTWARE_MULTICAST_SLOTS", knob_slots, "a number from 1"},
    {"SYMTENSOR_SOFTWARE_MULTICAST_RECOMMENDED", knob_recommended, "a size such as 512MiB"},
    {"SYMTENSOR_SOFTWARE_LAUNCH_DELAY_US", knob_launch_delay, "microseconds, at most 10000000"},
    {"SYMTENSOR_SOFTWARE_NO_PEER", knob_no_peer, "pairs of devices 0..7 such as 0:1,1:0"},
};

static enum st_status options_from_environment(struct gpu_software_options *options,
                                               struct st_error *err)
{
    for (size_t i = 0; i < sizeof(software_knobs) / sizeof(software_knobs[0]); i++) {
        const char *value = getenv(software_knobs[i].variable);
        char quoted[80];
        if (value && *value && !software_knobs[i].parse(value, options)) {
            return st_fail(err, ST_REASON_INVALID_OPTION, software_knobs[i].variable,
                           "\"%s\" is not %s", st_error_quote(value, quoted),
                           software_knobs[i].form);
        }
    }
    return ST_OK;
}

/** Put the defaults where the options say 0. */
static void options_complete(struct gpu_software_options *options)
{
    options->device_count =
        options->device_count ? options->device_count : SOFTWARE_DEVICES_DEFAULT;
    if (!options->memory_bytes && options->device_count <= ST_DEVICES_MAX) {
        uint64_t share = software_machine_memory_bytes() / 4 / options->device_count;
        options->memory_bytes = share - share % SOFTWARE_GRANULARITY;
    }
    options->threads = options->threads ? options->threads : software_machine_cores();
    options->multicast_slots =
        options->multicast_slots ? options->multicast_slots : SOFTWARE_SLOTS_DEFAULT;
    options->multicast_recommended_bytes = options->multicast_recommended_bytes
                                               ? options->multicast_recommended_bytes
                                               : SOFTWARE_GRANULARITY;
}

static enum st_status options_check(const struct gpu_software_options *options,
                                    struct st_error *err)
{
    uint64_t recommended = options->multicast_recommended_bytes;
    if (options->device_count > ST_DEVICES_MAX) {
        return st_fail(err, ST_REASON_INVALID_OPTION, "software_devices", "must be 1..%d",
                       ST_DEVICES_MAX);
    }
    if (options->memory_bytes < SOFTWARE_GRANULARITY || options->memory_bytes > INT64_MAX) {
        return st_fail(err, ST_REASON_INVALID_OPTION, "software_memory", "must be at least 2MiB");
    }
    if (options->threads > SOFTWARE_THREADS_MAX) {
        return st_fail(err, ST_REASON_INVALID_OPTION, "threads", "must be 1..%u",
                       SOFTWARE_THREADS_MAX);
    }
    if (recommended < SOFTWARE_GRANULARITY || recommended > OPTIONS_RECOMMENDED_MAX ||
        (recommended & (recommended - 1))) {
        return st_fail(err, ST_REASON_INVALID_OPTION, "multicast_recommended",
                       "must be a power of two from 2MiB to 512MiB");
    }
    return ST_OK;
}

enum st_status gpu_software_check_room(const struct gpu_software_options *options,
                                       struct st_error *err)
{
    struct gpu_software_options wanted = *options;
    options_complete(&wanted);
    uint64_t machine_bytes = software_machine_memory_bytes();
    uint64_t total;
    if (!__builtin_mul_overflow(wanted.memory_bytes, (uint64_t)wanted.device_count, &total) &&
        total <= machine_bytes) {
        return ST_OK;
    }
    return st_fail(err, ST_REASON_INVALID_OPTION, "software_memory",
                   "%u devices can have at most %llu MiB each: the machine has %llu MiB",
                   wanted.device_count,
                   (unsigned long long)(machine_bytes / wanted.device_count / ST_MIB),
                   (unsigned long long)(machine_bytes / ST_MIB));
}

/* ---------------------------------------------------------------- open and close */

static void software_init_locks(void)
{
    pthread_mutexattr_t adaptive; /* the work lock is held for tens of nanoseconds: spin first */
    pthread_mutexattr_init(&adaptive);
    pthread_mutexattr_settype(&adaptive, PTHREAD_MUTEX_ADAPTIVE_NP);
    pthread_mutex_init(&software.work_lock, &adaptive);
    pthread_mutexattr_destroy(&adaptive);
    pthread_cond_init(&software.work_finished, NULL);
    pthread_mutex_init(&software.memory_lock, NULL);
    pthread_cond_init(&software.pins_released, NULL);
    pthread_rwlockattr_t writers_first; /* a steady flow of launches must not keep cuMemMap out */
    pthread_rwlockattr_init(&writers_first);
    pthread_rwlockattr_setkind_np(&writers_first, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
    pthread_rwlock_init(&software.ranges_lock, &writers_first);
    pthread_rwlockattr_destroy(&writers_first);
}

enum st_status gpu_software_open(const struct gpu_software_options *options,
                                 const struct gpu_driver **ret_driver, struct st_error *err)
{
    struct gpu_software_options wanted = *options;
    enum st_status status = options_from_environment(&wanted, err);
    if (status != ST_OK) {
        return status;
    }
    options_complete(&wanted);
    status = options_check(&wanted, err);
    if (status != ST_OK) {
        return status;
    }
    if (software_opened) {
        return st_fail(err, ST_REASON_SYSTEM_ERROR, NULL, "the software driver is open already");
    }
    if (!gpu_faults_parse_hangs(getenv("SYMTENSOR_SOFTWARE_HANG"), err)) {
        return ST_INVALID_ARGUMENT;
    }
    software = (struct software){.options = wanted};
    software.cache_bytes = software_machine_cache_bytes();
    software.huge_pages = software_machine_huge_pages();
    software_init_locks();
    software_opened = true;
    status = wanted.launch_delay_ns ? st_timers_create(&software.timers, err) : ST_OK;
    status = status == ST_OK ? software_pool_open(wanted.threads, err) : status;
    if (status != ST_OK) {
        gpu_software_close();
        return status;
    }
    *ret_driver = &software_driver;
    return ST_OK;
}

void gpu_software_close(void)
{
    if (!software_opened) {
        return;
    }
    atomic_store(&software.initialised, false);
    software_streams_drain();
    software_graphs_free_all();
    software_context_clear(NULL);
    software_pool_close();
    st_timers_destroy(software.timers);
    software_address_free_all();
    software_multicast_free_all();
    software_memory_free_all();
    software_handles_free();
    pthread_rwlock_destroy(&software.ranges_lock);
    pthread_cond_destroy(&software.pins_released);
    pthread_mutex_destroy(&software.memory_lock);
    pthread_cond_destroy(&software.work_finished);
    pthread_mutex_destroy(&software.work_lock);
    for (uint32_t i = 0; i < software.options.device_count; i++) {
        atomic_store(&software.devices[i].context.retained, 0); /* threads may still point here */
    }
    software_opened = false;
}

void gpu_software_usage(struct gpu_software_usage *ret_usage)
{
    struct gpu_software_usage usage = {0};
    pthread_mutex_lock(&software.memory_lock);
    for (struct software_allocation *at = software.allocations; at; at = at->next) {
        usage.allocations++;
        usage.allocated_bytes += at->foreign ? 0 : at->bytes;
    }
    usage.reservations = software.reservations.count;
    usage.mappings = software.mappings;
    usage.bindings = software.bindings;
    usage.host_allocations = software.host_allocations;
    usage.multicast_objects = software_multicast_count();
    pthread_mutex_unlock(&software.memory_lock);
    usage.streams = software_handle_count(SOFTWARE_KIND_STREAM);
    usage.graphs = software_handle_count(SOFTWARE_KIND_GRAPH) +
                   software_handle_count(SOFTWARE_KIND_GRAPH_EXEC);
    usage.events = software_handle_count(SOFTWARE_KIND_EVENT);
    for (uint32_t i = 0; i < software.options.device_count; i++) {
        usage.contexts += atomic_load(&software.devices[i].context.retained) > 0;
    }
    *ret_usage = usage;
}
