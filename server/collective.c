#include "server/internal.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "server/planner.h"
#include "server/shapes.h"
#include "server/verb.h"

/**
 * Collectives: check, plan, take a place in the order of both tensors, launch. Scratch, where an
 * algorithm needs it, is allocated by a memory worker; one piece is kept for each group.
 */

#define COLLECTIVE_CLASSES_MAX 32

/** The scratch that a group keeps: used by one operation at a time, others get their own. */
struct server_scratch {
    struct gpu_memory *memory;
    uint64_t size_bytes;
    bool busy; /**< Under the lock. While it is, memory belongs to the operation that uses it. */
};

struct collective_operation {
    struct server_operation base;
    struct tensor *input;
    uint64_t reads;            /**< Shards of the input. */
    struct server_write write; /**< Of the output, which is the input in place. */
    struct gpu_collective_spec spec;
    /* With scratch: */
    uint64_t scratch_bytes;
    bool scratch_kept; /**< spec.scratch is the group's. */
    uint32_t
        scratch_pending; /**< Under the lock: the job and the run; then the scratch goes back. */
    struct server_work scratch_work;
    struct server_after scratch_finish;
    enum st_status status;  /**< Of the run, told when the scratch is back. */
    struct st_error *error; /**< malloc'd on failure. */
};

static struct collective_operation *collective_of(struct server_operation *operation)
{
    return (struct collective_operation *)operation;
}

/** The shards of a side. */
static uint64_t collective_side_mask(enum gpu_side side, uint32_t root, const struct tensor *tensor)
{
    return side == GPU_SIDE_ROOT ? order_rank(root) : tensor_shards_all(tensor);
}

/* ---------------------------------------------------------------- running */

static enum st_status collective_begin(struct server_operation *operation, struct st_error *err)
{
    struct collective_operation *collective = collective_of(operation);
    enum st_status status = tensor_contents_check(collective->input, collective->reads, NULL, err);
    return status == ST_OK ? server_write_begin(&collective->write, err) : status;
}

static void collective_end(struct server_operation *operation, enum st_status status)
{
    server_write_end(&collective_of(operation)->write, operation, status);
    if (operation->began && status == ST_OK) {
        operation->server->figures.collective_bytes_total += operation->bytes;
    }
}

static void collective_destroy(struct server_operation *operation)
{
    free(collective_of(operation)->error);
}

/* ---------------------------------------------------------------- scratch */

void server_scratch_destroy(struct server_scratch *scratch)
{
    if (scratch) {
        gpu_memory_destroy(scratch->memory);
        free(scratch);
    }
}

static struct collective_operation *collective_of_work(struct server_work *work)
{
    return (
        struct collective_operation *)(void *)((char *)work -
                                               offsetof(struct collective_operation, scratch_work));
}

/** No lock: the operation ends now that nothing of it is left. */
static void collective_scratch_finish(struct server_after *after)
{
    struct collective_operation *collective =
        (struct collective_operation *)(void *)((char *)after -
                                                offsetof(struct collective_operation,
                                                         scratch_finish));
    server_operation_complete(&collective->base, collective->status, collective->error);
    server_operation_release(&collective->base);
}

static void collective_scratch_overran(struct server_work *work)
{
    server_operation_overran_by(&collective_of_work(work)->base, work);
}

/** Memory worker. */
static void collective_scratch_free(struct server_work *work)
{
    gpu_memory_destroy(collective_of_work(work)->spec.scratch);
}

static void collective_scratch_freed(struct server_work *work)
{
    struct collective_operation *collective = collective_of_work(work);
    server_after(collective->base.server, &collective->scratch_finish);
}

/** Under the lock, when the job and the run are both over: give the scratch back. */
static void collective_scratch_step(struct collective_operation *collective)
{
    struct group *group = collective->base.group;
    if (--collective->scratch_pending > 0) {
        return;
    }
    if (collective->scratch_kept) {
        group->scratch->busy = false;
    } else if (collective->spec.scratch) {
        collective->scratch_work = (struct server_work){
            .run = collective_scratch_free,
            .done = collective_scratch_freed,
            .overran = collective_scratch_overran,
        };
        group_memory_submit(group, &collective->scratch_work);
        return;
    }
    server_after(collective->base.server, &collective->scratch_finish);
}

