#include "tests/support/leak_check.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "api/options.h"

#define ARGUMENTS_MAX 8

static const char *const no_environment[] = {NULL};

/** Read options from arguments that end with NULL. */
static enum st_status read_options(const char *const *arguments, const char *const *environment,
                                   struct api_options *options, struct st_error *err)
{
    const char *argv[ARGUMENTS_MAX + 1] = {"symtensord"};
    int argc = 1;
    for (size_t i = 0; arguments[i]; i++) {
        argv[argc++] = arguments[i];
    }
    return api_options_read(argc, argv, environment, options, err);
}

static void defaults_are_those_of_the_table(void **state)
{
    (void)state;
    struct api_options options;
    struct st_error err;
    const char *const none[] = {NULL};
    assert_int_equal(read_options(none, no_environment, &options, &err), ST_OK);
    assert_null(options.listen);
    assert_null(options.unix_socket);
    assert_string_equal(options.health_listen, "127.0.0.1:7412");
    assert_int_equal(options.driver, GPU_DRIVER_AUTO);
    assert_int_equal(options.software_devices, 4);
    assert_int_equal(options.nvls, GPU_NVLS_AUTO);
    assert_int_equal(options.nvls_slots, 16);
    assert_int_equal(options.drain_seconds, 30);
    assert_int_equal(options.log_level, ST_LOG_INFO);
    assert_true(options.deterministic);
    assert_true(options.software_memory_bytes == 0 && options.device_memory_limit == 0);
    api_options_done(&options);
}

static void both_ways_of_writing_a_flag_are_read(void **state)
{
    (void)state;
    struct api_options options;
    struct st_error err;
    const char *const arguments[] = {
        "--driver=software", "--software-memory",   "64MiB", "--insecure", "--listen",
        "127.0.0.1:1",       "--deterministic=off", NULL};
    assert_int_equal(read_options(arguments, no_environment, &options, &err), ST_OK);
    assert_int_equal(options.driver, GPU_DRIVER_SOFTWARE);
    assert_true(options.software_memory_bytes == 64u << 20);
    assert_true(options.insecure && !options.deterministic);
    assert_string_equal(options.listen, "127.0.0.1:1");
    api_options_done(&options);
}

