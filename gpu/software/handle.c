#include <stdlib.h>

#include "gpu/software/internal.h"

/**
 * Handles: 24 bits of slot, 32 of generation, 4 of kind. Finding one takes two loads and no lock,
 * since it is on the path of every launch; a slot's handle changes before and after its object
 * does.
 */

#define HANDLE_CHUNK 1024u  /* slots made at a time */
#define HANDLE_CHUNKS 4096u /* so that slots stay below 2^24 */
#define HANDLE_SLOT_MASK 0xffffffu
#define HANDLE_GENERATION_SHIFT 24
#define HANDLE_KIND_SHIFT 56

struct handle_slot {
    _Atomic uint64_t handle; /**< 0: free. */
    void *_Atomic object;
    uint32_t generation;
    uint32_t next_free; /**< Slot number + 1. */
};

static pthread_mutex_t handle_lock =
    PTHREAD_MUTEX_INITIALIZER; /* of what follows, but for reading */
static struct handle_slot *_Atomic handle_chunks[HANDLE_CHUNKS];
static uint32_t handle_slots; /* made so far */
static uint32_t handle_first_free;
static uint32_t handle_generation; /* goes on when the table is made anew: old handles stay stale */
static uint64_t handle_counts[SOFTWARE_KIND_END];

static struct handle_slot *handle_slot(uint32_t slot)
{
    struct handle_slot *chunk =
        atomic_load_explicit(&handle_chunks[slot / HANDLE_CHUNK], memory_order_acquire);
    return chunk ? &chunk[slot % HANDLE_CHUNK] : NULL;
}

/** Make a chunk of free slots. The lock is held. */
static bool handle_grow(void)
{
    if (handle_slots == HANDLE_CHUNK * HANDLE_CHUNKS) {
        return false;
    }
    struct handle_slot *chunk = calloc(HANDLE_CHUNK, sizeof(*chunk));
    if (!chunk) {
        return false;
    }
    for (uint32_t i = 0; i < HANDLE_CHUNK; i++) {
        chunk[i].next_free = i + 1 < HANDLE_CHUNK ? handle_slots + i + 2 : 0;
    }
    atomic_store_explicit(&handle_chunks[handle_slots / HANDLE_CHUNK], chunk, memory_order_release);
    handle_first_free = handle_slots + 1;
    handle_slots += HANDLE_CHUNK;
    return true;
}

uint64_t software_handle_new(enum software_kind kind, void *object)
{
    uint64_t handle = 0;
    pthread_mutex_lock(&handle_lock);
    if (handle_first_free || handle_grow()) {
        uint32_t number = handle_first_free - 1;
        struct handle_slot *slot = handle_slot(number);
        handle_first_free = slot->next_free;
        slot->generation = ++handle_generation;
        handle = (uint64_t)kind << HANDLE_KIND_SHIFT |
                 (uint64_t)slot->generation << HANDLE_GENERATION_SHIFT | number;
        atomic_store_explicit(&slot->object, object, memory_order_relaxed);
        atomic_store_explicit(&slot->handle, handle, memory_order_release);
        handle_counts[kind]++;
    }
    pthread_mutex_unlock(&handle_lock);
    return handle;
}

void *software_handle_find(uint64_t handle, enum software_kind kind)
{
    uint64_t number = handle & HANDLE_SLOT_MASK;
    if (handle >> HANDLE_KIND_SHIFT != kind || number >= HANDLE_CHUNK * HANDLE_CHUNKS) {
        return NULL;
    }
    struct handle_slot *slot = handle_slot((uint32_t)number);
    if (!slot || atomic_load_explicit(&slot->handle, memory_order_acquire) != handle) {
        return NULL;
    }
    return atomic_load_explicit(&slot->object, memory_order_relaxed);
}

void software_handle_delete(uint64_t handle)
{
    uint32_t number = (uint32_t)(handle & HANDLE_SLOT_MASK);
    pthread_mutex_lock(&handle_lock);
    struct handle_slot *slot = handle_slot(number);
    atomic_store_explicit(&slot->handle, 0, memory_order_release);
    atomic_store_explicit(&slot->object, NULL, memory_order_relaxed);
    slot->next_free = handle_first_free;
    handle_first_free = number + 1;
    handle_counts[handle >> HANDLE_KIND_SHIFT]--;
    pthread_mutex_unlock(&handle_lock);
}

void *software_handle_search(enum software_kind kind, bool (*matches)(void *object, void *arg),
                             void *arg)
{
    void *found = NULL;
    pthread_mutex_lock(&handle_lock);
    for (uint32_t i = 0; i < handle_slots && !found; i++) {
        struct handle_slot *slot = handle_slot(i);
        uint64_t handle = atomic_load_explicit(&slot->handle, memory_order_relaxed);
        void *object = atomic_load_explicit(&slot->object, memory_order_relaxed);
        if (handle >> HANDLE_KIND_SHIFT == kind && matches(object, arg)) {
            found = object;
        }
    }
    pthread_mutex_unlock(&handle_lock);
    return found;
}

uint64_t software_handle_count(enum software_kind kind)
{
    pthread_mutex_lock(&handle_lock);
    uint64_t count = handle_counts[kind];
    pthread_mutex_unlock(&handle_lock);
    return count;
}

void software_handles_free(void)
{
    pthread_mutex_lock(&handle_lock);
    for (uint32_t i = 0; i < handle_slots / HANDLE_CHUNK; i++) {
        free(atomic_exchange(&handle_chunks[i], NULL));
    }
    handle_slots = 0;
    handle_first_free = 0;
    pthread_mutex_unlock(&handle_lock);
}
