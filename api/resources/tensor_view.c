#include "api/resources/tensor_body.h"
#include "api/resources/view.h"

/** What a tensor shows. */

static void dtype_write(struct api_text *text, const struct api_output *row, const void *object,
                        const char *node)
{
    (void)node;
    const struct server_tensor *tensor = object;
    api_json_string(text, row->name, st_dtype_info(tensor->dtype)->name);
}
static const struct api_output_type output_dtype = {"\"type\":\"string\"", dtype_write};

static void dims_write(struct api_text *text, const char *key, const int64_t *dims, uint32_t count)
{
    api_json_begin_array(text, key);
    for (uint32_t i = 0; i < count; i++) {
        api_json_int(text, NULL, dims[i]);
    }
    api_json_end_array(text);
}

static void shape_write(struct api_text *text, const struct api_output *row, const void *object,
                        const char *node)
{
    (void)node;
    const struct server_tensor *tensor = object;
    dims_write(text, row->name, tensor->shape.dims, tensor->shape.rank);
}
static void strides_write(struct api_text *text, const struct api_output *row, const void *object,
                          const char *node)
{
    (void)node;
    const struct server_tensor *tensor = object;
    dims_write(text, row->name, tensor->strides.dims, tensor->shape.rank);
}
#define DIMS_SCHEMA "\"type\":\"array\",\"items\":{\"type\":\"integer\"}"
static const struct api_output_type output_shape = {DIMS_SCHEMA, shape_write};
static const struct api_output_type output_strides = {DIMS_SCHEMA, strides_write};

static void memory_type_write(struct api_text *text, const struct api_output *row,
                              const void *object, const char *node)
{
    (void)node;
    const struct server_tensor *tensor = object;
    api_json_string(text, row->name, api_memory_type_name(tensor->memory_type));
}
static const struct api_output_type output_memory_type = {
    "\"type\":\"string\",\"enum\":[\"symmetric\",\"global\"]", memory_type_write};

#define CONTENTS_SCHEMA                                                                            \
    "\"type\":\"object\",\"properties\":{\"generation\":{\"type\":\"integer\"},"                   \
    "\"state\":{\"enum\":[\"valid\",\"writing\",\"undefined\"]}}"

static void contents_put(struct api_text *text, const char *key,
                         const struct server_contents *contents)
{
    api_json_begin(text, key);
    api_output_integer(text, "generation", contents->generation);
    api_json_string(text, "state", server_contents_state_name(contents->state));
    api_json_end(text);
}
static void contents_write(struct api_text *text, const struct api_output *row, const void *object,
                           const char *node)
{
    (void)node;
    contents_put(text, row->name, &((const struct server_tensor *)object)->contents);
}
static const struct api_output_type output_contents = {CONTENTS_SCHEMA, contents_write};

static void shards_write(struct api_text *text, const struct api_output *row, const void *object,
                         const char *node)
{
    const struct server_tensor *tensor = object;
    api_json_begin_array(text, row->name);
    for (uint32_t rank = 0; rank < tensor->world_size; rank++) {
        api_json_begin(text, NULL);
        api_json_uint(text, "rank", rank);
        api_json_string(text, "node", node);
        api_json_uint(text, "device", tensor->ranks[rank].device);
        contents_put(text, "contents", &tensor->shard_contents[rank]);
        api_json_end(text);
    }
    api_json_end_array(text);
}
static const struct api_output_type output_shards = {
    "\"type\":\"array\",\"items\":{\"type\":\"object\",\"properties\":{"
    "\"rank\":{\"type\":\"integer\"},\"node\":{\"type\":\"string\"},"
    "\"device\":{\"type\":\"integer\"},\"contents\":{" CONTENTS_SCHEMA "}}}",
    shards_write};

