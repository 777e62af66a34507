#include "server/transfer.h"

#include <stdlib.h>

#include "server/staging.h"

#define TRANSFER_STALL_NS (ST_TRANSFER_STALL_SECONDS * ST_NS_PER_SECOND)
#define TRANSFER_STAGING_RETRY_NS (100 * ST_NS_PER_MS)
#define TRANSFER_NS_PER_BYTE (ST_NS_PER_SECOND / ST_TRANSFER_RATE_MIN)
/** How often a reader that does not call is looked at. */
#define TRANSFER_MOVED_LOOK_NS (2 * ST_NS_PER_SECOND)

/* ---------------------------------------------------------------- references and notices */

void transfer_retain(struct server_transfer *transfer)
{
    atomic_fetch_add_explicit(&transfer->references, 1, memory_order_relaxed);
}

void transfer_release(struct server_transfer *transfer)
{
    if (atomic_fetch_sub_explicit(&transfer->references, 1, memory_order_acq_rel) > 1) {
        return;
    }
    pthread_mutex_destroy(&transfer->notify_lock);
    pthread_mutex_destroy(&transfer->lock);
    free(transfer);
}

void transfer_notify(struct server_transfer *transfer)
{
    pthread_mutex_lock(&transfer->notify_lock);
    if (!transfer->closed) {
        transfer->notify(transfer->notify_arg);
    }
    pthread_mutex_unlock(&transfer->notify_lock);
}

static void transfer_told(struct server_after *after)
{
    struct server_transfer *transfer =
        (struct server_transfer *)(void *)((char *)after - offsetof(struct server_transfer, told));
    transfer->told_pending = false;
    transfer_notify(transfer);
    transfer_release(transfer);
}

void transfer_tell(struct server_transfer *transfer)
{
    if (!atomic_exchange(&transfer->told_pending, true)) {
        transfer_retain(transfer);
        transfer->told.call = transfer_told;
        server_after(transfer->server, &transfer->told);
    }
}

/* ---------------------------------------------------------------- the end */

bool transfer_has_ended(const struct server_transfer *transfer)
{
    return transfer->phase == TRANSFER_DONE || transfer->phase == TRANSFER_FAILED;
}

void transfer_fail(struct server_transfer *transfer, const struct st_error *err)
{
    if (!transfer_has_ended(transfer) && !transfer->settled) {
        transfer->phase = TRANSFER_FAILED;
        transfer->error = *err;
    }
}

/** Whether nothing is on its way any more, for good or ill. Under both locks. */
static bool transfer_is_over(const struct server_transfer *transfer)
{
    bool filling = false;
    for (uint32_t i = 0; i < TRANSFER_SLOTS; i++) {
        filling |= transfer->slots[i].state == TRANSFER_SLOT_FILLING;
    }
    bool read = transfer->phase == TRANSFER_MOVING && !transfer->upload &&
                transfer->position == transfer->bytes;
    bool written = transfer->phase == TRANSFER_FINISHING && !filling;
    return transfer->flying == 0 && (transfer->phase == TRANSFER_FAILED || read || written);
}

/** Under the registry's lock. @param touched the shard's bytes may have changed. @return the
 * generation of the tensor now. */
static uint64_t transfer_end_upload(struct server_transfer *transfer, bool failed, bool touched)
{
    struct tensor *tensor = transfer->tensor;
    uint64_t shard = order_rank(transfer->rank);
    bool full = transfer->offset == 0 && transfer->bytes == tensor->shard_bytes;
    if (!failed) {
        tensor_contents_commit(tensor, shard, full);
        transfer->server->figures.uploaded_bytes_total += transfer->bytes;
    } else if (transfer->began && touched) {
        tensor_contents_fail(tensor, shard);
    } else if (transfer->began) {
        tensor_contents_restore(tensor, shard);
    }
    tensor->shards[transfer->rank].uploading = false;
    tensor->uploads--;
    return tensor_generation(tensor, ORDER_ALL);
}