static void write_file(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static void a_flag_wins_over_the_environment_and_that_over_the_file(void **state)
{
    (void)state;
    char path[] = "/tmp/options_test.XXXXXX";
    close(mkstemp(path));
    write_file(path, "{\"software_devices\": 2, \"nvls_slots\": 3, \"drain_seconds\": 4,"
                     " \"deterministic\": false, \"node_name\": \"file\"}");
    char variable[128];
    snprintf(variable, sizeof(variable), "SYMTENSOR_CONFIG=%s", path);
    const char *const environment[] = {variable, "SYMTENSOR_NVLS_SLOTS=5",
                                       "SYMTENSOR_DRAIN_SECONDS=6", "OTHER=1", NULL};
    const char *const arguments[] = {"--drain-seconds", "7", NULL};
    struct api_options options;
    struct st_error err;
    assert_int_equal(read_options(arguments, environment, &options, &err), ST_OK);
    assert_int_equal(options.software_devices, 2);
    assert_int_equal(options.nvls_slots, 5);
    assert_int_equal(options.drain_seconds, 7);
    assert_false(options.deterministic);
    assert_string_equal(options.node_name, "file");
    api_options_done(&options);
    unlink(path);
}

static void wrong_values_name_their_source(void **state)
{
    (void)state;
    static const struct {
        const char *arguments[3];
        const char *variable;
        const char *message;
    } rows[] = {
        {{"--nope"}, NULL, "--nope: is not an option"},
        {{"nope"}, NULL, "nope: is not an option"},
        {{"--"}, NULL, "is not an option"},
        {{"--tls-cert", "x"}, NULL, "--tls-cert: is not an option"},
        {{"--driver"}, NULL, "--driver: needs a value"},
        {{"--driver", "gpu"}, NULL, "--driver: must be one of auto, cuda, software"},
        {{"--software-devices", "0"}, NULL, "--software-devices: must be an integer from 1 to 64"},
        {{"--software-devices=65"}, NULL, "--software-devices: must be an integer"},
        {{"--software-memory=1.5GiB"}, NULL, "--software-memory: must be a size"},
        {{"--deterministic=yes"}, NULL, "--deterministic: must be on or off"},
        {{"--insecure=1"}, NULL, "--insecure: must be true or false"},
        {{"--unix-socket="}, NULL, "--unix-socket: must not be empty"},
        {{"--listen", "127.0.0.1:1"}, NULL, "--listen: needs --insecure"},
        {{NULL}, "SYMTENSOR_NVLS=maybe", "SYMTENSOR_NVLS: must be one of auto, on, off"},
        {{NULL}, "SYMTENSOR_LISTEN=127.0.0.1:1", "--listen: needs --insecure"},
        {{"--config", "/nonexistent.json"}, NULL, "--config: /nonexistent.json"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct api_options options;
        struct st_error err = {0};
        const char *const environment[] = {rows[i].variable, NULL};
        assert_int_equal(read_options(rows[i].arguments, environment, &options, &err),
                         ST_INVALID_ARGUMENT);
        if (err.reason != ST_REASON_INVALID_OPTION || !strstr(err.message, rows[i].message)) {
            fail_msg("row %zu gives %s", i, err.message);
        }
        api_options_done(&options);
    }
}

static void wrong_files_name_the_key(void **state)
{
    (void)state;
    static const struct {
        const char *text, *message;
    } rows[] = {
        {"[]", "is not one JSON object"},
        {"{", "line 1"},
        {"{\"nope\": 1}", "nope: is not an option"},
        {"{\"config\": \"x\"}", "config: is not an option"},
        {"{\"help\": true}", "help: is not an option"},
        {"{\"health-listen\": \"off\"}", "health-listen: is not an option"},
        {"{\"nvls_slots\": 1.5}", "nvls_slots: must be a string, integer or boolean"},
        {"{\"nvls_slots\": -1}", "nvls_slots: must be an integer"},
        {"{\"nvls_slots\": 1, \"nvls_slots\": 2}", "duplicate"},
    };
    char path[] = "/tmp/options_test.XXXXXX";
    close(mkstemp(path));
    const char *const arguments[] = {"--config", path, NULL};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct api_options options;
        struct st_error err = {0};
        write_file(path, rows[i].text);
        assert_int_equal(read_options(arguments, no_environment, &options, &err),
                         ST_INVALID_ARGUMENT);
        if (!strstr(err.message, rows[i].message)) {
            fail_msg("%s gives %s", rows[i].text, err.message);
        }
        api_options_done(&options);
    }
    unlink(path);
}

/** What is logged while options are read from @p variable. */
static void read_log(const char *variable, char *log, size_t bytes)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    int saved = dup(STDERR_FILENO);
    dup2(ends[1], STDERR_FILENO);
    struct api_options options;
    struct st_error err;
    const char *const none[] = {NULL};
    const char *const environment[] = {variable, NULL};
    enum st_status status = read_options(none, environment, &options, &err);
    dup2(saved, STDERR_FILENO);
    close(saved);
    close(ends[1]);
    ssize_t length = read(ends[0], log, bytes - 1);
    log[length > 0 ? length : 0] = '\0';
    close(ends[0]);
    assert_int_equal(status, ST_OK);
    api_options_done(&options);
}

static void only_unknown_variables_of_ours_warn(void **state)
{
    (void)state;
    static const struct {
        const char *variable;
        bool warns;
    } rows[] = {
        {"SYMTENSOR_SERVICE_HOST=10.0.0.1", true},
        {"SYMTENSOR_HELP=true", true},
        {"SYMTENSOR_URL=http://x", false},
        {"SYMTENSOR_TOKEN_FILE=x", false},
        {"SYMTENSOR_CA_FILE=x", false},
        {"SYMTENSOR_FAULTS=x", false},
        {"SYMTENSOR_SOFTWARE_P2P=0", false},
        {"SYMTENSOR_LOG_LEVEL=info", false},
        {"SYMTENSO=1", false},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char log[1024];
        read_log(rows[i].variable, log, sizeof(log));
        assert_int_equal(strstr(log, "unknown environment variable") != NULL, rows[i].warns);
    }
}

static void help_names_every_flag_with_its_variable(void **state)
{
    (void)state;
    char *text = NULL;
    size_t length = 0;
    FILE *file = open_memstream(&text, &length);
    api_options_help(file);
    fclose(file);
    assert_non_null(strstr(text, "--health-listen HOST:PORT|off"));
    assert_non_null(strstr(text, "[SYMTENSOR_HEALTH_LISTEN]"));
    assert_non_null(strstr(text, "--driver auto|cuda|software"));
    assert_non_null(strstr(text, "(default: 127.0.0.1:7412)"));
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults_are_those_of_the_table),
        cmocka_unit_test(both_ways_of_writing_a_flag_are_read),
        cmocka_unit_test(a_flag_wins_over_the_environment_and_that_over_the_file),
        cmocka_unit_test(wrong_values_name_their_source),
        cmocka_unit_test(wrong_files_name_the_key),
        cmocka_unit_test(only_unknown_variables_of_ours_warn),
        cmocka_unit_test(help_names_every_flag_with_its_variable),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
