#include "api/options.h"

#include <ctype.h>
#include <inttypes.h>
#include <jansson.h>
#include <stddef.h>
#include <string.h>

#include "base/size.h"

#define OPTION_NAME_MAX 64
#define ENVIRONMENT_PREFIX "SYMTENSOR_"

enum option_type {
    OPTION_TEXT,   /**< const char * */
    OPTION_UINT,   /**< uint32_t, min..max */
    OPTION_SIZE,   /**< uint64_t bytes: "64MiB" */
    OPTION_CHOICE, /**< enum, the index in choices */
    OPTION_SWITCH, /**< bool: on or off */
    OPTION_FLAG,   /**< bool: a flag without value; elsewhere true or false */
};

struct option {
    const char *name; /**< "health-listen" */
    enum option_type type;
    size_t offset;
    const char *value;   /**< How help calls the value. */
    const char *initial; /**< Default as text, or NULL: nothing is set. */
    const char *doc;
    const char *choices[5]; /**< In the order of the enum; ends with NULL. */
    uint32_t min, max;
    bool command_line_only;
};

#define AT(member) offsetof(struct api_options, member)

static const struct option options_table[] = {
    {"config",
     OPTION_TEXT,
     AT(config),
     "FILE",
     NULL,
     "JSON file with further options, named as here with _ for -",
     {0},
     0,
     0,
     false},
    {"listen",
     OPTION_TEXT,
     AT(listen),
     "HOST:PORT",
     NULL,
     "Serve TCP too (7411 by custom); needs --insecure in this version",
     {0},
     0,
     0,
     false},
    {"unix-socket",
     OPTION_TEXT,
     AT(unix_socket),
     "PATH|off",
     NULL,
     "Unix socket; by default /run/symtensor/symtensord.sock, else "
     "$XDG_RUNTIME_DIR/symtensor/symtensord.sock",
     {0},
     0,
     0,
     false},
    {"health-listen",
     OPTION_TEXT,
     AT(health_listen),
     "HOST:PORT|off",
     "127.0.0.1:7412",
     "Probes, /version and /metrics on a listener of their own; when its connections run out, "
     "the oldest idle one is ended",
     {0},
     0,
     0,
     false},
    {"allowed-hosts",
     OPTION_TEXT,
     AT(allowed_hosts),
     "NAME,...",
     NULL,
     "Further names that Host and Origin may have, beside loopback, the listen address and the "
     "node's name",
     {0},
     0,
     0,
     false},
    {"insecure",
     OPTION_FLAG,
     AT(insecure),
     NULL,
     NULL,
     "Let everybody who reaches --listen do everything",
     {0},
     0,
     0,
     false},
    {"node-name",
     OPTION_TEXT,
     AT(node_name),
     "NAME",
     NULL,
     "Name of this node; the host's by default",
     {0},
     0,
     0,
     false},
    {"driver",
     OPTION_CHOICE,
     AT(driver),
     NULL,
     "auto",
     "Devices: those of CUDA, software ones in host memory, or CUDA's where there are some",
     {"auto", "cuda", "software"},
     0,
     0,
     false},
    {"software-devices",
     OPTION_UINT,
     AT(software_devices),
     "N",
     "4",
     "Number of software devices",
     {0},
     1,
     ST_DEVICES_MAX,
     false},
    {"software-memory",
     OPTION_SIZE,
     AT(software_memory_bytes),
     "SIZE",
     NULL,
     "Memory of each software device; by default all have a quarter of the machine's, together at "
     "most all of it",
     {0},
     0,
     0,
     false},
    {"device-memory-limit",
     OPTION_SIZE,
     AT(device_memory_limit),
     "SIZE",
     NULL,
     "Most that is taken of each device's memory",
     {0},
     0,
     0,
     false},
    {"nvls",
     OPTION_CHOICE,
     AT(nvls),
     NULL,
     "auto",
     "Multicast over NVLink: where it is asked for, also unasked, never",
     {"auto", "on", "off"},
     0,
     0,
     false},
    {"nvls-slots",
     OPTION_UINT,
     AT(nvls_slots),
     "N",
     "16",
     "Multicast objects that may be held",
     {0},
     0,
     4096,
     false},
    {"graphs",
     OPTION_CHOICE,
     AT(graphs),
     NULL,
     "auto",
     "Replay collectives that come again as graphs: where that is faster, everywhere, nowhere",
     {"auto", "on", "off"},
     0,
     0,
     false},
    {"deterministic",
     OPTION_SWITCH,
     AT(deterministic),
     "on|off",
     "on",
     "Whether results keep their bits when a request does not say",
     {0},
     0,
     0,
     false},
    {"log-level",
     OPTION_CHOICE,
     AT(log_level),
     NULL,
     "info",
     "Lowest level that is logged",
     {"debug", "info", "warning", "error"},
     0,
     0,
     false},
    {"drain-seconds",
     OPTION_UINT,
     AT(drain_seconds),
     "N",
     "30",
     "Time for work to end after SIGTERM",
     {0},
     0,
     86400,
     false},
    {"help", OPTION_FLAG, AT(help), NULL, NULL, "Print this and end", {0}, 0, 0, true},
    {"version", OPTION_FLAG, AT(version), NULL, NULL, "Print the version and end", {0}, 0, 0, true},
};
#define OPTIONS_COUNT (sizeof(options_table) / sizeof(options_table[0]))
_Static_assert(GPU_DRIVER_SOFTWARE == 2 && GPU_NVLS_OFF == 2 && ST_LOG_ERROR == 3,
               "choices stand in the order of their enums");

