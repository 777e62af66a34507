#include "api/resources/tensor_body.h"

#include <string.h>

#include "base/id.h"

/* ---------------------------------------------------------------- names */

const char *api_memory_type_name(unsigned type)
{
    static const char *const names[] = {
        [GPU_MEMORY_SYMMETRIC] = "symmetric", [GPU_MEMORY_GLOBAL] = "global"};
    return names[type];
}
static const struct api_names memory_type_names = {api_memory_type_name, GPU_MEMORY_GLOBAL + 1};

const char *api_multicast_mode_name(unsigned mode)
{
    static const char *const names[] = {[GPU_MULTICAST_AUTO] = "auto",
                                        [GPU_MULTICAST_REQUIRED] = "required",
                                        [GPU_MULTICAST_DISABLED] = "disabled"};
    return names[mode];
}
static const struct api_names multicast_names = {api_multicast_mode_name,
                                                 GPU_MULTICAST_DISABLED + 1};

static const char *dtype_name(unsigned dtype)
{
    return st_dtype_info((enum st_dtype)dtype)->name;
}
static const struct api_names dtype_names = {dtype_name, ST_DTYPE_COUNT};

/* ---------------------------------------------------------------- creating */

static const struct api_field access_fields[] = {
    {.name = "read",
     .type = &api_type_principals,
     .offset = offsetof(struct api_access_body, read),
     .doc = "Principals that may read the data."},
    {.name = "write",
     .type = &api_type_principals,
     .offset = offsetof(struct api_access_body, write),
     .doc = "Principals that may change the data."},
    {0},
};

#define MEMBER(member) offsetof(struct api_tensor_body, member)
const struct api_field api_tensor_fields[] = {
    {.name = "id",
     .type = &api_type_id,
     .offset = MEMBER(id),
     .doc = "Name; made by the server when omitted."},
    {.name = "group",
     .type = &api_type_id,
     .offset = MEMBER(group),
     .flags = API_REQUIRED,
     .doc = "Group that holds the shards."},
    {.name = "dtype",
     .type = &api_type_enum,
     .offset = MEMBER(dtype),
     .flags = API_REQUIRED,
     .names = &dtype_names,
     .doc = "Type of the elements.",
     .example = "\"float32\""},
    {.name = "shape",
     .type = &api_type_shape,
     .offset = MEMBER(shape),
     .flags = API_REQUIRED,
     .doc = "Shape of one shard, outermost first; [] is a scalar.",
     .example = "[1024,1024]"},
    {.name = "memory_type",
     .type = &api_type_enum,
     .offset = MEMBER(memory_type),
     .names = &memory_type_names,
     .doc = "symmetric (shareable, peers mapped; the default) or global (not shareable)."},
    {.name = "strides",
     .type = &api_type_strides,
     .offset = MEMBER(strides),
     .has = API_HAS(struct api_tensor_body, has_strides),
     .doc = "In elements, one a dimension, a dense permutation; default row-major."},
    {.name = "multicast",
     .type = &api_type_enum,
     .offset = MEMBER(multicast),
     .names = &multicast_names,
     .doc = "auto (the default), required or disabled."},
    {.name = "labels",
     .type = &api_type_labels,
     .offset = MEMBER(labels),
     .doc = "Free key/value pairs."},
    {.name = "attachable",
     .type = &api_type_bool,
     .offset = MEMBER(attachable),
     .has = API_HAS(struct api_tensor_body, has_attachable),
     .doc = "Whether other processes may map it; default true from one granule up."},
    {.name = "access",
     .type = &api_type_object,
     .offset = MEMBER(access),
     .fields = access_fields,
     .doc = "Who else may read and write the data."},
    {0},
};
#undef MEMBER

static struct server_access access_of(const struct api_principals *read,
                                      const struct api_principals *write)
{
    return (struct server_access){
        .read_count = read->count,
        .write_count = write->count,
        .read = read->items,
        .write = write->items,
    };
}

void api_tensor_create_fill(const struct api_tensor_body *body,
                            struct server_tensor_create *ret_create)
{
    *ret_create = (struct server_tensor_create){
        .dtype = (enum st_dtype)body->dtype,
        .shape = body->shape,
        .has_strides = body->has_strides,
        .strides = body->strides.strides,
        .strides_rank = body->strides.rank,
        .memory_type = (enum gpu_memory_type)body->memory_type,
        .multicast = (enum gpu_multicast_mode)body->multicast,
        .attachable = body->has_attachable ? body->attachable : -1,
        .labels = body->labels,
        .access = access_of(&body->access.read, &body->access.write),
    };
    memcpy(ret_create->id, body->id, sizeof(ret_create->id));
    memcpy(ret_create->group, body->group, sizeof(ret_create->group));
}

