#include "tests/bench/device_timer.h"

#include <stdio.h>
#include <stdlib.h>

#include "gpu/device.h"
#include "server/internal.h"

/* Long enough on the bus of a real device to queue a few dozen launches behind it. */
#define TIMER_STALL_BYTES (8ull << 20)

static struct {
    const struct gpu_driver *inner;
    struct gpu_driver table;
    CUcontext context;
    CUstream stream; /**< For copies of the timer's own. */
    CUevent first, last;
    void *stall_from; /**< [TIMER_STALL_BYTES], pinned. */
    CUmemGenericAllocationHandle stall_memory;
    CUdeviceptr stall_to;
    size_t stall_bytes;
    uint32_t repeat; /**< 0: not timing. */
    bool started;    /**< The first event is recorded. */
} timer;

static void expect(CUresult result, const char *what)
{
    if (result != CUDA_SUCCESS) {
        fprintf(stderr, "bench: %s: %s\n", what, gpu_driver_result_name(result));
        exit(1);
    }
}

/** Keep the device busy. The small fill lets the event behind it be on the queue of launches. */
static void stall(CUstream stream)
{
    expect(
        timer.inner->cuMemcpyHtoDAsync(timer.stall_to, timer.stall_from, TIMER_STALL_BYTES, stream),
        "stall");
    expect(timer.inner->cuMemsetD8Async(timer.stall_to, 0, 4096, stream), "stall");
}

static void before(CUstream stream)
{
    if (timer.repeat > 0 && !timer.started) {
        stall(stream);
        expect(timer.inner->cuEventRecord(timer.first, stream), "cuEventRecord");
        timer.started = true;
    }
}

static void after(CUstream stream)
{
    if (timer.repeat > 0) {
        expect(timer.inner->cuEventRecord(timer.last, stream), "cuEventRecord");
    }
}

#define TIMED(call, params, args)                                                                  \
    static CUresult timed_##call params                                                            \
    {                                                                                              \
        uint32_t left = timer.repeat > 0 ? timer.repeat : 1;                                       \
        CUresult result = CUDA_SUCCESS;                                                            \
        before(stream);                                                                            \
        for (; left > 0 && result == CUDA_SUCCESS; left--) {                                       \
            result = timer.inner->call args;                                                       \
        }                                                                                          \
        after(stream);                                                                             \
        return result;                                                                             \
    }

TIMED(cuMemcpyAsync, (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream),
      (to, from, bytes, stream))
TIMED(cuMemcpyDtoDAsync, (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream),
      (to, from, bytes, stream))
TIMED(cuGraphLaunch, (CUgraphExec exec, CUstream stream), (exec, stream))
TIMED(cuLaunchKernel,
      (CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
       unsigned block_y, unsigned block_z, unsigned shared_bytes, CUstream stream, void **params,
       void **extra),
      (function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, stream, params,
       extra))

/** Memory of the device that belongs to no tensor. */
static void make_stall(const struct gpu_device *device)
{
    const struct gpu_driver *driver = timer.inner;
    CUmemAllocationProp prop;
    gpu_device_allocation_prop(device, GPU_MEMORY_GLOBAL, &prop);
    uint64_t granule = device->info.granularity_minimum_bytes;
    timer.stall_bytes = (TIMER_STALL_BYTES + granule - 1) / granule * granule;
    CUmemAccessDesc access = {.location = prop.location,
                              .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    expect(driver->cuMemHostAlloc(&timer.stall_from, TIMER_STALL_BYTES, 0), "cuMemHostAlloc");
    expect(driver->cuMemCreate(&timer.stall_memory, timer.stall_bytes, &prop, 0), "cuMemCreate");
    expect(driver->cuMemAddressReserve(&timer.stall_to, timer.stall_bytes, 0, 0, 0),
           "cuMemAddressReserve");
    expect(driver->cuMemMap(timer.stall_to, timer.stall_bytes, 0, timer.stall_memory, 0),
           "cuMemMap");
    expect(driver->cuMemSetAccess(timer.stall_to, timer.stall_bytes, &access, 1), "cuMemSetAccess");
}

void device_timer_install(struct server *server)
{
    struct gpu *gpu = server->gpu;
    timer.inner = gpu->driver;
    timer.table = *gpu->driver;
    timer.table.cuMemcpyAsync = timed_cuMemcpyAsync;
    timer.table.cuMemcpyDtoDAsync = timed_cuMemcpyDtoDAsync;
    timer.table.cuGraphLaunch = timed_cuGraphLaunch;
    timer.table.cuLaunchKernel = timed_cuLaunchKernel;
    timer.context = gpu->devices[0].context;
    expect(timer.inner->cuCtxSetCurrent(timer.context), "cuCtxSetCurrent");
    expect(timer.inner->cuStreamCreateWithPriority(&timer.stream, CU_STREAM_NON_BLOCKING, 0),
           "cuStreamCreateWithPriority");
    expect(timer.inner->cuEventCreate(&timer.first, 0), "cuEventCreate");
    expect(timer.inner->cuEventCreate(&timer.last, 0), "cuEventCreate");
    make_stall(&gpu->devices[0]);
    gpu->driver = &timer.table;
}

void device_timer_remove(struct server *server)
{
    const struct gpu_driver *driver = timer.inner;
    server->gpu->driver = driver;
    expect(driver->cuCtxSetCurrent(timer.context), "cuCtxSetCurrent");
    expect(driver->cuMemUnmap(timer.stall_to, timer.stall_bytes), "cuMemUnmap");
    expect(driver->cuMemAddressFree(timer.stall_to, timer.stall_bytes), "cuMemAddressFree");
    expect(driver->cuMemRelease(timer.stall_memory), "cuMemRelease");
    expect(driver->cuMemFreeHost(timer.stall_from), "cuMemFreeHost");
    expect(driver->cuEventDestroy(timer.first), "cuEventDestroy");
    expect(driver->cuEventDestroy(timer.last), "cuEventDestroy");
    expect(driver->cuStreamDestroy(timer.stream), "cuStreamDestroy");
}

void device_timer_start(uint32_t repeat)
{
    timer.started = false;
    timer.repeat = repeat;
}

double device_timer_stop(void)
{
    float milliseconds = -1;
    uint32_t repeat = timer.repeat;
    timer.repeat = 0;
    if (!timer.started) {
        return -1;
    }
    expect(timer.inner->cuCtxSetCurrent(timer.context), "cuCtxSetCurrent");
    expect(timer.inner->cuEventSynchronize(timer.last), "cuEventSynchronize");
    expect(timer.inner->cuEventElapsedTime(&milliseconds, timer.first, timer.last),
           "cuEventElapsedTime");
    return (double)milliseconds * 1e3 / repeat;
}

double device_timer_copy(struct server *server, const char *tensor, uint64_t bytes)
{
    CUdeviceptr from = bench_tensor_address(server, tensor, 0);
    CUdeviceptr to = bench_tensor_address(server, tensor, 1);
    expect(timer.inner->cuCtxSetCurrent(timer.context), "cuCtxSetCurrent");
    device_timer_start(1);
    expect(timed_cuMemcpyDtoDAsync(to, from, bytes, timer.stream), "cuMemcpyDtoDAsync");
    return device_timer_stop();
}