void transfer_settle(struct server_transfer *transfer)
{
    struct server *server = transfer->server;
    pthread_mutex_lock(&transfer->lock);
    bool over = !transfer->settled && transfer_is_over(transfer);
    bool failed = transfer->phase == TRANSFER_FAILED;
    bool touched = transfer->touched;
    transfer->settled |= over;
    uint64_t generation = transfer->generation;
    uint64_t position = transfer->position;
    pthread_mutex_unlock(&transfer->lock);
    if (!over) {
        return;
    }
    if (transfer->upload) {
        generation = transfer_end_upload(transfer, failed, touched);
    }
    server->figures.downloaded_bytes_total += position;
    server->figures.transfers--;
    pthread_mutex_lock(&transfer->lock);
    transfer->generation = generation;
    if (!failed) {
        transfer->phase = TRANSFER_DONE;
    }
    pthread_mutex_unlock(&transfer->lock);
    server_holder_leave(&transfer->holder);
    pthread_cond_broadcast(&server->idle);
}

/* ---------------------------------------------------------------- the turn of the caller */

/** Whether it is the caller who has to do something. Under the lock. */
static bool transfer_waits_for_caller(const struct server_transfer *transfer)
{
    if (transfer->phase != TRANSFER_MOVING || transfer->wants_staging) {
        return false;
    }
    if (transfer->upload) {
        return transfer->flying < TRANSFER_SLOTS && !transfer->lacking;
    }
    return transfer->flying == 0 || transfer->slots[transfer->head].state == TRANSFER_SLOT_FULL;
}

static void transfer_timer_fire(void *arg);

/** Under the lock. @return false: memory is out. */
static bool transfer_start_timer(struct server_transfer *transfer, uint64_t deadline_ns)
{
    if (transfer->abandoned || transfer_has_ended(transfer)) {
        return true;
    }
    if (deadline_ns > transfer->deadline_ns) {
        deadline_ns = transfer->deadline_ns;
    }
    return st_timer_start(transfer->server->timers, &transfer->timer, deadline_ns,
                          transfer_timer_fire, transfer);
}

/** No lock: whether the caller's side moves on though it calls nothing. */
static bool transfer_moved(struct server_transfer *transfer)
{
    pthread_mutex_lock(&transfer->notify_lock);
    bool moved = transfer->moved && !transfer->closed && transfer->moved(transfer->notify_arg);
    pthread_mutex_unlock(&transfer->notify_lock);
    return moved;
}

/** Under the lock: when to look again. */
static uint64_t transfer_next_look(const struct server_transfer *transfer, uint64_t now_ns,
                                   uint64_t stall_ns)
{
    uint64_t look_ns = transfer->wants_staging ? now_ns + TRANSFER_STAGING_RETRY_NS
                       : transfer->moved       ? now_ns + TRANSFER_MOVED_LOOK_NS
                                               : stall_ns;
    return look_ns < stall_ns ? look_ns : stall_ns;
}

void transfer_used_turn(struct server_transfer *transfer)
{
    uint64_t now_ns = st_clock_now_ns();
    transfer->turns_ns += now_ns - transfer->last_turn_ns;
    transfer->last_turn_ns = now_ns;
}

/** Under the lock: when the caller did something last, or was seen to move. */
static uint64_t transfer_last_sign(const struct server_transfer *transfer)
{
    return transfer->last_turn_ns > transfer->last_move_ns ? transfer->last_turn_ns
                                                           : transfer->last_move_ns;
}

/**
 * Whether the caller, whose turn it is, does nothing, or so little that its body is only held open.
 * Under the lock.
 */
static bool transfer_is_stalled(const struct server_transfer *transfer, uint64_t now_ns)
{
    uint64_t turn_ns = now_ns - transfer->last_turn_ns;
    uint64_t moved = transfer->upload ? transfer->accepted : transfer->position;
    return now_ns >= transfer_last_sign(transfer) + TRANSFER_STALL_NS ||
           (transfer->turns_ns + turn_ns) / TRANSFER_NS_PER_BYTE >
               moved + TRANSFER_STALL_NS / TRANSFER_NS_PER_BYTE;
}

