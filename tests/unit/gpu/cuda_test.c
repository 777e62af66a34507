#include "tests/support/leak_check.h"

#include <stdlib.h>
#include <string.h>

#include "gpu/cuda/cuda.h"
#include "gpu/gpu.h"

/** The CUDA driver's table, and which driver is chosen, over a library that is not NVIDIA's
 * (tests/support/fake_cuda.h). */

static int reset(void **state)
{
    (void)state;
    static const char *const variables[] = {"FAKE_CUDA_LACKS", "FAKE_CUDA_VERSION",
                                            "FAKE_CUDA_INIT", "SYMTENSOR_FAULTS"};
    for (size_t i = 0; i < sizeof(variables) / sizeof(variables[0]); i++) {
        unsetenv(variables[i]);
    }
    (void)gpu_faults_disarm();
    return 0;
}

/* ---------------------------------------------------------------- the table */

static void a_library_that_is_not_there_or_no_driver_is_no_driver(void **state)
{
    (void)state;
    static const struct {
        const char *library, *message;
    } rows[] = {
        {"libcuda-that-is-not-there.so.1", "no NVIDIA driver is visible (libcuda-that-is-not"},
        {"libcuda-that-is-not-there.so.1", "NVIDIA_DRIVER_CAPABILITIES=compute,utility"},
        {"libm.so.6", "libm.so.6 has no cuGetProcAddress of CUDA 12.0"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct gpu_cuda_options options = {.library = rows[i].library};
        const struct gpu_driver *driver = NULL;
        struct st_error err = {0};
        assert_int_equal(gpu_cuda_open(&options, &driver, &err), ST_FAILED_PRECONDITION);
        assert_int_equal(err.reason, ST_REASON_NO_DRIVER);
        assert_non_null(strstr(err.message, rows[i].message));
        assert_null(driver);
    }
}

static void a_complete_driver_fills_every_row(void **state)
{
    (void)state;
    const struct gpu_driver *driver = NULL;
    struct st_error err = {0};
    int version = 0;
    assert_int_equal(gpu_cuda_open(&(struct gpu_cuda_options){0}, &driver, &err), ST_OK);
    assert_string_equal(driver->name, "cuda");
#define X(call, params, args) assert_non_null(driver->call);
    GPU_DRIVER_CALLS(X)
#undef X
    assert_int_equal(driver->cuDriverGetVersion(&version), CUDA_SUCCESS);
    assert_int_equal(version, 13000);
    /* Before cuInit(): the multicast calls are the driver's own, too. */
    assert_int_equal(driver->cuMulticastAddDevice(1, 0), CUDA_ERROR_NOT_INITIALIZED);
    gpu_cuda_close();
}

static void what_a_driver_may_lack_answers_not_supported(void **state)
{
    (void)state;
    static const struct {
        const char *lacks, *version;
    } rows[] = {
        {"cuMulticastAddDevice,cuFuncLoad", NULL},
        {NULL, "12000"}, /* older than both: it refuses to look for them */
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct gpu_driver *driver = NULL;
        struct st_error err = {0};
        reset(NULL);
        if (rows[i].lacks) {
            setenv("FAKE_CUDA_LACKS", rows[i].lacks, 1);
        } else {
            setenv("FAKE_CUDA_VERSION", rows[i].version, 1);
        }
        assert_int_equal(gpu_cuda_open(&(struct gpu_cuda_options){0}, &driver, &err), ST_OK);
        assert_int_equal(driver->cuMulticastAddDevice(1, 0), CUDA_ERROR_NOT_SUPPORTED);
        assert_int_equal(driver->cuFuncLoad(NULL), CUDA_ERROR_NOT_SUPPORTED);
    }
}

static void what_a_driver_must_have_is_named_with_both_versions(void **state)
{
    (void)state;
    static const struct {
        const char *lacks, *version, *message;
    } rows[] = {
        {"cuMemCreate,cuMemMap", "13020",
         "libcuda.so.1 has no cuMemCreate of CUDA 10.2; its CUDA version is 13.2"},
        {"cuDriverGetVersion", "13000", "its CUDA version is unknown"},
        {"cuNothing", "11030", "has no cuDeviceGetUuid of CUDA 11.4; its CUDA version is 11.3"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct gpu_driver *driver = NULL;
        struct st_error err = {0};
        setenv("FAKE_CUDA_LACKS", rows[i].lacks, 1);
        setenv("FAKE_CUDA_VERSION", rows[i].version, 1);
        assert_int_equal(gpu_cuda_open(&(struct gpu_cuda_options){0}, &driver, &err),
                         ST_FAILED_PRECONDITION);
        assert_int_equal(err.reason, ST_REASON_NO_DRIVER);
        assert_non_null(strstr(err.message, rows[i].message));
        assert_null(driver);
    }
}

/* ---------------------------------------------------------------- which driver is chosen */

static enum st_status open_as(enum gpu_driver_choice choice, struct gpu **ret_gpu,
                              struct st_error *err)
{
    const struct gpu_options options = {.driver = choice,
                                        .nvls = GPU_NVLS_OFF,
                                        .software_devices = 3,
                                        .software_memory_bytes = 64 << 20};
    *ret_gpu = NULL;
    *err = (struct st_error){0};
    return gpu_open(&options, ret_gpu, err);
}

/** What comes of `auto`: the driver's name, or NULL where the start is refused. */
static void assert_auto_gives(const char *driver, enum st_reason reason)
{
    struct gpu *gpu;
    struct st_error err;
    enum st_status status = open_as(GPU_DRIVER_AUTO, &gpu, &err);
    assert_int_equal(status == ST_OK, driver != NULL);
    if (driver) {
        struct gpu_capabilities can;
        gpu_capabilities(gpu, &can);
        assert_string_equal(can.driver, driver);
        gpu_close(gpu);
    } else {
        assert_int_equal(err.reason, reason);
    }
}

static void software_devices_come_only_without_a_driver_or_a_device(void **state)
{
    (void)state;
    static const struct {
        const char *variable, *value;
        enum st_reason reason; /**< Of `cuda`. */
        const char *message;
        bool falls_back; /**< `auto` does. */
    } rows[] = {
        {"FAKE_CUDA_INIT", "100", ST_REASON_NO_DRIVER, "CUDA_VISIBLE_DEVICES", true},
        {"FAKE_CUDA_INIT", "34", ST_REASON_NO_DRIVER, "LD_LIBRARY_PATH", true},
        {"FAKE_CUDA_INIT", "803", ST_REASON_NO_DRIVER, "different versions", true},
        {"FAKE_CUDA_INIT", "804", ST_REASON_NO_DRIVER, "forward compatibility", true},
        {"FAKE_CUDA_INIT", "999", ST_REASON_NO_DRIVER, "/dev/nvidia-uvm", true},
        {"FAKE_CUDA_INIT", "304", ST_REASON_NO_DRIVER, "device cgroup", true},
        {"FAKE_CUDA_LACKS", "cuMemCreate", ST_REASON_NO_DRIVER, "a newer driver", true},
        /* There is a device: an operator wants to know, not to find host memory instead. */
        {"FAKE_CUDA_INIT", "802", ST_REASON_DRIVER_ERROR, "nvidia-fabricmanager", false},
        {"FAKE_CUDA_INIT", "805", ST_REASON_DRIVER_ERROR, "kernel's log", false},
        {"SYMTENSOR_FAULTS", "cuDevicePrimaryCtxRetain:1=46", ST_REASON_DEVICE_UNAVAILABLE,
         "CUDA_ERROR_DEVICE_UNAVAILABLE (46)", false},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct gpu *gpu;
        struct st_error err;
        reset(NULL);
        setenv(rows[i].variable, rows[i].value, 1);
        assert_int_not_equal(open_as(GPU_DRIVER_CUDA, &gpu, &err), ST_OK);
        assert_null(gpu);
        assert_int_equal(err.reason, rows[i].reason);
        if (!strstr(err.message, rows[i].message)) {
            fail_msg("\"%s\" is not in \"%s\"", rows[i].message, err.message);
        }
        assert_auto_gives(rows[i].falls_back ? "software" : NULL, rows[i].reason);
    }
}

/** `auto` would go on; only that the fake's devices are software devices, which are open now. */
static void a_driver_whose_devices_will_not_do_is_no_driver(void **state)
{
    (void)state;
    static const struct {
        const char *fault, *message;
    } rows[] = {
        {"cuDeviceGetCount:1=100", "CUDA_ERROR_NO_DEVICE (100)"},
        {"cuDeviceGetAttribute:1=1", "no virtual memory management"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct gpu *gpu;
        struct st_error err;
        setenv("SYMTENSOR_FAULTS", rows[i].fault, 1);
        assert_int_equal(open_as(GPU_DRIVER_CUDA, &gpu, &err), ST_FAILED_PRECONDITION);
        assert_int_equal(err.reason, ST_REASON_NO_DRIVER);
        assert_non_null(strstr(err.message, rows[i].message));
        (void)gpu_faults_disarm();
    }
}

/** After the others: the devices of the fake driver stay open from now on. */
static void auto_takes_the_cuda_driver_where_it_has_a_device(void **state)
{
    (void)state;
    assert_auto_gives("cuda", ST_REASON_NONE);
    assert_auto_gives("cuda", ST_REASON_NONE);
}

static void an_old_driver_works_without_multicast_and_says_why(void **state)
{
    (void)state;
    struct gpu *gpu;
    struct st_error err;
    struct gpu_capabilities can;
    setenv("FAKE_CUDA_VERSION", "12000", 1);
    const struct gpu_options options = {.driver = GPU_DRIVER_CUDA};
    assert_int_equal(gpu_open(&options, &gpu, &err), ST_OK);
    gpu_capabilities(gpu, &can);
    assert_int_equal(can.driver_version, 12000);
    assert_int_equal(can.multicast_reason, GPU_MULTICAST_DRIVER_TOO_OLD);
    assert_true(can.calls_may_block);
    gpu_close(gpu);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_library_that_is_not_there_or_no_driver_is_no_driver, reset),
        cmocka_unit_test_setup(a_complete_driver_fills_every_row, reset),
        cmocka_unit_test_setup(what_a_driver_may_lack_answers_not_supported, reset),
        cmocka_unit_test_setup(what_a_driver_must_have_is_named_with_both_versions, reset),
        cmocka_unit_test_setup(software_devices_come_only_without_a_driver_or_a_device, reset),
        cmocka_unit_test_setup(a_driver_whose_devices_will_not_do_is_no_driver, reset),
        cmocka_unit_test_setup(auto_takes_the_cuda_driver_where_it_has_a_device, reset),
        cmocka_unit_test_setup(an_old_driver_works_without_multicast_and_says_why, reset),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
