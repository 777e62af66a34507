#ifndef SYMTENSOR_API_DATA_NPY_H
#define SYMTENSOR_API_DATA_NPY_H

#include <stdbool.h>
#include <stddef.h>

#include "base/dtype.h"
#include "base/error.h"
#include "base/shape.h"

/**
 * Headers of .npy files, versions 1.0 to 3.0 (numpy.lib.format):
 *
 *   "\x93NUMPY" major minor length(2 or 4 bytes, little-endian) dictionary
 *
 * The dictionary is a Python literal. What is read here is a small strict part of it: the three
 * keys descr, fortran_order and shape, each once, in any order; strings without escapes; decimal
 * integers.
 */

#define DATA_NPY_PRELUDE_BYTES 12        /**< Enough to know the header's length. */
#define DATA_NPY_HEADER_MAX (64u << 10)  /**< Bytes of a whole header that is read. */
#define DATA_NPY_HEADER_WRITTEN_MAX 384u /**< Bytes of one that is written. */

/** What a header says. */
struct data_npy {
    char descr[16];
    bool fortran_order;
    struct st_shape shape;
};

/**
 * Bytes of the whole header, the prelude included.
 * @param data [bytes] begin of the file; fewer than DATA_NPY_PRELUDE_BYTES are never enough.
 * @retval ST_INVALID_ARGUMENT NPY_INVALID: no npy file, an unknown version, or a header that is too
 * long.
 */
ST_MUST_CHECK enum st_status data_npy_measure(const char *data, size_t bytes,
                                              size_t *ret_header_bytes, struct st_error *err);

/** Read a whole header. @param data [header_bytes] as measured. */
ST_MUST_CHECK enum st_status data_npy_parse(const char *data, size_t header_bytes,
                                            struct data_npy *ret_npy, struct st_error *err);

/**
 * Whether the file's data fits a tensor, and in which order it goes in.
 * @param ret_logical true: its elements come in row-major logical order; false: in the tensor's
 * memory order (a Fortran-ordered file for a tensor with such strides).
 * @retval ST_INVALID_ARGUMENT NPY_INVALID: another dtype, byte order, shape or order of elements.
 */
ST_MUST_CHECK enum st_status data_npy_check(const struct data_npy *npy, enum st_dtype dtype,
                                            const struct st_shape *shape,
                                            const struct st_strides *strides, bool *ret_logical,
                                            struct st_error *err);

/** NPY_DTYPE when npy has no such dtype. */
ST_MUST_CHECK enum st_status data_npy_check_dtype(enum st_dtype dtype, struct st_error *err);

/** Write a header of version 1.0, a multiple of 64 bytes. @return its bytes. The dtype has an npy
 * name. */
size_t data_npy_write(enum st_dtype dtype, const struct st_shape *shape,
                      char buffer[static DATA_NPY_HEADER_WRITTEN_MAX]);

#endif
