#include "api/cli/options.h"

#include <string.h>

static bool take_socket(struct cli_options *options, const char *value)
{
    options->client.unix_socket = value;
    return true;
}

static bool take_url(struct cli_options *options, const char *value)
{
    options->client.url = value;
    return true;
}

static bool take_output(struct cli_options *options, const char *value)
{
    options->json = strcmp(value, "json") == 0;
    return options->json || strcmp(value, "table") == 0;
}

const struct cli_global cli_globals[] = {
    {"unix-socket", "Path of the server's socket.", take_socket},
    {"url", "http://HOST:PORT of the server; wins over the socket.", take_url},
    {"output", "How replies are printed: table (for people) or json.", take_output},
    {0},
};

const struct cli_global *cli_global_find(const char *name)
{
    for (const struct cli_global *global = cli_globals; global->name; global++) {
        if (strcmp(global->name, name) == 0) {
            return global;
        }
    }
    return NULL;
}

bool cli_global_accepts(const struct cli_global *global, const char *value)
{
    struct cli_options unused = {0};
    return global->take(&unused, value);
}

bool cli_global_take(const struct cli_global *global, const char *value,
                     struct cli_options *options)
{
    if (!global->take(options, value)) {
        fprintf(stderr, "symtensor: --%s '%s': wrong option value. %s\n", global->name, value,
                global->doc);
        return false;
    }
    return true;
}

const char *cli_option_split(char *word, const char **ret_value)
{
    if (strncmp(word, "--", 2) != 0) {
        return NULL;
    }
    char *equals = strchr(word, '=');
    if (equals) {
        *equals = '\0';
    }
    *ret_value = equals ? equals + 1 : NULL;
    return word + 2;
}

const struct cli_global *cli_global_split(char *word, const char **ret_value)
{
    for (const struct cli_global *global = cli_globals; global->name; global++) {
        size_t length = strlen(global->name);
        if (strncmp(word, "--", 2) == 0 && strncmp(word + 2, global->name, length) == 0 &&
            (word[2 + length] == '\0' || word[2 + length] == '=')) {
            cli_option_split(word, ret_value);
            return global;
        }
    }
    return NULL;
}

bool cli_option_is_help(const char *word)
{
    return strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0;
}
