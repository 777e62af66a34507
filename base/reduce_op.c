#include "base/reduce_op.h"

#include <string.h>

static const struct st_reduce_op_info op_table[] = {
#define X(name, text, kinds, ordered) [ST_OP_##name] = {text, kinds, ordered},
    ST_REDUCE_OPS(X)
#undef X
};

const struct st_reduce_op_info *st_reduce_op_info(enum st_reduce_op op)
{
    return &op_table[op];
}

bool st_reduce_op_parse(const char *name, enum st_reduce_op *ret_op)
{
    for (unsigned op = 0; op < ST_OP_COUNT; op++) {
        if (strcmp(op_table[op].name, name) == 0) {
            *ret_op = (enum st_reduce_op)op;
            return true;
        }
    }
    return false;
}

bool st_reduce_op_supports(enum st_reduce_op op, enum st_dtype dtype)
{
    return (op_table[op].kinds & (1u << st_dtype_info(dtype)->kind)) != 0;
}

bool st_reduce_op_ordered(enum st_reduce_op op, enum st_dtype dtype)
{
    return op_table[op].order_matters && st_dtype_info(dtype)->kind == ST_KIND_FLOAT;
}