/** Under the lock: whose fault is it? */
static void transfer_check_time(struct server_transfer *transfer, uint64_t now_ns)
{
    struct st_error err = {0};
    bool waits = transfer_waits_for_caller(transfer);
    uint64_t stall_ns = (waits ? transfer_last_sign(transfer) : now_ns) + TRANSFER_STALL_NS;
    if (now_ns >= transfer->deadline_ns) {
        st_fail(&err, ST_REASON_OPERATION_DEADLINE, NULL, "the deadline of the request passed");
        transfer_fail(transfer, &err);
    } else if (waits && transfer_is_stalled(transfer, now_ns)) {
        st_fail(&err, ST_REASON_TRANSFER_STALLED, NULL, "the body made no progress for %d s",
                ST_TRANSFER_STALL_SECONDS);
        transfer_fail(transfer, &err);
    } else {
        transfer_start_timer(transfer, transfer_next_look(transfer, now_ns, stall_ns));
    }
}

static void transfer_timer_fire(void *arg)
{
    struct server_transfer *transfer = arg;
    struct server *server = transfer->server;
    bool moved = transfer_moved(transfer);
    uint64_t now_ns = st_clock_now_ns();
    pthread_mutex_lock(&transfer->lock);
    bool ended = transfer_has_ended(transfer) || transfer->abandoned;
    if (moved) {
        transfer->last_move_ns = now_ns;
    }
    if (!ended) {
        transfer_check_time(transfer, now_ns);
    }
    bool failed = !ended && transfer->phase == TRANSFER_FAILED;
    pthread_mutex_unlock(&transfer->lock);
    if (!failed && !transfer->wants_staging) {
        return;
    }
    server_lock(server);
    transfer_settle(transfer);
    if (!ended) {
        transfers_set_wants(transfer, false);
        transfer_tell(transfer);
    }
    server_unlock(server);
}

void transfer_watch_staging(struct server_transfer *transfer)
{
    pthread_mutex_lock(&transfer->lock);
    transfer_start_timer(transfer, st_clock_now_ns() + TRANSFER_STAGING_RETRY_NS);
    pthread_mutex_unlock(&transfer->lock);
}

/* ---------------------------------------------------------------- its place in the order */

/** Last checks, now that the place is there. Under the registry's lock. */
static enum st_status transfer_check_place(struct server_transfer *transfer, struct st_error *err)
{
    struct tensor *tensor = transfer->tensor;
    uint64_t shard = order_rank(transfer->rank);
    enum st_status status = ST_OK;
    pthread_mutex_lock(&transfer->lock);
    if (transfer->phase == TRANSFER_FAILED) { /* by its deadline, before the place came */
        *err = transfer->error;
        status = transfer->error.status;
    }
    pthread_mutex_unlock(&transfer->lock);
    if (status != ST_OK) {
        return status;
    }
    if (transfer->upload) {
        status = tensor_generation_check(tensor, transfer->expected_generation, err);
    } else if (!transfer->allow_undefined) {
        status = tensor_contents_check(tensor, shard, NULL, err);
    }
    return status;
}

/**
 * The place is there: bytes may move. Under the registry's lock.
 * @param ret_settle there is nothing to wait for; set also on failure.
 */
static enum st_status transfer_begin(struct server_transfer *transfer, bool *ret_settle,
                                     struct st_error *err)
{
    struct tensor *tensor = transfer->tensor;
    uint64_t shard = order_rank(transfer->rank);
    struct st_error why = {0};
    enum st_status status = transfer_check_place(transfer, &why);
    if (status == ST_OK && transfer->upload) {
        tensor_contents_begin(tensor, shard);
        transfer->began = true;
    }
    uint64_t generation = tensor_generation(tensor, ORDER_ALL);
    pthread_mutex_lock(&transfer->lock);
    transfer->generation = generation;
    transfer->last_turn_ns = st_clock_now_ns();
    if (status != ST_OK) {
        transfer_fail(transfer, &why);
    } else if (transfer->phase == TRANSFER_PLACE) {
        transfer->phase = transfer->finish_requested ? TRANSFER_FINISHING : TRANSFER_MOVING;
    }
    *ret_settle = transfer_has_ended(transfer) || transfer->finish_requested;
    pthread_mutex_unlock(&transfer->lock);
    if (status != ST_OK && err) {
        *err = why;
    }
    return status;
}