/** Variables that are read elsewhere: by clients, and by the software driver's tests. */
static const char *const known_variables[] = {"SYMTENSOR_URL", "SYMTENSOR_TOKEN_FILE",
                                              "SYMTENSOR_CA_FILE", "SYMTENSOR_FAULTS"};
static const char known_prefix[] = "SYMTENSOR_SOFTWARE_";

/* ---------------------------------------------------------------- one value */

static enum st_status option_fail_choice(const struct option *option, const char *source,
                                         struct st_error *err)
{
    char list[128] = "";
    size_t length = 0;
    for (size_t i = 0; option->choices[i] && length < sizeof(list); i++) {
        int added = snprintf(list + length, sizeof(list) - length, "%s%s", i ? ", " : "",
                             option->choices[i]);
        length += added > 0 ? (size_t)added : 0;
    }
    return st_fail(err, ST_REASON_INVALID_OPTION, source, "must be one of %s", list);
}

static enum st_status option_set_choice(const struct option *option, const char *source,
                                        const char *text, void *target, struct st_error *err)
{
    for (unsigned i = 0; option->choices[i]; i++) {
        if (strcmp(option->choices[i], text) == 0) {
            *(unsigned *)target = i;
            return ST_OK;
        }
    }
    return option_fail_choice(option, source, err);
}

static enum st_status option_set_switch(const char *source, const char *text, const char *yes,
                                        const char *no, void *target, struct st_error *err)
{
    bool on = strcmp(text, yes) == 0;
    if (!on && strcmp(text, no) != 0) {
        return st_fail(err, ST_REASON_INVALID_OPTION, source, "must be %s or %s", yes, no);
    }
    *(bool *)target = on;
    return ST_OK;
}

