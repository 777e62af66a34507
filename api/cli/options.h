#ifndef SYMTENSOR_API_CLI_OPTIONS_H
#define SYMTENSOR_API_CLI_OPTIONS_H

#include <stdbool.h>

#include "api/client/symtensor.h"

/**
 * The options of every command. They stand in front of the noun or of the verb; behind the verb
 * they are taken where the command has no option of that name.
 */
struct cli_options {
    struct symtensor_options client;
    bool json; /**< --output json */
};

/** A row of what there is; the table ends with {0}. */
struct cli_global {
    const char *name; /**< Without dashes. */
    const char *doc;
    bool (*take)(struct cli_options *options, const char *value); /**< false: no such value. */
};
extern const struct cli_global cli_globals[];

/** @return NULL when no option of every command is called so. */
const struct cli_global *cli_global_find(const char *name);
/** Whether @p global takes @p value. */
bool cli_global_accepts(const struct cli_global *global, const char *value);
/** Set it. Says what is wrong on standard error. @return false then. */
bool cli_global_take(const struct cli_global *global, const char *value,
                     struct cli_options *options);

/**
 * Split "--name=value" in place.
 * @param ret_value NULL without "=".
 * @return the name without dashes, NULL when the word is no option.
 */
const char *cli_option_split(char *word, const char **ret_value);
/** The same for options of every command only: another word stays whole. @return NULL then. */
const struct cli_global *cli_global_split(char *word, const char **ret_value);
/** Whether the word asks for help: --help or -h. */
bool cli_option_is_help(const char *word);

#endif
