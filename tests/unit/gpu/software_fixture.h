#ifndef SYMTENSOR_TESTS_UNIT_GPU_SOFTWARE_FIXTURE_H
#define SYMTENSOR_TESTS_UNIT_GPU_SOFTWARE_FIXTURE_H

#include "tests/support/leak_check.h"

#include <pthread.h>
#include <stdatomic.h>

#include "gpu/kernels/twin.h"
#include "gpu/software/software.h"

#define FIXTURE_GRANULE (2ull << 20)
#define FIXTURE_DEVICES 4

/**
 * A software driver with one stream a device, for tests. Programs that use it are linked with
 * --wrap=gpu_twin_find: the module then also has the function "test_touch".
 */
struct fixture {
    const struct gpu_driver *driver;
    CUcontext contexts[FIXTURE_DEVICES];
    CUstream streams[FIXTURE_DEVICES];
    CUfunction touch[FIXTURE_DEVICES]; /**< "test_touch" of each device's module. */
    CUmodule modules[FIXTURE_DEVICES];
};

/** What test_touch is told. All pointers are to the test's own memory and may be NULL. */
struct touch_params {
    uint64_t read, write; /**< Operand addresses; 0: no such operand. */
    uint64_t bytes;       /**< Of each operand. */
    uint64_t chunks;
    uint64_t traffic;         /**< What it reports; 0: bytes. */
    uint32_t multicast;       /**< write is a multicast address. */
    uint32_t value;           /**< Byte that is written to all of write. */
    uint32_t pauses;          /**< Tenths of a millisecond that every chunk sleeps. */
    _Atomic uint32_t *gate;   /**< Every chunk waits until it is not 0. */
    _Atomic uint32_t *inside; /**< Chunks that have begun. */
    _Atomic uint32_t *runs;   /**< Chunks that have ended. */
    pthread_t *thread;        /**< The thread of the last chunk. */
};

/** Zero options with 64 MiB a device and two threads. */
struct gpu_software_options fixture_options(void);
void fixture_open(struct fixture *fixture, const struct gpu_software_options *options);
/** Close; asserts that nothing was left but what the fixture made. */
void fixture_close(struct fixture *fixture);
/** Make a device current for this thread. */
void fixture_use(const struct fixture *fixture, int device);

/** Memory of one device, mapped with access for all devices. */
struct fixture_memory {
    CUmemGenericAllocationHandle handle;
    CUdeviceptr address;
    size_t bytes;
};
CUmemAllocationProp fixture_prop(int device);
void fixture_map(const struct fixture *fixture, int device, size_t bytes,
                 struct fixture_memory *ret_memory);
void fixture_unmap(const struct fixture *fixture, struct fixture_memory *memory);
CUresult fixture_touch(const struct fixture *fixture, int device, struct touch_params *params);
void fixture_synchronize(const struct fixture *fixture, int device);
/** Wait until *counter >= value; fails the test after 10 s. */
void fixture_await(_Atomic uint32_t *counter, uint32_t value);

#define assert_cuda(call) assert_int_equal((call), CUDA_SUCCESS)

#endif
