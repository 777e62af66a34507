#include "gpu/graph.h"

#include <stdlib.h>
#include <string.h>

#include "base/size.h"

#define GRAPH_MEMORIES 3u       /* input, output, scratch */
#define GRAPH_COPY_BYTES ST_GIB /* of one node: a pitch is below 2 GiB */
#define GRAPH_SAME_KEY_MAX                                                                         \
    8u /* graphs of one key; further memories are set in the oldest of them */

/** Chain of one lane. */
struct graph_lane {
    struct gpu_lane *lane;
    CUgraph graph;
    CUgraphExec exec;
    CUgraphNode *nodes; /**< [node_count] in order. */
    uint32_t node_count, capacity;
    uint32_t cursor; /**< The node that is set next. */
};

enum graph_state {
    GRAPH_SEEN,   /**< Its runs are counted. */
    GRAPH_READY,  /**< It can be launched. */
    GRAPH_REFUSED /**< It has no graph and gets none. */
};

/** One key with the memories that it names. */
struct gpu_graph {
    struct gpu *gpu;
    struct gpu_graph_key key;
    /* Under gpu.graphs_lock; memories also by whoever made it busy. */
    uint64_t memories[GRAPH_MEMORIES]; /**< Serials; 0: none. */
    uint64_t recorded[GRAPH_MEMORIES]; /**< Those that it was recorded with: its template names
                                          them, whatever was set since. */
    uint64_t used;                     /**< When, by gpu.graphs_clock. */
    bool busy;                         /**< A thread records, sets or launches it. */
    enum graph_state state;
    uint32_t runs; /**< While it is only seen. */
    /* Of whoever made it busy. */
    struct graph_lane *lanes; /**< [lane_count] */
    uint32_t lane_count;
    bool setting; /**< Nodes are set instead of added. */
};

/* ---------------------------------------------------------------- nodes */

static struct graph_lane *graph_lane_find(struct gpu_graph *graph, struct gpu_lane *lane)
{
    for (uint32_t i = 0; i < graph->lane_count; i++) {
        if (graph->lanes[i].lane == lane) {
            return &graph->lanes[i];
        }
    }
    return NULL;
}

static enum st_status graph_fail(const struct gpu_lane *lane, enum gpu_driver_call call,
                                 CUresult result, struct st_error *err)
{
    return gpu_result_fail(lane->device, call, result, err);
}

enum st_status gpu_graph_refuse(struct st_error *err)
{
    return st_fail(err, ST_REASON_DRIVER_ERROR, NULL, "has no place in a graph");
}

/** Room for one more lane, or node. @return false when memory is out. */
static bool graph_grow(void **array, uint32_t count, uint32_t *capacity, size_t item_bytes)
{
    if (count < *capacity) {
        return true;
    }
    uint32_t wanted = *capacity ? 2 * *capacity : 4;
    void *grown = realloc(*array, wanted * item_bytes);
    if (grown) {
        *array = grown;
        *capacity = wanted;
    }
    return grown != NULL;
}

/** The chain of a lane, begun when it has none. */
static enum st_status graph_lane_begin(struct gpu_graph *graph, struct gpu_lane *lane,
                                       struct graph_lane **ret_chain, struct st_error *err)
{
    *ret_chain = graph_lane_find(graph, lane);
    if (*ret_chain) {
        return ST_OK;
    }
    struct graph_lane *grown =
        realloc(graph->lanes, (graph->lane_count + 1) * sizeof(*graph->lanes));
    if (!grown) {
        return st_fail(err, ST_REASON_OUT_OF_MEMORY, NULL, "no memory for a graph");
    }
    graph->lanes = grown;
    struct graph_lane *chain = &graph->lanes[graph->lane_count];
    *chain = (struct graph_lane){.lane = lane};
    CUresult result = graph->gpu->driver->cuGraphCreate(&chain->graph, 0);
    if (result != CUDA_SUCCESS) {
        return graph_fail(lane, GPU_CALL_cuGraphCreate, result, err);
    }
    graph->lane_count++;
    *ret_chain = chain;
    return ST_OK;
}

