#include "api/cli/body.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "api/cli/data.h"
#include "base/id.h"

/* A request while its words are read. */
struct building {
    const struct cli_command *command;
    const struct cli_words *words;
    struct cli_options *options;
    struct cli_request *request;
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

static void add_escaped(FILE *out, const char *text)
{
    static const char plain[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.~";
    for (const char *at = text; *at; at++) {
        fprintf(out, strchr(plain, *at) ? "%c" : "%%%02X", (unsigned char)*at);
    }
}

static bool add_field(struct building *building, const struct api_field *field, const char *name,
                      const char *value)
{
    return json_object_set_new(building->body, name, value_of(field, value)) == 0;
}

static bool add_query(struct building *building, const struct api_field *field, const char *name,
                      const char *value)
{
    (void)field;
    fputc(ftell(building->query_out) == 0 ? '?' : '&', building->query_out);
    add_escaped(building->query_out, name);
    fputc('=', building->query_out);
    add_escaped(building->query_out, value);
    return true;
}

static bool set_json(struct building *building, const struct api_field *field, const char *name,
                     const char *value)
{
    (void)field;
    (void)name;
    building->json = value;
    return true;
}

static bool set_data(struct building *building, const struct api_field *field, const char *name,
                     const char *value)
{
    (void)field;
    if (strcmp(name, "file") == 0) {
        building->request->file = value;
        return true;
    }
    building->request->format = value;
    return cli_data_check_format(building->command, value);
}

/* What an option of the table of this index does: cli_command_tables(). */
static bool (*const takes[CLI_TABLES_MAX])(struct building *, const struct api_field *,
                                           const char *name, const char *value) = {
    add_field, add_query, add_query, set_json, set_data};

/* @return the row, NULL when the command has no such option; *ret_table is its table's index. */
static const struct api_field *find_option(const struct cli_command *command, const char *name,
                                           size_t *ret_table)
{
    const struct api_field *tables[CLI_TABLES_MAX];
    cli_command_tables(command, tables);
    for (size_t i = 0; i < CLI_TABLES_MAX; i++) {
        const struct api_field *field = find_field(tables[i], name);
        if (field) {
            *ret_table = i;
            return field;
        }
    }
    return NULL;
}

static bool blame_verb(const struct building *building)
{
    fprintf(stderr, "symtensor: no such command: '%s %s'; try: symtensor help %s\n",
            building->command->noun, building->words->maybe_verb, building->command->noun);
    return false;
}

/* "--output json" behind a command whose own --output names a tensor is nearly always meant for
 * the printing: refused rather than guessed. */
static bool is_mistaken(const struct building *building, const struct api_field *field,
                        const char *value)
{
    const struct cli_global *global = cli_global_find(field->name);
    if (!global || !cli_global_accepts(global, value)) {
        return false;
    }
    const struct cli_command *command = building->command;
    fprintf(stderr,
            "symtensor: --%s of '%s %s' is: %s To print replies as %s, put it in front: symtensor "
            "--%s %s %s %s ...; for the id '%s' write --%s '\"%s\"'\n",
            field->name, command->noun, command->verb, field->doc, value, field->name, value,
            command->noun, command->verb, value, field->name, value);
    return true;
}

static bool is_switch(const struct api_field *field)
{
    return field && strcmp(field->type->name, api_type_bool.name) == 0;
}

static bool is_truth(const char *word)
{
    return word && (strcmp(word, "true") == 0 || strcmp(word, "false") == 0);
}

static bool take_option(struct building *building, const char *name, const char *value, int *at)
{
    const struct cli_command *command = building->command;
    size_t table = 0;
    const struct api_field *field = find_option(command, name, &table);
    const struct cli_global *global = field ? NULL : cli_global_find(name);
    if (!field && !global) {
        if (building->words->maybe_verb) {
            return blame_verb(building);
        }
        fprintf(stderr, "symtensor: %s %s has no option --%s; try: symtensor help %s %s\n",
                command->noun, command->verb, name, command->noun, command->verb);
        return false;
    }
    const char *next = *at + 1 < building->words->count ? building->words->words[*at + 1] : NULL;
    if (!value && is_switch(field) && !is_truth(next)) {
        value = "true";
    } else if (!value) {
        value = next;
        ++*at;
    }
    if (!value || (value == next && strncmp(value, "--", 2) == 0)) {
        fprintf(stderr, "symtensor: --%s needs a value\n", name);
        return false;
    }
    if (global) {
        return cli_global_take(global, value, building->options);
    }
    return !is_mistaken(building, field, value) && takes[table](building, field, name, value);
}

static bool take_argument(struct building *building, char *word)
{
    if (building->argument_count == building->command->argument_count) {
        if (building->words->maybe_verb) {
            return blame_verb(building);
        }
        fprintf(stderr, "symtensor: unexpected argument '%s'\n", word);
        return false;
    }
    if (!st_id_is_valid(word, strlen(word))) {
        fprintf(stderr, "symtensor: '%s' is not an id\n", word);
        return false;
    }
    building->arguments[building->argument_count++] = word;
    return true;
}

static bool read_words(struct building *building)
{
    const struct cli_words *words = building->words;
    for (int i = 0; i < words->count; i++) {
        if (cli_option_is_help(words->words[i])) {
            building->request->help = true;
            return true;
        }
        const char *value = NULL;
        const char *name = cli_option_split(words->words[i], &value);
        if (name ? !take_option(building, name, value, &i)
                 : !take_argument(building, words->words[i])) {
            return false;
        }
    }
    const struct cli_command *command = building->command;
    if (building->argument_count < command->argument_count) {
        fprintf(stderr, "symtensor: %s %s needs %s\n", command->noun, command->verb,
                command->arguments[building->argument_count]);
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

bool cli_request_parse(const struct cli_command *command, const struct cli_words *words,
                       struct cli_options *options, struct cli_request *ret_request)
{
    *ret_request = (struct cli_request){0};
    struct building building = {.command = command,
                                .words = words,
                                .options = options,
                                .request = ret_request,
                                .body = json_object()};
    building.query_out = open_memstream(&building.query, &building.query_length);
    bool good = building.body && building.query_out && read_words(&building) &&
                (ret_request->help || finish(&building, ret_request));
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
