#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "gpu/software/internal.h"

#define LAUNCH_BLOCK_MAX 1024u          /* threads of a block */
#define LAUNCH_SHARED_MAX (48u * 1024u) /* bytes of shared memory of a block */

/** A function of a module: one twin. */
struct launch_function {
    struct launch_function *next; /**< In the module. */
    uint64_t handle;
    const struct gpu_twin *twin;
    struct software_context *context;
};

/** A module: whatever the image was, it has all the twins. */
struct software_module {
    uint64_t handle;
    struct software_context *context;
    pthread_mutex_t lock; /**< Of functions. Taken before the handle table's. */
    struct launch_function *functions;
};

/* ---------------------------------------------------------------- modules */

CUresult software_cuModuleLoadData(CUmodule *module, const void *image)
{
    struct software_context *context;
    CUresult result = software_enter_context(&context);
    if (result) {
        return result;
    }
    if (!module || !image) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    struct software_module *made = calloc(1, sizeof(*made));
    uint64_t handle = made ? software_handle_new(SOFTWARE_KIND_MODULE, made) : 0;
    if (!handle) {
        free(made);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    pthread_mutex_init(&made->lock, NULL);
    made->handle = handle;
    made->context = context;
    *module = (CUmodule)(uintptr_t)handle;
    return CUDA_SUCCESS;
}

static void module_destroy(struct software_module *module)
{
    software_handle_delete(module->handle);
    while (module->functions) {
        struct launch_function *function = module->functions;
        module->functions = function->next;
        software_handle_delete(function->handle);
        free(function);
    }
    pthread_mutex_destroy(&module->lock);
    free(module);
}

static bool module_belongs(void *object, void *context)
{
    return !context || ((struct software_module *)object)->context == context;
}

void software_modules_clear(struct software_context *context)
{
    struct software_module *module;
    while ((module = software_handle_search(SOFTWARE_KIND_MODULE, module_belongs, context))) {
        module_destroy(module);
    }
}

CUresult software_cuModuleUnload(CUmodule module)
{
    CUresult result = software_enter();
    if (result) {
        return result;
    }
    struct software_module *found = software_handle_find((uintptr_t)module, SOFTWARE_KIND_MODULE);
    if (!found) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    result = (CUresult)atomic_load(&found->context->error);
    module_destroy(found); /* launches in flight refer to the twin only */
    return result;
}

/** The module's function for @p twin; the module's lock is held. NULL: memory is out. */
static struct launch_function *module_function(struct software_module *module,
                                               const struct gpu_twin *twin)
{
    for (struct launch_function *at = module->functions; at; at = at->next) {
        if (at->twin == twin) {
            return at;
        }
    }
    struct launch_function *made = calloc(1, sizeof(*made));
    uint64_t handle = made ? software_handle_new(SOFTWARE_KIND_FUNCTION, made) : 0;
    if (!handle) {
        free(made);
        return NULL;
    }
    *made = (struct launch_function){module->functions, handle, twin, module->context};
    module->functions = made;
    return made;
}

CUresult software_cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name)
{
    CUresult result = software_enter();
    if (result) {
        return result;
    }
    if (!function || !name || !*name) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    struct software_module *found = software_handle_find((uintptr_t)module, SOFTWARE_KIND_MODULE);
    if (!found) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    const struct gpu_twin *twin = gpu_twin_find(name);
    if (!twin) {
        return CUDA_ERROR_NOT_FOUND;
    }
    pthread_mutex_lock(&found->lock);
    struct launch_function *made = module_function(found, twin);
    if (made) {
        *function = (CUfunction)(uintptr_t)made->handle;
    }
    pthread_mutex_unlock(&found->lock);
    return made ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult software_cuFuncLoad(CUfunction function)
{
    CUresult result = software_enter();
    if (result) {
        return result;
    }
    bool exists = software_handle_find((uintptr_t)function, SOFTWARE_KIND_FUNCTION) != NULL;
    return exists ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE; /* a twin is always loaded */
}

/* ---------------------------------------------------------------- kernels */

static const struct gpu_twin_services launch_services = {.resolve = software_resolve};

/** The launch delay has passed; on the timers' thread. */
static void launch_delay_over(void *arg)
{
    pthread_mutex_lock(&software.work_lock);
    software_pool_ready(arg);
    pthread_mutex_unlock(&software.work_lock);
}

static enum software_start launch_start(struct software_command *command)
{
    const struct gpu_twin *twin = command->u.launch.twin;
    const void *params = command->u.launch.params;
    struct software_context *context = command->stream->context;
    uint64_t delay_ns = software.options.launch_delay_ns;
    if (delay_ns && !command->u.launch.delayed) {
        struct software_stream *stream = command->stream;
        command->u.launch.delayed = true;
        if (st_timer_start(software.timers, &stream->timer, st_clock_now_ns() + delay_ns,
                           launch_delay_over, stream)) {
            return SOFTWARE_START_WAITING;
        } /* no memory for a timer: run without the delay */
    }
    struct gpu_operand operands[GPU_TWIN_OPERANDS_MAX];
    uint32_t count = twin->operands(params, operands);
    if (!software_operands_pin(context->device, operands, count, &command->pins)) {
        atomic_store(&context->error, CUDA_ERROR_ILLEGAL_ADDRESS);
        return SOFTWARE_START_DONE;
    }
    command->chunk_count = twin->chunks(params);
    return SOFTWARE_START_CHUNKS;
}

static void launch_run(const struct software_command *command, uint64_t chunk)
{
    command->u.launch.twin->run(command->u.launch.params, chunk, &launch_services);
}

static const struct software_command_kind launch_kind = {.start = launch_start, .run = launch_run};

/** Whether a dimension triple is one that hardware would run. */
static bool launch_dims_valid(const unsigned grid[3], const unsigned block[3])
{
    uint64_t threads = (uint64_t)block[0] * block[1];
    return grid[0] && grid[1] && grid[2] && grid[0] <= INT32_MAX && grid[1] <= UINT16_MAX &&
           grid[2] <= UINT16_MAX && block[0] && block[1] && block[2] && block[2] <= 64 &&
           block[0] <= LAUNCH_BLOCK_MAX && block[1] <= LAUNCH_BLOCK_MAX &&
           threads * block[2] <= LAUNCH_BLOCK_MAX;
}

CUresult software_launch_check(const CUDA_KERNEL_NODE_PARAMS *launch,
                               const struct gpu_twin **ret_twin,
                               struct software_context **ret_context)
{
    const struct launch_function *found =
        software_handle_find((uintptr_t)launch->func, SOFTWARE_KIND_FUNCTION);
    if (!found) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    /* Twins take one struct; parameters packed into a buffer (extra) are not read here. */
    if (launch->extra || !launch->kernelParams || !launch->kernelParams[0] ||
        launch->sharedMemBytes > LAUNCH_SHARED_MAX ||
        !launch_dims_valid(
            (const unsigned[]){launch->gridDimX, launch->gridDimY, launch->gridDimZ},
            (const unsigned[]){launch->blockDimX, launch->blockDimY, launch->blockDimZ})) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *ret_twin = found->twin;
    *ret_context = found->context;
    return CUDA_SUCCESS;
}

CUresult software_cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y,
                                 unsigned grid_z, unsigned block_x, unsigned block_y,
                                 unsigned block_z, unsigned shared_bytes, CUstream stream,
                                 void **params, void **extra)
{
    struct software_stream *on;
    struct software_context *context;
    const struct gpu_twin *twin;
    const CUDA_KERNEL_NODE_PARAMS launch = {.func = function,
                                            .gridDimX = grid_x,
                                            .gridDimY = grid_y,
                                            .gridDimZ = grid_z,
                                            .blockDimX = block_x,
                                            .blockDimY = block_y,
                                            .blockDimZ = block_z,
                                            .sharedMemBytes = shared_bytes,
                                            .kernelParams = params,
                                            .extra = extra};
    CUresult result = software_enter_stream(stream, &on);
    result = result ? result : software_launch_check(&launch, &twin, &context);
    if (result) {
        return result;
    }
    if (context != on->context) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    struct software_command command = {.kind = &launch_kind};
    command.u.launch.twin = twin;
    command.u.launch.params = params[0];
    bool small =
        !software.options.launch_delay_ns && twin->traffic_bytes(params[0]) <= SOFTWARE_SMALL_BYTES;
    return software_stream_submit(on, &command, twin->params_bytes, small);
}

/* ---------------------------------------------------------------- host functions */

static enum software_start host_start(struct software_command *command)
{
    software_host_call(command->u.host.function, command->u.host.data);
    return SOFTWARE_START_DONE;
}

static const struct software_command_kind host_kind = {.start = host_start};

CUresult software_cuLaunchHostFunc(CUstream stream, CUhostFn function, void *data)
{
    struct software_stream *on;
    CUresult result = software_enter_stream(stream, &on);
    if (result) {
        return result;
    }
    if (!function) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    struct software_command command = {.kind = &host_kind};
    command.u.host.function = function;
    command.u.host.data = data;
    return software_stream_submit(on, &command, 0, true);
}
