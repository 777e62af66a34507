#include "server/verb.h"

#include <stddef.h>
#include <string.h>

#include "server/operation.h"

/**
 * Copies of a range of one shard. Between groups, the device of one side may first have to be given
 * access to the memory of the other: a call of the driver for the memory of that group, once for
 * each pair.
 */
struct copy_operation {
    struct server_operation base;
    struct tensor *source;
    struct server_write write;
    struct gpu_copy_spec spec;
    struct server_work work; /**< Giving access, then the launch. */
};

static struct copy_operation *copy_of(struct server_operation *operation)
{
    return (struct copy_operation *)operation;
}

static enum st_status copy_begin(struct server_operation *operation, struct st_error *err)
{
    struct copy_operation *copy = copy_of(operation);
    enum st_status status =
        tensor_contents_check(copy->source, order_rank(copy->spec.source_rank), NULL, err);
    return status == ST_OK ? server_write_begin(&copy->write, err) : status;
}

/** The range onto itself, or no range: nothing moves. */
static bool copy_is_nothing(const struct copy_operation *copy)
{
    const struct gpu_copy_spec *spec = &copy->spec;
    return spec->bytes == 0 ||
           (spec->source == spec->destination && spec->source_rank == spec->destination_rank &&
            spec->source_offset == spec->destination_offset);
}

/** What was cancelled while it waited, also for access, is complete: as cancelled (see
 * cancel_running), and nothing is written. */
static void copy_launch(struct copy_operation *copy)
{
    if (copy->base.cancel_requested) {
        server_operation_complete(&copy->base, ST_OK, NULL);
        return;
    }
    copy->write.launched = true;
    gpu_copy_run(copy->write.tensor->group->team, &copy->spec,
                 server_operation_completion(&copy->base));
}

static struct copy_operation *copy_of_work(struct server_work *work)
{
    return (struct copy_operation *)(void *)((char *)work - offsetof(struct copy_operation, work));
}

static void copy_overran(struct server_work *work)
{
    server_operation_overran_by(&copy_of_work(work)->base, work);
}

static void copy_launch_run(struct server_work *work)
{
    copy_launch(copy_of_work(work));
}

static void copy_launched(struct server_work *work)
{
    server_operation_drop(&copy_of_work(work)->base);
}

/** Memory worker. */
static void copy_access_run(struct server_work *work)
{
    struct copy_operation *copy = copy_of_work(work);
    if (!copy->base.cancel_requested) {
        gpu_copy_prepare(&copy->spec);
    }
}

/** The launch is a job of its own: the groups are held only until the copy is complete, and this
 * one is of a group's memory. */
static void copy_access_given(struct server_work *work)
{
    struct copy_operation *copy = copy_of_work(work);
    copy->base.working_on = NULL;
    *work = (struct server_work){
        .run = copy_launch_run, .done = copy_launched, .overran = copy_overran};
    server_work_submit(copy->base.server, SERVER_POOL_LAUNCH, work);
}

/** Whose memory gpu_copy_prepare() makes accessible. */
static struct group *copy_access_group(const struct copy_operation *copy)
{
    return gpu_copy_grants_destination(&copy->spec) ? copy->write.tensor->group
                                                    : copy->source->group;
}

static void copy_run_with_access(struct copy_operation *copy)
{
    struct server *server = copy->base.server;
    struct group *group = copy_access_group(copy);
    server_operation_retain(&copy->base);
    copy->base.working_on = group;
    copy->work = (struct server_work){
        .run = copy_access_run, .done = copy_access_given, .overran = copy_overran};
    server_lock(server);
    group_memory_submit(group, &copy->work);
    server_unlock(server);
}

static void copy_run(struct server_operation *operation)
{
    struct copy_operation *copy = copy_of(operation);
    if (copy_is_nothing(copy)) {
        server_operation_complete(operation, ST_OK, NULL);
    } else if (gpu_copy_wants_access(&copy->spec)) {
        copy_run_with_access(copy);
    } else {
        copy_launch(copy);
    }
}

static void copy_end(struct server_operation *operation, enum st_status status)
{
    server_write_end(&copy_of(operation)->write, operation, status);
}

static void copy_destroy(struct server_operation *operation)
{
    (void)operation;
}

static const struct server_operation_class copy_class = {
    .verb = "copy",
    .size = sizeof(struct copy_operation),
    .pool = SERVER_POOL_LAUNCH,
    .cancel_running = true,
    .begin = copy_begin,
    .run = copy_run,
    .end = copy_end,
    .destroy = copy_destroy,
};

/* ---------------------------------------------------------------- accepting */

/** What is known before there is an operation. */
struct copy_draft {
    struct tensor *source, *destination; /**< May be equal. */
    uint64_t bytes;
};

static enum st_status copy_find(struct server *server, const struct server_caller *caller,
                                const struct server_copy_request *request, struct copy_draft *draft,
                                struct st_error *err)
{
    bool same = request->dst_tensor[0] == '\0' || strcmp(request->dst_tensor, request->tensor) == 0;
    enum st_status status = server_accept_check(server, caller, err);
    if (status == ST_OK) {
        const struct tensor_wanted source = {request->tensor,
                                             same ? TENSOR_USE_WRITE : TENSOR_USE_READ, NULL};
        status = tensor_find(server, caller, &source, &draft->source, err);
    }
    if (status != ST_OK) {
        return status;
    }
    draft->destination = draft->source;
    if (!same) {
        const struct tensor_wanted destination = {request->dst_tensor, TENSOR_USE_WRITE,
                                                  "dst_tensor"};
        status = tensor_find(server, caller, &destination, &draft->destination, err);
    }
    if (status == ST_OK) {
        status = tensor_check_idle(draft->source, NULL, err);
    }
    return status == ST_OK ? tensor_check_idle(draft->destination, "dst_tensor", err) : status;
}

