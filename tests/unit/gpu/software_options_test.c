#include "tests/unit/gpu/software_fixture.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

/* Options and environment of the software driver, and its devices. */

static int unset_all(void **state)
{
    (void)state;
    static const char *const names[] = {
        "NO_MULTICAST", "NO_FABRIC", "MULTICAST_SLOTS", "MULTICAST_RECOMMENDED", "LAUNCH_DELAY_US",
        "NO_PEER",      "HANG"};
    char variable[64];
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        strcpy(stpcpy(variable, "SYMTENSOR_SOFTWARE_"), names[i]);
        unsetenv(variable);
    }
    (void)gpu_faults_disarm();
    return 0;
}

static void a_malformed_variable_is_an_invalid_argument_that_names_it(void **state)
{
    (void)state;
    static const struct {
        const char *variable;
        const char *value;
    } rows[] = {
        {"SYMTENSOR_SOFTWARE_NO_MULTICAST", "yes"},
        {"SYMTENSOR_SOFTWARE_NO_FABRIC", "2"},
        {"SYMTENSOR_SOFTWARE_MULTICAST_SLOTS", "0"},
        {"SYMTENSOR_SOFTWARE_MULTICAST_SLOTS", "-1"},
        {"SYMTENSOR_SOFTWARE_MULTICAST_RECOMMENDED", "2 MiB"},
        {"SYMTENSOR_SOFTWARE_MULTICAST_RECOMMENDED", "0"},
        {"SYMTENSOR_SOFTWARE_LAUNCH_DELAY_US", "1ms"},
        {"SYMTENSOR_SOFTWARE_LAUNCH_DELAY_US", "10000001"},
        {"SYMTENSOR_SOFTWARE_NO_PEER", "0-1"},
        {"SYMTENSOR_SOFTWARE_NO_PEER", "0:1,"},
        {"SYMTENSOR_SOFTWARE_NO_PEER", "0:8"},
        {"SYMTENSOR_SOFTWARE_HANG", "cuMemCreate"},
        {"SYMTENSOR_SOFTWARE_HANG", "cuMemCreate:0:5"},
        {"SYMTENSOR_SOFTWARE_HANG", "cuNothing:1:5"},
    };
    struct gpu_software_options options = fixture_options();
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct gpu_driver *driver;
        struct st_error err = {0};
        setenv(rows[i].variable, rows[i].value, 1);
        assert_int_equal(gpu_software_open(&options, &driver, &err), ST_INVALID_ARGUMENT);
        assert_non_null(strstr(err.message, rows[i].variable));
        unsetenv(rows[i].variable);
    }
}

static void an_option_outside_its_range_is_an_invalid_argument(void **state)
{
    (void)state;
    const struct gpu_software_options rows[] = {
        {.device_count = 65},
        {.memory_bytes = 4096},
        {.memory_bytes = UINT64_MAX},
        {.memory_bytes = 1 << 30, .threads = 100000},
        {.memory_bytes = 1 << 30, .multicast_recommended_bytes = 1 << 20},
        {.memory_bytes = 1 << 30, .multicast_recommended_bytes = 3 << 20},
        {.memory_bytes = 1 << 30, .multicast_recommended_bytes = 1 << 30},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct gpu_driver *driver;
        assert_int_equal(gpu_software_open(&rows[i], &driver, NULL), ST_INVALID_ARGUMENT);
    }
}

static void defaults_are_four_devices_with_a_sixteenth_of_the_memory_each(void **state)
{
    (void)state;
    struct gpu_software_options options = {0};
    struct fixture fixture;
    fixture_open(&fixture, &options);
    int count;
    size_t bytes;
    assert_cuda(fixture.driver->cuDeviceGetCount(&count));
    assert_int_equal(count, 4);
    assert_cuda(fixture.driver->cuDeviceTotalMem(&bytes, 3));
    assert_true(bytes > 0 && bytes % FIXTURE_GRANULE == 0);
    fixture_close(&fixture);
}

static void only_one_driver_is_open_at_a_time(void **state)
{
    (void)state;
    struct gpu_software_options options = fixture_options();
    struct fixture fixture;
    const struct gpu_driver *second;
    fixture_open(&fixture, &options);
    assert_int_equal(gpu_software_open(&options, &second, NULL), ST_INTERNAL);
    fixture_close(&fixture);
}

static int attribute(const struct fixture *fixture, CUdevice_attribute which)
{
    int value;
    assert_cuda(fixture->driver->cuDeviceGetAttribute(&value, which, 0));
    return value;
}

static void no_multicast_shows_in_the_attribute_and_in_create(void **state)
{
    (void)state;
    struct gpu_software_options options = fixture_options();
    struct fixture fixture;
    CUmulticastObjectProp prop = {.numDevices = 2, .size = FIXTURE_GRANULE};
    CUmemGenericAllocationHandle handle;
    size_t granularity;
    setenv("SYMTENSOR_SOFTWARE_NO_MULTICAST", "1", 1);
    fixture_open(&fixture, &options);
    assert_int_equal(attribute(&fixture, CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED), 0);
    assert_int_equal(fixture.driver->cuMulticastCreate(&handle, &prop), CUDA_ERROR_NOT_SUPPORTED);
    assert_int_equal(fixture.driver->cuMulticastGetGranularity(&granularity, &prop,
                                                               CU_MULTICAST_GRANULARITY_MINIMUM),
                     CUDA_ERROR_NOT_SUPPORTED);
    fixture_close(&fixture);
    unsetenv("SYMTENSOR_SOFTWARE_NO_MULTICAST");
    fixture_open(&fixture, &options);
    assert_int_equal(attribute(&fixture, CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED), 1);
    fixture_close(&fixture);
}

