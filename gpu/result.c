#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "gpu/device.h"

/** Results that say something better than DRIVER_ERROR. */
static const struct {
    CUresult result;
    enum st_reason reason;
} result_rows[] = {
    {CUDA_ERROR_OUT_OF_MEMORY, ST_REASON_GPU_MEMORY_EXHAUSTED},
    {CUDA_ERROR_NO_DEVICE, ST_REASON_NO_DRIVER},
    {CUDA_ERROR_NO_BINARY_FOR_GPU, ST_REASON_NO_KERNELS},
    {CUDA_ERROR_INVALID_PTX, ST_REASON_NO_KERNELS},
    {CUDA_ERROR_UNSUPPORTED_PTX_VERSION, ST_REASON_NO_KERNELS},
    {CUDA_ERROR_PEER_ACCESS_UNSUPPORTED, ST_REASON_NO_PEER_ACCESS},
    /* Those that stay (CUDA Driver API, "the context cannot be used"). */
    {CUDA_ERROR_DEINITIALIZED, ST_REASON_DEVICE_LOST},
    {CUDA_ERROR_DEVICE_UNAVAILABLE, ST_REASON_DEVICE_LOST},
    {CUDA_ERROR_ECC_UNCORRECTABLE, ST_REASON_DEVICE_LOST},
    {CUDA_ERROR_NVLINK_UNCORRECTABLE, ST_REASON_DEVICE_LOST},
    {CUDA_ERROR_CONTAINED, ST_REASON_DEVICE_LOST},
    {CUDA_ERROR_ILLEGAL_ADDRESS, ST_REASON_DEVICE_LOST},
    {CUDA_ERROR_LAUNCH_TIMEOUT, ST_REASON_DEVICE_LOST},
    {CUDA_ERROR_CONTEXT_IS_DESTROYED, ST_REASON_DEVICE_LOST},
    {CUDA_ERROR_ASSERT, ST_REASON_DEVICE_LOST},
    {CUDA_ERROR_HARDWARE_STACK_ERROR, ST_REASON_DEVICE_LOST},
    {CUDA_ERROR_ILLEGAL_INSTRUCTION, ST_REASON_DEVICE_LOST},
    {CUDA_ERROR_MISALIGNED_ADDRESS, ST_REASON_DEVICE_LOST},
    {CUDA_ERROR_INVALID_ADDRESS_SPACE, ST_REASON_DEVICE_LOST},
    {CUDA_ERROR_INVALID_PC, ST_REASON_DEVICE_LOST},
    {CUDA_ERROR_LAUNCH_FAILED, ST_REASON_DEVICE_LOST},
    {CUDA_ERROR_TENSOR_MEMORY_LEAK, ST_REASON_DEVICE_LOST},
    {CUDA_ERROR_MPS_CLIENT_TERMINATED, ST_REASON_DEVICE_LOST},
    {CUDA_ERROR_EXTERNAL_DEVICE, ST_REASON_DEVICE_LOST},
};

static enum st_reason result_reason(CUresult result)
{
    for (size_t i = 0; i < sizeof(result_rows) / sizeof(result_rows[0]); i++) {
        if (result_rows[i].result == result) {
            return result_rows[i].reason;
        }
    }
    return ST_REASON_DRIVER_ERROR;
}

bool gpu_result_is_sticky(CUresult result)
{
    return result_reason(result) == ST_REASON_DEVICE_LOST;
}

/** A driver does not say which of the process's limits it met: try for ourselves. */
static bool result_no_descriptors(void)
{
    int fd = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 0);
    if (fd < 0 && errno == EBADF) {
        fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    }
    if (fd < 0) {
        return errno == EMFILE || errno == ENFILE;
    }
    close(fd);
    return false;
}

static bool result_no_mappings(void)
{
    const size_t bytes = 4096; /* shared memory never merges with a neighbour */
    void *page = mmap(NULL, bytes, PROT_READ, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) {
        return errno == ENOMEM;
    }
    munmap(page, bytes);
    return false;
}

/** The reason behind a shortage, when it is one of the process's own limits. */
static enum st_reason result_shortage(CUresult result, enum st_reason reason)
{
    if (result != CUDA_ERROR_OUT_OF_MEMORY && result != CUDA_ERROR_OPERATING_SYSTEM &&
        result != CUDA_ERROR_MAP_FAILED) {
        return reason;
    }
    if (result_no_descriptors()) {
        return ST_REASON_FD_LIMIT;
    }
    return result_no_mappings() ? ST_REASON_MAP_LIMIT : reason;
}

/**
 * 999 says nothing: it may be about the call, or about a device that fell off the bus. A stream of
 * a context that works can always be asked.
 */
static bool result_is_of_device(const struct gpu_device *device, CUresult result)
{
    if (result != CUDA_ERROR_UNKNOWN || !device->service) {
        return false;
    }
    const struct gpu_driver *driver = device->gpu->driver;
    CUresult again = driver->cuCtxSetCurrent(device->context);
    again = again == CUDA_SUCCESS ? driver->cuStreamQuery(device->service) : again;
    return again != CUDA_SUCCESS && again != CUDA_ERROR_NOT_READY;
}

enum st_status gpu_result_fail(struct gpu_device *device, enum gpu_driver_call call,
                               CUresult result, struct st_error *err)
{
    enum st_reason reason = result_shortage(result, result_reason(result));
    if (!device) {
        return st_fail(err, reason, NULL, "%s answered %s", gpu_driver_call_name(call),
                       gpu_driver_result_name(result));
    }
    reason = result_is_of_device(device, result) ? ST_REASON_DEVICE_LOST : reason;
    if (reason == ST_REASON_DEVICE_LOST) {
        gpu_device_mark_lost(device, result);
    }
    return st_fail(err, reason, NULL, "device %u: %s answered %s", device->info.ordinal,
                   gpu_driver_call_name(call), gpu_driver_result_name(result));
}
