#include <stdlib.h>
#include <string.h>

#include "gpu/software/internal.h"

/**
 * Graphs of kernel and memcpy nodes. A node can only depend on nodes that are there, so the order
 * in which they were added is one in which they may run: a launch puts them into the stream one
 * behind the other. As in CUDA, a graph and an executable graph are used by one thread at a time,
 * which the caller sees to; launches of one executable graph follow one another, whatever their
 * streams.
 */

/** The call that a node stands for. */
struct graph_work {
    CUfunction function; /**< NULL: a copy. */
    unsigned grid[3], block[3], shared_bytes;
    void *params; /**< Owned; the function's struct. */
    size_t params_bytes;
    CUdeviceptr to, from;
    size_t bytes;
    struct software_context *context;
};

struct graph_node {
    struct graph_node *next;
    uint64_t handle;
    struct software_graph *graph;
    uint32_t index;
    struct graph_work work;
};

struct software_graph {
    uint64_t handle;
    struct graph_node *first, *last;
    uint32_t node_count;
};

struct software_graph_exec {
    uint64_t handle;
    uint64_t graph; /**< Handle of the graph that it was made of. */
    uint32_t work_count;
    struct graph_work *work;          /**< [work_count] */
    struct software_context *context; /**< Of all nodes; NULL without nodes. */
    CUevent launched;                 /**< Behind the latest launch; NULL without nodes. */
};

/* ---------------------------------------------------------------- work */

static void work_done(struct graph_work *work)
{
    free(work->params);
    work->params = NULL;
}

/** A copy of @p work with parameters of its own. @return false when memory is out. */
static bool work_copy(struct graph_work *ret_work, const struct graph_work *work)
{
    *ret_work = *work;
    if (work->params) {
        ret_work->params = malloc(work->params_bytes);
        if (!ret_work->params) {
            return false;
        }
        memcpy(ret_work->params, work->params, work->params_bytes);
    }
    return true;
}

/** What a kernel node says, with the caller's parameters still. */
static CUresult work_of_kernel(const CUDA_KERNEL_NODE_PARAMS *params, struct graph_work *ret_work)
{
    const struct gpu_twin *twin;
    struct graph_work work = {0};
    if (!params) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = software_launch_check(params, &twin, &work.context);
    if (result) {
        return result;
    }
    work.function = params->func;
    memcpy(work.grid, &params->gridDimX, sizeof(work.grid));
    memcpy(work.block, &params->blockDimX, sizeof(work.block));
    work.shared_bytes = params->sharedMemBytes;
    work.params = params->kernelParams[0];
    work.params_bytes = twin->params_bytes;
    *ret_work = work;
    return CUDA_SUCCESS;
}

/** A copy of contiguous bytes between device addresses; other copies have no node here. */
static bool copy_is_flat(const CUDA_MEMCPY3D *copy)
{
    return copy->srcMemoryType == CU_MEMORYTYPE_DEVICE &&
           copy->dstMemoryType == CU_MEMORYTYPE_DEVICE && copy->Height == 1 && copy->Depth == 1 &&
           !copy->srcXInBytes && !copy->srcY && !copy->srcZ && !copy->srcLOD &&
           !copy->dstXInBytes && !copy->dstY && !copy->dstZ && !copy->dstLOD;
}

