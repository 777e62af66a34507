#include "gpu/driver/driver.h"

#include <string.h>

static const char *const driver_call_names[GPU_CALL_COUNT] = {
#define X(call, params, args) #call,
    GPU_DRIVER_CALLS(X)
#undef X
};

static const struct {
    CUresult result;
    const char *name;
} driver_results[] = {
#define X(name, value) {name, #name " (" #value ")"},
    GPU_CUDA_RESULTS(X)
#undef X
};

const char *gpu_driver_call_name(enum gpu_driver_call call)
{
    return driver_call_names[call];
}

bool gpu_driver_call_find(const char *name, enum gpu_driver_call *ret_call)
{
    for (unsigned call = 0; call < GPU_CALL_COUNT; call++) {
        if (!strcmp(driver_call_names[call], name)) {
            *ret_call = (enum gpu_driver_call)call;
            return true;
        }
    }
    return false;
}

const char *gpu_driver_result_name(CUresult result)
{
    for (size_t i = 0; i < sizeof(driver_results) / sizeof(driver_results[0]); i++) {
        if (driver_results[i].result == result) {
            return driver_results[i].name;
        }
    }
    return "unknown CUresult";
}