static void collective_scratch_ran(void *arg, enum st_status status, const struct st_error *err)
{
    struct collective_operation *collective = arg;
    struct server *server = collective->base.server;
    collective->status = status;
    if (status != ST_OK && err) {
        collective->error = malloc(sizeof(*err));
        if (collective->error) {
            *collective->error = *err;
        }
    }
    server_lock(server);
    collective_scratch_step(collective);
    server_unlock(server);
}

static void collective_scratch_made(struct server_work *work)
{
    collective_scratch_step(collective_of_work(work));
}

static enum st_status collective_make_scratch(struct collective_operation *collective,
                                              struct st_error *err)
{
    struct group *group = collective->base.group;
    struct server_scratch *kept = collective->scratch_kept ? group->scratch : NULL;
    if (kept && kept->memory && kept->size_bytes >= collective->scratch_bytes) {
        collective->spec.scratch = kept->memory;
        return ST_OK;
    }
    if (kept) {
        gpu_memory_destroy(kept->memory);
        *kept = (struct server_scratch){.busy = true};
    }
    const struct gpu_memory_spec spec = {
        .size_bytes = collective->scratch_bytes,
        .type = GPU_MEMORY_SYMMETRIC,
        .multicast = GPU_MULTICAST_DISABLED,
    };
    enum st_status status = gpu_memory_create(group->team, &spec, &collective->spec.scratch, err);
    if (status == ST_OK && kept) {
        kept->memory = collective->spec.scratch;
        kept->size_bytes = collective->scratch_bytes;
    }
    return status;
}

/** Memory worker: make the scratch as large as needed, then launch. */
static void collective_scratch_make(struct server_work *work)
{
    struct collective_operation *collective = collective_of_work(work);
    struct st_error err = {0};
    enum st_status status = collective_make_scratch(collective, &err);
    if (status != ST_OK || collective->base.cancel_requested) {
        /* What was cancelled is complete: as cancelled (see cancel_running), with the reason of the
         * cancel, and nothing is written. */
        collective_scratch_ran(collective, status, &err);
        return;
    }
    collective->write.launched = true;
    gpu_collective_run(collective->base.group->team, &collective->spec,
                       (struct gpu_completion){collective_scratch_ran, collective});
}

/** Take the group's scratch if it is free and this is not too much to keep. Under the lock. */
static void collective_take_kept(struct collective_operation *collective)
{
    struct group *group = collective->base.group;
    if (collective->scratch_bytes > ST_SCRATCH_KEPT_BYTES) {
        return;
    }
    if (!group->scratch) {
        group->scratch = calloc(1, sizeof(*group->scratch));
    }
    if (group->scratch && !group->scratch->busy) {
        group->scratch->busy = true;
        collective->scratch_kept = true;
    }
}

static void collective_run_with_scratch(struct collective_operation *collective)
{
    struct server_operation *operation = &collective->base;
    server_operation_retain(operation);
    collective->scratch_pending = 2;
    collective->scratch_finish.call = collective_scratch_finish;
    collective->scratch_work = (struct server_work){
        .run = collective_scratch_make,
        .done = collective_scratch_made,
        .overran = collective_scratch_overran,
    };
    server_lock(operation->server);
    collective_take_kept(collective);
    group_memory_submit(operation->group, &collective->scratch_work);
    server_unlock(operation->server);
}

static void collective_run(struct server_operation *operation)
{
    struct collective_operation *collective = collective_of(operation);
    if (collective->spec.plan.large_bytes == 0) {
        server_operation_complete(operation, ST_OK, NULL);
        return;
    }
    if (collective->scratch_bytes > 0) {
        collective_run_with_scratch(collective);
        return;
    }
    collective->write.launched = true;
    gpu_collective_run(operation->group->team, &collective->spec,
                       server_operation_completion(operation));
}

/* ---------------------------------------------------------------- accepting */

