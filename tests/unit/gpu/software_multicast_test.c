#include "tests/unit/gpu/software_fixture.h"

#include <time.h>
#include <unistd.h>

/* Multicast objects of the software driver. */

#define MEMBERS 3

static struct fixture fixture;

/** An object over devices 2, 0 and 1 (in this order) with one granule of memory bound on each. */
struct bound {
    CUmemGenericAllocationHandle object;
    CUdeviceptr address; /**< Of the object's mapping. */
    struct fixture_memory memory[MEMBERS];
};

static const int member_devices[MEMBERS] = {2, 0, 1};

static int setup(void **state)
{
    (void)state;
    struct gpu_software_options options = fixture_options();
    fixture_open(&fixture, &options);
    return 0;
}

static int setup_few_slots(void **state)
{
    (void)state;
    struct gpu_software_options options = fixture_options();
    options.multicast_slots = 2;
    options.multicast_recommended_bytes = 512ull << 20;
    fixture_open(&fixture, &options);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    fixture_close(&fixture);
    return 0;
}

static CUmemGenericAllocationHandle object_create(uint64_t bytes)
{
    CUmulticastObjectProp prop = {.numDevices = MEMBERS,
                                  .size = bytes,
                                  .handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR};
    CUmemGenericAllocationHandle object;
    assert_cuda(fixture.driver->cuMulticastCreate(&object, &prop));
    for (int i = 0; i < MEMBERS; i++) {
        assert_cuda(fixture.driver->cuMulticastAddDevice(object, member_devices[i]));
    }
    return object;
}

