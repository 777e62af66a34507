#include "api/data/data.h"

#include <stdio.h>
#include <string.h>

#include "api/resources/view.h"
#include "base/size.h"

const char *const data_media[] = {
    [DATA_RAW] = "application/octet-stream",
    [DATA_NPY] = "application/x-npy",
    [DATA_JSON] = "application/json",
    NULL,
};
/** What a PUT may bring: JSON is for looking only. */
static const char *const put_media[] = {
    [DATA_RAW] = "application/octet-stream",
    [DATA_NPY] = "application/x-npy",
    NULL,
};

enum st_status data_shard_find(struct api_request *request,
                               struct server_transfer_request *transfer,
                               struct server_tensor **ret_tensor, struct st_error *err)
{
    uint64_t rank;
    struct server_tensor *tensor;
    enum st_status status = server_tensor_get(request->server, request->ids[0], &tensor, err);
    if (status != ST_OK) {
        return status;
    }
    const char *text = request->ids[1];
    if (!st_uint_parse(text, UINT32_MAX, &rank) || (text[0] == '0' && text[1])) {
        status = st_fail(err, ST_REASON_INVALID_VALUE, "rank",
                         "must be a decimal number without leading zeros");
    } else if (rank >= tensor->world_size) {
        status = st_fail(err, ST_REASON_RANK_OUT_OF_RANGE, "rank",
                         "must be less than the group's world_size, %u", tensor->world_size);
    }
    if (status != ST_OK) {
        server_snapshot_release(&tensor->base);
        return status;
    }
    snprintf(transfer->tensor, sizeof(transfer->tensor), "%s", request->ids[0]);
    transfer->rank = (uint32_t)rank;
    *ret_tensor = tensor;
    return ST_OK;
}

enum st_status data_same_tensor(const struct server_tensor *seen,
                                const struct server_tensor *opened, struct st_error *err)
{
    if (strcmp(seen->uid, opened->uid) != 0) {
        return st_fail(err, ST_REASON_GENERATION_MISMATCH, "tensor",
                       "was deleted and made anew in this moment");
    }
    return ST_OK;
}

void data_etag_set(struct api_request *request, const struct server_tensor *tensor,
                   uint64_t generation)
{
    char etag[API_ETAG_BYTES];
    api_reply_header(request, "ETag", "%s", api_view_etag(generation, tensor->uid, etag));
}

static const struct api_field get_query[] = {
    {.name = "offset",
     .type = &api_type_uint64,
     .offset = offsetof(struct data_get_query, offset),
     .has = API_HAS(struct data_get_query, has_offset),
     .doc = "Byte of the shard to begin at."},
    {.name = "count",
     .type = &api_type_uint32,
     .offset = offsetof(struct data_get_query, count),
     .has = API_HAS(struct data_get_query, has_count),
     .max = ST_DATA_JSON_ELEMENTS_MAX,
     .doc = "Elements of a JSON reply; default all that it may hold."},
    {.name = "allow_undefined",
     .type = &api_type_bool,
     .offset = offsetof(struct data_get_query, allow_undefined),
     .doc = "Read also what a failed or cancelled write left behind."},
    {0},
};

static const struct data_put_query put_defaults = {.expected_generation = SERVER_GENERATION_ANY};
static const struct api_field put_query[] = {
    {.name = "offset",
     .type = &api_type_uint64,
     .offset = offsetof(struct data_put_query, offset),
     .has = API_HAS(struct data_put_query, has_offset),
     .doc = "Byte of the shard to begin at; without it the body is the whole shard."},
    {.name = "expected_generation",
     .type = &api_type_uint64,
     .offset = offsetof(struct data_put_query, expected_generation),
     .doc = "Refuse (409) unless the tensor has this generation."},
    {0},
};

const struct api_route api_data_routes[] = {
    {.method = API_GET,
     .path = "/v1/tensors/{tensor}/shards/{rank}/data",
     .handler = data_get,
     .role = SERVER_ROLE_USER,
     .query = get_query,
     .query_bytes = sizeof(struct data_get_query),
     .summary = "Read a shard: raw bytes (also a Range), npy, or its first elements as JSON.",
     .success = "200 206 304"},
    {.method = API_PUT,
     .path = "/v1/tensors/{tensor}/shards/{rank}/data",
     .handler = data_put,
     .role = SERVER_ROLE_USER,
     .body = API_BODY_STREAM,
     .flags = API_ROUTE_IF_MATCH | API_ROUTE_IF_NONE_MATCH,
     .query = put_query,
     .query_bytes = sizeof(struct data_put_query),
     .query_defaults = &put_defaults,
     .media = put_media,
     .summary = "Write a shard, or with offset a part of it.",
     .success = "200"},
    {0},
};
