#include "gpu/cuda/cuda.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#define CUDA_LIBRARY "libcuda.so.1"
#define CUDA_VISIBLE                                                                               \
    "in a container set NVIDIA_VISIBLE_DEVICES and NVIDIA_DRIVER_CAPABILITIES=compute,utility, "   \
    "and start it with the NVIDIA runtime"

/* ---------------------------------------------------------------- the table */

/** What the driver lacks. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-parameter"
#define X(call, params, args)                                                                      \
    static CUresult missing_##call params                                                          \
    {                                                                                              \
        return CUDA_ERROR_NOT_SUPPORTED;                                                           \
    }
GPU_DRIVER_CALLS(X)
#undef X
#pragma GCC diagnostic pop

static const struct gpu_driver cuda_missing = {.name = "cuda",
#define X(call, params, args) .call = missing_##call,
                                               GPU_DRIVER_CALLS(X)
#undef X
};

/** By enum gpu_driver_call: where the pointer goes. */
static const size_t cuda_offsets[GPU_CALL_COUNT] = {
#define X(call, params, args) offsetof(struct gpu_driver, call),
    GPU_DRIVER_CALLS(X)
#undef X
};

enum cuda_need { CUDA_OPTIONAL, CUDA_REQUIRED };

/** By enum gpu_driver_call. */
static const struct {
    int version;
    enum cuda_need need;
} cuda_versions[] = {
#define X(call, version, need) [GPU_CALL_##call] = {version, CUDA_##need},
    GPU_DRIVER_VERSIONS(X)
#undef X
};
#define X(call, version, need) +1
_Static_assert(0 GPU_DRIVER_VERSIONS(X) == GPU_CALL_COUNT, "one version for each call");
#undef X

static struct gpu_driver cuda_driver;

/* ---------------------------------------------------------------- the library */

/** cuGetProcAddress_v2, of CUDA 12.0. */
typedef CUresult cuda_get_address(const char *symbol, void **address, int version,
                                  unsigned long long flags, CUdriverProcAddressQueryResult *found);

/** @return the address of a call in one version, or NULL. */
static void *cuda_find(cuda_get_address *get_address, const char *symbol, int version)
{
    void *address = NULL;
    CUdriverProcAddressQueryResult found = CU_GET_PROC_ADDRESS_SUCCESS;
    CUresult result =
        get_address(symbol, &address, version, CU_GET_PROC_ADDRESS_LEGACY_STREAM, &found);
    bool there = result == CUDA_SUCCESS && found == CU_GET_PROC_ADDRESS_SUCCESS;
    return there ? address : NULL;
}

/** "12.2", as far as the driver tells. */
static void cuda_format_version(const struct gpu_driver *driver, char *text, size_t bytes)
{
    int version = 0;
    if (driver->cuDriverGetVersion(&version) != CUDA_SUCCESS) {
        snprintf(text, bytes, "unknown");
        return;
    }
    snprintf(text, bytes, "%d.%d", version / 1000, version % 1000 / 10);
}

static enum st_status cuda_fill(cuda_get_address *get_address, const char *library,
                                struct st_error *err)
{
    enum gpu_driver_call lacking = GPU_CALL_COUNT;
    cuda_driver = cuda_missing;
    for (unsigned call = 0; call < GPU_CALL_COUNT; call++) {
        void *address = cuda_find(get_address, gpu_driver_call_name((enum gpu_driver_call)call),
                                  cuda_versions[call].version);
        if (address) {
            memcpy((char *)&cuda_driver + cuda_offsets[call], &address, sizeof(address));
        } else if (cuda_versions[call].need == CUDA_REQUIRED && lacking == GPU_CALL_COUNT) {
            lacking = (enum gpu_driver_call)call;
        }
    }
    if (lacking == GPU_CALL_COUNT) {
        return ST_OK;
    }
    char version[16];
    cuda_format_version(&cuda_driver, version, sizeof(version));
    return st_fail(err, ST_REASON_NO_DRIVER, "driver",
                   "%s has no %s of CUDA %d.%d; its CUDA version is %s: install a newer driver",
                   library, gpu_driver_call_name(lacking), cuda_versions[lacking].version / 1000,
                   cuda_versions[lacking].version % 1000 / 10, version);
}

enum st_status gpu_cuda_open(const struct gpu_cuda_options *options,
                             const struct gpu_driver **ret_driver, struct st_error *err)
{
    const char *name = options->library ? options->library : CUDA_LIBRARY;
    void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        const char *why = dlerror();
        return st_fail(err, ST_REASON_NO_DRIVER, "driver",
                       "no NVIDIA driver is visible (%s); %s, elsewhere install the driver",
                       why ? why : name, CUDA_VISIBLE);
    }
    void *symbol = dlsym(library, "cuGetProcAddress_v2");
    if (!symbol) {
        return st_fail(err, ST_REASON_NO_DRIVER, "driver",
                       "%s has no cuGetProcAddress of CUDA 12.0: install a newer driver", name);
    }
    cuda_get_address *get_address;
    memcpy(&get_address, &symbol, sizeof(get_address)); /* ISO C knows no such conversion */
    enum st_status status = cuda_fill(get_address, name, err);
    if (status != ST_OK) {
        return status;
    }
    *ret_driver = &cuda_driver;
    return ST_OK;
}

void gpu_cuda_close(void)
{
}

/* ---------------------------------------------------------------- cuInit */

/** What helps. The last row is for every other result. */
static const struct {
    CUresult result;
    enum st_reason reason;
    const char *advice;
} cuda_init_rows[] = {
    {CUDA_ERROR_NO_DEVICE, ST_REASON_NO_DRIVER,
     "no device is visible: look at CUDA_VISIBLE_DEVICES; " CUDA_VISIBLE},
    {CUDA_ERROR_STUB_LIBRARY, ST_REASON_NO_DRIVER,
     "the library is the toolkit's, for linking only: take its folder out of LD_LIBRARY_PATH"},
    {CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, ST_REASON_NO_DRIVER,
     "the library and the kernel module are of different versions: reload the module or restart "
     "the machine after an update; in a container take out a libcuda of its own"},
    {CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE, ST_REASON_NO_DRIVER,
     "the library is of the forward compatibility package, which these devices do not support"},
    {CUDA_ERROR_OPERATING_SYSTEM, ST_REASON_NO_DRIVER,
     "/dev/nvidia* cannot be opened: look at their permissions and at the device "
     "cgroup; " CUDA_VISIBLE},
    {CUDA_ERROR_UNKNOWN, ST_REASON_NO_DRIVER,
     "the kernel module is not loaded, /dev/nvidia-uvm is missing (nvidia-modprobe -u), or see the "
     "kernel's log; " CUDA_VISIBLE},
    {CUDA_ERROR_SYSTEM_NOT_READY, ST_REASON_DRIVER_ERROR,
     "the system is not ready: wait for nvidia-fabricmanager, or start it"},
    {CUDA_SUCCESS, ST_REASON_DRIVER_ERROR, "the kernel's log may say why"},
};

enum st_status gpu_cuda_init_fail(CUresult result, struct st_error *err)
{
    size_t row = 0;
    while (row + 1 < sizeof(cuda_init_rows) / sizeof(cuda_init_rows[0]) &&
           cuda_init_rows[row].result != result) {
        row++;
    }
    return st_fail(err, cuda_init_rows[row].reason, "driver", "cuInit answered %s: %s",
                   gpu_driver_result_name(result), cuda_init_rows[row].advice);
}
