#include "tests/support/leak_check.h"

#include <string.h>

#include "gpu/driver/driver.h"

/* Fault injection over a table whose every call succeeds. */

#define X(call, params, args)                                                                      \
    static CUresult good_##call params                                                             \
    {                                                                                              \
        return CUDA_SUCCESS;                                                                       \
    }
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-parameter"
GPU_DRIVER_CALLS(X)
#pragma GCC diagnostic pop
#undef X

static const struct gpu_driver good_driver = {.name = "good",
#define X(call, params, args) .call = good_##call,
                                              GPU_DRIVER_CALLS(X)
#undef X
};

static const struct gpu_driver *driver;

static int setup(void **state)
{
    (void)state;
    (void)gpu_faults_disarm();
    gpu_faults_log(NULL, NULL);
    driver = gpu_faults_wrap(&good_driver);
    return 0;
}

static void the_wrapped_table_is_complete_and_keeps_its_name(void **state)
{
    (void)state;
    assert_string_equal(driver->name, "good");
#define X(call, params, args) assert_non_null(driver->call);
    GPU_DRIVER_CALLS(X)
#undef X
}

static void the_nth_call_fails_once_and_the_fault_is_seen(void **state)
{
    (void)state;
    gpu_faults_arm(GPU_CALL_cuMemRelease, 3, CUDA_ERROR_INVALID_VALUE);
    for (int i = 1; i <= 5; i++) {
        assert_int_equal(driver->cuMemRelease(1), i == 3 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS);
        assert_int_equal(driver->cuInit(0), CUDA_SUCCESS);
    }
    assert_true(gpu_faults_disarm());
    assert_false(gpu_faults_disarm());
}

