#include <math.h>
#include <stdio.h>
#include <string.h>

#include "api/request.h"
#include "api/resources/outcome.h"

/** Wait for the operation of a verb, if it was accepted. */
static enum st_status verb_wait(struct api_request *request, enum st_status accepted,
                                struct server_operation *operation, struct st_error *err)
{
    return accepted == ST_OK ? api_request_wait_operation(request, operation, api_outcome_verb, err)
                             : accepted;
}

#define GENERATION_ROW(type_of_body)                                                               \
    {                                                                                              \
        .name = "expected_generation", .type = &api_type_uint64,                                   \
        .offset = offsetof(type_of_body, expected_generation),                                     \
        .doc = "Refuse (409) unless the tensor that is written has this generation."               \
    }

/* ---------------------------------------------------------------- collectives */

static const char *op_name(unsigned op)
{
    return st_reduce_op_info((enum st_reduce_op)op)->name;
}
static const struct api_names op_names = {op_name, ST_OP_COUNT};

struct collective_body {
    char output[ST_ID_MAX + 1];
    bool has_op, has_root;
    unsigned op;
    uint32_t root;
    const char *algorithm;
    int deterministic;
    uint64_t expected_generation;
};
static const struct collective_body collective_defaults = {
    .op = ST_OP_SUM,
    .deterministic = -1,
    .expected_generation = SERVER_GENERATION_ANY,
};
static const struct api_field collective_fields[] = {
    {.name = "output",
     .type = &api_type_id,
     .offset = offsetof(struct collective_body, output),
     .doc = "Tensor that takes the result; default in place, where the shapes allow."},
    {.name = "op",
     .type = &api_type_enum,
     .offset = offsetof(struct collective_body, op),
     .has = API_HAS(struct collective_body, has_op),
     .names = &op_names,
     .doc = "How values are combined; default sum. Only where the collective reduces."},
    {.name = "root",
     .type = &api_type_uint32,
     .offset = offsetof(struct collective_body, root),
     .has = API_HAS(struct collective_body, has_root),
     .doc = "Rank that sends or receives; default 0. Only where the collective has one."},
    {.name = "algorithm",
     .type = &api_type_text,
     .offset = offsetof(struct collective_body, algorithm),
     .min = 1,
     .doc = "Name of the algorithm; by default the planner chooses and says why."},
    {.name = "deterministic",
     .type = &api_type_tristate,
     .offset = offsetof(struct collective_body, deterministic),
     .doc = "false allows orders of summation that differ from run to run; default the server's."},
    GENERATION_ROW(struct collective_body),
    {0},
};

/** Fields that this collective does not have are as unknown as misspelled ones. */
static enum st_status collective_check(const struct gpu_collective *collective,
                                       const struct collective_body *body, struct st_error *err)
{
    if (body->has_op && !collective->reduces) {
        return st_fail(err, ST_REASON_UNKNOWN_FIELD, "op", "%s combines no values",
                       collective->name);
    }
    if (body->has_root && !collective->rooted) {
        return st_fail(err, ST_REASON_UNKNOWN_FIELD, "root", "%s has no root", collective->name);
    }
    return ST_OK;
}

static enum st_status algorithm_fail(const char *name, struct st_error *err)
{
    char known[ST_ERROR_MESSAGE_MAX / 4] = "", quoted[80];
    size_t length = 0;
    for (size_t i = 0; gpu_algorithms[i] && length < sizeof(known); i++) {
        int added = snprintf(known + length, sizeof(known) - length, "%s%s", length ? "," : "",
                             gpu_algorithms[i]->name);
        length += added > 0 ? (size_t)added : 0;
    }
    enum st_status status =
        st_fail(err, ST_REASON_UNSUPPORTED_ALGORITHM, "algorithm",
                "there is no \"%s\" here; there are %s", st_error_quote(name, quoted), known);
    st_error_add_detail(err, "algorithms", "%s", known);
    return status;
}

static enum st_status collective_run(struct api_request *request, struct st_error *err)
{
    const struct collective_body *body = request->body;
    struct server_collective_request collective = {
        .collective = request->collective,
        .op = (enum st_reduce_op)body->op,
        .root = body->root,
        .algorithm = body->algorithm ? gpu_algorithm_find(body->algorithm) : NULL,
        .deterministic = body->deterministic,
        .expected_generation = body->expected_generation,
    };
    struct server_operation *operation = NULL;
    enum st_status status = collective_check(request->collective, body, err);
    if (status == ST_OK && body->algorithm && !collective.algorithm) {
        status = algorithm_fail(body->algorithm, err);
    }
    snprintf(collective.tensor, sizeof(collective.tensor), "%s", request->ids[0]);
    memcpy(collective.output, body->output, sizeof(collective.output));
    if (status == ST_OK) {
        status = server_collective(request->server, &request->caller, &collective, &operation, err);
    }
    return verb_wait(request, status, operation, err);
}

