#ifndef SYMTENSOR_API_DATA_RANGE_H
#define SYMTENSOR_API_DATA_RANGE_H

#include <stdint.h>

/** What a Range header asks for (RFC 9110 14.1.2, 14.2). */
enum data_range {
    DATA_RANGE_IGNORED, /**< No single valid byte range: the whole is sent, as the RFC allows. */
    DATA_RANGE_SATISFIABLE,
    DATA_RANGE_UNSATISFIABLE, /**< 416 */
};

/**
 * Read a Range header. Numbers that do not fit 64 bits count as the largest one that does.
 *
 * @param header      its value, or NULL.
 * @param total       bytes of the representation.
 * @param ret_first, ret_bytes set on SATISFIABLE only: within the total, at least one byte.
 * Thread: any.
 */
enum data_range data_range_parse(const char *header, uint64_t total, uint64_t *ret_first,
                                 uint64_t *ret_bytes);

#endif
