#ifndef SYMTENSOR_API_RESOURCES_TENSOR_BODY_H
#define SYMTENSOR_API_RESOURCES_TENSOR_BODY_H

#include "api/field.h"
#include "server/server.h"

/** What requests say about tensors. */

/** "access": principals beside the owner. */
struct api_access_body {
    struct api_principals read, write;
};

/** Body of POST /v1/tensors, and each item of :batch_create. */
struct api_tensor_body {
    char id[ST_ID_MAX + 1];
    char group[ST_ID_MAX + 1];
    unsigned dtype;
    struct st_shape shape;
    bool has_strides;
    struct api_strides strides;
    unsigned memory_type;
    unsigned multicast;
    bool has_attachable, attachable;
    struct server_labels labels;
    struct api_access_body access;
};
extern const struct api_field api_tensor_fields[]; /**< Of struct api_tensor_body. */

/** The server's form of a body; the text stays the body's. */
void api_tensor_create_fill(const struct api_tensor_body *body,
                            struct server_tensor_create *ret_create);

/** Body of PATCH: a merge patch (RFC 7396) of labels and access. */
struct api_tensor_patch_body {
    struct api_labels_patch {
        bool clear; /**< null: all of them go. */
        uint32_t set_count, remove_count;
        struct server_label *set;             /**< [set_count] */
        char (*remove)[ST_LABEL_KEY_MAX + 1]; /**< [remove_count] */
    } labels;
    struct api_access_patch {
        bool has_read, has_write; /**< Given, also as null, which is the empty list. */
        struct api_principals read, write;
    } access;
};
extern const struct api_field api_tensor_patch_fields[];

const char *api_memory_type_name(unsigned type);    /**< "symmetric", "global" */
const char *api_multicast_mode_name(unsigned mode); /**< "auto", "required", "disabled" */

#endif
