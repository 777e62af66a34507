#include "tests/unit/gpu/software_fixture.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---------------------------------------------------------------- the test's twin */

static uint32_t touch_operands(const void *params, struct gpu_operand *ret)
{
    const struct touch_params *touch = params;
    uint32_t count = 0;
    if (touch->read) {
        ret[count++] = (struct gpu_operand){touch->read, touch->bytes, false, false};
    }
    if (touch->write) {
        ret[count++] = (struct gpu_operand){touch->write, touch->bytes, true, touch->multicast};
    }
    return count;
}

static uint64_t touch_traffic(const void *params)
{
    const struct touch_params *touch = params;
    return touch->traffic ? touch->traffic : touch->bytes;
}

static uint64_t touch_chunks(const void *params)
{
    const struct touch_params *touch = params;
    return touch->chunks ? touch->chunks : 1;
}

static void touch_pause(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
}

static void touch_write(const struct touch_params *touch, uint64_t chunk,
                        const struct gpu_twin_services *services)
{
    uint64_t piece = touch->bytes / touch_chunks(touch);
    struct gpu_twin_members members = {.count = 1};
    members.addresses[0] = (void *)(uintptr_t)touch->write;
    if (touch->multicast) {
        assert_true(services->resolve(services->context, touch->write, touch->bytes, &members));
    }
    for (uint32_t i = 0; i < members.count; i++) {
        memset((char *)members.addresses[i] + chunk * piece, (int)touch->value, piece);
    }
}

static void touch_run(const void *params, uint64_t chunk, const struct gpu_twin_services *services)
{
    const struct touch_params *touch = params;
    if (touch->inside) {
        atomic_fetch_add(touch->inside, 1);
    }
    for (uint32_t i = 0; i < touch->pauses; i++) {
        touch_pause();
    }
    while (touch->gate && !atomic_load(touch->gate)) {
        touch_pause();
    }
    if (touch->write) {
        touch_write(touch, chunk, services);
    }
    if (touch->thread) {
        *touch->thread = pthread_self();
    }
    if (touch->runs) {
        atomic_fetch_add(touch->runs, 1);
    }
}

static const struct gpu_twin touch_twin = {"test_touch",   sizeof(struct touch_params),
                                           touch_operands, touch_traffic,
                                           touch_chunks,   touch_run};

const struct gpu_twin *__wrap_gpu_twin_find(const char *name);
const struct gpu_twin *__real_gpu_twin_find(const char *name);

const struct gpu_twin *__wrap_gpu_twin_find(const char *name)
{
    return !strcmp(name, touch_twin.name) ? &touch_twin : __real_gpu_twin_find(name);
}

/* ---------------------------------------------------------------- the driver */

struct gpu_software_options fixture_options(void)
{
    return (struct gpu_software_options){.memory_bytes = 64ull << 20, .threads = 2};
}

void fixture_use(const struct fixture *fixture, int device)
{
    assert_cuda(fixture->driver->cuCtxSetCurrent(fixture->contexts[device]));
}

void fixture_open(struct fixture *fixture, const struct gpu_software_options *options)
{
    struct st_error err = {0};
    *fixture = (struct fixture){0};
    if (gpu_software_open(options, &fixture->driver, &err) != ST_OK) {
        fail_msg("%s", err.message);
    }
    const struct gpu_driver *driver = fixture->driver;
    assert_cuda(driver->cuInit(0));
    int count;
    assert_cuda(driver->cuDeviceGetCount(&count));
    for (int i = 0; i < FIXTURE_DEVICES && i < count; i++) {
        assert_cuda(driver->cuDevicePrimaryCtxRetain(&fixture->contexts[i], i));
        fixture_use(fixture, i);
        assert_cuda(
            driver->cuStreamCreateWithPriority(&fixture->streams[i], CU_STREAM_NON_BLOCKING, 0));
        assert_cuda(driver->cuModuleLoadData(&fixture->modules[i], "image"));
        assert_cuda(
            driver->cuModuleGetFunction(&fixture->touch[i], fixture->modules[i], "test_touch"));
    }
    fixture_use(fixture, 0);
}

void fixture_close(struct fixture *fixture)
{
    const struct gpu_driver *driver = fixture->driver;
    for (int i = 0; i < FIXTURE_DEVICES; i++) {
        if (fixture->contexts[i]) {
            (void)driver->cuStreamDestroy(fixture->streams[i]);
            (void)driver->cuModuleUnload(fixture->modules[i]);
            assert_cuda(driver->cuDevicePrimaryCtxRelease(i));
        }
    }
    struct gpu_software_usage usage;
    struct gpu_software_usage none = {0};
    gpu_software_usage(&usage);
    assert_memory_equal(&usage, &none, sizeof(none));
    gpu_software_close();
}

CUmemAllocationProp fixture_prop(int device)
{
    return (CUmemAllocationProp){
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
    };
}

void fixture_map(const struct fixture *fixture, int device, size_t bytes,
                 struct fixture_memory *ret_memory)
{
    const struct gpu_driver *driver = fixture->driver;
    struct fixture_memory memory = {.bytes = bytes};
    CUmemAllocationProp prop = fixture_prop(device);
    CUmemAccessDesc access[FIXTURE_DEVICES];
    for (int i = 0; i < FIXTURE_DEVICES; i++) {
        access[i] =
            (CUmemAccessDesc){{CU_MEM_LOCATION_TYPE_DEVICE, i}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    }
    assert_cuda(driver->cuMemCreate(&memory.handle, bytes, &prop, 0));
    assert_cuda(driver->cuMemAddressReserve(&memory.address, bytes, 0, 0, 0));
    assert_cuda(driver->cuMemMap(memory.address, bytes, 0, memory.handle, 0));
    assert_cuda(driver->cuMemSetAccess(memory.address, bytes, access, FIXTURE_DEVICES));
    *ret_memory = memory;
}

void fixture_unmap(const struct fixture *fixture, struct fixture_memory *memory)
{
    assert_cuda(fixture->driver->cuMemUnmap(memory->address, memory->bytes));
    assert_cuda(fixture->driver->cuMemAddressFree(memory->address, memory->bytes));
    assert_cuda(fixture->driver->cuMemRelease(memory->handle));
}

CUresult fixture_touch(const struct fixture *fixture, int device, struct touch_params *params)
{
    void *arguments[] = {params};
    return fixture->driver->cuLaunchKernel(fixture->touch[device], 1, 1, 1, 32, 1, 1, 0,
                                           fixture->streams[device], arguments, NULL);
}

void fixture_synchronize(const struct fixture *fixture, int device)
{
    assert_cuda(fixture->driver->cuStreamSynchronize(fixture->streams[device]));
}

void fixture_await(_Atomic uint32_t *counter, uint32_t value)
{
    for (int i = 0; i < 100000 && atomic_load(counter) < value; i++) {
        touch_pause();
    }
    assert_true(atomic_load(counter) >= value);
}
