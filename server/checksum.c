#include "server/verb.h"

#include <stdlib.h>
#include <time.h>

#include "server/digest.h"
#include "server/operation.h"
#include "server/staging.h"

/**
 * Checksums: a worker of the host pool reads the shards through staging buffers, the next piece on
 * its way while one is digested.
 */

#define CHECKSUM_SLOTS 2
#define CHECKSUM_RETRY_MS 5 /* how often a worker looks for a staging buffer when all are out */
#define CHECKSUM_LOOK_NS                                                                           \
    (50 * ST_NS_PER_MS) /* how often one that waits for the device looks at cancel */

/** One piece on its way to the host. */
struct checksum_slot {
    struct checksum_operation *checksum;
    void *buffer;
    uint64_t bytes; /**< 0: nothing was asked for. */
    bool flying;
    enum st_status status;
    struct st_error err;
};

struct checksum_operation {
    struct server_operation base;
    struct tensor *tensor;
    enum server_checksum_algorithm algorithm;
    struct server_checksum *results; /**< [world_size] */
    struct server_work work;
    _Atomic bool calling; /**< The worker is in a driver call, not waiting for what it queued. */
    pthread_mutex_t lock; /**< Of flying and what comes with it. */
    pthread_cond_t arrived;
    struct checksum_slot slots[CHECKSUM_SLOTS];
};

static struct checksum_operation *checksum_of(struct server_operation *operation)
{
    return (struct checksum_operation *)operation;
}

/* ---------------------------------------------------------------- one piece */

static void checksum_arrived(void *arg, enum st_status status, const struct st_error *err)
{
    struct checksum_slot *slot = arg;
    struct checksum_operation *checksum = slot->checksum;
    pthread_mutex_lock(&checksum->lock);
    slot->flying = false;
    slot->status = status;
    if (status != ST_OK) {
        slot->err = *err;
    }
    pthread_cond_signal(&checksum->arrived);
    pthread_mutex_unlock(&checksum->lock);
}

/** Ask for the piece of a shard that begins at @p offset, if there is one. */
static void checksum_launch(struct checksum_slot *slot, uint32_t rank, uint64_t offset)
{
    struct tensor *tensor = slot->checksum->tensor;
    uint64_t left = offset < tensor->shard_bytes ? tensor->shard_bytes - offset : 0;
    slot->bytes = left < ST_STAGING_BYTES ? left : ST_STAGING_BYTES;
    if (slot->bytes == 0) {
        return;
    }
    slot->flying = true;
    const struct gpu_transfer_spec spec = {
        .memory = tensor->memory,
        .rank = rank,
        .buffer = slot->buffer,
        .offset_bytes = offset,
        .bytes = slot->bytes,
    };
    slot->checksum->calling = true;
    gpu_transfer_run(tensor->group->team, &spec, (struct gpu_completion){checksum_arrived, slot});
    slot->checksum->calling = false;
}

/** Sleep until the piece has arrived or it is time to look at cancel. @return whether it has. */
static bool checksum_wait_shortly(struct checksum_slot *slot)
{
    struct checksum_operation *checksum = slot->checksum;
    uint64_t until_ns = st_clock_now_ns() + CHECKSUM_LOOK_NS;
    const struct timespec until = {.tv_sec = (time_t)(until_ns / ST_NS_PER_SECOND),
                                   .tv_nsec = (long)(until_ns % ST_NS_PER_SECOND)};
    int rc = 0;
    pthread_mutex_lock(&checksum->lock);
    while (slot->flying && rc == 0) {
        rc = pthread_cond_timedwait(&checksum->arrived, &checksum->lock, &until);
    }
    bool arrived = !slot->flying;
    pthread_mutex_unlock(&checksum->lock);
    return arrived;
}

/** The device writes into the buffer until the piece has arrived: whoever cancels does not wait for
 * that, the worker does. */
static enum st_status checksum_wait(struct checksum_slot *slot, struct st_error *err)
{
    struct server_operation *operation = &slot->checksum->base;
    while (!checksum_wait_shortly(slot)) {
        if (operation->cancel_requested) {
            server_operation_end_early(operation);
        }
    }
    if (slot->bytes > 0 && slot->status != ST_OK) {
        *err = slot->err;
        return slot->status;
    }
    return ST_OK;
}

/* ---------------------------------------------------------------- one shard */

static enum st_status checksum_check_cancel(struct checksum_operation *checksum,
                                            struct st_error *err)
{
    return checksum->base.cancel_requested ? server_operation_settle(&checksum->base, err) : ST_OK;
}

