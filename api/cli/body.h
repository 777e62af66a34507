#ifndef SYMTENSOR_API_CLI_BODY_H
#define SYMTENSOR_API_CLI_BODY_H

#include "api/cli/command.h"
#include "api/cli/options.h"

/** What the options of one command line become. Free with cli_request_done(). */
struct cli_request {
    char *path;         /**< With its query. */
    char *json;         /**< The body, or NULL. */
    const char *file;   /**< --file of data bodies, or NULL: standard input or output. */
    const char *format; /**< --format raw|npy|json of data bodies, or NULL. */
    bool help;          /**< --help or -h: the rest was not read. */
};

/** The words of a command line. */
struct cli_words {
    int count;
    char **words;           /**< [count] Cut at "=". */
    const char *maybe_verb; /**< The first of them stands where a verb would be, but is none: it is
                               blamed when it is no argument either. NULL: behind the verb. */
};

/**
 * Read the words behind "NOUN VERB": arguments in order, then "--option value" or "--option=value"
 * for each field and query parameter; a boolean without a value is true. "--json TEXT" gives a
 * whole body. Options of every command go into @p options. Says what is wrong on standard error.
 * @return false then.
 */
bool cli_request_parse(const struct cli_command *command, const struct cli_words *words,
                       struct cli_options *options, struct cli_request *ret_request);
void cli_request_done(struct cli_request *request);

#endif
