#include "api/cli/command.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#define API_PREFIX_TEXT "/v1/"
#define COLLECTIVE_PARAMETER "{collective}"

/* What a route without a ":verb" is called; streams are named by their method. */
static const struct verb_name {
    enum api_method method;
    bool names_one; /* the path ends with a parameter or is a single resource */
    const char *verb;
} verb_names[] = {
    {API_GET, true, "get"},       {API_GET, false, "list"},      {API_POST, false, "create"},
    {API_POST, true, "post"},     {API_PATCH, true, "patch"},    {API_PATCH, false, "patch"},
    {API_DELETE, true, "delete"}, {API_DELETE, false, "delete"}, {API_PUT, true, "put"},
    {API_PUT, false, "put"},
};

static void copy_upper(char to[static CLI_NAME_MAX], const char *from, size_t length)
{
    size_t i = 0;
    for (; i < length && i + 1 < CLI_NAME_MAX; i++) {
        to[i] = (char)toupper((unsigned char)from[i]);
    }
    to[i] = '\0';
}

static void copy_name(char to[static CLI_NAME_MAX], const char *from, size_t length)
{
    snprintf(to, CLI_NAME_MAX, "%.*s", (int)length, from);
}

static const char *verb_of(const struct api_route *route, bool names_one)
{
    for (size_t i = 0; i < sizeof(verb_names) / sizeof(verb_names[0]); i++) {
        if (verb_names[i].method == route->method && verb_names[i].names_one == names_one) {
            return verb_names[i].verb;
        }
    }
    return "call";
}

/* Walk the segments of a template: path parameters become arguments, the last literal the noun. */
static void name_parts(const char *path, const char *end, struct cli_command *command,
                       bool *ret_names_one)
{
    bool is_parameter = false;
    while (path < end) {
        const char *slash = memchr(path, '/', (size_t)(end - path));
        const char *stop = slash ? slash : end;
        size_t length = (size_t)(stop - path);
        is_parameter = *path == '{';
        if (is_parameter && command->argument_count < CLI_ARGUMENTS_MAX) {
            copy_upper(command->arguments[command->argument_count++], path + 1, length - 2);
        } else if (!is_parameter) {
            copy_name(command->noun, path, length);
        }
        path = slash ? slash + 1 : end;
    }
    size_t length = strlen(command->noun);
    bool plural = length > 0 && command->noun[length - 1] == 's';
    *ret_names_one = is_parameter || !plural;
}

static bool make_command(const struct api_route *route, const struct gpu_collective *collective,
                         struct cli_command *command)
{
    *command = (struct cli_command){.route = route, .collective = collective};
    size_t prefix = strlen(API_PREFIX_TEXT);
    if (strncmp(route->path, API_PREFIX_TEXT, prefix) != 0) {
        copy_name(command->noun, route->path + 1, strlen(route->path + 1));
        copy_name(command->verb, "get", 3);
        return true;
    }
    const char *path = route->path + prefix;
    const char *colon = strrchr(path, ':');
    const char *end = colon ? colon : path + strlen(path);
    bool names_one = false;
    name_parts(path, end, command, &names_one);
    const char *verb = !colon       ? verb_of(route, names_one)
                       : collective ? collective->name
                                    : colon + 1;
    copy_name(command->verb, verb, strlen(verb));
    return true;
}

static bool visit_route(const struct api_route *route,
                        bool (*visit)(const struct cli_command *command, void *arg), void *arg)
{
    struct cli_command command;
    if (!(route->flags & API_ROUTE_COLLECTIVES)) {
        return make_command(route, NULL, &command) && visit(&command, arg);
    }
    for (size_t i = 0; gpu_collectives[i]; i++) {
        if (make_command(route, gpu_collectives[i], &command) && visit(&command, arg)) {
            return true;
        }
    }
    return false;
}

bool cli_command_each(bool (*visit)(const struct cli_command *command, void *arg), void *arg)
{
    for (size_t table = 0; api_route_tables[table]; table++) {
        if (api_route_tables[table] == api_reserved_routes) {
            continue; /* of later versions */
        }
        for (const struct api_route *route = api_route_tables[table]; route->path; route++) {
            if (visit_route(route, visit, arg)) {
                return true;
            }
        }
    }
    return false;
}

struct search {
    const char *noun, *verb; /* verb NULL: any */
    struct cli_command *found;
};

static bool matches(const struct cli_command *command, void *arg)
{
    struct search *search = arg;
    if (strcmp(command->noun, search->noun) != 0 ||
        (search->verb && strcmp(command->verb, search->verb) != 0)) {
        return false;
    }
    *search->found = *command;
    return true;
}

bool cli_command_find(const char *noun, const char *verb, struct cli_command *ret_command)
{
    struct search named = {noun, verb ? verb : "list", ret_command};
    struct search any = {noun, NULL, ret_command};
    return cli_command_each(matches, &named) || (!verb && cli_command_each(matches, &any));
}

char *cli_command_path(const struct cli_command *command, char *const *arguments)
{
    char *path = NULL;
    size_t length = 0;
    FILE *out = open_memstream(&path, &length);
    if (!out) {
        return NULL;
    }
    uint32_t next = 0;
    for (const char *at = command->route->path; *at;) {
        if (*at != '{') {
            fputc(*at++, out);
            continue;
        }
        bool collective = strncmp(at, COLLECTIVE_PARAMETER, strlen(COLLECTIVE_PARAMETER)) == 0;
        fputs(collective ? command->collective->name : arguments[next++], out);
        at = strchr(at, '}') + 1;
    }
    return fclose(out) == 0 ? path : NULL;
}

const struct api_field cli_wait_options[] = {
    {.name = "wait",
     .type = &api_type_seconds,
     .doc = "Seconds to wait for the operation (0..600)."},
    {0},
};

const struct api_field cli_body_options[] = {
    {.name = "json",
     .type = &api_type_object,
     .doc = "The whole body as JSON text, instead of the options that are its fields."},
    {0},
};

const struct api_field cli_data_options[] = {
    {.name = "file",
     .type = &api_type_text,
     .doc = "File to send, or to write; - or none: standard input or output."},
    {.name = "format",
     .type = &api_type_text,
     .doc = "raw (default), npy or, to read, json: the first elements."},
    {0},
};

bool cli_command_has_data(const struct cli_command *command)
{
    return strcmp(command->noun, "data") == 0;
}

void cli_command_tables(const struct cli_command *command,
                        const struct api_field *ret_tables[static CLI_TABLES_MAX])
{
    static const struct api_field none[] = {{0}};
    const struct api_route *route = command->route;
    const struct api_field *const tables[CLI_TABLES_MAX] = {
        route->fields,
        route->query,
        route->flags & API_ROUTE_WAITS ? cli_wait_options : NULL,
        route->body == API_BODY_JSON ? cli_body_options : NULL,
        cli_command_has_data(command) ? cli_data_options : NULL,
    };
    for (size_t i = 0; i < CLI_TABLES_MAX; i++) {
        ret_tables[i] = tables[i] ? tables[i] : none;
    }
}