/* ---------------------------------------------------------------- merge patch */

/** jansson's iterators take what they only read as not const. */
static json_t *as_mutable(const json_t *value)
{
    union {
        const json_t *in;
        json_t *out;
    } pun = {.in = value};
    return pun.out;
}

/** A member of the patch that is null: the key is all that is checked. */
static enum st_status label_remove(struct api_decoding *decoding, const char *key,
                                   struct api_labels_patch *patch, struct st_error *err)
{
    struct server_label label;
    json_t *empty = json_string("");
    enum st_status status =
        empty ? api_label_decode(decoding, key, empty, &label, err) : api_decode_fail_memory(err);
    json_decref(empty);
    if (status == ST_OK) {
        memcpy(patch->remove[patch->remove_count++], label.key, sizeof(label.key));
    }
    return status;
}

static enum st_status labels_patch_decode(struct api_decoding *decoding,
                                          const struct api_field *field, const json_t *value,
                                          void *target, struct st_error *err)
{
    struct api_labels_patch *patch = target;
    if (json_is_null(value)) {
        patch->clear = true;
        return ST_OK;
    }
    if (!json_is_object(value)) {
        return api_decode_fail_type(decoding, field->type->name, value, err);
    }
    size_t count = json_object_size(value);
    if (count > 2 * ST_LABELS_MAX) {
        return api_decode_fail(decoding, err, ST_REASON_INVALID_VALUE,
                               "must have at most %d members", 2 * ST_LABELS_MAX);
    }
    patch->set = api_arena_array(decoding->arena, count, sizeof(*patch->set));
    patch->remove = api_arena_array(decoding->arena, count, sizeof(*patch->remove));
    if (!patch->set || !patch->remove) {
        return api_decode_fail_memory(err);
    }
    json_t *labels = as_mutable(value);
    enum st_status status = ST_OK;
    for (void *at = json_object_iter(labels); at && status == ST_OK;
         at = json_object_iter_next(labels, at)) {
        const char *key = json_object_iter_key(at);
        const json_t *text = json_object_iter_value(at);
        status = json_is_null(text)
                     ? label_remove(decoding, key, patch, err)
                     : api_label_decode(decoding, key, text, &patch->set[patch->set_count++], err);
    }
    return status;
}
static const struct api_type type_labels_patch = {
    .name = "object of strings and nulls",
    .schema = "\"type\":[\"object\",\"null\"],"
              "\"additionalProperties\":{\"type\":[\"string\",\"null\"]}",
    .decode = labels_patch_decode,
};

/** A list of principals; null is the empty list. */
static enum st_status principals_patch_decode(struct api_decoding *decoding,
                                              const struct api_field *field, const json_t *value,
                                              void *target, struct st_error *err)
{
    if (json_is_null(value)) {
        *(struct api_principals *)target = (struct api_principals){0};
        return ST_OK;
    }
    return api_type_principals.decode(decoding, field, value, target, err);
}
static const struct api_type type_principals_patch = {
    .name = "array of principals, or null",
    .schema = "\"type\":[\"array\",\"null\"],\"items\":{\"type\":\"string\"}",
    .decode = principals_patch_decode,
};

static const struct api_field access_patch_fields[] = {
    {.name = "read",
     .type = &type_principals_patch,
     .offset = offsetof(struct api_access_patch, read),
     .has = API_HAS(struct api_access_patch, has_read),
     .doc = "Replaces the list; null empties it."},
    {.name = "write",
     .type = &type_principals_patch,
     .offset = offsetof(struct api_access_patch, write),
     .has = API_HAS(struct api_access_patch, has_write),
     .doc = "Replaces the list; null empties it."},
    {0},
};

static enum st_status access_patch_decode(struct api_decoding *decoding,
                                          const struct api_field *field, const json_t *value,
                                          void *target, struct st_error *err)
{
    struct api_access_patch *patch = target;
    if (json_is_null(value)) {
        patch->has_read = patch->has_write = true;
        return ST_OK;
    }
    return api_fields_decode(decoding, field->fields, value, target, err);
}
static const struct api_type type_access_patch = {
    .name = "object, or null",
    .schema = "\"type\":[\"object\",\"null\"]",
    .decode = access_patch_decode,
};

const struct api_field api_tensor_patch_fields[] = {
    {.name = "labels",
     .type = &type_labels_patch,
     .offset = offsetof(struct api_tensor_patch_body, labels),
     .doc = "Labels to set; null as a value removes one, null as a whole all."},
    {.name = "access",
     .type = &type_access_patch,
     .offset = offsetof(struct api_tensor_patch_body, access),
     .fields = access_patch_fields,
     .doc = "Lists to replace; null empties both."},
    {0},
};