/** Set an option from text. @p source is how it was given, for the message. */
static enum st_status option_set(const struct option *option, const char *source, const char *text,
                                 struct api_options *options, struct st_error *err)
{
    void *target = (char *)options + option->offset;
    uint64_t number;
    switch (option->type) {
    case OPTION_TEXT:
        if (!text[0]) {
            return st_fail(err, ST_REASON_INVALID_OPTION, source, "must not be empty");
        }
        *(const char **)target = text;
        return ST_OK;
    case OPTION_UINT:
        if (!st_uint_parse(text, option->max, &number) || number < option->min) {
            return st_fail(err, ST_REASON_INVALID_OPTION, source,
                           "must be an integer from %" PRIu32 " to %" PRIu32, option->min,
                           option->max);
        }
        *(uint32_t *)target = (uint32_t)number;
        return ST_OK;
    case OPTION_SIZE:
        if (!st_size_parse(text, &number) || number == 0) {
            return st_fail(err, ST_REASON_INVALID_OPTION, source,
                           "must be a size such as 4096, 64KiB, 2MiB or 1GiB");
        }
        *(uint64_t *)target = number;
        return ST_OK;
    case OPTION_CHOICE:
        return option_set_choice(option, source, text, target, err);
    case OPTION_SWITCH:
        return option_set_switch(source, text, "on", "off", target, err);
    case OPTION_FLAG:
        return option_set_switch(source, text, "true", "false", target, err);
    }
    return ST_OK;
}

static const struct option *option_find(const char *name, size_t length)
{
    for (size_t i = 0; i < OPTIONS_COUNT; i++) {
        if (strlen(options_table[i].name) == length &&
            memcmp(options_table[i].name, name, length) == 0) {
            return &options_table[i];
        }
    }
    return NULL;
}

/** The option's name with "_" for "-", in upper case on demand. */
static void option_other_name(const struct option *option, bool upper,
                              char name[static OPTION_NAME_MAX])
{
    size_t i = 0;
    for (; option->name[i] && i < OPTION_NAME_MAX - 1; i++) {
        int byte = option->name[i] == '-' ? '_' : option->name[i];
        name[i] = (char)(upper ? toupper(byte) : byte);
    }
    name[i] = '\0';
}

/* ---------------------------------------------------------------- the three sources */

/** One argument, and the next one when it is the value. @param at advanced past what was used. */
static enum st_status options_read_flag(int argc, const char *const *argv, int *at,
                                        struct api_options *options, struct st_error *err)
{
    const char *argument = argv[(*at)++];
    char quoted[80];
    size_t length = strcspn(argument, "=");
    const struct option *option = strncmp(argument, "--", 2) == 0 && length > 2
                                      ? option_find(argument + 2, length - 2)
                                      : NULL;
    if (!option) {
        return st_fail(err, ST_REASON_INVALID_OPTION, st_error_quote(argument, quoted),
                       "is not an option; see --help");
    }
    char source[OPTION_NAME_MAX + 2];
    snprintf(source, sizeof(source), "--%s", option->name);
    const char *value = argument[length] ? argument + length + 1 : NULL;
    if (option->type == OPTION_FLAG) {
        value = value ? value : "true";
    } else if (!value) {
        if (*at >= argc) {
            return st_fail(err, ST_REASON_INVALID_OPTION, source, "needs a value");
        }
        value = argv[(*at)++];
    }
    return option_set(option, source, value, options, err);
}

static enum st_status options_read_flags(int argc, const char *const *argv,
                                         struct api_options *options, struct st_error *err)
{
    for (int at = 1; at < argc;) {
        enum st_status status = options_read_flag(argc, argv, &at, options, err);
        if (status != ST_OK) {
            return status;
        }
    }
    return ST_OK;
}

static bool variable_is_known(const char *name, size_t length)
{
    for (size_t i = 0; i < sizeof(known_variables) / sizeof(known_variables[0]); i++) {
        if (strlen(known_variables[i]) == length && memcmp(known_variables[i], name, length) == 0) {
            return true;
        }
    }
    return strncmp(name, known_prefix, sizeof(known_prefix) - 1) == 0;
}

/** Value of an environment variable in @p environment, or NULL. */
static const char *environment_find(const char *const *environment, const char *name)
{
    size_t length = strlen(name);
    for (size_t i = 0; environment[i]; i++) {
        if (strncmp(environment[i], name, length) == 0 && environment[i][length] == '=') {
            return environment[i] + length + 1;
        }
    }
    return NULL;
}

