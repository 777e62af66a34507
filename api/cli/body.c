#include "api/cli/body.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/id.h"

#define CLI_WAIT "wait"

/* A request while its words are read. */
struct building {
    const struct cli_command *command;
    json_t *body;
    char *query;
    size_t query_length;
    FILE *query_out;
    char *arguments[CLI_ARGUMENTS_MAX];
    uint32_t argument_count;
    const char *json;
};

static const struct api_field *find_field(const struct api_field *fields, const char *name)
{
    for (const struct api_field *field = fields; field && field->name; field++) {
        bool prefix = field->flags & API_PREFIX;
        if (prefix ? strncmp(field->name, name, strlen(field->name)) == 0
                   : strcmp(field->name, name) == 0) {
            return field;
        }
    }
    return NULL;
}

/* A value is JSON where the field's type is not text; text needs no quotes. */
static json_t *value_of(const struct api_field *field, const char *text)
{
    json_t *value = json_loads(text, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES, NULL);
    bool is_text = strncmp(field->type->schema, "\"type\":\"string\"", 15) == 0;
    if (value && !(is_text && !json_is_string(value))) {
        return value;
    }
    json_decref(value);
    return json_string(text);
}

static void add_query(struct building *building, const char *name, const char *value)
{
    static const char plain[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.~";
    fputc(ftell(building->query_out) == 0 ? '?' : '&', building->query_out);
    fprintf(building->query_out, "%s=", name);
    for (const char *at = value; *at; at++) {
        fprintf(building->query_out, strchr(plain, *at) ? "%c" : "%%%02X", (unsigned char)*at);
    }
}

static bool take_option(struct building *building, struct cli_request *request, const char *name,
                        const char *value)
{
    const struct api_route *route = building->command->route;
    const struct api_field *field = find_field(route->fields, name);
    if (field) {
        return json_object_set_new(building->body, name, value_of(field, value)) == 0;
    }
    if (find_field(route->query, name) ||
        ((route->flags & API_ROUTE_WAITS) && strcmp(name, CLI_WAIT) == 0)) {
        add_query(building, name, value);
        return true;
    }
    if (strcmp(name, "json") == 0 && route->body == API_BODY_JSON) {
        building->json = value;
        return true;
    }
    if (strcmp(name, "file") == 0) {
        request->file = value;
        return true;
    }
    if (strcmp(name, "format") == 0) {
        request->format = value;
        return true;
    }
    fprintf(stderr, "symtensor: %s %s has no option --%s\n", building->command->noun,
            building->command->verb, name);
    return false;
}

static bool read_words(struct building *building, int count, char **words,
                       struct cli_request *request)
{
    for (int i = 0; i < count; i++) {
        if (strncmp(words[i], "--", 2) != 0) {
            if (building->argument_count == building->command->argument_count) {
                fprintf(stderr, "symtensor: unexpected argument '%s'\n", words[i]);
                return false;
            }
            if (!st_id_is_valid(words[i], strlen(words[i]))) {
                fprintf(stderr, "symtensor: '%s' is not an id\n", words[i]);
                return false;
            }
            building->arguments[building->argument_count++] = words[i];
            continue;
        }
        char *equals = strchr(words[i], '=');
        const char *value = equals ? equals + 1 : i + 1 < count ? words[++i] : NULL;
        if (!value) {
            fprintf(stderr, "symtensor: %s needs a value\n", words[i]);
            return false;
        }
        char name[CLI_NAME_MAX];
        const char *word = equals ? words[i] : words[i - 1];
        size_t length = equals ? (size_t)(equals - words[i]) : strlen(word);
        snprintf(name, sizeof(name), "%.*s", (int)(length - 2), word + 2);
        if (!take_option(building, request, name, value)) {
            return false;
        }
    }
    if (building->argument_count < building->command->argument_count) {
        fprintf(stderr, "symtensor: %s %s needs %s\n", building->command->noun,
                building->command->verb, building->command->arguments[building->argument_count]);
        return false;
    }
    return true;
}

static bool finish(struct building *building, struct cli_request *request)
{
    char *path = cli_command_path(building->command, building->arguments);
    fclose(building->query_out);
    building->query_out = NULL;
    if (!path || asprintf(&request->path, "%s%s", path, building->query) < 0) {
        request->path = NULL;
        free(path);
        return false;
    }
    free(path);
    if (building->command->route->body == API_BODY_JSON) {
        request->json =
            building->json ? strdup(building->json) : json_dumps(building->body, JSON_COMPACT);
        return request->json != NULL;
    }
    return true;
}

bool cli_request_parse(const struct cli_command *command, int count, char **words,
                       struct cli_request *ret_request)
{
    *ret_request = (struct cli_request){0};
    struct building building = {.command = command, .body = json_object()};
    building.query_out = open_memstream(&building.query, &building.query_length);
    bool good = building.body && building.query_out &&
                read_words(&building, count, words, ret_request) && finish(&building, ret_request);
    if (building.query_out) {
        fclose(building.query_out);
    }
    free(building.query);
    json_decref(building.body);
    if (!good) {
        cli_request_done(ret_request);
    }
    return good;
}

void cli_request_done(struct cli_request *request)
{
    free(request->path);
    free(request->json);
    *request = (struct cli_request){0};
}