static CUdeviceptr object_map(CUmemGenericAllocationHandle object, uint64_t bytes)
{
    CUdeviceptr address;
    CUmemAccessDesc access[MEMBERS];
    for (int i = 0; i < MEMBERS; i++) {
        access[i] = (CUmemAccessDesc){{CU_MEM_LOCATION_TYPE_DEVICE, member_devices[i]},
                                      CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    }
    assert_cuda(fixture.driver->cuMemAddressReserve(&address, bytes, 0, 0, 0));
    assert_cuda(fixture.driver->cuMemMap(address, bytes, 0, object, 0));
    assert_cuda(fixture.driver->cuMemSetAccess(address, bytes, access, MEMBERS));
    return address;
}

/** Bind memory at granule @p place of an object of @p granules. */
static void bound_create(struct bound *bound, uint64_t granules, uint64_t place)
{
    bound->object = object_create(granules * FIXTURE_GRANULE);
    for (int i = 0; i < MEMBERS; i++) {
        fixture_map(&fixture, member_devices[i], FIXTURE_GRANULE, &bound->memory[i]);
        assert_cuda(fixture.driver->cuMulticastBindMem(bound->object, place * FIXTURE_GRANULE,
                                                       bound->memory[i].handle, 0, FIXTURE_GRANULE,
                                                       0));
    }
    bound->address = object_map(bound->object, granules * FIXTURE_GRANULE);
}

static void bound_destroy(struct bound *bound, uint64_t granules, uint64_t place)
{
    const struct gpu_driver *driver = fixture.driver;
    assert_cuda(driver->cuMemUnmap(bound->address, granules * FIXTURE_GRANULE));
    assert_cuda(driver->cuMemAddressFree(bound->address, granules * FIXTURE_GRANULE));
    for (int i = 0; i < MEMBERS; i++) {
        assert_cuda(driver->cuMulticastUnbind(bound->object, member_devices[i],
                                              place * FIXTURE_GRANULE, FIXTURE_GRANULE));
    }
    assert_cuda(driver->cuMemRelease(bound->object));
    for (int i = 0; i < MEMBERS; i++) {
        fixture_unmap(&fixture, &bound->memory[i]);
    }
}

static void a_write_reaches_every_member_at_the_bound_offset(void **state)
{
    (void)state;
    struct bound bound;
    bound_create(&bound, 4, 2);
    struct touch_params params = {.write = bound.address + 2 * FIXTURE_GRANULE + 100,
                                  .bytes = 50,
                                  .multicast = 1,
                                  .value = 6};
    assert_cuda(fixture_touch(&fixture, 1, &params));
    fixture_synchronize(&fixture, 1);
    for (int i = 0; i < MEMBERS; i++) {
        const unsigned char *bytes = (const unsigned char *)(uintptr_t)bound.memory[i].address;
        assert_int_equal(bytes[99], 0);
        assert_int_equal(bytes[100], 6);
        assert_int_equal(bytes[149], 6);
        assert_int_equal(bytes[150], 0);
    }
    bound_destroy(&bound, 4, 2);
}

static void members_are_reached_without_any_mapping_of_their_own(void **state)
{
    (void)state;
    struct bound bound;
    bound_create(&bound, 1, 0);
    int fd;
    assert_cuda(fixture.driver->cuMemExportToShareableHandle(
        &fd, bound.memory[0].handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    for (int i = 0; i < MEMBERS; i++) {
        fixture_unmap(&fixture, &bound.memory[i]); /* the bindings keep the memory */
    }
    struct touch_params params = {.write = bound.address, .bytes = 64, .multicast = 1, .value = 8};
    assert_cuda(fixture_touch(&fixture, 0, &params));
    fixture_synchronize(&fixture, 0);
    CUmemGenericAllocationHandle handle; /* still known: the same memory */
    assert_cuda(fixture.driver->cuMemImportFromShareableHandle(
        &handle, (void *)(intptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    unsigned char byte = 0;
    assert_int_equal(pread(fd, &byte, 1, 63), 1);
    assert_int_equal(byte, 8);
    close(fd);
    assert_cuda(fixture.driver->cuMemRelease(handle));
    assert_cuda(fixture.driver->cuMemUnmap(bound.address, FIXTURE_GRANULE));
    assert_cuda(fixture.driver->cuMemAddressFree(bound.address, FIXTURE_GRANULE));
    assert_cuda(fixture.driver->cuMemRelease(bound.object)); /* takes its bindings along */
}

static void a_hundred_cycles_leave_no_fd_and_no_mapping(void **state)
{
    (void)state;
    unsigned fds = 0;
    unsigned mappings = 0;
    for (int i = 0; i < 100; i++) {
        struct bound bound;
        bound_create(&bound, 2, 1);
        bound_destroy(&bound, 2, 1);
        if (i == 0) {
            fds = test_open_fds();
            mappings = test_mappings();
        }
    }
    assert_int_equal(test_open_fds(), fds);
    assert_int_equal(test_mappings(), mappings);
}

/** A launch that must find an operand illegal; device @p device is dead afterwards. */
static void assert_illegal(int device, struct touch_params params)
{
    assert_cuda(fixture_touch(&fixture, device, &params));
    assert_int_equal(fixture.driver->cuStreamSynchronize(fixture.streams[device]),
                     CUDA_ERROR_ILLEGAL_ADDRESS);
}

static void multicast_and_plain_addresses_are_not_taken_for_each_other(void **state)
{
    (void)state;
    struct bound bound;
    bound_create(&bound, 2, 0);
    uint64_t unicast = bound.memory[0].address;
    assert_illegal(0, (struct touch_params){.read = bound.address, .bytes = 4});
    assert_illegal(1, (struct touch_params){.write = unicast, .bytes = 4, .multicast = 1});
    /* Granule 1 has no memory behind it; device 3 is no member. */
    assert_illegal(2, (struct touch_params){.write = bound.address + FIXTURE_GRANULE - 4,
                                            .bytes = 8,
                                            .multicast = 1});
    assert_illegal(3, (struct touch_params){.write = bound.address, .bytes = 4, .multicast = 1});
    bound_destroy(&bound, 2, 0);
}

static void an_object_with_a_member_missing_is_not_written(void **state)
{
    (void)state;
    struct bound bound;
    bound_create(&bound, 1, 0);
    assert_cuda(fixture.driver->cuMulticastUnbind(bound.object, 1, 0, FIXTURE_GRANULE));
    assert_illegal(
        0, (struct touch_params){.write = bound.address, .bytes = 4, .multicast = 1, .value = 1});
    assert_int_equal(*(const unsigned char *)(uintptr_t)bound.memory[0].address, 0);
    assert_cuda(fixture.driver->cuMulticastBindMem(bound.object, 0, bound.memory[2].handle, 0,
                                                   FIXTURE_GRANULE, 0));
    bound_destroy(&bound, 1, 0);
}

static void several_memories_share_an_object_at_different_offsets(void **state)
{
    (void)state;
    const struct gpu_driver *driver = fixture.driver;
    CUmemGenericAllocationHandle object = object_create(8 * FIXTURE_GRANULE);
    struct fixture_memory memory[MEMBERS];
    for (int i = 0; i < MEMBERS; i++) { /* piece k of each memory at place 7 - 2 * k */
        fixture_map(&fixture, member_devices[i], 2 * FIXTURE_GRANULE, &memory[i]);
        for (uint64_t k = 0; k < 2; k++) {
            assert_cuda(driver->cuMulticastBindMem(object, (7 - 2 * k) * FIXTURE_GRANULE,
                                                   memory[i].handle, k * FIXTURE_GRANULE,
                                                   FIXTURE_GRANULE, 0));
        }
    }
    CUdeviceptr address = object_map(object, 8 * FIXTURE_GRANULE);
    for (uint32_t k = 0; k < 2; k++) {
        struct touch_params params = {.write = address + (7 - 2 * k) * FIXTURE_GRANULE,
                                      .bytes = FIXTURE_GRANULE,
                                      .chunks = 2,
                                      .multicast = 1,
                                      .value = 10 + k};
        assert_cuda(fixture_touch(&fixture, 0, &params));
    }
    fixture_synchronize(&fixture, 0);
    for (int i = 0; i < MEMBERS; i++) {
        const unsigned char *bytes = (const unsigned char *)(uintptr_t)memory[i].address;
        assert_int_equal(bytes[FIXTURE_GRANULE - 1], 10);
        assert_int_equal(bytes[FIXTURE_GRANULE], 11);
    }
    assert_cuda(driver->cuMemUnmap(address, 8 * FIXTURE_GRANULE));
    assert_cuda(driver->cuMemAddressFree(address, 8 * FIXTURE_GRANULE));
    assert_cuda(driver->cuMemRelease(object));
    for (int i = 0; i < MEMBERS; i++) {
        fixture_unmap(&fixture, &memory[i]);
    }
}

static void slots_run_out_when_binding_and_come_back(void **state)
{
    (void)state;
    const struct gpu_driver *driver = fixture.driver;
    struct bound bound[2];
    CUmulticastObjectProp prop = {.numDevices = MEMBERS, .size = FIXTURE_GRANULE};
    size_t granularity;
    assert_cuda(
        driver->cuMulticastGetGranularity(&granularity, &prop, CU_MULTICAST_GRANULARITY_MINIMUM));
    assert_int_equal(granularity, FIXTURE_GRANULE);
    assert_cuda(driver->cuMulticastGetGranularity(&granularity, &prop,
                                                  CU_MULTICAST_GRANULARITY_RECOMMENDED));
    assert_int_equal(granularity, 512ull << 20);
    bound_create(&bound[0], 1, 0);
    bound_create(&bound[1], 1, 0);
    CUmemGenericAllocationHandle third = object_create(FIXTURE_GRANULE);
    CUmemGenericAllocationHandle memory = bound[0].memory[0].handle;
    assert_int_equal(driver->cuMulticastBindMem(third, 0, memory, 0, FIXTURE_GRANULE, 0),
                     CUDA_ERROR_OUT_OF_MEMORY);
    bound_destroy(&bound[1], 1, 0);
    assert_cuda(driver->cuMulticastBindMem(third, 0, memory, 0, FIXTURE_GRANULE, 0));
    assert_cuda(driver->cuMulticastUnbind(third, 2, 0, FIXTURE_GRANULE));
    assert_cuda(driver->cuMemRelease(third));
    bound_destroy(&bound[0], 1, 0);
}

struct unbinder {
    CUmemGenericAllocationHandle object;
    _Atomic uint32_t done;
};

static void *unbind_thread(void *arg)
{
    struct unbinder *unbinder = arg;
    assert_cuda(fixture.driver->cuMulticastUnbind(unbinder->object, 0, 0, FIXTURE_GRANULE));
    atomic_store(&unbinder->done, 1);
    return NULL;
}

static void unbinding_waits_for_the_launch_that_writes_through_the_object(void **state)
{
    (void)state;
    _Atomic uint32_t gate = 0;
    _Atomic uint32_t inside = 0;
    struct bound bound;
    pthread_t thread;
    bound_create(&bound, 1, 0);
    struct unbinder unbinder = {.object = bound.object};
    struct touch_params params = {.write = bound.address,
                                  .bytes = FIXTURE_GRANULE,
                                  .multicast = 1,
                                  .gate = &gate,
                                  .inside = &inside,
                                  .value = 4};
    assert_cuda(fixture_touch(&fixture, 1, &params));
    fixture_await(&inside, 1);
    assert_int_equal(pthread_create(&thread, NULL, unbind_thread, &unbinder), 0);
    nanosleep(&(struct timespec){.tv_nsec = 50 * 1000000}, NULL);
    assert_int_equal(atomic_load(&unbinder.done), 0);
    atomic_store(&gate, 1);
    assert_int_equal(pthread_join(thread, NULL), 0);
    fixture_synchronize(&fixture, 1);
    assert_int_equal(*(const unsigned char *)(uintptr_t)bound.memory[1].address, 4);
    assert_cuda(fixture.driver->cuMulticastBindMem(bound.object, 0, bound.memory[1].handle, 0,
                                                   FIXTURE_GRANULE, 0));
    bound_destroy(&bound, 1, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
        TEST(a_write_reaches_every_member_at_the_bound_offset),
        TEST(members_are_reached_without_any_mapping_of_their_own),
        TEST(a_hundred_cycles_leave_no_fd_and_no_mapping),
        TEST(multicast_and_plain_addresses_are_not_taken_for_each_other),
        TEST(an_object_with_a_member_missing_is_not_written),
        TEST(several_memories_share_an_object_at_different_offsets),
        TEST(unbinding_waits_for_the_launch_that_writes_through_the_object),
#undef TEST
        cmocka_unit_test_setup_teardown(slots_run_out_when_binding_and_come_back, setup_few_slots,
                                        teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
