#ifndef SYMTENSOR_BASE_REDUCE_OP_H
#define SYMTENSOR_BASE_REDUCE_OP_H

#include <stdbool.h>

#include "base/dtype.h"

/** Kinds of values that an op is defined for, as bits of 1u << enum st_dtype_kind. */
#define ST_OP_ANY_NUMBER ((1u << ST_KIND_UNSIGNED) | (1u << ST_KIND_SIGNED) | (1u << ST_KIND_FLOAT))
#define ST_OP_INTEGER ((1u << ST_KIND_UNSIGNED) | (1u << ST_KIND_SIGNED))
#define ST_OP_BOOL (1u << ST_KIND_BOOL)

/**
 * The reductions: NAME, text, kinds it is defined for, whether the order of float operands can
 * change the result. The dtype x op table is this column crossed with the dtype's kind.
 */
#define ST_REDUCE_OPS(X)                                                                           \
    X(SUM, "sum", ST_OP_ANY_NUMBER, true)                                                          \
    X(AVG, "avg", ST_OP_ANY_NUMBER, true)                                                          \
    X(PROD, "prod", ST_OP_ANY_NUMBER, true)                                                        \
    X(MIN, "min", ST_OP_ANY_NUMBER | ST_OP_BOOL, false)                                            \
    X(MAX, "max", ST_OP_ANY_NUMBER | ST_OP_BOOL, false)                                            \
    X(BAND, "band", ST_OP_INTEGER, false)                                                          \
    X(BOR, "bor", ST_OP_INTEGER, false)                                                            \
    X(BXOR, "bxor", ST_OP_INTEGER, false)                                                          \
    X(LAND, "land", ST_OP_BOOL, false)                                                             \
    X(LOR, "lor", ST_OP_BOOL, false)

enum st_reduce_op {
#define X(name, text, kinds, ordered) ST_OP_##name,
    ST_REDUCE_OPS(X)
#undef X
        ST_OP_COUNT
};

/** One row of the op table. */
struct st_reduce_op_info {
    const char *name;
    unsigned kinds;     /**< Bits of 1u << enum st_dtype_kind. */
    bool order_matters; /**< For float dtypes: another order may give other bits. */
};

const struct st_reduce_op_info *st_reduce_op_info(enum st_reduce_op op);
bool st_reduce_op_parse(const char *name, enum st_reduce_op *ret_op);
/** Whether @p op is defined for @p dtype. */
bool st_reduce_op_supports(enum st_reduce_op op, enum st_dtype dtype);
/** Whether another order of operands may change bits: a float dtype and an op whose order matters.
 */
bool st_reduce_op_ordered(enum st_reduce_op op, enum st_dtype dtype);

#endif
