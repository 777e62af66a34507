#include "server/transfer.h"

#include <string.h>

#include "server/staging.h"

/** A download that nobody read for so long lends its buffers to others. */
#define TRANSFER_IDLE_NS (250 * ST_NS_PER_MS)

/** The transfer that this thread launches for: what completes inside needs no notice. */
static _Thread_local const struct server_transfer *transfer_launching;

/* ---------------------------------------------------------------- completions */

/** Nobody comes back to it: a worker releases the last buffers. Under the registry's lock. */
static void transfer_submit_release(struct server_transfer *transfer);

static void transfer_landed(void *arg, enum st_status status, const struct st_error *err)
{
    struct transfer_slot *slot = arg;
    struct server_transfer *transfer = slot->transfer;
    bool inside = transfer_launching == transfer;
    pthread_mutex_lock(&transfer->lock);
    slot->state = transfer->upload ? TRANSFER_SLOT_EMPTY : TRANSFER_SLOT_FULL;
    transfer->flying--;
    transfer->lacking = false;
    transfer->last_turn_ns = st_clock_now_ns();
    transfer->touched |= status == ST_OK || !err->untouched;
    if (status != ST_OK) {
        transfer_fail(transfer, err);
    }
    bool over = transfer->flying == 0 &&
                (transfer->phase == TRANSFER_FAILED || transfer->phase == TRANSFER_FINISHING);
    bool abandoned = transfer->abandoned;
    pthread_mutex_unlock(&transfer->lock);
    if (over || abandoned) {
        server_lock(transfer->server);
        transfer_settle(transfer);
        if (abandoned) {
            transfer_submit_release(transfer);
        }
        server_unlock(transfer->server);
    }
    if (!inside) {
        transfer_notify(transfer);
    }
    transfer_release(transfer);
}

/** Elements of a logical body go whole: what has begun stays behind. Under the lock. */
static void transfer_carry(struct server_transfer *transfer, struct transfer_slot *slot)
{
    uint32_t begun = (uint32_t)(slot->bytes % transfer->spec.element_bytes);
    if (transfer->upload && transfer->spec.logical && begun > 0) {
        slot->bytes -= begun;
        memcpy(transfer->carry, (const char *)slot->buffer + slot->bytes, begun);
        transfer->carry_bytes = begun;
    }
}

/** Under the lock: the slot is about to fly. */
static void transfer_take_off(struct server_transfer *transfer, struct transfer_slot *slot)
{
    transfer_carry(transfer, slot);
    slot->state = TRANSFER_SLOT_FLYING;
    transfer->flying++;
    transfer_retain(transfer);
}

/** No lock: the device gets a slot that took off. */
static void transfer_run(struct server_transfer *transfer, struct transfer_slot *slot)
{
    struct gpu_transfer_spec spec = transfer->spec;
    spec.buffer = slot->buffer;
    spec.offset_bytes = transfer->offset + slot->offset;
    spec.bytes = slot->bytes;
    gpu_transfer_run(transfer->team, &spec, (struct gpu_completion){transfer_landed, slot});
}

static struct server_transfer *transfer_of_launch(struct server_work *work)
{
    return (struct server_transfer *)(void *)((char *)work -
                                              offsetof(struct server_transfer, launch_work));
}

/** A worker of the launch pool: what took off meanwhile. */
static void launch_run(struct server_work *work)
{
    struct server_transfer *transfer = transfer_of_launch(work);
    for (uint32_t i = 0; i < TRANSFER_SLOTS; i++) {
        struct transfer_slot *slot = &transfer->slots[i];
        pthread_mutex_lock(&transfer->lock);
        bool waiting = slot->waiting;
        slot->waiting = false;
        pthread_mutex_unlock(&transfer->lock);
        if (waiting) {
            transfer_run(transfer, slot);
        }
    }
}