static void transfer_granted(struct server_holder *holder)
{
    struct server_transfer *transfer = (struct server_transfer *)holder; /* its first member */
    struct st_error err = {0};
    bool settle = false;
    if (transfer_begin(transfer, &settle, &err) != ST_OK || settle) {
        transfer_settle(transfer);
    }
    transfer_tell(transfer);
}

/* ---------------------------------------------------------------- opening */

/** What both directions are opened with. */
struct transfer_draft {
    struct server *server;
    const struct server_caller *caller;
    const struct server_transfer_request *request;
    bool upload;
    uint64_t offset, bytes; /**< Found out. */
};

static enum st_status transfer_check_range(struct transfer_draft *draft,
                                           const struct tensor *tensor, struct st_error *err)
{
    const struct server_transfer_request *request = draft->request;
    uint64_t element_bytes = st_dtype_info(tensor->dtype)->size_bytes;
    draft->offset = request->has_range ? request->offset : 0;
    draft->bytes = request->has_range ? request->bytes : tensor->shard_bytes;
    if (draft->offset > tensor->shard_bytes || draft->bytes > tensor->shard_bytes - draft->offset) {
        return st_fail(err, ST_REASON_RANGE_OUT_OF_BOUNDS, "offset",
                       "%llu bytes from %llu on lie outside the shard of %llu bytes",
                       (unsigned long long)draft->bytes, (unsigned long long)draft->offset,
                       (unsigned long long)tensor->shard_bytes);
    }
    if (request->logical &&
        (draft->offset % element_bytes != 0 || draft->bytes % element_bytes != 0)) {
        return st_fail(err, ST_REASON_INVALID_VALUE, "offset", "must cover whole elements");
    }
    return ST_OK;
}

static enum st_status transfer_check(struct transfer_draft *draft, struct tensor **ret_tensor,
                                     struct st_error *err)
{
    const struct server_transfer_request *request = draft->request;
    const struct tensor_wanted wanted = {request->tensor,
                                         draft->upload ? TENSOR_USE_WRITE : TENSOR_USE_READ, NULL};
    struct tensor *tensor = NULL;
    enum st_status status =
        draft->upload ? server_accept_check(draft->server, draft->caller, err) : ST_OK;
    if (status == ST_OK) {
        status = tensor_find(draft->server, draft->caller, &wanted, &tensor, err);
    }
    if (status != ST_OK) {
        return status;
    }
    if (request->rank >= tensor->group->world_size) {
        return st_fail(err, ST_REASON_RANK_OUT_OF_RANGE, "rank", "must be below world_size %u",
                       tensor->group->world_size);
    }
    status = transfer_check_range(draft, tensor, err);
    if (status == ST_OK && tensor->shards[request->rank].uploading) {
        status = st_fail(err, ST_REASON_TENSOR_BUSY, NULL, "shard %u of %s is being written",
                         request->rank, tensor->id);
    }
    if (status == ST_OK) {
        *ret_tensor = tensor;
    }
    return status;
}

