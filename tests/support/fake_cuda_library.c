#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/driver/cuda_types.h"

/* The library itself; see fake_cuda.h. */

CUresult cuGetProcAddress_v2(const char *symbol, void **address, int version,
                             unsigned long long flags, CUdriverProcAddressQueryResult *found);

/** Whether a name is in a list such as "cuA,cuB". */
static int listed(const char *list, const char *name)
{
    size_t length = strlen(name);
    for (const char *at = list; at; at = strchr(at, ',')) {
        at += *at == ',';
        if (!strncmp(at, name, length) && (at[length] == ',' || !at[length])) {
            return 1;
        }
    }
    return 0;
}

__attribute__((visibility("default"))) CUresult
cuGetProcAddress_v2(const char *symbol, void **address, int version, unsigned long long flags,
                    CUdriverProcAddressQueryResult *found)
{
    const char *own = getenv("FAKE_CUDA_VERSION");
    void *(*find)(const char *);
    void *finder = dlsym(RTLD_DEFAULT, "fake_cuda_find");
    memcpy(&find, &finder, sizeof(find));
    if (version > (own ? atoi(own) : 13000) || flags != CU_GET_PROC_ADDRESS_LEGACY_STREAM) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *address = find && !listed(getenv("FAKE_CUDA_LACKS"), symbol) ? find(symbol) : NULL;
    *found = *address ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    return CUDA_SUCCESS;
}
