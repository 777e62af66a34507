#ifndef SYMTENSOR_API_FIELD_H
#define SYMTENSOR_API_FIELD_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "api/arena.h"
#include "base/error.h"
#include "base/shape.h"
#include "server/server.h"

/**
 * Request decoding by tables. A table of rows says how the members of one JSON object (or the
 * parameters of a query) become the members of one plain struct. The same rows carry what the
 * OpenAPI text and the command line's help need. A table ends with {0}.
 *
 * What every decode checks: the value is an object; each member is named by a row (else
 * UNKNOWN_FIELD); every API_REQUIRED row is there (else MISSING_FIELD); each value is of the row's
 * type (INVALID_TYPE) and inside its bounds (INVALID_VALUE, INVALID_ID). Duplicate keys were
 * refused by the parser. The error names the field with its path ("tensors[3].shape[1]") and the
 * limit.
 *
 * The target struct is zeroed (or copied from defaults) by the caller; a row that is absent leaves
 * it alone.
 */

struct api_decoding;
struct api_field;

/** A type of value: how it is decoded, and how it is described. Const, one object a type. */
struct api_type {
    const char *name;   /**< For messages and help: "integer", "id". */
    const char *schema; /**< Members of its JSON Schema, without braces: "\"type\":\"string\"". */
    /** Decode one JSON value (null too, which the types below refuse) into @p target. */
    enum st_status (*decode)(struct api_decoding *decoding, const struct api_field *field,
                             const json_t *value, void *target, struct st_error *err);
    /** Decode the text of a query parameter, already unescaped. NULL: not usable in a query. */
    enum st_status (*parse)(struct api_decoding *decoding, const struct api_field *field,
                            const char *text, void *target, struct st_error *err);
};

/** Names of the values of an enum: value i (0..count-1) is called name(i). */
struct api_names {
    const char *(*name)(unsigned value); /**< NULL: the value has no name that requests may use. */
    unsigned count;
};

enum api_field_flags {
    API_REQUIRED = 1u << 0,
    API_PREFIX = 1u << 1, /**< Query only: the name is a prefix ("label."), and it may repeat. */
};

/** One row. Only name, type, offset and doc are always set. */
struct api_field {
    const char *name;
    const struct api_type *type;
    size_t offset; /**< Of the target member. */
    unsigned flags;
    const char *doc; /**< One sentence. */
    size_t has; /**< API_HAS(struct, member): a bool that becomes true when the row is present; 0:
                   none. */
    int64_t min, max; /**< Of numbers and lengths, inclusive; both 0: the type's own. */
    const struct api_names *names;  /**< Of api_type_enum. */
    const struct api_field *fields; /**< Of api_type_object and api_type_objects. */
    size_t item_bytes;              /**< Of api_type_objects: the struct of one item. */
    const void *item_defaults;      /**< Copied into each item first; NULL: zeros. */
    const char *example;            /**< JSON text, or NULL. */
};
#define API_HAS(type, member) (offsetof(type, member) + 1)

/** Where a decode stands. Made by the functions below; a type's functions use it. */
struct api_decoding {
    struct api_arena *arena; /**< For what has no fixed size. */
    char path[ST_ERROR_FIELD_MAX];
    size_t path_length;
    const char *suffix; /**< In parse of an API_PREFIX row: what follows the prefix in the name. */
};

/** A list in the arena. */
struct api_array {
    uint32_t count;
    void *items;
};

/** A list of principals in the arena. */
struct api_principals {
    uint32_t count;
    char (*items)[ST_ID_MAX + 1];
};

/** A fill value: server/server.h's number. */
struct api_number {
    enum server_number kind;
    double double_value;
    int64_t int64_value;
    uint64_t uint64_value;
};

/* Types, and the C type of their target member. (Q): usable in a query. */
extern const struct api_type api_type_id; /**< (Q) char[ST_ID_MAX + 1] */
extern const struct api_type
    api_type_text; /**< (Q) const char *, in the arena; UTF-8, min..max bytes (default 0..255) */
extern const struct api_type api_type_uint64; /**< (Q) uint64_t, 0..2^53-1 */
extern const struct api_type api_type_uint32; /**< (Q) uint32_t */
extern const struct api_type api_type_int32;  /**< (Q) int32_t */
extern const struct api_type
    api_type_bool; /**< (Q) bool; in a query "true" or "1" (or no value), "false" or "0" */