static struct server_transfer *transfer_create(const struct transfer_draft *draft,
                                               struct tensor *tensor)
{
    struct server_transfer *transfer = calloc(1, sizeof(*transfer));
    if (!transfer) {
        return NULL;
    }
    const struct server_transfer_request *request = draft->request;
    transfer->references = 1;
    transfer->server = draft->server;
    server_copy_text(transfer->principal, sizeof(transfer->principal), draft->caller->principal);
    transfer->upload = draft->upload;
    transfer->notify = request->notify;
    transfer->moved = request->moved;
    transfer->notify_arg = request->notify_arg;
    transfer->allow_undefined = request->allow_undefined;
    transfer->rank = request->rank;
    transfer->expected_generation = request->expected_generation;
    transfer->deadline_ns = draft->caller->deadline_ns;
    transfer->offset = draft->offset;
    transfer->bytes = draft->bytes;
    transfer->tensor = tensor;
    transfer->team = tensor->group->team;
    transfer->spec = (struct gpu_transfer_spec){
        .memory = tensor->memory,
        .rank = request->rank,
        .to_shard = draft->upload,
        .logical = request->logical && !st_shape_is_row_major(&tensor->shape, &tensor->strides),
        .element_bytes = st_dtype_info(tensor->dtype)->size_bytes,
        .shape = tensor->shape,
        .strides = tensor->strides,
    };
    pthread_mutex_init(&transfer->notify_lock, NULL);
    pthread_mutex_init(&transfer->lock, NULL);
    for (uint32_t i = 0; i < TRANSFER_SLOTS; i++) {
        transfer->slots[i].transfer = transfer;
    }
    return transfer;
}

/** Under the registry's lock: take the place. @return of transfer_begin(), if it was granted at
 * once. */
static enum st_status transfer_enter(struct server_transfer *transfer, struct st_error *err)
{
    struct tensor *tensor = transfer->tensor;
    transfer->claims[0] =
        (struct order_claim){.queue = &tensor->group->order, .shards = GROUP_TRANSFERS};
    transfer->claims[1] = (struct order_claim){
        .queue = &tensor->order, .shards = order_rank(transfer->rank), .write = transfer->upload};
    transfer->holder.order.claims = transfer->claims;
    transfer->holder.order.count = 2;
    transfer->holder.server = transfer->server;
    transfer->holder.granted = transfer_granted;
    if (transfer->upload) {
        tensor->shards[transfer->rank].uploading = true;
        tensor->uploads++;
    }
    bool settle = false;
    return server_holder_enter(&transfer->holder) ? transfer_begin(transfer, &settle, err) : ST_OK;
}

/** Under the registry's lock. @param ret_transfer set also on failure when there is one to close.
 */
static enum st_status transfer_accept(struct transfer_draft *draft,
                                      struct server_transfer **ret_transfer,
                                      struct server_tensor **ret_tensor, struct st_error *err)
{
    struct tensor *tensor = NULL;
    enum st_status status = transfer_check(draft, &tensor, err);
    if (status != ST_OK) {
        return status;
    }
    struct server_tensor *snapshot = tensor_snapshot(tensor);
    struct server_transfer *transfer = transfer_create(draft, tensor);
    if (!snapshot || !transfer) {
        status = st_fail(err, ST_REASON_OUT_OF_MEMORY, NULL, "no memory for a transfer");
    } else {
        status = transfers_add(transfer, err);
    }
    if (status != ST_OK) {
        server_snapshot_release(snapshot ? &snapshot->base : NULL);
        if (transfer) {
            transfer_release(transfer);
        }
        return status;
    }
    *ret_transfer = transfer;
    *ret_tensor = snapshot;
    return transfer_enter(transfer, err);
}

static enum st_status transfer_open(struct transfer_draft *draft,
                                    struct server_transfer **ret_transfer,
                                    struct server_tensor **ret_tensor, struct st_error *err)
{
    struct server_transfer *transfer = NULL;
    struct server_tensor *tensor = NULL;
    server_lock(draft->server);
    enum st_status status = transfer_accept(draft, &transfer, &tensor, err);
    server_unlock(draft->server);
    if (status == ST_OK) {
        pthread_mutex_lock(&transfer->lock);
        uint64_t now_ns = st_clock_now_ns();
        bool started = transfer_start_timer(
            transfer, transfer_next_look(transfer, now_ns, now_ns + TRANSFER_STALL_NS));
        pthread_mutex_unlock(&transfer->lock);
        status =
            started ? ST_OK : st_fail(err, ST_REASON_OUT_OF_MEMORY, NULL, "no memory for a timer");
    }
    if (status != ST_OK) {
        server_transfer_close(transfer);
        server_snapshot_release(tensor ? &tensor->base : NULL);
        return status;
    }
    *ret_transfer = transfer;
    *ret_tensor = tensor;
    return ST_OK;
}