static void no_fabric_shows_in_create_only(void **state)
{
    (void)state;
    struct gpu_software_options options = fixture_options();
    struct fixture fixture;
    CUmemGenericAllocationHandle handle;
    CUmemAllocationProp prop = fixture_prop(0);
    prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_FABRIC;
    setenv("SYMTENSOR_SOFTWARE_NO_FABRIC", "1", 1);
    fixture_open(&fixture, &options);
    assert_int_equal(attribute(&fixture, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED), 1);
    assert_int_equal(fixture.driver->cuMemCreate(&handle, FIXTURE_GRANULE, &prop, 0),
                     CUDA_ERROR_NOT_PERMITTED);
    fixture_close(&fixture);
}

static void no_peer_refuses_access_between_the_pair_in_that_direction(void **state)
{
    (void)state;
    struct gpu_software_options options = fixture_options();
    struct fixture fixture;
    setenv("SYMTENSOR_SOFTWARE_NO_PEER", "0:1,2:3", 1);
    fixture_open(&fixture, &options);
    static const struct {
        int device, peer, expected;
    } rows[] = {{0, 1, 0}, {1, 0, 1}, {2, 3, 0}, {3, 2, 1}, {0, 2, 1}, {0, 0, 0}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        int can;
        assert_cuda(fixture.driver->cuDeviceCanAccessPeer(&can, rows[i].device, rows[i].peer));
        assert_int_equal(can, rows[i].expected);
    }
    CUmemAllocationProp prop = fixture_prop(1);
    CUmemGenericAllocationHandle handle;
    CUdeviceptr address;
    assert_cuda(fixture.driver->cuMemCreate(&handle, FIXTURE_GRANULE, &prop, 0));
    assert_cuda(fixture.driver->cuMemAddressReserve(&address, FIXTURE_GRANULE, 0, 0, 0));
    assert_cuda(fixture.driver->cuMemMap(address, FIXTURE_GRANULE, 0, handle, 0));
    for (int device = 0; device < FIXTURE_DEVICES; device++) {
        CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, device},
                                  CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
        assert_int_equal(fixture.driver->cuMemSetAccess(address, FIXTURE_GRANULE, &access, 1),
                         device == 0 ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS);
    }
    assert_cuda(fixture.driver->cuMemUnmap(address, FIXTURE_GRANULE));
    assert_cuda(fixture.driver->cuMemAddressFree(address, FIXTURE_GRANULE));
    assert_cuda(fixture.driver->cuMemRelease(handle));
    fixture_close(&fixture);
}

static void a_hang_holds_one_call_and_lets_it_through(void **state)
{
    (void)state;
    struct gpu_software_options options = fixture_options();
    struct fixture fixture;
    setenv("SYMTENSOR_SOFTWARE_HANG", "cuMemGetInfo:2:60", 1);
    fixture_open(&fixture, &options);
    const struct gpu_driver *wrapped = gpu_faults_wrap(fixture.driver);
    for (int i = 1; i <= 3; i++) {
        size_t left;
        size_t total;
        uint64_t start = st_clock_now_ns();
        assert_cuda(wrapped->cuMemGetInfo(&left, &total));
        assert_int_equal(st_clock_now_ns() - start >= 60 * ST_NS_PER_MS, i == 2);
    }
    fixture_close(&fixture);
}

static void every_device_has_a_name_and_a_uuid_of_its_own(void **state)
{
    (void)state;
    struct gpu_software_options options = fixture_options();
    struct fixture fixture;
    options.device_count = 64;
    fixture_open(&fixture, &options);
    CUuuid first;
    CUuuid last;
    char name[64];
    assert_cuda(fixture.driver->cuDeviceGetUuid(&first, 0));
    assert_cuda(fixture.driver->cuDeviceGetUuid(&last, 63));
    assert_memory_not_equal(&first, &last, sizeof(first));
    assert_cuda(fixture.driver->cuDeviceGetName(name, sizeof(name), 63));
    assert_string_equal(name, "software device 63");
    assert_cuda(fixture.driver->cuDeviceGetName(name, 9, 63));
    assert_string_equal(name, "software");
    fixture_close(&fixture);
}

static void nothing_works_before_init_and_without_a_context(void **state)
{
    (void)state;
    struct gpu_software_options options = fixture_options();
    const struct gpu_driver *driver;
    int count;
    CUstream stream;
    assert_int_equal(gpu_software_open(&options, &driver, NULL), ST_OK);
    assert_int_equal(driver->cuDeviceGetCount(&count), CUDA_ERROR_NOT_INITIALIZED);
    assert_int_equal(driver->cuStreamCreateWithPriority(&stream, 0, 0), CUDA_ERROR_NOT_INITIALIZED);
    assert_cuda(driver->cuInit(0));
    assert_int_equal(driver->cuStreamCreateWithPriority(&stream, 0, 0), CUDA_ERROR_INVALID_CONTEXT);
    gpu_software_close();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, unset_all, unset_all)
        TEST(a_malformed_variable_is_an_invalid_argument_that_names_it),
        TEST(an_option_outside_its_range_is_an_invalid_argument),
        TEST(defaults_are_four_devices_with_a_sixteenth_of_the_memory_each),
        TEST(only_one_driver_is_open_at_a_time),
        TEST(no_multicast_shows_in_the_attribute_and_in_create),
        TEST(no_fabric_shows_in_create_only),
        TEST(no_peer_refuses_access_between_the_pair_in_that_direction),
        TEST(a_hang_holds_one_call_and_lets_it_through),
        TEST(every_device_has_a_name_and_a_uuid_of_its_own),
        TEST(nothing_works_before_init_and_without_a_context),
#undef TEST
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