/* ---------------------------------------------------------------- fill */

/** Requests name two patterns; a value stands in its own field. */
enum fill_pattern { FILL_RANK, FILL_IOTA };
static const char *pattern_name(unsigned pattern)
{
    static const char *const names[] = {[FILL_RANK] = "rank", [FILL_IOTA] = "iota"};
    return names[pattern];
}
static const struct api_names pattern_names = {pattern_name, FILL_IOTA + 1};

struct fill_body {
    bool has_value, has_pattern, has_rank;
    struct api_number value;
    unsigned pattern;
    uint32_t rank;
    uint64_t expected_generation;
};
static const struct fill_body fill_defaults = {.expected_generation = SERVER_GENERATION_ANY};
static const struct api_field fill_fields[] = {
    {.name = "value",
     .type = &api_type_number,
     .offset = offsetof(struct fill_body, value),
     .has = API_HAS(struct fill_body, has_value),
     .doc = "Number, decimal text, \"NaN\", \"Infinity\" or \"-Infinity\"; must fit the dtype.",
     .example = "1.5"},
    {.name = "pattern",
     .type = &api_type_enum,
     .offset = offsetof(struct fill_body, pattern),
     .has = API_HAS(struct fill_body, has_pattern),
     .names = &pattern_names,
     .doc = "rank: each shard gets its rank; iota: each element its row-major index."},
    {.name = "rank",
     .type = &api_type_uint32,
     .offset = offsetof(struct fill_body, rank),
     .has = API_HAS(struct fill_body, has_rank),
     .max = INT32_MAX,
     .doc = "Only this shard; default all."},
    GENERATION_ROW(struct fill_body),
    {0},
};

/**
 * -0 is decoded as a double, for the floats, which have it. It is an integer too. A tensor that is
 * not there is refused later.
 */
static void fill_set_zero(struct api_request *request, struct server_fill_request *fill)
{
    struct server_tensor *tensor;
    if (fill->number != SERVER_NUMBER_DOUBLE || fill->double_value != 0 ||
        !signbit(fill->double_value) ||
        server_tensor_get(request->server, request->ids[0], &tensor, NULL) != ST_OK) {
        return;
    }
    if (st_dtype_info(tensor->dtype)->kind != ST_KIND_FLOAT) {
        fill->number = SERVER_NUMBER_INT64;
        fill->int64_value = 0;
    }
    server_snapshot_release(&tensor->base);
}

static enum st_status fill_run(struct api_request *request, struct st_error *err)
{
    const struct fill_body *body = request->body;
    struct server_fill_request fill = {
        .pattern = body->has_value              ? GPU_FILL_VALUE
                   : body->pattern == FILL_RANK ? GPU_FILL_RANK
                                                : GPU_FILL_IOTA,
        .number = body->value.kind,
        .double_value = body->value.double_value,
        .int64_value = body->value.int64_value,
        .uint64_value = body->value.uint64_value,
        .rank = body->has_rank ? (int32_t)body->rank : -1,
        .expected_generation = body->expected_generation,
    };
    if (!body->has_value && !body->has_pattern) {
        return st_fail(err, ST_REASON_MISSING_FIELD, "value",
                       "one of \"value\" and \"pattern\" is required");
    }
    if (body->has_value && body->has_pattern) {
        return st_fail(err, ST_REASON_INVALID_VALUE, "pattern",
                       "only one of \"value\" and \"pattern\" may be given");
    }
    fill_set_zero(request, &fill);
    struct server_operation *operation = NULL;
    snprintf(fill.tensor, sizeof(fill.tensor), "%s", request->ids[0]);
    enum st_status status = server_fill(request->server, &request->caller, &fill, &operation, err);
    return verb_wait(request, status, operation, err);
}

/* ---------------------------------------------------------------- copy */