static void launch_done(struct server_work *work)
{
    struct server_transfer *transfer = transfer_of_launch(work);
    bool more = false;
    pthread_mutex_lock(&transfer->lock);
    for (uint32_t i = 0; i < TRANSFER_SLOTS; i++) {
        more |= transfer->slots[i].waiting;
    }
    pthread_mutex_unlock(&transfer->lock);
    if (more) {
        server_work_submit(transfer->server, SERVER_POOL_LAUNCH, work);
        return;
    }
    transfer->launching = false;
    transfer_release(transfer);
}

/** The body fails now; its place stays until the device lets go. Under the registry's lock. */
static void launch_overran(struct server_work *work)
{
    struct server_transfer *transfer = transfer_of_launch(work);
    struct st_error err = {0};
    if (transfer->settled) {
        return;
    }
    const struct group *group = transfer->tensor->group;
    if (work->active) {
        server_work_degrade(work, group);
    }
    st_fail_as(&err, ST_DEADLINE_EXCEEDED, ST_REASON_DEVICE_DEGRADED, NULL,
               "a driver call of group %s does not return", group->id);
    pthread_mutex_lock(&transfer->lock);
    transfer_fail(transfer, &err);
    pthread_mutex_unlock(&transfer->lock);
    transfer_tell(transfer);
}

/** No lock: a slot took off and is to be launched, by a worker where a driver call can hang. */
static void transfer_launch(struct server_transfer *transfer, struct transfer_slot *slot)
{
    struct server *server = transfer->server;
    if (!server->calls_may_block) {
        const struct server_transfer *outer = transfer_launching;
        transfer_launching = transfer;
        transfer_run(transfer, slot);
        transfer_launching = outer;
        return;
    }
    server_lock(server);
    pthread_mutex_lock(&transfer->lock);
    slot->waiting = true;
    pthread_mutex_unlock(&transfer->lock);
    if (!transfer->launching) {
        transfer->launching = true;
        transfer->launch_work =
            (struct server_work){.run = launch_run, .done = launch_done, .overran = launch_overran};
        transfer_retain(transfer);
        server_work_submit(server, SERVER_POOL_LAUNCH, &transfer->launch_work);
    }
    server_unlock(server);
}

/* ---------------------------------------------------------------- buffers */

void transfer_release_buffers(struct server_transfer *transfer)
{
    void *buffers[TRANSFER_SLOTS] = {NULL};
    pthread_mutex_lock(&transfer->lock);
    for (uint32_t i = 0; i < TRANSFER_SLOTS; i++) {
        struct transfer_slot *slot = &transfer->slots[i];
        if (slot->state != TRANSFER_SLOT_FLYING && !slot->held) {
            slot->state = TRANSFER_SLOT_EMPTY;
            buffers[i] = slot->buffer;
            slot->buffer = NULL;
        }
    }
    pthread_mutex_unlock(&transfer->lock);
    for (uint32_t i = 0; i < TRANSFER_SLOTS; i++) {
        server_staging_release(transfer->server, buffers[i]);
    }
}

static struct server_transfer *transfer_of_work(struct server_work *work)
{
    return (struct server_transfer *)(void *)((char *)work -
                                              offsetof(struct server_transfer, release_work));
}

static void release_run(struct server_work *work)
{
    transfer_release_buffers(transfer_of_work(work));
}

static void release_done(struct server_work *work)
{
    transfer_release(transfer_of_work(work));
}

static void transfer_submit_release(struct server_transfer *transfer)
{
    pthread_mutex_lock(&transfer->lock);
    bool last = transfer->flying == 0;
    pthread_mutex_unlock(&transfer->lock);
    if (last && !transfer->release_work.run) {
        transfer->release_work = (struct server_work){.run = release_run, .done = release_done};
        transfer_retain(transfer);
        server_work_submit(transfer->server, SERVER_POOL_LAUNCH, &transfer->release_work);
    }
}

/** Everything that was fetched and not read is fetched again later. Under the lock. */
static void transfer_forget(struct server_transfer *transfer)
{
    for (uint32_t i = 0; i < TRANSFER_SLOTS; i++) {
        transfer->slots[i].state = TRANSFER_SLOT_EMPTY;
    }
    transfer->asked = transfer->position;
    transfer->tail = transfer->head;
}