/** The next node of a chain: room for a new one, or the one that is to be set. */
static enum st_status graph_next(struct gpu_graph *graph, struct gpu_lane *lane,
                                 struct graph_lane **ret_chain, struct st_error *err)
{
    struct graph_lane *chain = graph_lane_find(graph, lane);
    if (graph->setting) {
        if (!chain || chain->cursor == chain->node_count) {
            return gpu_graph_refuse(err); /* it has become another run */
        }
        *ret_chain = chain;
        return ST_OK;
    }
    enum st_status status = graph_lane_begin(graph, lane, &chain, err);
    if (status != ST_OK) {
        return status;
    }
    if (chain->node_count == ST_GRAPH_NODES_MAX) {
        return gpu_graph_refuse(err);
    }
    if (!graph_grow((void **)&chain->nodes, chain->node_count, &chain->capacity,
                    sizeof(*chain->nodes))) {
        return st_fail(err, ST_REASON_OUT_OF_MEMORY, NULL, "no memory for a graph");
    }
    *ret_chain = chain;
    return ST_OK;
}

/** What the next node waits for: the one before it. */
static const CUgraphNode *graph_dependency(const struct graph_lane *chain, size_t *ret_count)
{
    *ret_count = chain->node_count ? 1 : 0;
    return chain->node_count ? &chain->nodes[chain->node_count - 1] : NULL;
}

enum st_status gpu_graph_add_kernel(struct gpu_graph *graph, struct gpu_lane *lane,
                                    const struct gpu_launch *launch, struct st_error *err)
{
    const struct gpu_driver *driver = graph->gpu->driver;
    void *arguments[] = {launch->params};
    CUDA_KERNEL_NODE_PARAMS params;
    struct graph_lane *chain;
    enum st_status status = gpu_device_describe(lane->device, launch, arguments, &params, err);
    status = status == ST_OK ? graph_next(graph, lane, &chain, err) : status;
    if (status != ST_OK) {
        return status;
    }
    if (graph->setting) {
        CUresult set = driver->cuGraphExecKernelNodeSetParams(
            chain->exec, chain->nodes[chain->cursor++], &params);
        return set == CUDA_SUCCESS
                   ? ST_OK
                   : graph_fail(lane, GPU_CALL_cuGraphExecKernelNodeSetParams, set, err);
    }
    size_t count;
    const CUgraphNode *before = graph_dependency(chain, &count);
    CUresult result = driver->cuGraphAddKernelNode(&chain->nodes[chain->node_count], chain->graph,
                                                   before, count, &params);
    if (result != CUDA_SUCCESS) {
        return graph_fail(lane, GPU_CALL_cuGraphAddKernelNode, result, err);
    }
    chain->node_count++;
    return ST_OK;
}

/** A copy of at most GRAPH_COPY_BYTES. */
static enum st_status graph_add_piece(struct gpu_graph *graph, struct gpu_lane *lane,
                                      const CUDA_MEMCPY3D *copy, struct st_error *err)
{
    const struct gpu_driver *driver = graph->gpu->driver;
    struct graph_lane *chain;
    enum st_status status = graph_next(graph, lane, &chain, err);
    if (status != ST_OK) {
        return status;
    }
    if (graph->setting) {
        CUresult set = driver->cuGraphExecMemcpyNodeSetParams(
            chain->exec, chain->nodes[chain->cursor++], copy, lane->device->context);
        return set == CUDA_SUCCESS
                   ? ST_OK
                   : graph_fail(lane, GPU_CALL_cuGraphExecMemcpyNodeSetParams, set, err);
    }
    size_t count;
    const CUgraphNode *before = graph_dependency(chain, &count);
    CUresult result = driver->cuGraphAddMemcpyNode(&chain->nodes[chain->node_count], chain->graph,
                                                   before, count, copy, lane->device->context);
    if (result != CUDA_SUCCESS) {
        return graph_fail(lane, GPU_CALL_cuGraphAddMemcpyNode, result, err);
    }
    chain->node_count++;
    return ST_OK;
}