extern const struct api_type api_type_tristate; /**< int: 0 or 1; preset it to -1 for "not said" */
extern const struct api_type api_type_enum;     /**< (Q) unsigned-sized enum, by row->names */
extern const struct api_type
    api_type_shape; /**< struct st_shape; dims 0..2^53-1, rank 0..ST_SHAPE_RANK_MAX */
extern const struct api_type api_type_strides; /**< struct api_strides */
extern const struct api_type api_type_uint32s; /**< struct api_array of uint32_t; min..max bound the
                                                  items' values; at most ST_BATCH_MAX */
extern const struct api_type
    api_type_ids; /**< struct api_array of char[ST_ID_MAX + 1]; min..max bound the count */
extern const struct api_type
    api_type_labels; /**< (Q with API_PREFIX) struct server_labels in the arena, sorted by key */
extern const struct api_type api_type_principals; /**< struct api_principals */
extern const struct api_type api_type_number;  /**< struct api_number: number, decimal text, "NaN",
                                                  "Infinity", "-Infinity", bool */
extern const struct api_type api_type_seconds; /**< (Q) uint64_t nanoseconds, from whole or decimal
                                                  seconds; min..max in seconds */
extern const struct api_type api_type_object;  /**< a nested struct, by row->fields */
extern const struct api_type api_type_objects; /**< struct api_array of structs of row->item_bytes,
                                                  by row->fields; min..max bound the count */

/** Target of api_type_strides. */
struct api_strides {
    uint32_t rank; /**< How many were given. */
    struct st_strides strides;
};

/**
 * Decode the members of @p object into @p target.
 * @retval ST_INVALID_ARGUMENT as said above.
 */
ST_MUST_CHECK enum st_status api_fields_decode(struct api_decoding *decoding,
                                               const struct api_field *fields, const json_t *object,
                                               void *target, struct st_error *err);

/** A table and the struct it fills: a query may be read by two tables, the route's and a common
 * one. */
#define API_QUERY_PARTS_MAX 2
struct api_query_part {
    const struct api_field *fields; /**< NULL: none. */
    void *target;
};
/**
 * Decode a raw query ("a=1&label.k=v"; NULL or "": none). %XX escapes are undone here, "+" is a
 * space.
 *
 * @param count 1..API_QUERY_PARTS_MAX.
 * @retval ST_INVALID_ARGUMENT INVALID_QUERY: unknown, repeated, malformed escape, NUL or no UTF-8.
 */
ST_MUST_CHECK enum st_status api_query_decode(struct api_arena *arena, const char *query,
                                              const struct api_query_part *parts, uint32_t count,
                                              struct st_error *err);

/* ---- for the functions of types */

/** One label of a JSON object: the key's grammar, the value a string. The path gets the key while
 * it fails. */
ST_MUST_CHECK enum st_status api_label_decode(struct api_decoding *decoding, const char *key,
                                              const json_t *value, struct server_label *ret_label,
                                              struct st_error *err);

/** Append ".name" or "[index]" to the path. @return a mark for api_path_pop(). */
size_t api_path_push_name(struct api_decoding *decoding, const char *name);
size_t api_path_push_index(struct api_decoding *decoding, size_t index);
void api_path_pop(struct api_decoding *decoding, size_t mark);

/** Fail naming the current path: `return api_decode_fail(decoding, err, ST_REASON_X, "must be
 * ...")`. */
#define api_decode_fail(...) st_failure(api_decode_fill(__VA_ARGS__))
enum st_status api_decode_fill(const struct api_decoding *decoding, struct st_error *err,
                               enum st_reason reason, const char *format, ...) ST_PRINTF(4, 5);
/** INVALID_TYPE: "must be <wanted>, not <what it is>". */
#define api_decode_fail_type(...) st_failure(api_decode_fill_type(__VA_ARGS__))
enum st_status api_decode_fill_type(const struct api_decoding *decoding, const char *wanted,
                                    const json_t *value, struct st_error *err);
#define api_decode_fail_memory(err) st_failure(api_decode_fill_memory(err))
enum st_status api_decode_fill_memory(struct st_error *err);

#endif
