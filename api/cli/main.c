/* The command line of symtensord: see cli/command.h for where its commands come from. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "api/cli/body.h"
#include "api/cli/command.h"
#include "api/cli/data.h"
#include "api/cli/help.h"
#include "api/cli/print.h"
#include "api/client/symtensor.h"

/** Exit codes: 0 done, 1 the server refused or the operation failed, 2 usage, 3 no reply. */
enum cli_exit { CLI_OK = 0, CLI_REFUSED = 1, CLI_USAGE = 2, CLI_NO_REPLY = 3 };

static int transfer(struct symtensor_client *client, const struct cli_command *command,
                    const struct cli_request *request, struct symtensor_reply *reply)
{
    static const enum cli_exit exits[] = {[CLI_DATA_DONE] = CLI_OK,
                                          [CLI_DATA_NO_REPLY] = CLI_NO_REPLY,
                                          [CLI_DATA_NO_FILE] = CLI_USAGE};
    return exits[command->route->method == API_PUT ? cli_data_upload(client, request, reply)
                                                   : cli_data_download(client, request, reply)];
}

static int send_request(struct symtensor_client *client, const struct cli_command *command,
                        const struct cli_request *request, struct symtensor_reply *reply)
{
    if (cli_command_has_data(command)) {
        return transfer(client, command, request, reply);
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

/* Take the options of every command that stand next. @return false: said what is wrong. */
static bool read_options(struct cli_words *words, struct cli_options *options)
{
    while (words->count > 0) {
        const char *value = NULL;
        const struct cli_global *global = cli_global_split(words->words[0], &value);
        if (!global) {
            return true;
        }
        int used = value ? 1 : 2;
        if (used > words->count) {
            fprintf(stderr, "symtensor: --%s needs a value. %s\n", global->name, global->doc);
            return false;
        }
        if (!cli_global_take(global, value ? value : words->words[1], options)) {
            return false;
        }
        words->words += used;
        words->count -= used;
    }
    return true;
}

static int help(const struct cli_words *words)
{
    const char *noun = words->count > 0 ? words->words[0] : NULL;
    const char *verb = words->count > 1 ? words->words[1] : NULL;
    return cli_help(noun, verb) ? CLI_OK : CLI_USAGE;
}

static char *next_word(struct cli_words *words)
{
    words->count--;
    return *words->words++;
}

/* The command of a noun and of what follows. Without a verb it is the noun's list; a word that is
 * no verb is an argument of get: `symtensor devices 0`. */
static bool choose_command(const char *noun, struct cli_words *words, struct cli_command *command)
{
    const char *verb = words->count > 0 && words->words[0][0] != '-' ? words->words[0] : NULL;
    if (cli_command_find(noun, verb, command)) {
        if (verb) {
            next_word(words);
        }
        return true;
    }
    words->maybe_verb = verb;
    return verb && cli_command_find(noun, "get", command);
}

static int run_command(const char *noun, struct cli_words *words, struct cli_options *options)
{
    struct cli_command command;
    bool no_verb = words->count == 0 || words->words[0][0] == '-';
    if (!cli_command_find(noun, NULL, &command) || !choose_command(noun, words, &command)) {
        cli_help(noun, no_verb ? NULL : words->words[0]); /* says what there is */
        return CLI_USAGE;
    }
    struct cli_request request;
    if (!cli_request_parse(&command, words, options, &request)) {
        return CLI_USAGE;
    }
    int result = CLI_OK;
    if (request.help) {
        cli_help(noun, no_verb || words->maybe_verb ? NULL : command.verb);
    } else {
        result = run(options, &command, &request);
    }
    cli_request_done(&request);
    return result;
}

int main(int argc, char **argv)
{
    struct cli_options options = {0};
    struct cli_words words = {.count = argc - 1, .words = argv + 1};
    if (!read_options(&words, &options)) {
        return CLI_USAGE;
    }
    if (words.count == 0) {
        return help(&words);
    }
    const char *first = next_word(&words);
    if (strcmp(first, "help") == 0 || cli_option_is_help(first)) {
        return help(&words);
    }
    if (strcmp(first, "--version") == 0) {
        puts("symtensor " SYMTENSOR_VERSION);
        return CLI_OK;
    }
    if (*first == '-') {
        fprintf(stderr, "symtensor: no option %s; try: symtensor help\n", first);
        return CLI_USAGE;
    }
    return read_options(&words, &options) ? run_command(first, &words, &options) : CLI_USAGE;
}
