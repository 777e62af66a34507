#ifndef SYMTENSOR_TESTS_CONTRACT_GPU_MISUSE_H
#define SYMTENSOR_TESTS_CONTRACT_GPU_MISUSE_H

#include <stdbool.h>
#include <stddef.h>

#include "gpu/driver/driver.h"

/**
 * The table of misuse: what a driver answers to calls that are wrong. Every driver runs the same
 * rows (misuse_run), one that must not touch multicast only those without. What the software driver
 * answers is thereby what the real one does, as far as it is known.
 */

enum misuse_source {
    MISUSE_SEEN,       /**< Seen on an H200, driver 580. */
    MISUSE_STRICTER,   /**< There it is let pass with success; ours refuses, so that it is found. */
    MISUSE_CRASHES,    /**< There the process dies; ours refuses. */
    MISUSE_DOCUMENTED, /**< The CUDA Driver API reference (CUDA 13) forbids it and lists this code.
                        */
    MISUSE_OURS,       /**< Not said anywhere, undefined, or known to block: our choice. */
};

/** What a row needs; bits. */
enum misuse_needs {
    MISUSE_NEEDS_NOTHING = 0,
    MISUSE_NEEDS_MULTICAST = 1, /**< Two devices with multicast. */
    MISUSE_NEEDS_SOFTWARE = 2,  /**< Undefined or another choice on a real driver: ours only. */
    MISUSE_NEEDS_SOFTWARE_MULTICAST = MISUSE_NEEDS_MULTICAST | MISUSE_NEEDS_SOFTWARE,
};

#define MISUSE_STEP_FAILED                                                                         \
    10000 /**< Added to the result when another call than the wrong one failed. */

/** What a row starts from, made anew for each; misuse_run() takes back whatever the row left of it.
 */
struct misuse_setup {
    const struct gpu_driver *driver;
    size_t granularity;
    CUmemGenericAllocationHandle memory; /**< Two granules on device 0, exportable as a POSIX fd. */
    CUdeviceptr address;                 /**< Four granules reserved. Nothing is mapped. */
    CUstream stream;                     /**< Of device 0, whose context is current. */
    CUmodule module;
    CUfunction function;                    /**< Any kernel; launched with wrong arguments only. */
    CUmemGenericAllocationHandle multicast; /**< Two granules, devices 0 and 1 not yet added. */
    CUmemGenericAllocationHandle peer;      /**< Two granules on device 1. */
};

struct misuse_row {
    const char *name;
    CUresult (*sequence)(struct misuse_setup *setup); /**< @return the code of the wrong call. */
    CUresult expected;
    enum misuse_source source;
    enum misuse_needs needs;
};

extern const struct misuse_row misuse_rows[];
extern const size_t misuse_row_count;

/** What a driver's test program provides. */
struct misuse_driver {
    const struct gpu_driver *driver; /**< Initialised. */
    const void *image;               /**< For cuModuleLoadData(). */
    const char *function;            /**< In the image. */
    bool multicast; /**< Run the rows that need it; never on a shared machine's GPU. */
    bool software;
};

/**
 * Run one row from a fresh setup.
 * @return false when the driver cannot run it; else *ret_result is what it answered.
 */
bool misuse_run(const struct misuse_driver *driver, const struct misuse_row *row,
                CUresult *ret_result);

#endif