static void any_counts_everything_but_destructors(void **state)
{
    (void)state;
    gpu_faults_arm_any(3, CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(driver->cuMemCreate(NULL, 0, NULL, 0), CUDA_SUCCESS);
    assert_int_equal(driver->cuMemRelease(1), CUDA_SUCCESS);
    assert_int_equal(driver->cuMemUnmap(1, 1), CUDA_SUCCESS);
    assert_int_equal(driver->cuMemAddressFree(1, 1), CUDA_SUCCESS);
    assert_int_equal(driver->cuMulticastUnbind(1, 0, 0, 0), CUDA_SUCCESS);
    assert_int_equal(driver->cuStreamDestroy(NULL), CUDA_SUCCESS);
    assert_int_equal(driver->cuEventDestroy(NULL), CUDA_SUCCESS);
    assert_int_equal(driver->cuModuleUnload(NULL), CUDA_SUCCESS);
    assert_int_equal(driver->cuMemFreeHost(NULL), CUDA_SUCCESS);
    assert_int_equal(driver->cuDevicePrimaryCtxRelease(0), CUDA_SUCCESS);
    assert_int_equal(driver->cuMemMap(1, 1, 0, 1, 0), CUDA_SUCCESS);
    assert_int_equal(driver->cuStreamQuery(NULL), CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(driver->cuStreamQuery(NULL), CUDA_SUCCESS);
}

static void a_disarmed_fault_does_not_fire(void **state)
{
    (void)state;
    gpu_faults_arm(GPU_CALL_cuInit, 1, CUDA_ERROR_UNKNOWN);
    assert_false(gpu_faults_disarm());
    assert_int_equal(driver->cuInit(0), CUDA_SUCCESS);
}

static void calls_are_counted_injected_ones_too(void **state)
{
    (void)state;
    uint64_t before = gpu_faults_calls(GPU_CALL_cuEventQuery);
    gpu_faults_arm(GPU_CALL_cuEventQuery, 1, CUDA_ERROR_NOT_READY);
    for (int i = 0; i < 4; i++) {
        (void)driver->cuEventQuery(NULL);
    }
    assert_int_equal(gpu_faults_calls(GPU_CALL_cuEventQuery), before + 4);
}

static void the_environment_text_arms_what_it_says(void **state)
{
    (void)state;
    struct st_error err = {0};
    assert_true(
        gpu_faults_parse("cuMemCreate:2=2,cuMulticastBindMem:1=802,cuMemCreate:3=999", &err));
    assert_int_equal(driver->cuMemCreate(NULL, 0, NULL, 0), CUDA_SUCCESS);
    assert_int_equal(driver->cuMemCreate(NULL, 0, NULL, 0), CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(driver->cuMemCreate(NULL, 0, NULL, 0), CUDA_ERROR_UNKNOWN);
    assert_int_equal(driver->cuMulticastBindMem(0, 0, 0, 0, 0, 0), CUDA_ERROR_SYSTEM_NOT_READY);
    assert_true(gpu_faults_disarm());
    assert_true(gpu_faults_parse("any:1=46", NULL));
    assert_int_equal(driver->cuInit(0), CUDA_ERROR_DEVICE_UNAVAILABLE);
}

static void malformed_text_arms_nothing_and_says_what_is_wrong(void **state)
{
    (void)state;
    static const char *const texts[] = {"cuMemCreate",     "cuMemCreate:1",
                                        "cuMemCreate:=2",  "cuMemCreate:0=2",
                                        "cuMemCreate:1=0", "cuMemCreate:1=x",
                                        "cuNothing:1=2",   ":1=2",
                                        "cuInit:1=2,",     ",",
                                        "cuInit:-1=2",     "cuInit:1=99999999999",
                                        "cuInit:1=2 ",     "cuInit:1=2,any"};
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        struct st_error err = {0};
        assert_false(gpu_faults_parse(texts[i], &err));
        assert_int_equal(err.status, ST_INVALID_ARGUMENT);
        assert_non_null(strstr(err.message, "SYMTENSOR_FAULTS"));
        assert_int_equal(driver->cuInit(0), CUDA_SUCCESS);
        assert_int_equal(driver->cuMemCreate(NULL, 0, NULL, 0), CUDA_SUCCESS);
    }
    assert_true(gpu_faults_parse(NULL, NULL));
    assert_true(gpu_faults_parse("", NULL));
    char many[2048] = "cuInit:1=1";
    for (int i = 0; i < 64; i++) {
        strcat(many, ",cuInit:1=1"); /* 65 of them */
    }
    assert_false(gpu_faults_parse(many, NULL));
    assert_int_equal(driver->cuInit(0), CUDA_SUCCESS);
}

struct seen {
    unsigned count;
    struct gpu_call_record last;
};

static void see(void *arg, const struct gpu_call_record *record)
{
    struct seen *seen = arg;
    seen->count++;
    seen->last = *record;
}

static void the_log_sees_each_call_with_its_result(void **state)
{
    (void)state;
    struct seen seen = {0};
    CUmemAllocationProp prop = {.requestedHandleTypes = CU_MEM_HANDLE_TYPE_FABRIC};
    gpu_faults_log(see, &seen);
    assert_int_equal(driver->cuMemCreate(NULL, 0, &prop, 0), CUDA_SUCCESS);
    assert_int_equal(seen.last.call, GPU_CALL_cuMemCreate);
    assert_int_equal(seen.last.handle_types, CU_MEM_HANDLE_TYPE_FABRIC);
    assert_false(seen.last.injected);
    gpu_faults_arm(GPU_CALL_cuInit, 1, CUDA_ERROR_NO_DEVICE);
    (void)driver->cuInit(0);
    assert_int_equal(seen.last.result, CUDA_ERROR_NO_DEVICE);
    assert_int_equal(seen.last.handle_types, 0);
    assert_true(seen.last.injected);
    assert_int_equal(seen.count, 2);
    gpu_faults_log(NULL, NULL);
    (void)driver->cuInit(0);
    assert_int_equal(seen.count, 2);
}

static void names_of_calls_and_results_are_those_of_the_table(void **state)
{
    (void)state;
    enum gpu_driver_call call;
    for (unsigned i = 0; i < GPU_CALL_COUNT; i++) {
        assert_true(gpu_driver_call_find(gpu_driver_call_name((enum gpu_driver_call)i), &call));
        assert_int_equal(call, i);
    }
    assert_false(gpu_driver_call_find("cuMemcreate", &call));
    assert_string_equal(gpu_driver_result_name(CUDA_ERROR_OUT_OF_MEMORY),
                        "CUDA_ERROR_OUT_OF_MEMORY (2)");
    assert_string_equal(gpu_driver_result_name((CUresult)12345), "unknown CUresult");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, setup)
        TEST(the_wrapped_table_is_complete_and_keeps_its_name),
        TEST(the_nth_call_fails_once_and_the_fault_is_seen),
        TEST(any_counts_everything_but_destructors),
        TEST(a_disarmed_fault_does_not_fire),
        TEST(calls_are_counted_injected_ones_too),
        TEST(the_environment_text_arms_what_it_says),
        TEST(malformed_text_arms_nothing_and_says_what_is_wrong),
        TEST(the_log_sees_each_call_with_its_result),
        TEST(names_of_calls_and_results_are_those_of_the_table),
#undef TEST
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
