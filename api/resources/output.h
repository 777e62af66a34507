#ifndef SYMTENSOR_API_RESOURCES_OUTPUT_H
#define SYMTENSOR_API_RESOURCES_OUTPUT_H

#include <stddef.h>

#include "api/text.h"

/**
 * What replies hold, as tables: the counterpart of api/field.h. A row says how one member of a
 * plain struct becomes one member of a JSON object, and carries its own documentation, so that
 * rendering, the description of the interface and the tests read the same rows. A table ends with
 * {0}. The text is written straight into a growing buffer; no tree of values is made.
 */

struct api_output;

/** How a value is written, and how it is described. Const, one object a type. */
struct api_output_type {
    const char *schema; /**< Members of its JSON Schema, without braces. */
    /** Write one member: the key is the row's name, the value stands in @p object. */
    void (*write)(struct api_text *text, const struct api_output *row, const void *object,
                  const char *node);
};

/** One row. */
struct api_output {
    const char *name;
    const struct api_output_type *type;
    size_t offset;                 /**< Of the member in the object. */
    const char *doc;               /**< One sentence. */
    const struct api_output *rows; /**< Of api_output_object: the rows of the nested object, whose
                                        offsets count from the same struct. */
};

/* Types, and the C type of their member. */
extern const struct api_output_type api_output_text;   /**< char[]: string */
extern const struct api_output_type api_output_static; /**< const char *: string, or null */
extern const struct api_output_type api_output_bool;   /**< bool */
extern const struct api_output_type api_output_uint32; /**< uint32_t: number */
extern const struct api_output_type
    api_output_uint64;                               /**< uint64_t: number, string beyond 2^53-1 */
extern const struct api_output_type api_output_some; /**< uint64_t: as above, null when 0 */
extern const struct api_output_type api_output_double;    /**< double */
extern const struct api_output_type api_output_time;      /**< uint64_t ns: RFC 3339, null when 0 */
extern const struct api_output_type api_output_labels;    /**< struct server_labels: object */
extern const struct api_output_type api_output_multicast; /**< enum gpu_multicast_reason:
                                                               {usable, reason} */
extern const struct api_output_type api_output_state;     /**< enum server_state: its name */
extern const struct api_output_type api_output_node;      /**< nothing: the node's name */
extern const struct api_output_type api_output_object;    /**< by row->rows */

/** The member that a row stands for. */
const void *api_output_member(const struct api_output *row, const void *object);

/** An integer that clients without 64-bit integers read exactly: beyond 2^53-1 a string. */
void api_output_integer(struct api_text *text, const char *key, uint64_t value);

/**
 * Write @p object by its rows as one JSON object.
 * @param key  NULL: a value of an array, or the top.
 * @param node name of the node that answers.
 */
void api_output_write(struct api_text *text, const char *key, const struct api_output *rows,
                      const void *object, const char *node);

#endif
