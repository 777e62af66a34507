#ifndef SYMTENSOR_GPU_CUDA_CUDA_H
#define SYMTENSOR_GPU_CUDA_CUDA_H

#include "base/error.h"
#include "gpu/driver/driver.h"

/**
 * The CUDA driver: the driver table filled from libcuda.so.1, which is opened at run time, so that
 * the program starts on machines that have none. Every entry point comes through
 * cuGetProcAddress(), in the version that GPU_DRIVER_VERSIONS names and with the legacy meaning of
 * the default stream (which nothing here uses). The oldest driver that will do is one of CUDA 12.0.
 */

/** Plain values. Zero means the default of each. */
struct gpu_cuda_options {
    const char *library; /**< File name or path for dlopen(); default "libcuda.so.1". */
};

/**
 * Find the driver and fill the table; no device is touched and cuInit() is not called. What a
 * driver lacks of the optional calls answers CUDA_ERROR_NOT_SUPPORTED.
 *
 * Thread: start-up. Blocks: for the dynamic linker.
 *
 * @param ret_driver the table; valid until the process ends.
 * @retval ST_FAILED_PRECONDITION NO_DRIVER: no library, or one that is too old; err names the call
 * that is missing and the CUDA version of the driver.
 */
ST_MUST_CHECK enum st_status gpu_cuda_open(const struct gpu_cuda_options *options,
                                           const struct gpu_driver **ret_driver,
                                           struct st_error *err);
/** Nothing is left to undo: a driver's library runs threads of its own and must stay loaded. */
void gpu_cuda_close(void);

/**
 * Fill @p err for a cuInit() that failed, with what can be done about it.
 * @retval ST_FAILED_PRECONDITION NO_DRIVER: there is no device, or no driver that fits the library.
 * @retval ST_INTERNAL DRIVER_ERROR: there are devices, but the driver does not start now.
 */
enum st_status gpu_cuda_init_fail(CUresult result, struct st_error *err);

#endif
