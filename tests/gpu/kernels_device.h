#ifndef SYMTENSOR_TESTS_GPU_KERNELS_DEVICE_H
#define SYMTENSOR_TESTS_GPU_KERNELS_DEVICE_H

#include <stdbool.h>
#include <stddef.h>

#include "gpu/device.h"

/**
 * A real device with the kernels loaded and one range of memory, for tests and benchmarks of the
 * kernels alone. Driver calls that fail end the program with the call's name.
 */
struct kernels_device {
    const struct gpu_driver *driver;
    CUmodule module;
    CUfunction functions[GPU_KERNEL_COUNT];
    uint64_t address; /**< Of the memory; aligned to 2 MiB. */
    size_t bytes;
    uint32_t processors; /**< Multiprocessors. */
};

/**
 * Open device 0 and map @p bytes of its memory.
 * @param image_file a cubin or fat binary to load instead of the embedded one; NULL: none.
 * @return false when there is no driver or no device.
 */
bool kernels_device_open(const char *image_file, size_t bytes, struct kernels_device *ret_device);

void kernels_device_upload(const struct kernels_device *device, size_t offset, const void *from,
                           size_t bytes);
void kernels_device_download(const struct kernels_device *device, size_t offset, void *to,
                             size_t bytes);

/** Launch on the default stream; the only parameter is the struct at @p params. */
void kernels_device_launch(const struct kernels_device *device, enum gpu_kernel kernel,
                           void *params, uint32_t blocks);
/** Wait for all launches. @return false when one failed. */
bool kernels_device_wait(const struct kernels_device *device);

#endif