/** A slot with less than one element has nothing to fly: it needs no buffer. Under the lock. */
static void transfer_empty_begun(struct server_transfer *transfer, struct transfer_slot *slot)
{
    if (slot->state == TRANSFER_SLOT_FILLING && !slot->held && transfer->spec.logical &&
        slot->bytes < transfer->spec.element_bytes) {
        transfer_carry(transfer, slot);
        slot->state = TRANSFER_SLOT_EMPTY;
    }
}

void *transfer_take_idle_buffer(struct server_transfer *transfer, uint64_t now_ns)
{
    bool held = false;
    for (uint32_t i = 0; i < TRANSFER_SLOTS; i++) {
        held |= transfer->slots[i].held;
    }
    bool idle =
        now_ns > transfer->last_turn_ns && now_ns - transfer->last_turn_ns >= TRANSFER_IDLE_NS;
    if (!transfer->upload && transfer->flying == 0 && !held && idle && !transfer->settled) {
        transfer_forget(transfer);
    }
    for (uint32_t i = 0; i < TRANSFER_SLOTS; i++) {
        struct transfer_slot *slot = &transfer->slots[i];
        transfer_empty_begun(transfer, slot);
        if (slot->state == TRANSFER_SLOT_EMPTY && slot->buffer && !slot->held) {
            void *buffer = slot->buffer;
            slot->buffer = NULL;
            return buffer;
        }
    }
    return NULL;
}

/* ---------------------------------------------------------------- uploads */

/** Whether a slot may fly now: full, the last one, or nothing else is on its way. Under the lock.
 */
static bool transfer_may_fly(const struct server_transfer *transfer,
                             const struct transfer_slot *slot)
{
    bool moving = transfer->phase == TRANSFER_MOVING || transfer->phase == TRANSFER_FINISHING;
    uint64_t least = transfer->spec.logical ? transfer->spec.element_bytes : 1;
    return moving && slot->state == TRANSFER_SLOT_FILLING && !slot->held && slot->bytes >= least &&
           (slot->bytes == ST_STAGING_BYTES || transfer->accepted == transfer->bytes ||
            transfer->flying == 0);
}

void transfer_flush(struct server_transfer *transfer)
{
    for (uint32_t i = 0; i < TRANSFER_SLOTS; i++) {
        struct transfer_slot *slot = &transfer->slots[i];
        pthread_mutex_lock(&transfer->lock);
        bool fly = transfer_may_fly(transfer, slot);
        if (fly) {
            transfer_take_off(transfer, slot);
        }
        pthread_mutex_unlock(&transfer->lock);
        if (fly) {
            transfer_launch(transfer, slot);
        }
    }
}

/** The slot that takes the next bytes: one that is filling, else an empty one. Under the lock. */
static struct transfer_slot *transfer_open_slot(struct server_transfer *transfer)
{
    struct transfer_slot *open = NULL;
    for (uint32_t i = 0; i < TRANSFER_SLOTS; i++) {
        struct transfer_slot *slot = &transfer->slots[i];
        if (slot->state == TRANSFER_SLOT_FILLING) {
            return slot;
        }
        bool better = !open || (!open->buffer && slot->buffer);
        if (slot->state == TRANSFER_SLOT_EMPTY && better) {
            open = slot;
        }
    }
    return open;
}

/** Under the lock: hold a slot with room, if it has a buffer. @param buffer for one that has none.
 */
static struct transfer_slot *transfer_hold_slot(struct server_transfer *transfer, void **buffer)
{
    bool takes = transfer->phase == TRANSFER_MOVING && transfer->accepted < transfer->bytes;
    struct transfer_slot *slot = takes ? transfer_open_slot(transfer) : NULL;
    if (!slot) {
        return NULL;
    }
    if (!slot->buffer) {
        slot->buffer = *buffer;
        *buffer = NULL;
    }
    if (!slot->buffer) {
        return slot;
    }
    if (slot->state == TRANSFER_SLOT_EMPTY) {
        slot->state = TRANSFER_SLOT_FILLING;
        slot->offset = transfer->accepted - transfer->carry_bytes;
        slot->bytes = transfer->carry_bytes;
        memcpy(slot->buffer, transfer->carry, transfer->carry_bytes);
        transfer->carry_bytes = 0;
    }
    slot->held = true;
    return slot;
}

