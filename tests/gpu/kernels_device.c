#include "tests/gpu/kernels_device.h"

#include <stdio.h>
#include <stdlib.h>

#include "gpu/cuda/cuda.h"
#include "gpu/kernels/image.h"

static void check(CUresult result, const char *what)
{
    if (result != CUDA_SUCCESS) {
        printf("%s: %s\n", what, gpu_driver_result_name(result));
        exit(1);
    }
}

#define CALL(name, ...) check(device->driver->name(__VA_ARGS__), #name)

static void *file_read(const char *path)
{
    FILE *file = fopen(path, "rb");
    long size = file && fseek(file, 0, SEEK_END) == 0 ? ftell(file) : -1;
    char *bytes = size < 0 ? NULL : calloc(1, (size_t)size + 1);
    if (!bytes || fseek(file, 0, SEEK_SET) != 0 ||
        fread(bytes, 1, (size_t)size, file) != (size_t)size) {
        printf("%s cannot be read\n", path);
        exit(1);
    }
    fclose(file);
    return bytes;
}

static void kernels_load(struct kernels_device *device, const char *image_file)
{
    static const char *const symbols[GPU_KERNEL_COUNT] = {
#define X(name, symbol) symbol,
        GPU_KERNELS(X)
#undef X
    };
    void *image = image_file ? file_read(image_file) : NULL;
    CALL(cuModuleLoadData, &device->module, image ? image : gpu_kernel_image);
    free(image);
    for (size_t i = 0; i < GPU_KERNEL_COUNT; i++) {
        CALL(cuModuleGetFunction, &device->functions[i], device->module, symbols[i]);
    }
}

static void memory_map(struct kernels_device *device, size_t bytes)
{
    const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    const CUmemAccessDesc access = {.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0},
                                    .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    size_t granularity = 0;
    CUmemGenericAllocationHandle handle;
    CUdeviceptr address = 0;
    CALL(cuMemGetAllocationGranularity, &granularity, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
    device->bytes = (bytes + granularity - 1) / granularity * granularity;
    CALL(cuMemCreate, &handle, device->bytes, &prop, 0);
    CALL(cuMemAddressReserve, &address, device->bytes, 0, 0, 0);
    CALL(cuMemMap, address, device->bytes, 0, handle, 0);
    CALL(cuMemRelease, handle);
    CALL(cuMemSetAccess, address, device->bytes, &access, 1);
    device->address = address;
}

bool kernels_device_open(const char *image_file, size_t bytes, struct kernels_device *device)
{
    const struct gpu_cuda_options options = {0};
    struct st_error err = {0};
    int count = 0, processors = 0;
    CUdevice ordinal;
    CUcontext context;
    *device = (struct kernels_device){0};
    if (gpu_cuda_open(&options, &device->driver, &err) != ST_OK ||
        device->driver->cuInit(0) != CUDA_SUCCESS ||
        device->driver->cuDeviceGetCount(&count) != CUDA_SUCCESS || count == 0) {
        printf("no CUDA driver with a device: %s\n", err.message);
        return false;
    }
    CALL(cuDeviceGet, &ordinal, 0);
    CALL(cuDevicePrimaryCtxRetain, &context, ordinal);
    CALL(cuCtxSetCurrent, context);
    CALL(cuDeviceGetAttribute, &processors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, ordinal);
    device->processors = (uint32_t)processors;
    kernels_load(device, image_file);
    memory_map(device, bytes);
    return true;
}

void kernels_device_upload(const struct kernels_device *device, size_t offset, const void *from,
                           size_t bytes)
{
    CALL(cuMemcpyHtoDAsync, device->address + offset, from, bytes, NULL);
    CALL(cuStreamSynchronize, NULL);
}

void kernels_device_download(const struct kernels_device *device, size_t offset, void *to,
                             size_t bytes)
{
    CALL(cuMemcpyDtoHAsync, to, device->address + offset, bytes, NULL);
    CALL(cuStreamSynchronize, NULL);
}

void kernels_device_launch(const struct kernels_device *device, enum gpu_kernel kernel,
                           void *params, uint32_t blocks)
{
    void *arguments[] = {params};
    CALL(cuLaunchKernel, device->functions[kernel], blocks, 1, 1, GPU_KERNEL_THREADS, 1, 1, 0, NULL,
         arguments, NULL);
}

bool kernels_device_wait(const struct kernels_device *device)
{
    CUresult result = device->driver->cuStreamSynchronize(NULL);
    if (result != CUDA_SUCCESS) {
        printf("a launch ended with %s\n", gpu_driver_result_name(result));
    }
    return result == CUDA_SUCCESS;
}
