#include "server/staging.h"

#include <stdlib.h>
#include <string.h>

#include "server/transfer.h"

#define RETRY_AFTER_TRANSFERS_MS 1000

/* ---------------------------------------------------------------- the open transfers */

/** Half of them for one principal at most, so that nobody keeps all others off. */
static enum st_status transfers_check_room(const struct server_transfers *transfers,
                                           const char *principal, struct st_error *err)
{
    uint32_t own = 0;
    for (const struct server_transfer *t = transfers->first; t; t = t->next) {
        own += strcmp(t->principal, principal) == 0;
    }
    if (transfers->open < ST_TRANSFERS_MAX && own < ST_TRANSFERS_PRINCIPAL_MAX) {
        return ST_OK;
    }
    enum st_status status = st_fail(
        err, ST_REASON_TOO_MANY_TRANSFERS, NULL,
        "%u data bodies are in flight already, %u of them of this principal (at most %d and %d)",
        transfers->open, own, ST_TRANSFERS_MAX, ST_TRANSFERS_PRINCIPAL_MAX);
    if (err) {
        err->retry_after_ms = RETRY_AFTER_TRANSFERS_MS;
    }
    return status;
}

enum st_status transfers_add(struct server_transfer *transfer, struct st_error *err)
{
    struct server *server = transfer->server;
    struct server_transfers *transfers = server->transfers;
    if (!transfers) {
        transfers = calloc(1, sizeof(*transfers));
        if (!transfers) {
            return st_fail(err, ST_REASON_OUT_OF_MEMORY, NULL, "no memory for a transfer");
        }
        transfers->server = server;
        server->transfers = transfers;
    }
    enum st_status status = transfers_check_room(transfers, transfer->principal, err);
    if (status != ST_OK) {
        return status;
    }
    transfer->next = transfers->first;
    if (transfers->first) {
        transfers->first->previous = transfer;
    }
    transfers->first = transfer;
    transfers->open++;
    server->figures.transfers++;
    return ST_OK;
}

void transfers_remove(struct server_transfer *transfer)
{
    struct server_transfers *transfers = transfer->server->transfers;
    if (transfer->previous) {
        transfer->previous->next = transfer->next;
    } else {
        transfers->first = transfer->next;
    }
    if (transfer->next) {
        transfer->next->previous = transfer->previous;
    }
    transfers_set_wants(transfer, false);
    transfers->open--;
}

void server_transfers_destroy(struct server_transfers *transfers)
{
    free(transfers);
}

static void transfer_cancel(struct server_transfer *transfer, const struct st_error *err)
{
    pthread_mutex_lock(&transfer->lock);
    transfer_fail(transfer, err);
    pthread_mutex_unlock(&transfer->lock);
    transfer_settle(transfer);
    transfer_tell(transfer);
}

void server_transfer_cancel_all(struct server *server)
{
    struct st_error err = {0};
    st_fail(&err, ST_REASON_OPERATION_CANCELLED, NULL, "the node ends");
    struct server_transfer *transfer = server->transfers ? server->transfers->first : NULL;
    for (; transfer; transfer = transfer->next) {
        transfer_cancel(transfer, &err);
    }
}

void server_transfer_cancel_uploads(struct server *server, const struct group *group,
                                    const struct tensor *tensor)
{
    struct st_error err = {0};
    st_fail(&err, ST_REASON_OPERATION_CANCELLED, NULL, "the tensor is deleted by force");
    struct server_transfer *transfer = server->transfers ? server->transfers->first : NULL;
    for (; transfer; transfer = transfer->next) {
        bool moving = transfer->upload && !transfer->settled;
        if (moving && transfer->tensor->group == group && (!tensor || transfer->tensor == tensor)) {
            transfer_cancel(transfer, &err);
        }
    }
}

/* ---------------------------------------------------------------- the buffers */

void *server_staging_acquire(struct server *server)
{
    return gpu_staging_acquire(server->gpu);
}