enum st_status gpu_graph_add_copy(struct gpu_graph *graph, struct gpu_lane *lane, uint64_t to,
                                  uint64_t from, uint64_t bytes, struct st_error *err)
{
    enum st_status status = ST_OK;
    for (uint64_t at = 0; at < bytes && status == ST_OK; at += GRAPH_COPY_BYTES) {
        uint64_t piece = bytes - at < GRAPH_COPY_BYTES ? bytes - at : GRAPH_COPY_BYTES;
        const CUDA_MEMCPY3D copy = {
            .srcMemoryType = CU_MEMORYTYPE_DEVICE,
            .srcDevice = from + at,
            .srcPitch = piece,
            .dstMemoryType = CU_MEMORYTYPE_DEVICE,
            .dstDevice = to + at,
            .dstPitch = piece,
            .WidthInBytes = piece,
            .Height = 1,
            .Depth = 1,
        };
        status = graph_add_piece(graph, lane, &copy, err);
    }
    return status;
}

/* ---------------------------------------------------------------- one graph */

/** Back to nothing but its key. */
static void graph_clear(struct gpu_graph *graph)
{
    const struct gpu_driver *driver = graph->gpu->driver;
    for (uint32_t i = 0; i < graph->lane_count; i++) {
        struct graph_lane *chain = &graph->lanes[i];
        if (chain->exec) {
            driver->cuGraphExecDestroy(chain->exec);
        }
        driver->cuGraphDestroy(chain->graph);
        free(chain->nodes);
    }
    free(graph->lanes);
    graph->lanes = NULL;
    graph->lane_count = 0;
    graph->setting = false;
}

static enum st_status graph_instantiate(struct gpu_graph *graph, struct st_error *err)
{
    for (uint32_t i = 0; i < graph->lane_count; i++) {
        struct graph_lane *chain = &graph->lanes[i];
        enum st_status status = gpu_device_enter(chain->lane->device, err);
        if (status != ST_OK) {
            return status;
        }
        CUresult result =
            graph->gpu->driver->cuGraphInstantiateWithFlags(&chain->exec, chain->graph, 0);
        if (result != CUDA_SUCCESS) {
            chain->exec = NULL;
            return graph_fail(chain->lane, GPU_CALL_cuGraphInstantiateWithFlags, result, err);
        }
        /* What its launch takes is taken now, while the run can still go without. A driver that
         * has no such call takes it with the first launch. */
        result = graph->gpu->driver->cuGraphUpload(chain->exec, chain->lane->stream);
        if (result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_SUPPORTED) {
            return graph_fail(chain->lane, GPU_CALL_cuGraphUpload, result, err);
        }
    }
    return ST_OK;
}

/** Whether every node was set. */
static bool graph_all_set(const struct gpu_graph *graph)
{
    for (uint32_t i = 0; i < graph->lane_count; i++) {
        if (graph->lanes[i].cursor != graph->lanes[i].node_count) {
            return false;
        }
    }
    return true;
}

/** Let the algorithm add its nodes, or set them to this run's memories. */
static enum st_status graph_record(struct gpu_graph *graph, struct gpu_algorithm_run *run,
                                   struct st_error *err)
{
    for (uint32_t i = 0; i < graph->lane_count; i++) {
        graph->lanes[i].cursor = 0;
    }
    run->job->graph = graph;
    enum st_status status = graph->key.algorithm->launch(run, err);
    run->job->graph = NULL;
    if (status == ST_OK && !graph->setting) {
        status = graph_instantiate(graph, err);
    } else if (status == ST_OK && !graph_all_set(graph)) {
        status = gpu_graph_refuse(err);
    }
    return status;
}

static enum st_status graph_launch(struct gpu_graph *graph, struct gpu_job *job,
                                   struct st_error *err)
{
    enum st_status status = ST_OK;
    for (uint32_t i = 0; i < graph->lane_count && status == ST_OK; i++) {
        struct graph_lane *chain = &graph->lanes[i];
        status = gpu_job_enter(job, chain->lane, err);
        if (status != ST_OK) {
            return status;
        }
        CUresult result = graph->gpu->driver->cuGraphLaunch(chain->exec, chain->lane->stream);
        if (result != CUDA_SUCCESS) {
            return graph_fail(chain->lane, GPU_CALL_cuGraphLaunch, result, err);
        }
        job->touched = true;
    }
    return status;
}

