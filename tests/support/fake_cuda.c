#include "tests/support/fake_cuda.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "gpu/software/software.h"

static const struct gpu_driver *fake_driver; /* its functions; they stay when it is closed */
static bool fake_open;

static int fake_number(const char *variable, int without)
{
    const char *text = getenv(variable);
    return text && *text ? atoi(text) : without;
}

static bool fake_open_devices(void)
{
    struct st_error err;
    const struct gpu_software_options options = {
        .device_count = (uint32_t)fake_number("FAKE_CUDA_DEVICES", 1), .memory_bytes = 8 * ST_GIB};
    return gpu_software_open(&options, &fake_driver, &err) == ST_OK;
}

/** A real driver is never closed: this one at the end of the process. */
static CUresult fake_init(unsigned flags)
{
    CUresult result = (CUresult)fake_number("FAKE_CUDA_INIT", CUDA_SUCCESS);
    if (result == CUDA_SUCCESS && !fake_open) {
        fake_open = fake_open_devices();
        atexit(gpu_software_close);
    }
    return result == CUDA_SUCCESS ? fake_driver->cuInit(flags) : result;
}

static CUresult fake_version(int *version)
{
    *version = fake_number("FAKE_CUDA_VERSION", 13000);
    return CUDA_SUCCESS;
}

/** A function's address as data; ISO C knows no such conversion. */
#define ADDRESS_OF(function)                                                                       \
    __extension__({                                                                                \
        __typeof__(&*(function)) pointer_ = (function);                                            \
        void *address_;                                                                            \
        memcpy(&address_, &pointer_, sizeof(address_));                                            \
        address_;                                                                                  \
    })

__attribute__((visibility("default"))) void *fake_cuda_find(const char *symbol)
{
    if (!fake_driver) {
        if (!fake_open_devices()) {
            return NULL;
        }
        gpu_software_close();
    }
    if (!strcmp(symbol, "cuInit")) {
        return ADDRESS_OF(fake_init);
    }
    if (!strcmp(symbol, "cuDriverGetVersion")) {
        return ADDRESS_OF(fake_version);
    }
#define X(call, params, args)                                                                      \
    if (!strcmp(symbol, #call)) {                                                                  \
        return ADDRESS_OF(fake_driver->call);                                                      \
    }
    GPU_DRIVER_CALLS(X)
#undef X
    return NULL;
}