struct copy_body {
    char dst_tensor[ST_ID_MAX + 1];
    uint32_t src_rank, dst_rank;
    uint64_t src_offset, dst_offset;
    bool has_bytes;
    uint64_t bytes;
    uint64_t expected_generation;
};
static const struct copy_body copy_defaults = {.expected_generation = SERVER_GENERATION_ANY};
static const struct api_field copy_fields[] = {
    {.name = "src_rank",
     .type = &api_type_uint32,
     .offset = offsetof(struct copy_body, src_rank),
     .doc = "Rank to copy from; default 0."},
    {.name = "dst_tensor",
     .type = &api_type_id,
     .offset = offsetof(struct copy_body, dst_tensor),
     .doc = "Tensor to copy to; default the same one."},
    {.name = "dst_rank",
     .type = &api_type_uint32,
     .offset = offsetof(struct copy_body, dst_rank),
     .doc = "Rank to copy to; default 0."},
    {.name = "src_offset",
     .type = &api_type_uint64,
     .offset = offsetof(struct copy_body, src_offset),
     .doc = "Byte in the source shard to begin at; default 0."},
    {.name = "dst_offset",
     .type = &api_type_uint64,
     .offset = offsetof(struct copy_body, dst_offset),
     .doc = "Byte in the destination shard to begin at; default 0."},
    {.name = "bytes",
     .type = &api_type_uint64,
     .offset = offsetof(struct copy_body, bytes),
     .has = API_HAS(struct copy_body, has_bytes),
     .doc = "How many; default all behind src_offset."},
    GENERATION_ROW(struct copy_body),
    {0},
};

static enum st_status copy_run(struct api_request *request, struct st_error *err)
{
    const struct copy_body *body = request->body;
    struct server_copy_request copy = {
        .src_rank = body->src_rank,
        .dst_rank = body->dst_rank,
        .src_offset = body->src_offset,
        .dst_offset = body->dst_offset,
        .has_bytes = body->has_bytes,
        .bytes = body->bytes,
        .expected_generation = body->expected_generation,
    };
    struct server_operation *operation = NULL;
    snprintf(copy.tensor, sizeof(copy.tensor), "%s", request->ids[0]);
    memcpy(copy.dst_tensor, body->dst_tensor, sizeof(copy.dst_tensor));
    enum st_status status = server_copy(request->server, &request->caller, &copy, &operation, err);
    return verb_wait(request, status, operation, err);
}

/* ---------------------------------------------------------------- checksum */

static const char *checksum_name(unsigned algorithm)
{
    return server_checksum_name((enum server_checksum_algorithm)algorithm);
}
static const struct api_names checksum_names = {checksum_name, SERVER_CHECKSUM_SHA256 + 1};

struct checksum_body {
    unsigned algorithm;
};
static const struct api_field checksum_fields[] = {
    {.name = "algorithm",
     .type = &api_type_enum,
     .offset = offsetof(struct checksum_body, algorithm),
     .names = &checksum_names,
     .doc = "crc32c (the default) or sha256."},
    {0},
};

static enum st_status checksum_run(struct api_request *request, struct st_error *err)
{
    const struct checksum_body *body = request->body;
    struct server_operation *operation = NULL;
    enum st_status status =
        server_checksum(request->server, &request->caller, request->ids[0],
                        (enum server_checksum_algorithm)body->algorithm, &operation, err);
    return verb_wait(request, status, operation, err);
}

const struct api_route api_verb_routes[] = {
    {.method = API_POST,
     .path = "/v1/tensors/{tensor}:{collective}",
     .handler = collective_run,
     .role = SERVER_ROLE_USER,
     .body = API_BODY_JSON,
     .flags = API_ROUTE_WAITS | API_ROUTE_COLLECTIVES,
     .fields = collective_fields,
     .body_bytes = sizeof(struct collective_body),
     .body_defaults = &collective_defaults,
     .summary = "Run a collective over all shards of a tensor.",
     .success = "200 202"},
    {.method = API_POST,
     .path = "/v1/tensors/{tensor}:fill",
     .handler = fill_run,
     .role = SERVER_ROLE_USER,
     .body = API_BODY_JSON,
     .flags = API_ROUTE_WAITS,
     .fields = fill_fields,
     .body_bytes = sizeof(struct fill_body),
     .body_defaults = &fill_defaults,
     .summary = "Set all elements of all shards, or of one.",
     .success = "200 202"},
    {.method = API_POST,
     .path = "/v1/tensors/{tensor}:copy",
     .handler = copy_run,
     .role = SERVER_ROLE_USER,
     .body = API_BODY_JSON,
     .flags = API_ROUTE_WAITS,
     .fields = copy_fields,
     .body_bytes = sizeof(struct copy_body),
     .body_defaults = &copy_defaults,
     .summary = "Copy bytes from a shard to another, also of another tensor.",
     .success = "200 202"},
    {.method = API_POST,
     .path = "/v1/tensors/{tensor}:checksum",
     .handler = checksum_run,
     .role = SERVER_ROLE_USER,
     .body = API_BODY_JSON,
     .flags = API_ROUTE_WAITS,
     .fields = checksum_fields,
     .body_bytes = sizeof(struct checksum_body),
     .summary = "Checksums of the bytes of every shard, in memory order.",
     .success = "200 202"},
    {0},
};