/** Buffers that the worker has: the first [count] slots. */
static uint32_t checksum_slot_count(const struct checksum_operation *checksum)
{
    return checksum->slots[1].buffer ? 2 : 1;
}

static enum st_status checksum_read_shard(struct checksum_operation *checksum, uint32_t rank,
                                          struct server_digest *digest, struct st_error *err)
{
    uint32_t count = checksum_slot_count(checksum);
    uint64_t shard_bytes = checksum->tensor->shard_bytes;
    uint64_t asked = 0;
    enum st_status status = ST_OK;
    for (uint32_t i = 0; i < count; i++) {
        checksum_launch(&checksum->slots[i], rank, asked);
        asked += checksum->slots[i].bytes;
    }
    uint32_t turn = 0;
    for (uint64_t done = 0; done < shard_bytes && status == ST_OK; turn = (turn + 1) % count) {
        struct checksum_slot *slot = &checksum->slots[turn];
        status = checksum_wait(slot, err);
        if (status == ST_OK) {
            status = checksum_check_cancel(checksum, err);
        }
        if (status == ST_OK) {
            server_digest_update(digest, slot->buffer, slot->bytes);
            done += slot->bytes;
            checksum->base.bytes_done += slot->bytes;
            checksum_launch(slot, rank, asked);
            asked += slot->bytes;
        }
    }
    for (uint32_t i = 0; i < count; i++) {
        struct st_error ignored;
        enum st_status last = checksum_wait(&checksum->slots[i], status == ST_OK ? err : &ignored);
        status = status == ST_OK ? last : status;
    }
    return status;
}

static enum st_status checksum_read_shards(struct checksum_operation *checksum,
                                           struct st_error *err)
{
    struct server_digest digest;
    enum st_status status = server_digest_init(&digest, checksum->algorithm, err);
    if (status != ST_OK) {
        return status;
    }
    uint32_t world_size = checksum->tensor->group->world_size;
    for (uint32_t rank = 0; rank < world_size && status == ST_OK; rank++) {
        status = checksum_read_shard(checksum, rank, &digest, err);
        checksum->results[rank].rank = rank;
        server_digest_finish(&digest, checksum->results[rank].hex);
    }
    server_digest_done(&digest);
    return status;
}

/* ---------------------------------------------------------------- the worker */

/** One buffer at least. Blocks: until there is one or the operation is cancelled. */
static enum st_status checksum_acquire(struct checksum_operation *checksum, struct st_error *err)
{
    struct server *server = checksum->base.server;
    struct checksum_slot *slots = checksum->slots;
    enum st_status status = ST_OK;
    slots[0].buffer = server_staging_acquire(server);
    while (!slots[0].buffer && status == ST_OK) {
        server_lock(server);
        server_staging_reclaim(server);
        server_unlock(server);
        nanosleep(&(struct timespec){.tv_nsec = CHECKSUM_RETRY_MS * 1000000L}, NULL);
        slots[0].buffer = server_staging_acquire(server);
        status = checksum_check_cancel(checksum, err);
    }
    if (status == ST_OK) {
        slots[1].buffer = server_staging_acquire(server);
    }
    return status;
}

static void checksum_work(struct server_work *work)
{
    struct checksum_operation *checksum =
        (struct checksum_operation *)(void *)((char *)work -
                                              offsetof(struct checksum_operation, work));
    struct st_error err = {0};
    enum st_status status = checksum_acquire(checksum, &err);
    if (status == ST_OK) {
        status = checksum_read_shards(checksum, &err);
    }
    for (size_t i = 0; i < CHECKSUM_SLOTS; i++) {
        server_staging_release(checksum->base.server, checksum->slots[i].buffer);
        checksum->slots[i].buffer = NULL;
    }
    server_operation_complete(&checksum->base, status, status == ST_OK ? NULL : &err);
}

/** The operation may have ended before, its record not: this reference was the work's. */
static void checksum_work_done(struct server_work *work)
{
    struct checksum_operation *checksum =
        (struct checksum_operation *)(void *)((char *)work -
                                              offsetof(struct checksum_operation, work));
    server_operation_drop(&checksum->base);
}

/* ---------------------------------------------------------------- the operation */

static enum st_status checksum_begin(struct server_operation *operation, struct st_error *err)
{
    struct tensor *tensor = checksum_of(operation)->tensor;
    return tensor_contents_check(tensor, tensor_shards_all(tensor), NULL, err);
}

/** The pool has another thread by now. What was queued may take its time; a call may not. Under the
 * lock. */
