#ifndef SYMTENSOR_TESTS_CONTRACT_GPU_RIG_H
#define SYMTENSOR_TESTS_CONTRACT_GPU_RIG_H

#include "tests/support/leak_check.h"

#include <pthread.h>

#include "base/clock.h"
#include "base/size.h"
#include "gpu/gpu.h"
#include "gpu/software/software.h"

/**
 * gpu/gpu.h over the software driver, with whatever condition a test is about; over a real one with
 * SYMTENSOR_TEST_DRIVER=cuda in the environment. There
 *   - tests whose condition only software can make are skipped by rig_open();
 *   - multicast is off, whatever a test asks for: it must not be used on a shared machine;
 *   - where a test wants more devices than there are, ranks share devices ("folding"): a device
 *     then stands for several and may take as many times the memory.
 */

#define RIG_GRANULE (2ull << 20)

/** Conditions. Zero: none. */
struct rig_options {
    uint32_t devices;      /**< 0: 4. */
    uint32_t distinct;     /**< So many must really be there, without folding. */
    uint64_t memory_bytes; /**< Per device; 0: 64 MiB. */
    uint64_t limit_bytes;
    enum gpu_nvls_mode nvls;
    uint32_t nvls_slots;
    enum gpu_graphs_mode graphs; /**< AUTO: on where SYMTENSOR_TEST_GRAPHS is "on". */
    bool watch;                  /**< With a timer that watches jobs. */
    const char *no_multicast;    /**< "1", ...: values of SYMTENSOR_SOFTWARE_..., NULL: not set. */
    const char *no_fabric;
    const char *multicast_slots;
    const char *multicast_recommended;
    const char *no_peer;
    const char *launch_delay_us;
};

struct rig {
    struct gpu *gpu;
    struct st_timers *timers;
    uint32_t device_count;          /**< Of options.devices, those that are really there. */
    struct gpu_software_usage base; /**< What the open devices themselves hold. */
    uint64_t base_free[ST_DEVICES_MAX];
};

/** Whether a real driver is under test. */
bool rig_is_hardware(void);
/** The driver under test. */
enum gpu_driver_choice rig_driver(void);
/** Whether the driver under test can make the conditions; true for the software driver. */
bool rig_can(const struct rig_options *options);
/** Skip the test on a real driver. */
void rig_needs_software(const char *why);
/** Open; skips the test when the driver under test cannot (rig_can()) or has too few devices. */
void rig_open(struct rig *rig, const struct rig_options *options);
/** Close; asserts that callers left nothing behind. */
void rig_close(struct rig *rig);
/** Asserts that no memory is held: neither the driver nor our counters know of any. */
void rig_assert_no_memory(const struct rig *rig);
/** As rig_assert_no_memory(), and that there are no streams and events of teams. */
void rig_assert_clean(const struct rig *rig);

/** A team with ranks on devices rank % devices. */
struct gpu_team *rig_team(const struct rig *rig, uint32_t ranks, uint32_t devices);
/** A team with the given ordinals, folded. */
struct gpu_team *rig_team_of(const struct rig *rig, const uint32_t *ordinals, uint32_t ranks);
/** How many of @p devices devices device 0 stands for: 1 without folding. */
uint32_t rig_fold(const struct rig *rig, uint32_t devices);
/** Ordinals of the devices that are really there, for @p ranks ranks. */
void rig_ordinals(const struct rig *rig, const uint32_t *wanted, uint32_t ranks, uint32_t *ret);
/** gpu_software_usage(), or zeros: a real driver tells no such thing. */
void rig_usage(struct gpu_software_usage *ret);
/** Open descriptors of the process, or 0 where a driver opens some when it likes. */
unsigned rig_open_fds(void);
/** Symmetric memory of its own. */
struct gpu_memory *rig_memory(struct gpu_team *team, uint64_t bytes);

/** An all_reduce in place of so many int32 by two_shot. */
struct gpu_collective_spec rig_all_reduce(struct gpu_team *team, struct gpu_memory *memory,
                                          uint64_t count);

/** A completion that can be waited for. */
struct rig_wait {
    pthread_mutex_t lock;
    pthread_cond_t cond;
    unsigned calls;
    enum st_status status;
    struct st_error err;
};
#define RIG_WAIT_INIT                                                                              \
    {                                                                                              \
        PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0, ST_OK,                             \
        {                                                                                          \
            0                                                                                      \
        }                                                                                          \
    }
struct gpu_completion rig_completion(struct rig_wait *wait);
/** Wait for the completion, at most 30 s. @return its status. */
enum st_status rig_await(struct rig_wait *wait);

/** Bytes to and from a shard, through the transfer calls. */
void rig_write(const struct rig *rig, struct gpu_team *team, struct gpu_memory *memory,
               uint32_t rank, const void *data, uint64_t bytes);
void rig_read(const struct rig *rig, struct gpu_team *team, struct gpu_memory *memory,
              uint32_t rank, void *data, uint64_t bytes);

#define assert_status(call, wanted)                                                                \
    do {                                                                                           \
        enum st_status found_ = (call);                                                            \
        if (found_ != (wanted)) {                                                                  \
            fail_msg("%s: %s", st_status_info(found_)->name, err.message);                         \
        }                                                                                          \
    } while (0)

#endif
