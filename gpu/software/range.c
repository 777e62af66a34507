#include <stdlib.h>
#include <string.h>

#include "gpu/software/internal.h"

/**
 * Lookups of running commands, and what keeps memory in place under them. A command pins what it
 * touches when it starts and lets go when it ends; in between it holds no lock. To take a range or
 * binding away, its pin is closed under the write lock (so no lookup is between its check and its
 * pin), and the closer waits until the count is down to zero. Unmapping memory that a twin is
 * working on therefore waits for the twin, and never makes it fault.
 */

#define PIN_CLOSED (1ull << 63)

void software_pins_init(struct software_pins *pins)
{
    pins->count = 0;
    pins->capacity = sizeof(pins->few) / sizeof(pins->few[0]);
    pins->items = pins->few;
}

static bool pins_grow(struct software_pins *pins)
{
    uint32_t capacity = 2 * pins->capacity;
    _Atomic uint64_t **items =
        reallocarray(pins->items == pins->few ? NULL : pins->items, capacity, sizeof(*items));
    if (!items) {
        return false;
    }
    if (pins->items == pins->few) {
        memcpy(items, pins->few, sizeof(pins->few));
    }
    pins->items = items;
    pins->capacity = capacity;
    return true;
}

bool software_pins_add(struct software_pins *pins, _Atomic uint64_t *pin)
{
    if (pins->count && pins->items[pins->count - 1] == pin) {
        return true; /* operands often follow each other in one range */
    }
    if (pins->count == pins->capacity && !pins_grow(pins)) {
        return false;
    }
    atomic_fetch_add_explicit(pin, 1, memory_order_relaxed);
    pins->items[pins->count++] = pin;
    return true;
}

void software_pins_release(struct software_pins *pins)
{
    /* Last first: a multicast mapping, which keeps its object's bindings, goes after them. */
    for (uint32_t i = pins->count; i-- > 0;) {
        /* After this the range may be gone: nothing of it is touched again. */
        if (atomic_fetch_sub(pins->items[i], 1) == (PIN_CLOSED | 1)) {
            pthread_mutex_lock(&software.memory_lock);
            pthread_cond_broadcast(&software.pins_released);
            pthread_mutex_unlock(&software.memory_lock);
        }
    }
    if (pins->items != pins->few) {
        free(pins->items);
    }
    software_pins_init(pins);
}

bool software_pin_closed(_Atomic uint64_t *pin)
{
    return atomic_load_explicit(pin, memory_order_relaxed) & PIN_CLOSED;
}

bool software_pin_close(_Atomic uint64_t *pin)
{
    pthread_rwlock_wrlock(&software.ranges_lock);
    uint64_t before = atomic_fetch_or(pin, PIN_CLOSED);
    pthread_rwlock_unlock(&software.ranges_lock);
    if (before & PIN_CLOSED) {
        return false;
    }
    while (atomic_load(pin) != PIN_CLOSED) {
        pthread_cond_wait(&software.pins_released, &software.memory_lock);
    }
    return true;
}

bool software_range_insert(struct software_range *range)
{
    bool inserted = false;
    pthread_rwlock_wrlock(&software.ranges_lock);
    if (software_intervals_reserve(&software.ranges)) {
        software_intervals_insert(&software.ranges, range->address, range->address + range->bytes,
                                  range);
        inserted = true;
    }
    pthread_rwlock_unlock(&software.ranges_lock);
    return inserted;
}

bool software_range_remove(struct software_range *range)
{
    if (!software_pin_close(&range->pin)) {
        return false;
    }
    pthread_rwlock_wrlock(&software.ranges_lock);
    software_intervals_remove(&software.ranges, range->address);
    pthread_rwlock_unlock(&software.ranges_lock);
    return true;
}

/* ---------------------------------------------------------------- operands */

/** Whether a launch on @p device may touch @p range as the operand says. ranges_lock is held. */
static bool range_permits(struct software_range *range, int device,
                          const struct gpu_operand *operand)
{
    uint64_t allowed = operand->write ? range->writable : range->readable;
    return (range->kind == SOFTWARE_RANGE_MULTICAST) == operand->multicast &&
           (allowed >> device & 1) && !software_pin_closed(&range->pin);
}

/** A multicast operand: one mapping holds it, and every member is bound behind all of it. */
static bool operand_pin_multicast(int device, const struct gpu_operand *operand,
                                  struct software_pins *pins)
{
    struct gpu_twin_members members;
    struct software_range *range =
        software_intervals_find(&software.ranges, operand->address, operand->bytes);
    return range && range_permits(range, device, operand) && software_pins_add(pins, &range->pin) &&
           software_multicast_members(range->multicast, operand->address - range->address,
                                      operand->bytes, &members, pins);
}

/** Any other operand: mappings without a gap between them hold it. */
static bool operand_pin_plain(int device, const struct gpu_operand *operand,
                              struct software_pins *pins)
{
    uint64_t at = operand->address;
    uint64_t end = operand->address + operand->bytes;
    size_t index = software_intervals_floor(&software.ranges, at);
    for (; index < software.ranges.count && at < end; index++) {
        const struct software_interval *interval = &software.ranges.items[index];
        if (at < interval->start || at >= interval->end ||
            !range_permits(interval->object, device, operand) ||
            !software_pins_add(pins, &((struct software_range *)interval->object)->pin)) {
            return false;
        }
        at = interval->end;
    }
    return at >= end;
}

bool software_operands_pin(int device, const struct gpu_operand *operands, uint32_t count,
                           struct software_pins *pins)
{
    bool permitted = true;
    pthread_rwlock_rdlock(&software.ranges_lock);
    for (uint32_t i = 0; i < count && permitted; i++) {
        uint64_t end;
        if (!operands[i].bytes) {
            continue;
        }
        permitted = !__builtin_add_overflow(operands[i].address, operands[i].bytes, &end) &&
                    (operands[i].multicast ? operand_pin_multicast(device, &operands[i], pins)
                                           : operand_pin_plain(device, &operands[i], pins));
    }
    pthread_rwlock_unlock(&software.ranges_lock);
    if (!permitted) {
        software_pins_release(pins);
    }
    return permitted;
}

bool software_operand_check(int device, const struct gpu_operand *operand)
{
    struct software_pins pins;
    software_pins_init(&pins);
    bool permitted = software_operands_pin(device, operand, 1, &pins);
    software_pins_release(&pins);
    return permitted;
}

bool software_address_known(uint64_t address)
{
    /* The table of reservations needs memory_lock: a check here must not wait behind an unmapping
     * that waits for the caller, so mapped ranges, the usual case, are looked up first. */
    pthread_rwlock_rdlock(&software.ranges_lock);
    bool known = software_intervals_find(&software.ranges, address, 1) != NULL;
    pthread_rwlock_unlock(&software.ranges_lock);
    if (!known) {
        pthread_mutex_lock(&software.memory_lock);
        known = software_intervals_find(&software.reservations, address, 1) != NULL;
        pthread_mutex_unlock(&software.memory_lock);
    }
    return known;
}

bool software_resolve(void *context, uint64_t address, uint64_t bytes, struct gpu_twin_members *ret)
{
    (void)context;
    bool resolved = false;
    pthread_rwlock_rdlock(&software.ranges_lock);
    struct software_range *range =
        bytes ? software_intervals_find(&software.ranges, address, bytes) : NULL;
    if (range && range->kind == SOFTWARE_RANGE_MULTICAST) {
        resolved = software_multicast_members(range->multicast, address - range->address, bytes,
                                              ret, NULL);
    }
    pthread_rwlock_unlock(&software.ranges_lock);
    return resolved;
}