/** One attempt. @return whether it is worth another one. */
static bool transfer_fill_try(struct server_transfer *transfer, struct transfer_slot **ret_slot)
{
    void *buffer = NULL;
    pthread_mutex_lock(&transfer->lock);
    struct transfer_slot *slot = transfer_hold_slot(transfer, &buffer);
    bool must = transfer->flying == 0;
    pthread_mutex_unlock(&transfer->lock);
    if (!slot || slot->held) {
        *ret_slot = slot;
        return false;
    }
    buffer = transfer_acquire_buffer(transfer, must);
    pthread_mutex_lock(&transfer->lock);
    if (!buffer) {
        transfer->lacking = transfer->flying > 0; /* what flies brings its buffer back */
        bool again = !must && !transfer->lacking;
        pthread_mutex_unlock(&transfer->lock);
        *ret_slot = NULL;
        return again;
    }
    slot = transfer_hold_slot(transfer, &buffer);
    pthread_mutex_unlock(&transfer->lock);
    server_staging_release(transfer->server, buffer); /* if it was not needed after all */
    *ret_slot = slot;
    return false;
}

/** @return a held slot with room, or NULL: wait. */
static struct transfer_slot *transfer_fill_begin(struct server_transfer *transfer)
{
    struct transfer_slot *slot = NULL;
    while (transfer_fill_try(transfer, &slot)) {
    }
    return slot;
}

static void transfer_fill_end(struct server_transfer *transfer, struct transfer_slot *slot,
                              uint64_t bytes)
{
    pthread_mutex_lock(&transfer->lock);
    slot->held = false;
    slot->bytes += bytes;
    transfer->accepted += bytes;
    transfer_used_turn(transfer);
    bool full = slot->bytes == ST_STAGING_BYTES || transfer->accepted == transfer->bytes;
    pthread_mutex_unlock(&transfer->lock);
    if (full) {
        transfer_flush(transfer);
    }
}

uint64_t server_upload_write(struct server_transfer *transfer, const void *data, uint64_t bytes)
{
    const char *from = data;
    uint64_t taken = 0;
    while (taken < bytes) {
        struct transfer_slot *slot = transfer_fill_begin(transfer);
        if (!slot) {
            break;
        }
        uint64_t room = ST_STAGING_BYTES - slot->bytes;
        uint64_t wanted = transfer->bytes - transfer->accepted;
        uint64_t piece = bytes - taken;
        piece = piece < room ? piece : room;
        piece = piece < wanted ? piece : wanted;
        memcpy((char *)slot->buffer + slot->bytes, from + taken, piece);
        transfer_fill_end(transfer, slot, piece);
        taken += piece;
    }
    transfer_flush(transfer);
    return taken;
}

void server_upload_finish(struct server_transfer *transfer)
{
    struct st_error err = {0};
    pthread_mutex_lock(&transfer->lock);
    if (transfer->accepted < transfer->bytes) {
        st_fail(&err, ST_REASON_BODY_LENGTH_MISMATCH, NULL, "%llu of %llu bytes came",
                (unsigned long long)transfer->accepted, (unsigned long long)transfer->bytes);
        transfer_fail(transfer, &err);
    } else if (transfer->phase == TRANSFER_MOVING) {
        transfer->phase = TRANSFER_FINISHING;
    }
    transfer->finish_requested = true;
    pthread_mutex_unlock(&transfer->lock);
    transfer_flush(transfer);
    server_lock(transfer->server);
    transfer_settle(transfer);
    server_unlock(transfer->server);
}

/* ---------------------------------------------------------------- downloads */