void server_staging_release(struct server *server, void *buffer)
{
    if (!buffer) {
        return;
    }
    gpu_staging_release(server->gpu, buffer);
    server_lock(server);
    struct server_transfers *transfers = server->transfers;
    struct server_transfer *transfer =
        transfers && transfers->wanting > 0 ? transfers->first : NULL;
    while (transfer && !transfer->wants_staging) {
        transfer = transfer->next;
    }
    if (transfer) {
        transfers_set_wants(transfer, false);
        transfer_tell(transfer);
    }
    server_unlock(server);
}

void transfers_set_wants(struct server_transfer *transfer, bool wants)
{
    if (transfer->wants_staging != wants) {
        transfer->wants_staging = wants;
        transfer->server->transfers->wanting += wants ? 1u : -1u;
    }
}

void *transfer_acquire_buffer(struct server_transfer *transfer, bool must)
{
    void *buffer = server_staging_acquire(transfer->server);
    if (buffer || !must) {
        return buffer;
    }
    struct server *server = transfer->server;
    server_lock(server);
    transfers_set_wants(transfer, true);
    server_staging_reclaim(server);
    server_unlock(server);
    buffer = server_staging_acquire(server); /* one may have come back before we said so */
    if (!buffer) {
        transfer_watch_staging(transfer);
        return NULL;
    }
    server_lock(server);
    transfers_set_wants(transfer, false);
    server_unlock(server);
    return buffer;
}

/* ---------------------------------------------------------------- taking back */

/** Take what lies idle from one transfer. @return whether it has bytes that could be flushed
 * instead. */
static bool reclaim_from(struct server_transfer *transfer, uint64_t now_ns, void **buffers,
                         uint32_t *count)
{
    bool flush = false;
    pthread_mutex_lock(&transfer->lock);
    for (void *buffer; *count < ST_STAGING_BUFFERS_MAX &&
                       (buffer = transfer_take_idle_buffer(transfer, now_ns)) != NULL;) {
        buffers[(*count)++] = buffer;
    }
    for (uint32_t i = 0; i < TRANSFER_SLOTS; i++) {
        flush |= transfer->slots[i].state == TRANSFER_SLOT_FILLING && transfer->flying == 0;
    }
    pthread_mutex_unlock(&transfer->lock);
    return flush;
}

static void reclaim_run(struct server_work *work)
{
    struct server *server =
        ((struct server_transfers *)(void *)((char *)work -
                                             offsetof(struct server_transfers, reclaim)))
            ->server;
    void *buffers[ST_STAGING_BUFFERS_MAX];
    struct server_transfer *flush[ST_TRANSFERS_MAX];
    uint32_t buffer_count = 0, flush_count = 0;
    uint64_t now_ns = st_clock_now_ns();
    server_lock(server);
    for (struct server_transfer *t = server->transfers->first; t; t = t->next) {
        if (reclaim_from(t, now_ns, buffers, &buffer_count)) {
            transfer_retain(t);
            flush[flush_count++] = t;
        }
    }
    server_unlock(server);
    for (uint32_t i = 0; i < flush_count; i++) {
        transfer_flush(flush[i]);
        transfer_notify(flush[i]); /* it may have landed inside, and its caller sleeps */
        transfer_release(flush[i]);
    }
    for (uint32_t i = 0; i < buffer_count; i++) {
        server_staging_release(server, buffers[i]);
    }
}

static void reclaim_done(struct server_work *work)
{
    struct server_transfers *transfers =
        (struct server_transfers *)(void *)((char *)work -
                                            offsetof(struct server_transfers, reclaim));
    transfers->reclaiming = false;
}

void server_staging_reclaim(struct server *server)
{
    struct server_transfers *transfers = server->transfers;
    if (!transfers || transfers->reclaiming) {
        return;
    }
    transfers->reclaiming = true;
    transfers->reclaim = (struct server_work){.run = reclaim_run, .done = reclaim_done};
    server_work_submit(server, SERVER_POOL_LAUNCH, &transfers->reclaim);
}