static enum st_status copy_check_rank(const struct tensor *tensor, uint32_t rank, const char *field,
                                      struct st_error *err)
{
    if (rank >= tensor->group->world_size) {
        return st_fail(err, ST_REASON_RANK_OUT_OF_RANGE, field, "must be below world_size %u",
                       tensor->group->world_size);
    }
    return ST_OK;
}

static enum st_status copy_check_range(const struct tensor *tensor, uint64_t offset, uint64_t bytes,
                                       const char *field, struct st_error *err)
{
    if (offset > tensor->shard_bytes || bytes > tensor->shard_bytes - offset) {
        return st_fail(err, ST_REASON_RANGE_OUT_OF_BOUNDS, field,
                       "%llu bytes from %llu on lie outside the shard of %llu bytes",
                       (unsigned long long)bytes, (unsigned long long)offset,
                       (unsigned long long)tensor->shard_bytes);
    }
    return ST_OK;
}

/** Ranges of one shard that share a byte and are not the same range. */
static bool copy_overlaps(const struct server_copy_request *request, const struct copy_draft *draft)
{
    uint64_t from = request->src_offset, to = request->dst_offset;
    uint64_t distance = from < to ? to - from : from - to;
    return draft->source == draft->destination && request->src_rank == request->dst_rank &&
           distance > 0 && distance < draft->bytes;
}

static enum st_status copy_check(const struct server_copy_request *request,
                                 struct copy_draft *draft, struct st_error *err)
{
    uint64_t offset = request->src_offset;
    enum st_status status = copy_check_rank(draft->source, request->src_rank, "src_rank", err);
    if (status == ST_OK) {
        status = copy_check_rank(draft->destination, request->dst_rank, "dst_rank", err);
    }
    if (status == ST_OK) {
        draft->bytes = request->has_bytes ? request->bytes : 0;
        status = copy_check_range(draft->source, offset, draft->bytes, "src_offset", err);
    }
    if (status == ST_OK) {
        draft->bytes = request->has_bytes ? request->bytes : draft->source->shard_bytes - offset;
        status = copy_check_range(draft->destination, request->dst_offset, draft->bytes,
                                  "dst_offset", err);
    }
    if (status == ST_OK && copy_overlaps(request, draft)) {
        status = st_fail(err, ST_REASON_OVERLAP, "dst_offset",
                         "the ranges overlap in part; they must be apart or the same");
    }
    return status;
}

static void copy_claim(struct copy_operation *copy)
{
    struct server_operation *operation = &copy->base;
    struct tensor *destination = copy->write.tensor;
    uint64_t source_shard = order_rank(copy->spec.source_rank);
    server_operation_claim(operation, &copy->source->group->order, GROUP_OPERATIONS, false);
    if (destination->group != copy->source->group) {
        server_operation_claim(operation, &destination->group->order, GROUP_OPERATIONS, false);
    }
    if (destination == copy->source) {
        server_operation_claim(operation, &destination->order, copy->write.shards | source_shard,
                               true);
        return;
    }
    server_operation_claim(operation, &copy->source->order, source_shard, false);
    server_operation_claim(operation, &destination->order, copy->write.shards, true);
}

static void copy_fill_in(struct copy_operation *copy, const struct server_copy_request *request,
                         const struct copy_draft *draft)
{
    struct tensor *destination = draft->destination;
    copy->source = draft->source;
    copy->write = (struct server_write){
        .tensor = destination,
        .shards = order_rank(request->dst_rank),
        .full = request->dst_offset == 0 && draft->bytes == destination->shard_bytes,
        .expected_generation = request->expected_generation,
    };
    copy->spec = (struct gpu_copy_spec){
        .source = draft->source->memory,
        .destination = destination->memory,
        .source_rank = request->src_rank,
        .destination_rank = request->dst_rank,
        .source_offset = request->src_offset,
        .destination_offset = request->dst_offset,
        .bytes = draft->bytes,
    };
    copy->base.bytes = draft->bytes;
    copy->base.bytes_total = draft->bytes;
    copy->base.small = draft->bytes <= ST_INLINE_BYTES;
    copy_claim(copy);
}

/** Under the lock. @param ret_operation set also on failure when there is a handle to release. */
static enum st_status copy_accept(struct server *server, const struct server_caller *caller,
                                  const struct server_copy_request *request,
                                  struct server_operation **ret_operation, struct st_error *err)
{
    struct copy_draft draft = {0};
    enum st_status status = copy_find(server, caller, request, &draft, err);
    if (status == ST_OK) {
        status = copy_check(request, &draft, err);
    }
    if (status == ST_OK) {
        status = server_verb_create(server, &copy_class, caller, draft.source, ret_operation, err);
    }
    if (status != ST_OK) {
        return status;
    }
    copy_fill_in(copy_of(*ret_operation), request, &draft);
    return server_operation_accept(*ret_operation, err);
}

enum st_status server_copy(struct server *server, const struct server_caller *caller,
                           const struct server_copy_request *request,
                           struct server_operation **ret_operation, struct st_error *err)
{
    struct server_operation *operation = NULL;
    server_lock(server);
    enum st_status status = copy_accept(server, caller, request, &operation, err);
    server_unlock(server);
    return server_verb_start(operation, status, ret_operation);
}