enum st_status server_upload_open(struct server *server, const struct server_caller *caller,
                                  const struct server_transfer_request *request,
                                  struct server_transfer **ret_transfer,
                                  struct server_tensor **ret_tensor, struct st_error *err)
{
    struct transfer_draft draft = {server, caller, request, .upload = true};
    return transfer_open(&draft, ret_transfer, ret_tensor, err);
}

enum st_status server_download_open(struct server *server, const struct server_caller *caller,
                                    const struct server_transfer_request *request,
                                    struct server_transfer **ret_transfer,
                                    struct server_tensor **ret_tensor, struct st_error *err)
{
    struct transfer_draft draft = {server, caller, request, .upload = false};
    return transfer_open(&draft, ret_transfer, ret_tensor, err);
}

/* ---------------------------------------------------------------- the caller's view */

static enum server_transfer_state transfer_view(const struct server_transfer *transfer)
{
    if (transfer->phase == TRANSFER_DONE) {
        return SERVER_TRANSFER_DONE;
    }
    if (transfer->phase == TRANSFER_FAILED) {
        return SERVER_TRANSFER_FAILED;
    }
    if (!transfer->upload) {
        return transfer->phase == TRANSFER_MOVING &&
                       transfer->slots[transfer->head].state == TRANSFER_SLOT_FULL
                   ? SERVER_TRANSFER_READY
                   : SERVER_TRANSFER_WAITING;
    }
    return transfer_waits_for_caller(transfer) ? SERVER_TRANSFER_READY : SERVER_TRANSFER_WAITING;
}

enum server_transfer_state server_transfer_state(struct server_transfer *transfer,
                                                 struct st_error *err)
{
    if (!transfer->upload) {
        transfer_fetch(transfer);
    }
    if (transfer->bytes == 0) {
        server_lock(transfer->server); /* a download of nothing is complete when it has its place */
        transfer_settle(transfer);
        server_unlock(transfer->server);
    }
    pthread_mutex_lock(&transfer->lock);
    enum server_transfer_state state = transfer_view(transfer);
    if (state == SERVER_TRANSFER_FAILED && err) {
        *err = transfer->error;
    }
    pthread_mutex_unlock(&transfer->lock);
    if (state >= SERVER_TRANSFER_DONE) {
        transfer_release_buffers(transfer);
    }
    return state;
}

bool server_transfer_has_failed(struct server_transfer *transfer)
{
    pthread_mutex_lock(&transfer->lock);
    bool failed = transfer->phase == TRANSFER_FAILED;
    pthread_mutex_unlock(&transfer->lock);
    return failed;
}

uint64_t server_transfer_generation(const struct server_transfer *transfer)
{
    return transfer->generation;
}

void server_transfer_close(struct server_transfer *transfer)
{
    if (!transfer) {
        return;
    }
    struct server *server = transfer->server;
    struct st_error err = {0};
    st_fail(&err, ST_REASON_TRANSFER_ABORTED, NULL, "the client went away");
    pthread_mutex_lock(&transfer->notify_lock);
    transfer->closed = true;
    pthread_mutex_unlock(&transfer->notify_lock);
    pthread_mutex_lock(&transfer->lock);
    transfer->abandoned = true;
    if (transfer->phase != TRANSFER_FINISHING) {
        transfer_fail(transfer, &err);
    }
    pthread_mutex_unlock(&transfer->lock);
    st_timer_stop(server->timers, &transfer->timer);
    server_lock(server);
    transfer_settle(transfer);
    transfers_remove(transfer);
    server_unlock(server);
    transfer_release_buffers(transfer);
    transfer_release(transfer);
}