static void option_variable(const struct option *option,
                            char name[static OPTION_NAME_MAX + sizeof(ENVIRONMENT_PREFIX)])
{
    memcpy(name, ENVIRONMENT_PREFIX, sizeof(ENVIRONMENT_PREFIX));
    option_other_name(option, true, name + sizeof(ENVIRONMENT_PREFIX) - 1);
}

static enum st_status options_read_environment(const char *const *environment,
                                               struct api_options *options, struct st_error *err)
{
    for (size_t i = 0; i < OPTIONS_COUNT; i++) {
        const struct option *option = &options_table[i];
        char name[OPTION_NAME_MAX + sizeof(ENVIRONMENT_PREFIX)];
        option_variable(option, name);
        const char *value = option->command_line_only ? NULL : environment_find(environment, name);
        enum st_status status = value ? option_set(option, name, value, options, err) : ST_OK;
        if (status != ST_OK) {
            return status;
        }
    }
    return ST_OK;
}

static bool variable_is_option(const char *variable, size_t length)
{
    for (size_t i = 0; i < OPTIONS_COUNT; i++) {
        char name[OPTION_NAME_MAX + sizeof(ENVIRONMENT_PREFIX)];
        option_variable(&options_table[i], name);
        if (!options_table[i].command_line_only && strlen(name) == length &&
            memcmp(name, variable, length) == 0) {
            return true;
        }
    }
    return false;
}

/** A misspelt variable is not fatal: orchestrators inject some that begin like ours. */
static void options_warn_unknown(const char *const *environment)
{
    for (size_t i = 0; environment[i]; i++) {
        size_t length = strcspn(environment[i], "=");
        if (strncmp(environment[i], ENVIRONMENT_PREFIX, strlen(ENVIRONMENT_PREFIX)) != 0 ||
            variable_is_known(environment[i], length) ||
            variable_is_option(environment[i], length)) {
            continue;
        }
        char name[128];
        snprintf(name, sizeof(name), "%.*s", (int)length, environment[i]);
        st_log(ST_LOG_WARNING, "unknown environment variable", ST_LOG_TEXT("variable", name));
    }
}

/** A value of the file as the text that a flag would have. */
static enum st_status file_value_text(const char *key, const json_t *value,
                                      struct api_options *options, const char **ret_text,
                                      struct st_error *err)
{
    char number[32];
    const char *text = json_string_value(value);
    if (json_is_integer(value)) {
        snprintf(number, sizeof(number), "%" JSON_INTEGER_FORMAT, json_integer_value(value));
        text = number;
    } else if (json_is_boolean(value)) {
        text = json_is_true(value) ? "true" : "false";
    }
    if (!text) {
        return st_fail(err, ST_REASON_INVALID_OPTION, key, "must be a string, integer or boolean");
    }
    *ret_text = api_arena_copy(&options->arena, text, strlen(text));
    return *ret_text ? ST_OK
                     : st_fail(err, ST_REASON_OUT_OF_MEMORY, NULL, "no memory for the options");
}

static enum st_status options_read_key(const char *key, const json_t *value,
                                       struct api_options *options, struct st_error *err)
{
    for (size_t i = 0; i < OPTIONS_COUNT; i++) {
        const struct option *option = &options_table[i];
        char name[OPTION_NAME_MAX];
        option_other_name(option, false, name);
        if (strcmp(name, key) != 0 || option->command_line_only || option->offset == AT(config)) {
            continue;
        }
        const char *text;
        enum st_status status = file_value_text(key, value, options, &text, err);
        if (status != ST_OK) {
            return status;
        }
        /* In JSON a switch is a boolean as well. */
        if (option->type == OPTION_SWITCH && json_is_boolean(value)) {
            text = json_is_true(value) ? "on" : "off";
        }
        return option_set(option, key, text, options, err);
    }
    char quoted[80];
    return st_fail(err, ST_REASON_INVALID_OPTION, st_error_quote(key, quoted),
                   "is not an option that the file %s may hold", options->config);
}

