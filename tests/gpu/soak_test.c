#include "tests/contract/gpu/rig.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/team.h"
#include "tests/support/cuda_there.h"

/**
 * Create, run and delete at random for a while (SYMTENSOR_TEST_SOAK_SECONDS in the environment, 10
 * without), then the books: not a byte is owned, and the driver has as much free as after the first
 * minute's kind of work, within one granule. While it runs, what is owned is what lives.
 */

#define TEAMS 4
#define SLOTS 48
#define SMALL_COUNT 300
#define LARGE_MAX (24ull << 20)

static struct rig rig;
static uint64_t soak_random_state = 20261201;

static uint64_t soak_random(uint64_t below)
{
    soak_random_state = soak_random_state * 6364136223846793005ull + 1442695040888963407ull;
    return (soak_random_state >> 33) % below;
}

/** Something that lives. */
struct soak_slot {
    struct gpu_memory *memory; /**< NULL: empty. */
    struct gpu_team *team;
    struct gpu_memory_spec spec;
};

struct soak {
    struct gpu_team *teams[TEAMS];
    struct soak_slot slots[SLOTS];
    uint64_t made, runs, full; /**< Creations, runs, creations that found no room. */
};

static void soak_create(struct soak *soak, struct soak_slot *slot, enum gpu_memory_type type,
                        uint64_t bytes)
{
    struct st_error err = {0};
    slot->team = soak->teams[soak_random(TEAMS)];
    slot->spec = (struct gpu_memory_spec){
        .size_bytes = bytes, .type = type, .attachable = soak_random(3) == 0};
    enum st_status status = gpu_memory_create(slot->team, &slot->spec, &slot->memory, &err);
    if (status == ST_RESOURCE_EXHAUSTED && err.reason == ST_REASON_GPU_MEMORY_EXHAUSTED) {
        soak->full++;
        return;
    }
    assert_status(status, ST_OK);
    soak->made++;
}

static void soak_destroy(struct soak_slot *slot)
{
    gpu_memory_destroy(slot->memory);
    slot->memory = NULL;
}

/** Fill all ranks with their number, reduce them, and look at one. */
static void soak_run(struct soak *soak, const struct soak_slot *slot)
{
    uint32_t ranks = slot->team->world_size;
    uint64_t count = slot->spec.size_bytes / 4;
    int32_t found = -1;
    struct gpu_fill_spec fill = {
        .memory = slot->memory,
        .rank = -1,
        .dtype = ST_DTYPE_INT32,
        .shape = {.rank = 1, .dims = {count}},
        .strides = {.dims = {1}},
        .pattern = GPU_FILL_RANK,
    };
    struct gpu_collective_spec spec = {
        .algorithm = gpu_algorithm_find("two_shot"),
        .plan = {.collective = gpu_collective_find("all_reduce"),
                 .shape = {.world_size = ranks, .slice_count = count, .in_place = true},
                 .dtype = ST_DTYPE_INT32,
                 .op = ST_OP_SUM,
                 .large_bytes = 4 * count},
        .input = slot->memory,
        .output = slot->memory,
    };
    if (count == 0) {
        return;
    }
    struct rig_wait filled = RIG_WAIT_INIT, reduced = RIG_WAIT_INIT;
    gpu_fill_run(slot->team, &fill, rig_completion(&filled));
    assert_int_equal(rig_await(&filled), ST_OK);
    gpu_plan_fill(slot->team, slot->memory, slot->memory, &spec.plan);
    gpu_collective_run(slot->team, &spec, rig_completion(&reduced));
    assert_int_equal(rig_await(&reduced), ST_OK);
    struct gpu_transfer_spec last = {.memory = slot->memory,
                                     .rank = (uint32_t)soak_random(ranks),
                                     .buffer = gpu_staging_acquire(rig.gpu),
                                     .offset_bytes = 4 * (count - 1),
                                     .bytes = 4};
    struct rig_wait read = RIG_WAIT_INIT;
    gpu_transfer_run(slot->team, &last, rig_completion(&read));
    assert_int_equal(rig_await(&read), ST_OK);
    memcpy(&found, last.buffer, sizeof(found));
    gpu_staging_release(rig.gpu, last.buffer);
    assert_int_equal(found, ranks * (ranks - 1) / 2);
    soak->runs++;
}