static void principals_put(struct api_text *text, const char *key,
                           char (*const principals)[ST_ID_MAX + 1], uint32_t count)
{
    api_json_begin_array(text, key);
    for (uint32_t i = 0; i < count; i++) {
        api_json_string(text, NULL, principals[i]);
    }
    api_json_end_array(text);
}
static void access_write(struct api_text *text, const struct api_output *row, const void *object,
                         const char *node)
{
    (void)node;
    const struct server_access *access = api_output_member(row, object);
    api_json_begin(text, row->name);
    principals_put(text, "read", access->read, access->read_count);
    principals_put(text, "write", access->write, access->write_count);
    api_json_end(text);
}
static const struct api_output_type output_access = {
    "\"type\":\"object\",\"properties\":{"
    "\"read\":{\"type\":\"array\",\"items\":{\"type\":\"string\"}},"
    "\"write\":{\"type\":\"array\",\"items\":{\"type\":\"string\"}}}",
    access_write};

static void dlpack_write(struct api_text *text, const struct api_output *row, const void *object,
                         const char *node)
{
    (void)node;
    const struct st_dtype_info *dtype =
        st_dtype_info(((const struct server_tensor *)object)->dtype);
    api_json_begin(text, row->name);
    api_json_uint(text, "code", dtype->dlpack_code);
    api_json_uint(text, "bits", dtype->dlpack_bits);
    api_json_uint(text, "lanes", 1);
    api_json_end(text);
}
static const struct api_output_type output_dlpack = {
    "\"type\":\"object\",\"properties\":{\"code\":{\"type\":\"integer\"},"
    "\"bits\":{\"type\":\"integer\"},\"lanes\":{\"const\":1}}",
    dlpack_write};

static void etag_write(struct api_text *text, const struct api_output *row, const void *object,
                       const char *node)
{
    (void)node;
    const struct server_tensor *tensor = object;
    char etag[API_ETAG_BYTES];
    api_json_string(text, row->name, api_view_etag(tensor->version, tensor->uid, etag));
}
static const struct api_output_type output_etag = {"\"type\":\"string\"", etag_write};

#define MEMBER(member) offsetof(struct server_tensor, member)
const struct api_output api_tensor_output[] = {
    {"id", &api_output_text, MEMBER(id), "Name, unique on the node.", NULL},
    {"uid", &api_output_text, MEMBER(uid), "Never used again, unlike the id.", NULL},
    {"group", &api_output_text, MEMBER(group), "Group that holds the shards.", NULL},
    {"dtype", &output_dtype, 0, "Type of the elements.", NULL},
    {"shape", &output_shape, 0, "Shape of one shard, outermost first.", NULL},
    {"strides", &output_strides, 0, "In elements, one a dimension.", NULL},
    {"memory_type", &output_memory_type, 0, "symmetric or global.", NULL},
    {"shard_bytes", &api_output_uint64, MEMBER(shard_bytes), "Bytes of the data of a shard.", NULL},
    {"allocated_bytes", &api_output_uint64, MEMBER(allocated_bytes),
     "Bytes that a shard costs on its device.", NULL},
    {"multicast", &api_output_multicast, MEMBER(multicast_reason),
     "Whether it has a multicast mapping, or why not.", NULL},
    {"contents", &output_contents, 0, "Highest generation and worst state of the shards.", NULL},
    {"shards", &output_shards, 0, "Place and contents of each shard, in rank order.", NULL},
    {"attachments", &api_output_uint32, MEMBER(attachments_count),
     "Mappings that other processes hold.", NULL},
    {"attachable", &api_output_bool, MEMBER(attachable), "Whether others may map it.", NULL},
    {"labels", &api_output_labels, MEMBER(labels), "Free key/value pairs.", NULL},
    {"access", &output_access, MEMBER(access), "Who else may read and write the data.", NULL},
    {"state", &api_output_state, MEMBER(state), "creating, ready, failed or deleting.", NULL},
    {"owner", &api_output_text, MEMBER(owner), "Principal that made it.", NULL},
    {"create_time", &api_output_time, MEMBER(create_time_ns), "When it was made.", NULL},
    {"etag", &output_etag, 0, "For If-Match; changes with labels, access and state.", NULL},
    {"dlpack", &output_dlpack, 0, "The dtype as DLPack numbers it.", NULL},
    {0},
};
