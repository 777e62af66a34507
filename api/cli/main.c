/* The command line of symtensord: see cli/command.h for where its commands come from. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "api/cli/body.h"
#include "api/cli/command.h"
#include "api/cli/print.h"
#include "api/client/symtensor.h"

/** Exit codes: 0 done, 1 the server refused or the operation failed, 2 usage, 3 no reply. */
enum cli_exit { CLI_OK = 0, CLI_REFUSED = 1, CLI_USAGE = 2, CLI_NO_REPLY = 3 };

struct cli_options {
    struct symtensor_options client;
    bool json;
};

static bool print_line(const struct cli_command *command, void *arg)
{
    const char *noun = arg;
    if (!noun || strcmp(noun, command->noun) == 0) {
        cli_command_help(command, noun != NULL, stdout);
    }
    return false;
}

static int help(char *noun)
{
    puts("usage: symtensor [--unix-socket PATH | --url URL] [--output table|json] NOUN [VERB] "
         "[ARGUMENT...] "
         "[--OPTION VALUE...]\n"
         "       symtensor help [NOUN]\n\n"
         "Data bodies: --file PATH (default: standard input or output), --format raw|npy|json.\n"
         "Environment: SYMTENSOR_URL, SYMTENSOR_UNIX_SOCKET.\n");
    cli_command_each(print_line, noun);
    return CLI_OK;
}

static const char *media_of(const char *format)
{
    static const char *const names[][2] = {{"raw", "application/octet-stream"},
                                           {"npy", "application/x-npy"},
                                           {"json", "application/json"}};
    for (size_t i = 0; format && i < sizeof(names) / sizeof(names[0]); i++) {
        if (strcmp(names[i][0], format) == 0) {
            return names[i][1];
        }
    }
    return NULL;
}

static int upload(struct symtensor_client *client, const struct cli_request *request,
                  struct symtensor_reply *reply)
{
    FILE *file = request->file ? fopen(request->file, "rb") : stdin;
    if (!file) {
        fprintf(stderr, "symtensor: --file %s: %m\n", request->file);
        return CLI_USAGE;
    }
    uint64_t bytes = SYMTENSOR_BYTES_UNKNOWN; /* a pipe */
    if (fseeko(file, 0, SEEK_END) == 0) {
        bytes = (uint64_t)ftello(file);
        rewind(file);
    }
    int result =
        symtensor_put(client, request->path, media_of(request->format), file, bytes, reply);
    fclose(file);
    return result == 0 ? CLI_OK : CLI_NO_REPLY;
}

static int download(struct symtensor_client *client, const struct cli_request *request,
                    struct symtensor_reply *reply)
{
    FILE *file = request->file ? fopen(request->file, "wb") : stdout;
    if (!file) {
        fprintf(stderr, "symtensor: --file %s: %m\n", request->file);
        return CLI_USAGE;
    }
    int result = symtensor_get(client, request->path, media_of(request->format), file, reply);
    bool written = fflush(file) == 0;
    if (file != stdout) {
        written = fclose(file) == 0 && written;
    }
    if (!written) {
        fprintf(stderr, "symtensor: cannot write %s: %m\n",
                request->file ? request->file : "standard output");
        return CLI_USAGE;
    }
    return result == 0 ? CLI_OK : CLI_NO_REPLY;
}

static int send_request(struct symtensor_client *client, const struct cli_command *command,
                        const struct cli_request *request, struct symtensor_reply *reply)
{
    if (strcmp(command->noun, "data") == 0) {
        return command->route->method == API_PUT ? upload(client, request, reply)
                                                 : download(client, request, reply);
    }
    int result = symtensor_call(client, api_method_name(command->route->method), request->path,
                                request->json, reply);
    return result == 0 ? CLI_OK : CLI_NO_REPLY;
}

static int show(const struct symtensor_reply *reply, bool as_json)
{
    bool refused = reply->http_code >= 400;
    if (reply->body_bytes == 0) {
        return refused ? CLI_REFUSED : CLI_OK;
    }
    json_t *json = json_loadb(reply->body, reply->body_bytes, 0, NULL);
    FILE *to = refused && !as_json ? stderr : stdout;
    if (!json) {
        fwrite(reply->body, 1, reply->body_bytes, to);
    } else if (as_json) {
        json_dumpf(json, to, JSON_INDENT(2));
        fputc('\n', to);
    } else if (refused) {
        const json_t *error = json_object_get(json, "error");
        const char *message = json_string_value(json_object_get(error, "message"));
        const char *status = json_string_value(json_object_get(error, "status"));
        fprintf(to, "symtensor: %s: %s\n", status ? status : "error", message ? message : "");
    } else {
        cli_print(json, to);
    }
    json_decref(json);
    return refused ? CLI_REFUSED : CLI_OK;
}

static int run(const struct cli_options *options, const struct cli_command *command,
               const struct cli_request *request)
{
    struct symtensor_client *client = symtensor_open(&options->client);
    if (!client) {
        fprintf(stderr, "symtensor: out of memory\n");
        return CLI_NO_REPLY;
    }
    struct symtensor_reply reply = {0};
    int result = send_request(client, command, request, &reply);
    if (result == CLI_NO_REPLY) {
        fprintf(stderr, "symtensor: %s\n", reply.error);
    } else if (result == CLI_OK) {
        result = show(&reply, options->json);
    }
    symtensor_reply_done(&reply);
    symtensor_close(client);
    return result;
}

/* Options in front of the noun. @return the words that they took, or -1. */
static int read_options(int count, char **words, struct cli_options *options)
{
    int used = 0;
    while (used + 1 < count && strncmp(words[used], "--", 2) == 0) {
        const char *name = words[used], *value = words[used + 1];
        if (strcmp(name, "--unix-socket") == 0) {
            options->client.unix_socket = value;
        } else if (strcmp(name, "--url") == 0) {
            options->client.url = value;
        } else if (strcmp(name, "--output") == 0 &&
                   (strcmp(value, "json") == 0 || strcmp(value, "table") == 0)) {
            options->json = strcmp(value, "json") == 0;
        } else {
            return -1;
        }
        used += 2;
    }
    return used;
}

static int usage(const char *what, const char *word)
{
    fprintf(stderr, "symtensor: %s '%s'; try: symtensor help\n", what, word);
    return CLI_USAGE;
}

int main(int argc, char **argv)
{
    struct cli_options options = {0};
    int used = read_options(argc - 1, argv + 1, &options);
    char **words = argv + 1 + (used < 0 ? 0 : used);
    int count = argc - 1 - (used < 0 ? 0 : used);
    if (used < 0) {
        return usage("wrong option", argv[1]);
    }
    if (count == 0 || strcmp(words[0], "help") == 0 || strcmp(words[0], "--help") == 0) {
        return help(count > 1 ? words[1] : NULL);
    }
    struct cli_command command;
    const char *verb = count > 1 && strncmp(words[1], "--", 2) != 0 ? words[1] : "";
    int named = *verb ? 2 : 1;
    if (!cli_command_find(words[0], verb, &command)) {
        /* `symtensor node` and `symtensor devices 0`: the noun's own command, the word is an
         * argument. */
        if (!*verb || !cli_command_find(words[0], "get", &command)) {
            return usage("no such command:", *verb ? verb : words[0]);
        }
        named = 1;
    }
    struct cli_request request;
    if (!cli_request_parse(&command, count - named, words + named, &request)) {
        return CLI_USAGE;
    }
    int result = run(&options, &command, &request);
    cli_request_done(&request);
    return result;
}
