#ifndef SYMTENSOR_API_DATA_VALUES_H
#define SYMTENSOR_API_DATA_VALUES_H

#include "api/text.h"
#include "base/dtype.h"

/**
 * Write elements as a JSON array: booleans, integers (beyond 2^53-1 in size as strings), floats
 * (not finite ones as strings).
 * @param data [count * size of dtype] little-endian elements, one behind the other.
 */
void data_values_write(struct api_text *text, const char *key, enum st_dtype dtype,
                       const unsigned char *data, uint64_t count);

#endif