/** What is known before there is an operation. */
struct collective_draft {
    struct tensor *input, *output; /**< Equal in place. */
    struct gpu_plan_input input_of_plan;
    struct server_plan plan;
};

/** A class for each row of gpu_collectives[], which differ by their verb only. */
static struct server_operation_class collective_classes[COLLECTIVE_CLASSES_MAX];

static void collective_make_classes(void)
{
    static const struct server_operation_class model = {
        .size = sizeof(struct collective_operation),
        .pool = SERVER_POOL_LAUNCH,
        .cancel_running = true,
        .begin = collective_begin,
        .run = collective_run,
        .end = collective_end,
        .destroy = collective_destroy,
    };
    for (size_t i = 0; i < COLLECTIVE_CLASSES_MAX && gpu_collectives[i]; i++) {
        collective_classes[i] = model;
        collective_classes[i].verb = gpu_collectives[i]->name;
    }
}

static const struct server_operation_class *
collective_class(const struct gpu_collective *collective)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, collective_make_classes);
    size_t i = 0;
    while (gpu_collectives[i] != collective) {
        i++;
    }
    return &collective_classes[i];
}

static enum st_status collective_find(struct server *server, const struct server_caller *caller,
                                      const struct server_collective_request *request,
                                      struct collective_draft *draft, struct st_error *err)
{
    bool in_place = request->output[0] == '\0' || strcmp(request->output, request->tensor) == 0;
    const struct tensor_wanted input = {request->tensor,
                                        in_place ? TENSOR_USE_WRITE : TENSOR_USE_READ, NULL};
    enum st_status status = tensor_find(server, caller, &input, &draft->input, err);
    if (status != ST_OK) {
        return status;
    }
    draft->output = draft->input;
    if (!in_place) {
        const struct tensor_wanted output = {request->output, TENSOR_USE_WRITE, "output"};
        status = tensor_find(server, caller, &output, &draft->output, err);
    }
    if (status == ST_OK && draft->output->group != draft->input->group) {
        return st_fail(err, ST_REASON_GROUP_MISMATCH, "output", "belongs to group %s, not to %s",
                       draft->output->group->id, draft->input->group->id);
    }
    return status;
}

static enum st_status collective_check_shapes(const struct server_collective_request *request,
                                              struct collective_draft *draft, struct st_error *err)
{
    const struct tensor *input = draft->input;
    const struct tensor *output = draft->output;
    uint32_t world_size = input->group->world_size;
    if (request->collective->rooted && request->root >= world_size) {
        return st_fail(err, ST_REASON_RANK_OUT_OF_RANGE, "root", "must be below world_size %u",
                       world_size);
    }
    struct gpu_plan_input *plan = &draft->input_of_plan;
    *plan = (struct gpu_plan_input){
        .collective = request->collective,
        .shape = {.world_size = world_size,
                  .root = request->collective->rooted ? request->root : 0,
                  .in_place = input == output},
        .dtype = input->dtype,
        .op = request->op,
    };
    const struct server_side in = {input->dtype, input->shape, input->strides};
    const struct server_side out = {output->dtype, output->shape, output->strides};
    enum st_status status =
        server_shapes_check(request->collective, world_size, &in,
                            plan->shape.in_place ? NULL : &out, &plan->shape.slice_count, err);
    if (status == ST_OK) {
        plan->large_bytes = gpu_collective_large_count(request->collective, &plan->shape) *
                            st_dtype_info(input->dtype)->size_bytes;
    }
    return status;
}

static enum st_status collective_check(struct server *server, const struct server_caller *caller,
                                       const struct server_collective_request *request,
                                       struct collective_draft *draft, struct st_error *err)
{
    enum st_status status = server_accept_check(server, caller, err);
    if (status == ST_OK) {
        status = collective_find(server, caller, request, draft, err);
    }
    if (status == ST_OK) {
        status = collective_check_shapes(request, draft, err);
    }
    if (status == ST_OK) {
        status = tensor_check_idle(draft->input, NULL, err);
    }
    if (status == ST_OK && draft->output != draft->input) {
        status = tensor_check_idle(draft->output, "output", err);
    }
    if (status != ST_OK) {
        return status;
    }
    gpu_plan_fill(draft->input->group->team, draft->input->memory, draft->output->memory,
                  &draft->input_of_plan);
    const struct server_plan_request plan = {
        .algorithm = request->algorithm,
        .deterministic =
            request->deterministic < 0 ? server->deterministic : request->deterministic != 0,
    };
    return server_plan(&draft->input_of_plan, &plan, &draft->plan, err);
}

