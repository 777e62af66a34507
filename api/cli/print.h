#ifndef SYMTENSOR_API_CLI_PRINT_H
#define SYMTENSOR_API_CLI_PRINT_H

#include <jansson.h>
#include <stdio.h>

/** A reply for people: lists as tables, one resource as "key  value" lines, nested values as
 * compact JSON. */
void cli_print(const json_t *reply, FILE *to);

#endif