static enum st_status options_read_file(struct api_options *options, struct st_error *err)
{
    json_error_t error;
    json_t *root = json_load_file(options->config, JSON_REJECT_DUPLICATES, &error);
    if (!root) {
        return st_fail(err, ST_REASON_INVALID_OPTION, "--config", "%s: line %d: %s",
                       options->config, error.line, error.text);
    }
    if (!json_is_object(root)) {
        json_decref(root);
        return st_fail(err, ST_REASON_INVALID_OPTION, "--config", "%s is not one JSON object",
                       options->config);
    }
    const char *key;
    json_t *value;
    enum st_status status = ST_OK;
    json_object_foreach(root, key, value)
    {
        status = options_read_key(key, value, options, err);
        if (status != ST_OK) {
            break;
        }
    }
    json_decref(root);
    return status;
}

/* ---------------------------------------------------------------- all of it */

static enum st_status options_set_initial(struct api_options *options, struct st_error *err)
{
    for (size_t i = 0; i < OPTIONS_COUNT; i++) {
        const struct option *option = &options_table[i];
        enum st_status status =
            option->initial ? option_set(option, option->name, option->initial, options, err)
                            : ST_OK;
        if (status != ST_OK) {
            return status;
        }
    }
    return ST_OK;
}

static enum st_status options_check(const struct api_options *options, struct st_error *err)
{
    if (options->listen && !options->insecure) {
        return st_fail(err, ST_REASON_INVALID_OPTION, "--listen",
                       "needs --insecure: TCP cannot be protected by tokens or certificates in "
                       "this version, so everybody who reaches %s could do everything",
                       options->listen);
    }
    return ST_OK;
}

enum st_status api_options_read(int argc, const char *const *argv, const char *const *environment,
                                struct api_options *ret_options, struct st_error *err)
{
    *ret_options = (struct api_options){0};
    /* The file's name comes from the two other sources, which are then read again over it. */
    struct api_options first = {0};
    enum st_status status = options_set_initial(ret_options, err);
    if (status == ST_OK) {
        status = options_read_environment(environment, &first, err);
    }
    if (status == ST_OK) {
        status = options_read_flags(argc, argv, &first, err);
    }
    ret_options->config = first.config;
    if (status == ST_OK && first.config && !first.help && !first.version) {
        status = options_read_file(ret_options, err);
    }
    if (status == ST_OK) {
        status = options_read_environment(environment, ret_options, err);
    }
    if (status == ST_OK) {
        status = options_read_flags(argc, argv, ret_options, err);
    }
    if (status != ST_OK || ret_options->help || ret_options->version) {
        return status;
    }
    st_log_set_level(ret_options->log_level);
    options_warn_unknown(environment);
    return options_check(ret_options, err);
}

void api_options_done(struct api_options *options)
{
    api_arena_done(&options->arena);
}

static void option_print(FILE *file, const struct option *option)
{
    char values[OPTION_NAME_MAX * 2] = "";
    size_t length = 0;
    for (size_t i = 0; option->choices[i] && length < sizeof(values); i++) {
        int added = snprintf(values + length, sizeof(values) - length, "%s%s", i ? "|" : "",
                             option->choices[i]);
        length += added > 0 ? (size_t)added : 0;
    }
    const char *value = option->value ? option->value : values;
    fprintf(file, "  --%s%s%s\n      %s", option->name, value[0] ? " " : "", value, option->doc);
    if (option->initial) {
        fprintf(file, " (default: %s)", option->initial);
    }
    if (!option->command_line_only) {
        char name[OPTION_NAME_MAX + sizeof(ENVIRONMENT_PREFIX)];
        option_variable(option, name);
        fprintf(file, " [%s]", name);
    }
    fprintf(file, "\n");
}

void api_options_help(FILE *file)
{
    fprintf(file, "usage: symtensord [options]\n\n"
                  "A server that owns symmetric tensors on the GPUs of a node.\n\n"
                  "A flag wins over its environment variable, and that over the file of --config.\n"
                  "Sizes take KiB, MiB and GiB.\n\n");
    for (size_t i = 0; i < OPTIONS_COUNT; i++) {
        option_print(file, &options_table[i]);
    }
}