static void collective_claim(struct collective_operation *collective)
{
    struct server_operation *operation = &collective->base;
    server_operation_claim(operation, &operation->group->order, GROUP_OPERATIONS, false);
    const struct server_write *write = &collective->write;
    if (collective->input == write->tensor) {
        server_operation_claim(operation, &write->tensor->order, collective->reads | write->shards,
                               true);
        return;
    }
    server_operation_claim(operation, &collective->input->order, collective->reads, false);
    server_operation_claim(operation, &write->tensor->order, write->shards, true);
}

/** Bytes of the results on all ranks that get one. */
static uint64_t collective_total_bytes(const struct gpu_plan_input *plan, uint64_t written)
{
    uint64_t small_bytes = plan->shape.slice_count * st_dtype_info(plan->dtype)->size_bytes;
    bool sliced = plan->collective->rule == GPU_SHAPE_SCATTERED;
    return (sliced ? small_bytes : plan->large_bytes) * (uint64_t)__builtin_popcountll(written);
}

static void collective_fill_in(struct collective_operation *collective,
                               const struct server_collective_request *request,
                               const struct collective_draft *draft)
{
    const struct gpu_plan_input *plan = &draft->input_of_plan;
    struct server_operation *operation = &collective->base;
    collective->input = draft->input;
    collective->reads =
        collective_side_mask(plan->collective->reads, plan->shape.root, draft->input);
    collective->write = (struct server_write){
        .tensor = draft->output,
        .shards = collective_side_mask(plan->collective->writes, plan->shape.root, draft->output),
        .full = plan->collective->rule != GPU_SHAPE_SCATTERED || !plan->shape.in_place,
        .expected_generation = request->expected_generation,
    };
    collective->spec = (struct gpu_collective_spec){
        .algorithm = draft->plan.algorithm,
        .plan = *plan,
        .input = draft->input->memory,
        .output = draft->output->memory,
    };
    collective->scratch_bytes = draft->plan.algorithm->scratch_bytes(plan);
    operation->small = plan->large_bytes <= ST_INLINE_BYTES / plan->shape.world_size;
    operation->algorithm = draft->plan.algorithm->name;
    operation->has_plan = true;
    operation->deterministic = draft->plan.deterministic;
    server_copy_text(operation->reason, sizeof(operation->reason), draft->plan.reason);
    operation->bytes = plan->large_bytes;
    operation->bytes_total = collective_total_bytes(plan, collective->write.shards);
    operation->bus_factor = plan->collective->bus_factor(plan->shape.world_size);
}

/** Under the lock. @param ret_operation set also on failure when there is a handle to release. */
static enum st_status collective_accept(struct server *server, const struct server_caller *caller,
                                        const struct server_collective_request *request,
                                        struct server_operation **ret_operation,
                                        struct st_error *err)
{
    struct collective_draft draft;
    enum st_status status = collective_check(server, caller, request, &draft, err);
    if (status == ST_OK) {
        status = server_verb_create(server, collective_class(request->collective), caller,
                                    draft.input, ret_operation, err);
    }
    if (status != ST_OK) {
        return status;
    }
    struct collective_operation *collective = collective_of(*ret_operation);
    collective_fill_in(collective, request, &draft);
    collective_claim(collective);
    return server_operation_accept(*ret_operation, err);
}

enum st_status server_collective(struct server *server, const struct server_caller *caller,
                                 const struct server_collective_request *request,
                                 struct server_operation **ret_operation, struct st_error *err)
{
    struct server_operation *operation = NULL;
    server_lock(server);
    enum st_status status = collective_accept(server, caller, request, &operation, err);
    server_unlock(server);
    return server_verb_start(operation, status, ret_operation);
}
