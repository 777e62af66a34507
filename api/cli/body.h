#ifndef SYMTENSOR_API_CLI_BODY_H
#define SYMTENSOR_API_CLI_BODY_H

#include "api/cli/command.h"

/** What the options of one command line become. Free with cli_request_done(). */
struct cli_request {
    char *path;         /**< With its query. */
    char *json;         /**< The body, or NULL. */
    const char *file;   /**< --file of data bodies, or NULL: standard input or output. */
    const char *format; /**< --format raw|npy|json of data bodies. */
};

/**
 * Read the words behind "NOUN VERB": arguments in order, then "--option value" for each field and
 * query parameter. "--json TEXT" gives a whole body. Says what is wrong on standard error.
 * @return false then.
 */
bool cli_request_parse(const struct cli_command *command, int count, char **words,
                       struct cli_request *ret_request);
void cli_request_done(struct cli_request *request);

#endif