static CUresult work_of_copy(const CUDA_MEMCPY3D *copy, CUcontext context,
                             struct graph_work *ret_work)
{
    struct software_context *found = software_context_find(context);
    if (!copy || !found || copy->WidthInBytes == 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (!copy_is_flat(copy)) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    struct graph_work work = {
        .to = copy->dstDevice,
        .from = copy->srcDevice,
        .bytes = copy->WidthInBytes,
        .context = found,
    };
    const struct gpu_operand operands[2] = {{work.to, work.bytes, true, false},
                                            {work.from, work.bytes, false, false}};
    for (size_t i = 0; i < 2; i++) {
        if (!software_operand_check(work.context->device, &operands[i])) {
            return CUDA_ERROR_INVALID_VALUE;
        }
    }
    *ret_work = work;
    return CUDA_SUCCESS;
}

/* ---------------------------------------------------------------- graphs */

CUresult software_cuGraphCreate(CUgraph *graph, unsigned flags)
{
    CUresult result = software_enter();
    if (result) {
        return result;
    }
    if (!graph || flags) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    struct software_graph *made = calloc(1, sizeof(*made));
    uint64_t handle = made ? software_handle_new(SOFTWARE_KIND_GRAPH, made) : 0;
    if (!handle) {
        free(made);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    made->handle = handle;
    *graph = (CUgraph)(uintptr_t)handle;
    return CUDA_SUCCESS;
}

static void graph_destroy(struct software_graph *graph)
{
    software_handle_delete(graph->handle);
    while (graph->first) {
        struct graph_node *node = graph->first;
        graph->first = node->next;
        software_handle_delete(node->handle);
        work_done(&node->work);
        free(node);
    }
    free(graph);
}

CUresult software_cuGraphDestroy(CUgraph graph)
{
    CUresult result = software_enter();
    if (result) {
        return result;
    }
    struct software_graph *found = software_handle_find((uintptr_t)graph, SOFTWARE_KIND_GRAPH);
    if (!found) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    graph_destroy(found);
    return CUDA_SUCCESS;
}

static struct graph_node *graph_node_find(CUgraphNode handle)
{
    return software_handle_find((uintptr_t)handle, SOFTWARE_KIND_GRAPH_NODE);
}

/** Whether all dependencies are nodes of the graph. */
static bool graph_has(const struct software_graph *graph, const CUgraphNode *nodes, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const struct graph_node *node = graph_node_find(nodes[i]);
        if (!node || node->graph != graph) {
            return false;
        }
    }
    return true;
}

/** Add a node that holds a copy of @p work. */
static CUresult graph_add(struct software_graph *graph, const struct graph_work *work,
                          CUgraphNode *ret_node)
{
    struct graph_node *node = calloc(1, sizeof(*node));
    if (!node || !work_copy(&node->work, work) ||
        !(node->handle = software_handle_new(SOFTWARE_KIND_GRAPH_NODE, node))) {
        if (node) {
            work_done(&node->work);
        }
        free(node);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    node->graph = graph;
    node->index = graph->node_count++;
    *(graph->last ? &graph->last->next : &graph->first) = node;
    graph->last = node;
    *ret_node = (CUgraphNode)(uintptr_t)node->handle;
    return CUDA_SUCCESS;
}

/** What both kinds of nodes begin with. */
static CUresult graph_enter(CUgraph graph, const CUgraphNode *dependencies, size_t count,
                            struct software_graph **ret_graph)
{
    CUresult result = software_enter();
    if (result) {
        return result;
    }
    *ret_graph = software_handle_find((uintptr_t)graph, SOFTWARE_KIND_GRAPH);
    bool valid =
        *ret_graph && (dependencies || !count) && graph_has(*ret_graph, dependencies, count);
    return valid ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult software_cuGraphAddKernelNode(CUgraphNode *node, CUgraph graph,
                                       const CUgraphNode *dependencies, size_t count,
                                       const CUDA_KERNEL_NODE_PARAMS *params)
{
    struct software_graph *found;
    struct graph_work work;
    CUresult result = graph_enter(graph, dependencies, count, &found);
    result = result ? result : node ? work_of_kernel(params, &work) : CUDA_ERROR_INVALID_VALUE;
    return result ? result : graph_add(found, &work, node);
}

CUresult software_cuGraphAddMemcpyNode(CUgraphNode *node, CUgraph graph,
                                       const CUgraphNode *dependencies, size_t count,
                                       const CUDA_MEMCPY3D *copy, CUcontext context)
{
    struct software_graph *found;
    struct graph_work work;
    CUresult result = graph_enter(graph, dependencies, count, &found);
    result = result ? result : node ? work_of_copy(copy, context, &work) : CUDA_ERROR_INVALID_VALUE;
    return result ? result : graph_add(found, &work, node);
}

/* ---------------------------------------------------------------- executable graphs */

static void exec_destroy(struct software_graph_exec *exec)
{
    if (exec->handle) {
        software_handle_delete(exec->handle);
    }
    if (exec->launched) {
        software_cuEventDestroy(exec->launched);
    }
    for (uint32_t i = 0; i < exec->work_count; i++) {
        work_done(&exec->work[i]);
    }
    free(exec->work);
    free(exec);
}

/** Copy the nodes. All must be of one context, since the stream of a launch is. */
static CUresult exec_fill(struct software_graph_exec *exec, const struct software_graph *graph)
{
    exec->work = calloc(graph->node_count + 1, sizeof(*exec->work));
    if (!exec->work) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    for (const struct graph_node *node = graph->first; node; node = node->next) {
        if (exec->context && exec->context != node->work.context) {
            return CUDA_ERROR_NOT_SUPPORTED;
        }
        exec->context = node->work.context;
        if (!work_copy(&exec->work[exec->work_count++], &node->work)) {
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
    }
    return exec->context ? software_event_new(exec->context, &exec->launched) : CUDA_SUCCESS;
}

CUresult software_cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph,
                                              unsigned long long flags)
{
    CUresult result = software_enter();
    if (result) {
        return result;
    }
    struct software_graph *found = software_handle_find((uintptr_t)graph, SOFTWARE_KIND_GRAPH);
    if (!exec || !found || flags) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    struct software_graph_exec *made = calloc(1, sizeof(*made));
    if (!made) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    made->graph = found->handle;
    result = exec_fill(made, found);
    made->handle = result ? 0 : software_handle_new(SOFTWARE_KIND_GRAPH_EXEC, made);
    if (!made->handle) {
        exec_destroy(made);
        return result ? result : CUDA_ERROR_OUT_OF_MEMORY;
    }
    *exec = (CUgraphExec)(uintptr_t)made->handle;
    return CUDA_SUCCESS;
}

static CUresult exec_enter(CUgraphExec handle, struct software_graph_exec **ret_exec)
{
    CUresult result = software_enter();
    if (result) {
        return result;
    }
    *ret_exec = software_handle_find((uintptr_t)handle, SOFTWARE_KIND_GRAPH_EXEC);
    return *ret_exec ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult software_cuGraphExecDestroy(CUgraphExec exec)
{
    struct software_graph_exec *found;
    CUresult result = exec_enter(exec, &found);
    if (!result) {
        exec_destroy(found); /* launches in flight have copies of all that they need */
    }
    return result;
}

static bool graph_exec_any(void *object, void *arg)
{
    (void)object;
    (void)arg;
    return true;
}

void software_graphs_free_all(void)
{
    void *left;
    while ((left = software_handle_search(SOFTWARE_KIND_GRAPH_EXEC, graph_exec_any, NULL))) {
        exec_destroy(left);
    }
    while ((left = software_handle_search(SOFTWARE_KIND_GRAPH, graph_exec_any, NULL))) {
        graph_destroy(left);
    }
}

/** Replace what a node does. Launches that were made keep what they had. */
static CUresult exec_set(CUgraphExec exec, CUgraphNode handle, const struct graph_work *work)
{
    struct software_graph_exec *found;
    struct graph_work copy;
    CUresult result = exec_enter(exec, &found);
    if (result) {
        return result;
    }
    const struct graph_node *node = graph_node_find(handle);
    if (!node || node->graph->handle != found->graph || !node->work.function != !work->function ||
        node->work.context != work->context) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (!work_copy(&copy, work)) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    work_done(&found->work[node->index]);
    found->work[node->index] = copy;
    return CUDA_SUCCESS;
}

CUresult software_cuGraphExecKernelNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                                 const CUDA_KERNEL_NODE_PARAMS *params)
{
    struct graph_work work;
    CUresult result = software_enter();
    result = result ? result : work_of_kernel(params, &work);
    return result ? result : exec_set(exec, node, &work);
}

CUresult software_cuGraphExecMemcpyNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                                 const CUDA_MEMCPY3D *copy, CUcontext context)
{
    struct graph_work work;
    CUresult result = software_enter();
    result = result ? result : work_of_copy(copy, context, &work);
    return result ? result : exec_set(exec, node, &work);
}

static CUresult exec_submit(struct graph_work *work, CUstream stream)
{
    if (!work->function) {
        return software_cuMemcpyDtoDAsync(work->to, work->from, work->bytes, stream);
    }
    void *params[] = {work->params};
    return software_cuLaunchKernel(work->function, work->grid[0], work->grid[1], work->grid[2],
                                   work->block[0], work->block[1], work->block[2],
                                   work->shared_bytes, stream, params, NULL);
}

CUresult software_cuGraphUpload(CUgraphExec exec, CUstream stream)
{
    struct software_graph_exec *found;
    struct software_stream *on;
    CUresult result = exec_enter(exec, &found);
    return result ? result : software_enter_stream(stream, &on); /* it is where it runs */
}

CUresult software_cuGraphLaunch(CUgraphExec exec, CUstream stream)
{
    struct software_graph_exec *found;
    struct software_stream *on;
    CUresult result = exec_enter(exec, &found);
    result = result ? result : software_enter_stream(stream, &on);
    if (result || !found->context) {
        return result;
    }
    if (found->context != on->context) {
        return CUDA_ERROR_NOT_SUPPORTED; /* CUDA would run the nodes in their own contexts */
    }
    result = software_cuStreamWaitEvent(stream, found->launched, 0);
    for (uint32_t i = 0; i < found->work_count && !result; i++) {
        result = exec_submit(&found->work[i], stream);
        if (result == CUDA_ERROR_INVALID_VALUE) {
            /* Unmapped since it was added: a launch is not looked at, its run fails. */
            atomic_store(&on->context->error, CUDA_ERROR_ILLEGAL_ADDRESS);
            return CUDA_SUCCESS;
        }
    }
    return result ? result : software_cuEventRecord(found->launched, stream);
}