static void soak_step(struct soak *soak)
{
    struct soak_slot *slot = &soak->slots[soak_random(SLOTS)];
    if (!slot->memory) {
        bool large = soak_random(2);
        soak_create(soak, slot, soak_random(3) ? GPU_MEMORY_SYMMETRIC : GPU_MEMORY_GLOBAL,
                    4 * (large ? soak_random(LARGE_MAX / 4) : soak_random(SMALL_COUNT)));
    } else if (soak_random(3) == 0) {
        soak_destroy(slot);
    } else {
        soak_run(soak, slot);
    }
}

static uint64_t soak_free(uint32_t device)
{
    size_t free_bytes = 0, total = 0;
    struct st_error err = {0};
    assert_status(gpu_device_enter(&rig.gpu->devices[device], &err), ST_OK);
    assert_int_equal(rig.gpu->driver->cuMemGetInfo(&free_bytes, &total), CUDA_SUCCESS);
    return free_bytes;
}

/** What must be owned at least: all that has an allocation of its own; slabs come on top. */
static void soak_check_books(const struct soak *soak)
{
    uint64_t least = 0, slab_ranks = 0, owned = 0;
    for (size_t i = 0; i < SLOTS; i++) {
        const struct soak_slot *slot = &soak->slots[i];
        const struct gpu_memory_info *info = slot->memory ? gpu_memory_info(slot->memory) : NULL;
        if (info && !info->slab) {
            least += info->allocated_bytes * slot->team->world_size;
        } else if (info) {
            slab_ranks += slot->team->world_size;
        }
    }
    for (uint32_t i = 0; i < gpu_device_count(rig.gpu); i++) {
        struct gpu_device_memory memory;
        gpu_device_memory(rig.gpu, i, &memory);
        owned += memory.owned_bytes;
        assert_int_equal(memory.quarantined_bytes, 0);
    }
    assert_true(owned >= least && owned <= least + slab_ranks * RIG_GRANULE);
}

static void soak_empty(struct soak *soak)
{
    for (size_t i = 0; i < SLOTS; i++) {
        soak_destroy(&soak->slots[i]);
    }
}

static void the_books_are_exact_after_a_while_of_everything(void **state)
{
    (void)state;
    static const uint32_t ranks[TEAMS] = {1, 2, 4, 8};
    const char *text = getenv("SYMTENSOR_TEST_SOAK_SECONDS");
    uint64_t seconds = text && atoi(text) > 0 ? (uint64_t)atoi(text) : 10;
    static struct soak soak;
    uint64_t before[ST_DEVICES_MAX];
    rig_open(&rig, &(struct rig_options){.devices = 8, .memory_bytes = ST_GIB, .watch = true});
    for (size_t i = 0; i < TEAMS; i++) {
        soak.teams[i] = rig_team(&rig, ranks[i], ranks[i]);
    }
    for (unsigned i = 0; i < 500; i++) { /* whatever a driver makes once, it makes now */
        soak_step(&soak);
    }
    soak_empty(&soak);
    for (uint32_t i = 0; i < gpu_device_count(rig.gpu); i++) {
        before[i] = soak_free(i);
    }
    uint64_t end_ns = st_clock_now_ns() + seconds * ST_NS_PER_SECOND;
    for (unsigned step = 0; st_clock_now_ns() < end_ns; step++) {
        soak_step(&soak);
        if (step % 16 == 0) {
            soak_check_books(&soak);
        }
    }
    soak_empty(&soak);
    print_message("%llu made, %llu found no room, %llu runs\n", (unsigned long long)soak.made,
                  (unsigned long long)soak.full, (unsigned long long)soak.runs);
    for (uint32_t i = 0; i < gpu_device_count(rig.gpu); i++) {
        uint64_t after = soak_free(i);
        print_message("device %u: %lld bytes fewer are free\n", i,
                      (long long)before[i] - (long long)after);
        assert_true(after + RIG_GRANULE >= before[i]);
    }
    for (size_t i = 0; i < TEAMS; i++) {
        gpu_team_destroy(soak.teams[i]);
    }
    rig_close(&rig);
}

int main(void)
{
    if (!test_cuda_there()) {
        return TEST_SKIPPED;
    }
    setenv("SYMTENSOR_TEST_DRIVER", "cuda", 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_books_are_exact_after_a_while_of_everything),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