/* ---------------------------------------------------------------- the cache (graphs_lock is held)
 */

static void run_memories(const struct gpu_algorithm_run *run, uint64_t ret[GRAPH_MEMORIES])
{
    const struct gpu_memory *const memories[GRAPH_MEMORIES] = {run->input, run->output,
                                                               run->scratch};
    for (size_t i = 0; i < GRAPH_MEMORIES; i++) {
        ret[i] = memories[i] ? gpu_memory_info(memories[i])->serial : 0;
    }
}

static bool key_equal(const struct gpu_graph_key *a, const struct gpu_graph_key *b)
{
    return a->team == b->team && a->collective == b->collective && a->algorithm == b->algorithm &&
           a->shape.world_size == b->shape.world_size && a->shape.root == b->shape.root &&
           a->shape.slice_count == b->shape.slice_count && a->shape.in_place == b->shape.in_place &&
           a->dtype == b->dtype && a->op == b->op && a->streaming == b->streaming;
}

/** What the cache has for a run. */
struct graph_match {
    struct gpu_graph *exact;  /**< Same key, same memories. */
    struct gpu_graph *other;  /**< Same key; the one that was not used for longest, ready. */
    struct gpu_graph *oldest; /**< Of all. */
    uint32_t same_key;
};

static bool used_before(const struct gpu_graph *graph, const struct gpu_graph *other)
{
    return !graph->busy && (!other || graph->used < other->used);
}

static void cache_match(struct gpu *gpu, const struct gpu_graph_key *key,
                        const uint64_t memories[GRAPH_MEMORIES], struct graph_match *ret_match)
{
    struct graph_match match = {0};
    for (uint32_t i = 0; i < gpu->graphs_count; i++) {
        struct gpu_graph *graph = gpu->graphs[i];
        if (used_before(graph, match.oldest)) {
            match.oldest = graph;
        }
        if (!key_equal(&graph->key, key)) {
            continue;
        }
        match.same_key++;
        if (memcmp(graph->memories, memories, sizeof(graph->memories)) == 0) {
            match.exact = graph;
        } else if (used_before(graph, match.other) && graph->state == GRAPH_READY) {
            match.other = graph;
        }
    }
    *ret_match = match;
}

/** Take a graph out of the cache; the caller destroys it without the lock. */
static void cache_remove(struct gpu *gpu, const struct gpu_graph *graph)
{
    uint32_t at = 0;
    while (gpu->graphs[at] != graph) {
        at++;
    }
    gpu->graphs[at] = gpu->graphs[--gpu->graphs_count];
}

/** Remember a key that comes for the first time. @return what has to go for it, or NULL. */
static struct gpu_graph *cache_add(struct gpu *gpu, const struct gpu_graph_key *key,
                                   const uint64_t memories[GRAPH_MEMORIES],
                                   struct gpu_graph *oldest)
{
    struct gpu_graph *graph = calloc(1, sizeof(*graph));
    bool full = gpu->graphs_count == ST_GRAPHS_MAX;
    if (!graph || (full && !oldest)) {
        free(graph);
        return NULL;
    }
    if (full) {
        cache_remove(gpu, oldest);
    }
    *graph = (struct gpu_graph){.key = *key, .gpu = gpu, .used = ++gpu->graphs_clock, .runs = 1};
    memcpy(graph->memories, memories, sizeof(graph->memories));
    gpu->graphs[gpu->graphs_count++] = graph;
    return full ? oldest : NULL;
}

static void graph_destroy(struct gpu_graph *graph)
{
    if (graph) {
        graph_clear(graph);
        free(graph);
    }
}

