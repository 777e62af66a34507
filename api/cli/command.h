#ifndef SYMTENSOR_API_CLI_COMMAND_H
#define SYMTENSOR_API_CLI_COMMAND_H

#include <stdbool.h>
#include <stdio.h>

#include "api/route.h"

/**
 * The commands of `symtensor`, derived from the route tables: "/v1/tensors/{tensor}:fill" becomes
 * `symtensor tensors fill TENSOR`, the fields of its body and of its query become options. A new
 * route is a new command without a line here.
 */

#define CLI_NAME_MAX 64
#define CLI_ARGUMENTS_MAX 4
#define CLI_TABLES_MAX 5

struct cli_command {
    const struct api_route *route;
    const struct gpu_collective *collective; /**< Of a collective's command. */
    char noun[CLI_NAME_MAX];                 /**< "tensors" */
    char verb[CLI_NAME_MAX];                 /**< "fill" */
    uint32_t argument_count;
    char arguments[CLI_ARGUMENTS_MAX][CLI_NAME_MAX]; /**< "TENSOR" */
};

/** Call visit for every command in the order of the tables, until it returns true. */
bool cli_command_each(bool (*visit)(const struct cli_command *command, void *arg), void *arg);
/** Find by noun and verb. Without a verb (NULL): list where there is one, else the noun's first. */
bool cli_command_find(const char *noun, const char *verb, struct cli_command *ret_command);
/** The request path with its parameters replaced by @p arguments. malloc'd; NULL: no memory. */
char *cli_command_path(const struct cli_command *command, char *const *arguments);

/* Options beside the route's own, by the tables' type of row. Each ends with {0}. */
extern const struct api_field cli_wait_options[]; /**< Of routes that take ?wait=. */
extern const struct api_field cli_body_options[]; /**< Of JSON bodies. */
extern const struct api_field cli_data_options[]; /**< Of data bodies. */

/** Whether the command sends or gets a data body. */
bool cli_command_has_data(const struct cli_command *command);
/**
 * All options of a command.
 * @param ret_tables [CLI_TABLES_MAX] never NULL: the body's fields, the query, the three above.
 */
void cli_command_tables(const struct cli_command *command,
                        const struct api_field *ret_tables[static CLI_TABLES_MAX]);

#endif
