#ifndef SYMTENSOR_API_HTTP_TIMEOUT_H
#define SYMTENSOR_API_HTTP_TIMEOUT_H

#include <stdbool.h>
#include <stdint.h>

/**
 * Parse the value of grpc-timeout: 1 to 8 digits and one of H M S m u n (hours to nanoseconds),
 * nothing else. Source: gRPC over HTTP/2, "Timeout". @return false for anything else. Thread: any.
 */
bool http_timeout_parse(const char *text, uint64_t *ret_ns);

#endif