/** The graph that the run is to use, made busy; NULL: none. */
static struct gpu_graph *cache_acquire(struct gpu *gpu, const struct gpu_graph_key *key,
                                       const uint64_t memories[GRAPH_MEMORIES])
{
    struct graph_match match;
    struct gpu_graph *evicted = NULL, *found = NULL;
    pthread_mutex_lock(&gpu->graphs_lock);
    cache_match(gpu, key, memories, &match);
    if (match.exact) {
        found = match.exact;
        found->used = ++gpu->graphs_clock;
        found->runs++;
        if (found->busy || found->state == GRAPH_REFUSED ||
            (found->state == GRAPH_SEEN && found->runs <= gpu->graph_after)) {
            found = NULL;
        }
    } else if (match.same_key >= GRAPH_SAME_KEY_MAX && match.other) {
        found = match.other;
        found->used = ++gpu->graphs_clock;
        found->setting = true;
        memcpy(found->memories, memories, sizeof(found->memories));
    } else {
        evicted = cache_add(gpu, key, memories, match.oldest);
    }
    if (found) {
        found->busy = true;
    }
    pthread_mutex_unlock(&gpu->graphs_lock);
    graph_destroy(evicted);
    return found;
}

static void cache_release(struct gpu_graph *graph, enum graph_state state)
{
    pthread_mutex_lock(&graph->gpu->graphs_lock);
    graph->state = state;
    graph->busy = false;
    pthread_mutex_unlock(&graph->gpu->graphs_lock);
}

/** Make a graph that is busy fit for its run. @return false: it cannot be, the run goes without. */
static bool graph_prepare(struct gpu_graph *graph, struct gpu_algorithm_run *run)
{
    struct st_error unused = {0};
    if (graph->state == GRAPH_READY && !graph->setting) {
        return true;
    }
    if (!graph->setting) {
        memcpy(graph->recorded, graph->memories, sizeof(graph->recorded));
    }
    bool prepared = graph_record(graph, run, &unused) == ST_OK;
    graph->setting = false;
    return prepared;
}

enum st_status gpu_graph_run(struct gpu_algorithm_run *run, const struct gpu_algorithm *algorithm,
                             struct st_error *err)
{
    struct gpu *gpu = run->team->gpu;
    if (gpu->graph_after == 0) {
        return algorithm->launch(run, err);
    }
    const struct gpu_graph_key key = {.team = run->team,
                                      .collective = run->plan->collective,
                                      .algorithm = algorithm,
                                      .shape = run->plan->shape,
                                      .dtype = run->plan->dtype,
                                      .op = run->plan->op,
                                      .streaming = run->streaming};
    uint64_t memories[GRAPH_MEMORIES];
    run_memories(run, memories);
    struct gpu_graph *graph = cache_acquire(gpu, &key, memories);
    if (!graph) {
        return algorithm->launch(run, err);
    }
    bool ready = graph_prepare(graph, run);
    enum st_status status = ready ? graph_launch(graph, run->job, err) : ST_OK;
    /* Nothing was launched: it may go without what a graph takes, device memory for one. */
    bool direct = !ready || (status != ST_OK && !run->job->touched);
    if (direct) {
        graph_clear(graph);
    }
    cache_release(graph, direct ? GRAPH_REFUSED : GRAPH_READY);
    return direct ? algorithm->launch(run, err) : status;
}

/* ---------------------------------------------------------------- the end */

/** Take out one that matches; NULL: none is left. */
static struct gpu_graph *cache_take(struct gpu *gpu, uint64_t serial, const struct gpu_team *team)
{
    struct gpu_graph *found = NULL;
    pthread_mutex_lock(&gpu->graphs_lock);
    for (uint32_t i = 0; i < gpu->graphs_count && !found; i++) {
        struct gpu_graph *graph = gpu->graphs[i];
        for (size_t k = 0; k < GRAPH_MEMORIES && !found; k++) {
            bool matches = team ? graph->key.team == team
                                : graph->memories[k] == serial || graph->recorded[k] == serial;
            found = matches ? graph : NULL;
        }
    }
    if (found) {
        cache_remove(gpu, found);
    }
    pthread_mutex_unlock(&gpu->graphs_lock);
    return found;
}

void gpu_graphs_forget_memory(struct gpu *gpu, uint64_t serial)
{
    struct gpu_graph *graph;
    while (serial && (graph = cache_take(gpu, serial, NULL))) {
        graph_destroy(graph);
    }
}

void gpu_graphs_forget_team(struct gpu *gpu, const struct gpu_team *team)
{
    struct gpu_graph *graph;
    while ((graph = cache_take(gpu, 0, team))) {
        graph_destroy(graph);
    }
}
