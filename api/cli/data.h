#ifndef SYMTENSOR_API_CLI_DATA_H
#define SYMTENSOR_API_CLI_DATA_H

#include "api/cli/body.h"
#include "api/client/symtensor.h"

/** Data bodies: between a shard and a file, or standard input and output. */

enum cli_data_result {
    CLI_DATA_DONE,     /**< A reply came, a refusal too. */
    CLI_DATA_NO_REPLY, /**< reply->error says why. */
    CLI_DATA_NO_FILE,  /**< The file cannot be read or written: said on standard error. */
};

/**
 * Whether the command can send or ask for @p format (NULL: its default). Says what there is on
 * standard error when not.
 */
bool cli_data_check_format(const struct cli_command *command, const char *format);

/** PUT what request->file ("-" or NULL: standard input) holds. */
enum cli_data_result cli_data_upload(struct symtensor_client *client,
                                     const struct cli_request *request,
                                     struct symtensor_reply *ret_reply);

/**
 * GET into request->file ("-" or NULL: standard output). A file is replaced once all of it is
 * there: what is refused or breaks off, also by SIGINT, SIGTERM or SIGHUP, leaves the old one and
 * nothing else. What is no regular file (a pipe, /dev/null) is written directly.
 */
enum cli_data_result cli_data_download(struct symtensor_client *client,
                                       const struct cli_request *request,
                                       struct symtensor_reply *ret_reply);

#endif