static void checksum_work_overran(struct server_work *work)
{
    struct checksum_operation *checksum =
        (struct checksum_operation *)(void *)((char *)work -
                                              offsetof(struct checksum_operation, work));
    if (checksum->calling && !checksum->base.over) {
        server_operation_overran_by(&checksum->base, work);
    }
}

static void checksum_run(struct server_operation *operation)
{
    struct checksum_operation *checksum = checksum_of(operation);
    checksum->work = (struct server_work){
        .run = checksum_work, .done = checksum_work_done, .overran = checksum_work_overran};
    server_operation_retain(operation);
    server_lock(operation->server);
    server_work_submit(operation->server, SERVER_POOL_HOST, &checksum->work);
    server_unlock(operation->server);
}

static void checksum_end(struct server_operation *operation, enum st_status status)
{
    struct checksum_operation *checksum = checksum_of(operation);
    struct server_result *result = &operation->result;
    if (status == ST_OK) {
        result->kind = SERVER_RESULT_CHECKSUMS;
        result->count = checksum->tensor->group->world_size;
        result->checksum_algorithm = checksum->algorithm;
        result->checksums = checksum->results;
        checksum->results = NULL;
    }
}

static void checksum_destroy(struct server_operation *operation)
{
    struct checksum_operation *checksum = checksum_of(operation);
    free(checksum->results);
    pthread_cond_destroy(&checksum->arrived);
    pthread_mutex_destroy(&checksum->lock);
}

static const struct server_operation_class checksum_class = {
    .verb = "checksum",
    .size = sizeof(struct checksum_operation),
    .pool = SERVER_POOL_LAUNCH,
    .begin = checksum_begin,
    .run = checksum_run,
    .end = checksum_end,
    .destroy = checksum_destroy,
};

static enum st_status checksum_fill_in(struct checksum_operation *checksum, struct tensor *tensor,
                                       enum server_checksum_algorithm algorithm,
                                       struct st_error *err)
{
    struct server_operation *operation = &checksum->base;
    uint32_t world_size = tensor->group->world_size;
    pthread_mutex_init(&checksum->lock, NULL);
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&checksum->arrived, &monotonic);
    pthread_condattr_destroy(&monotonic);
    checksum->tensor = tensor;
    checksum->algorithm = algorithm;
    for (size_t i = 0; i < CHECKSUM_SLOTS; i++) {
        checksum->slots[i].checksum = checksum;
    }
    checksum->results = calloc(world_size, sizeof(*checksum->results));
    if (!checksum->results) {
        return st_fail(err, ST_REASON_OUT_OF_MEMORY, NULL, "no memory for the checksums");
    }
    operation->bytes = tensor->shard_bytes;
    operation->bytes_total = tensor->shard_bytes * world_size;
    operation->small = true; /* run only hands it to a worker */
    server_operation_claim(operation, &tensor->group->order, GROUP_OPERATIONS, false);
    server_operation_claim(operation, &tensor->order, tensor_shards_all(tensor), false);
    return ST_OK;
}

/** Under the lock. @param ret_operation set also on failure when there is a handle to release. */
static enum st_status checksum_accept(struct server *server, const struct server_caller *caller,
                                      const char *id, enum server_checksum_algorithm algorithm,
                                      struct server_operation **ret_operation, struct st_error *err)
{
    struct tensor *tensor = NULL;
    enum st_status status = server_accept_check(server, caller, err);
    if (status == ST_OK) {
        status = tensor_find(server, caller, &(struct tensor_wanted){id, TENSOR_USE_READ, NULL},
                             &tensor, err);
    }
    if (status == ST_OK) {
        status = tensor_check_idle(tensor, NULL, err);
    }
    if (status == ST_OK) {
        status = server_verb_create(server, &checksum_class, caller, tensor, ret_operation, err);
    }
    if (status == ST_OK) {
        status = checksum_fill_in(checksum_of(*ret_operation), tensor, algorithm, err);
    }
    return status == ST_OK ? server_operation_accept(*ret_operation, err) : status;
}

enum st_status server_checksum(struct server *server, const struct server_caller *caller,
                               const char *tensor, enum server_checksum_algorithm algorithm,
                               struct server_operation **ret_operation, struct st_error *err)
{
    struct server_operation *operation = NULL;
    server_lock(server);
    enum st_status status = checksum_accept(server, caller, tensor, algorithm, &operation, err);
    server_unlock(server);
    return server_verb_start(operation, status, ret_operation);
}
