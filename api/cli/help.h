#ifndef SYMTENSOR_API_CLI_HELP_H
#define SYMTENSOR_API_CLI_HELP_H

#include <stdbool.h>
#include <stdio.h>

/**
 * Print what there is: all commands (noun NULL), those of a noun with their options (verb NULL;
 * options that several of them have are printed once, at the end), or one command.
 * @return false when there is no such command: said on standard error.
 */
bool cli_help(const char *noun, const char *verb);
/** Name the nouns, on one line. */
void cli_help_nouns(FILE *to);

#endif