/** Under the lock: the slot to be fetched into, if there is something to fetch. */
static struct transfer_slot *transfer_next_slot(struct server_transfer *transfer)
{
    struct transfer_slot *slot = &transfer->slots[transfer->tail];
    bool more = transfer->phase == TRANSFER_MOVING && !transfer->abandoned &&
                transfer->asked < transfer->bytes;
    return more && slot->state == TRANSFER_SLOT_EMPTY && !slot->held ? slot : NULL;
}

/** Under the lock. @return false: it has no buffer. */
static bool transfer_fetch_begin(struct server_transfer *transfer, struct transfer_slot *slot,
                                 void **buffer)
{
    if (!slot->buffer) {
        slot->buffer = *buffer;
        *buffer = NULL;
    }
    if (!slot->buffer) {
        return false;
    }
    uint64_t left = transfer->bytes - transfer->asked;
    slot->offset = transfer->asked;
    slot->bytes = left < ST_STAGING_BYTES ? left : ST_STAGING_BYTES;
    slot->taken = 0;
    transfer->asked += slot->bytes;
    transfer->tail = (transfer->tail + 1) % TRANSFER_SLOTS;
    transfer_take_off(transfer, slot);
    return true;
}

/** @return false: there is no empty slot, nothing to fetch, or no buffer. */
static bool transfer_fetch_one(struct server_transfer *transfer)
{
    void *buffer = NULL;
    pthread_mutex_lock(&transfer->lock);
    struct transfer_slot *slot = transfer_next_slot(transfer);
    bool begun = slot && transfer_fetch_begin(transfer, slot, &buffer);
    bool must = transfer->slots[transfer->head].state == TRANSFER_SLOT_EMPTY;
    pthread_mutex_unlock(&transfer->lock);
    if (slot && !begun) {
        buffer = transfer_acquire_buffer(transfer, must);
        if (!buffer) {
            return false;
        }
        pthread_mutex_lock(&transfer->lock);
        slot = transfer_next_slot(transfer);
        begun = slot && transfer_fetch_begin(transfer, slot, &buffer);
        pthread_mutex_unlock(&transfer->lock);
        server_staging_release(transfer->server, buffer);
    }
    if (begun) {
        transfer_launch(transfer, slot);
    }
    return begun;
}

void transfer_fetch(struct server_transfer *transfer)
{
    while (transfer_fetch_one(transfer)) {
    }
}

/** @return the held slot with the next bytes, or NULL. */
static struct transfer_slot *transfer_read_begin(struct server_transfer *transfer)
{
    pthread_mutex_lock(&transfer->lock);
    struct transfer_slot *slot = &transfer->slots[transfer->head];
    bool ready = transfer->phase == TRANSFER_MOVING && slot->state == TRANSFER_SLOT_FULL;
    slot->held = ready;
    pthread_mutex_unlock(&transfer->lock);
    return ready ? slot : NULL;
}

static void transfer_read_end(struct server_transfer *transfer, struct transfer_slot *slot,
                              uint64_t bytes)
{
    pthread_mutex_lock(&transfer->lock);
    slot->held = false;
    slot->taken += bytes;
    transfer->position += bytes;
    transfer_used_turn(transfer);
    if (slot->taken == slot->bytes) {
        slot->state = TRANSFER_SLOT_EMPTY;
        transfer->head = (transfer->head + 1) % TRANSFER_SLOTS;
    }
    bool complete = transfer->position == transfer->bytes;
    pthread_mutex_unlock(&transfer->lock);
    if (complete) {
        server_lock(transfer->server);
        transfer_settle(transfer);
        server_unlock(transfer->server);
    }
}

uint64_t server_download_read(struct server_transfer *transfer, void *buffer, uint64_t bytes)
{
    char *to = buffer;
    uint64_t given = 0;
    while (given < bytes) {
        struct transfer_slot *slot = transfer_read_begin(transfer);
        if (!slot) {
            break;
        }
        uint64_t piece = slot->bytes - slot->taken;
        piece = piece < bytes - given ? piece : bytes - given;
        memcpy(to + given, (const char *)slot->buffer + slot->taken, piece);
        transfer_read_end(transfer, slot, piece);
        given += piece;
    }
    transfer_fetch(transfer);
    return given;
}
