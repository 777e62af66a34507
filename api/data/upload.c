#include <inttypes.h>
#include <string.h>
#include <strings.h>

#include "api/data/data.h"
#include "api/data/digest.h"
#include "api/data/npy.h"
#include "api/resources/outcome.h"
#include "api/resources/view.h"
#include "api/text.h"

/** One PUT. Lives in the request's arena. */
struct upload {
    struct server_transfer_request transfer_request;
    struct server_tensor *tensor;
    struct server_transfer *transfer;       /**< npy: opened once the header was read. */
    struct server_transfer *_Atomic opened; /**< The same, for upload_notify(). */
    uint64_t received;                      /**< Of transfer_request.bytes. */
    bool pinned; /**< expected_generation is that of an If-Match that held. */
    struct data_digest digest;
    char *npy; /**< [DATA_NPY_HEADER_MAX]; NULL: raw. */
    size_t npy_bytes, npy_wanted;
};

/** Give the shard back. One that was not finished is undefined from now on. */
static void upload_close(struct upload *upload)
{
    server_transfer_close(upload->transfer);
    upload->opened = NULL;
    upload->transfer = NULL;
}

static void upload_end(struct api_request *request)
{
    struct upload *upload = request->context;
    upload_close(upload);
    data_digest_done(&upload->digest);
    if (upload->tensor) {
        server_snapshot_release(&upload->tensor->base);
    }
}

/* ---------------------------------------------------------------- opening */

/** A generation that was not asked for by this name: the client gave its entity tag. */
static enum st_status upload_explain(const struct upload *upload, enum st_status status,
                                     struct st_error *err)
{
    if (status == ST_OK || !upload->pinned || err->reason != ST_REASON_GENERATION_MISMATCH) {
        return status;
    }
    status = st_fail(err, ST_REASON_ETAG_MISMATCH, "If-Match",
                     "another write was first since the tag was checked");
    err->http_code = 412;
    return status;
}

/** Whether the transfer can go on. */
static enum st_status upload_state(struct api_request *request, struct st_error *err)
{
    const struct upload *upload = request->context;
    return upload->transfer &&
                   server_transfer_state(upload->transfer, err) == SERVER_TRANSFER_FAILED
               ? upload_explain(upload, err->status, err)
               : ST_OK;
}

/** Something happened to the transfer; if it failed, the client need not send the rest. Thread:
 * any. */
static void upload_notify(void *arg)
{
    struct api_request *request = arg;
    struct upload *upload = request->context;
    struct server_transfer *opened = upload->opened;
    api_request_notify(request);
    if (opened && server_transfer_has_failed(opened)) {
        api_request_interrupt(request);
    }
}

static enum st_status upload_open(struct api_request *request, struct upload *upload,
                                  struct st_error *err)
{
    struct server_tensor *opened;
    upload->transfer_request.notify = upload_notify;
    upload->transfer_request.notify_arg = request;
    enum st_status status =
        server_upload_open(request->server, &request->caller, &upload->transfer_request,
                           &upload->transfer, &opened, err);
    if (status != ST_OK) {
        return status;
    }
    upload->opened = upload->transfer;
    status = data_same_tensor(upload->tensor, opened, err);
    server_snapshot_release(&upload->tensor->base);
    upload->tensor = opened;
    /* It may have failed before upload_notify() could see it. */
    return status == ST_OK ? upload_state(request, err) : status;
}

static enum st_status length_fail(uint64_t body, uint64_t data, struct st_error *err)
{
    enum st_status status =
        st_fail(err, ST_REASON_BODY_LENGTH_MISMATCH, "Content-Length",
                "the body has %" PRIu64 " bytes, the data %" PRIu64, body, data);
    st_error_add_detail(err, "expected_bytes", "%" PRIu64, data);
    return status;
}

/** Raw bytes: the whole shard, or with an offset as many as come. */
static enum st_status raw_begin(struct api_request *request, struct upload *upload,
                                struct st_error *err)
{
    const struct data_put_query *query = request->query;
    struct server_transfer_request *wanted = &upload->transfer_request;
    uint64_t total = upload->tensor->shard_bytes, length = request->content_length;
    if (!query->has_offset) {
        wanted->bytes = total;
        if (length != API_LENGTH_UNKNOWN && length != total) {
            return length_fail(length, total, err);
        }
        return upload_open(request, upload, err);
    }
    if (length == API_LENGTH_UNKNOWN) {
        return st_fail(err, ST_REASON_LENGTH_REQUIRED, "Content-Length",
                       "is required together with ?offset=");
    }
    if (query->offset > total || length > total - query->offset) {
        return st_fail(err, ST_REASON_RANGE_OUT_OF_BOUNDS, "offset",
                       "%" PRIu64 " bytes from byte %" PRIu64
                       " on do not fit into the shard's %" PRIu64,
                       length, query->offset, total);
    }
    wanted->has_range = true;
    wanted->offset = query->offset;
    wanted->bytes = length;
    return upload_open(request, upload, err);
}

/** npy: everything that can be known before its header is. */
static enum st_status npy_begin(struct api_request *request, struct upload *upload,
                                struct st_error *err)
{
    const struct data_put_query *query = request->query;
    uint64_t total = upload->tensor->shard_bytes, length = request->content_length;
    if (query->has_offset) {
        return st_fail(err, ST_REASON_INVALID_QUERY, "offset", "an npy file is always whole");
    }
    enum st_status status = data_npy_check_dtype(upload->tensor->dtype, err);
    if (status != ST_OK) {
        return status;
    }
    if (length != API_LENGTH_UNKNOWN && length < total) {
        return length_fail(length, total, err);
    }
    upload->npy = api_arena_alloc(&request->arena, DATA_NPY_HEADER_MAX);
    upload->npy_wanted = DATA_NPY_PRELUDE_BYTES;
    upload->transfer_request.bytes = total;
    return upload->npy ? ST_OK : api_decode_fail_memory(err);
}

/** The npy header is complete: it must fit the tensor; then the shard is opened. */
static enum st_status npy_open(struct api_request *request, struct upload *upload,
                               struct st_error *err)
{
    struct data_npy npy;
    const struct server_tensor *tensor = upload->tensor;
    uint64_t whole = upload->npy_bytes + tensor->shard_bytes, length = request->content_length;
    enum st_status status = data_npy_parse(upload->npy, upload->npy_bytes, &npy, err);
    if (status == ST_OK) {
        status = data_npy_check(&npy, tensor->dtype, &tensor->shape, &tensor->strides,
                                &upload->transfer_request.logical, err);
    }
    if (status == ST_OK && length != API_LENGTH_UNKNOWN && length != whole) {
        status = length_fail(length, whole, err);
    }
    return status == ST_OK ? upload_open(request, upload, err) : status;
}

/* ---------------------------------------------------------------- receiving */

/** Take bytes of the npy header. Its prelude says how long it is. */
static enum st_status npy_receive(struct api_request *request, struct upload *upload,
                                  const char *data, size_t bytes, size_t *ret_taken,
                                  struct st_error *err)
{
    size_t missing = upload->npy_wanted - upload->npy_bytes;
    size_t part = missing < bytes ? missing : bytes;
    memcpy(upload->npy + upload->npy_bytes, data, part);
    upload->npy_bytes += part;
    data_digest_update(&upload->digest, data, part);
    *ret_taken = part;
    if (upload->npy_bytes < upload->npy_wanted) {
        return ST_OK;
    }
    enum st_status status =
        data_npy_measure(upload->npy, upload->npy_bytes, &upload->npy_wanted, err);
    if (status == ST_OK && upload->npy_bytes == upload->npy_wanted) {
        status = npy_open(request, upload, err);
    }
    return status;
}

static enum st_status data_receive(struct upload *upload, const char *data, size_t bytes,
                                   size_t *ret_taken, struct st_error *err)
{
    uint64_t left = upload->transfer_request.bytes - upload->received;
    enum server_transfer_state state = server_transfer_state(upload->transfer, err);
    if (state == SERVER_TRANSFER_FAILED) {
        return err->status;
    }
    if (bytes > left) {
        return st_fail(err, ST_REASON_BODY_LENGTH_MISMATCH, NULL,
                       "the body has more than the %" PRIu64 " bytes of the data",
                       upload->transfer_request.bytes);
    }
    size_t taken = 0;
    if (state == SERVER_TRANSFER_READY) {
        taken = (size_t)server_upload_write(upload->transfer, data, bytes);
        data_digest_update(&upload->digest, data, taken);
        upload->received += taken;
    }
    *ret_taken = taken;
    return ST_OK;
}

static enum st_status upload_receive(struct api_request *request, const char *data, size_t bytes,
                                     size_t *ret_taken, struct st_error *err)
{
    struct upload *upload = request->context;
    size_t total = 0;
    while (total < bytes) {
        size_t taken = 0;
        enum st_status status =
            upload->transfer
                ? data_receive(upload, data + total, bytes - total, &taken, err)
                : npy_receive(request, upload, data + total, bytes - total, &taken, err);
        if (status != ST_OK) {
            /* At once: the rest of the body may be read and thrown away for long. */
            upload_close(upload);
            return upload_explain(upload, status, err);
        }
        if (!taken) {
            break;
        }
        total += taken;
    }
    *ret_taken = total;
    return ST_OK;
}

/* ---------------------------------------------------------------- the end */

static enum st_status upload_reply(struct api_request *request, const struct upload *upload,
                                   struct st_error *err)
{
    struct api_text text = {0};
    size_t length = 0;
    uint64_t generation = server_transfer_generation(upload->transfer);
    api_json_begin(&text, NULL);
    api_json_uint(&text, "generation", generation);
    api_json_end(&text);
    data_etag_set(request, upload->tensor, generation);
    char *body = api_text_take(&text, &length);
    return api_reply_json(request, 200, body, length, err);
}

/** All bytes were handed over: wait until they are in the shard. */
static enum st_status upload_done(struct api_request *request, struct st_error *err)
{
    struct upload *upload = request->context;
    enum server_transfer_state state = server_transfer_state(upload->transfer, err);
    if (state == SERVER_TRANSFER_FAILED) {
        return upload_explain(upload, err->status, err);
    }
    if (state != SERVER_TRANSFER_DONE) {
        api_request_suspend(request, upload_done);
        return ST_OK;
    }
    return upload_reply(request, upload, err);
}

/** Whether all of the body came, and as announced. */
static enum st_status upload_check(struct upload *upload, struct st_error *err)
{
    if (!upload->transfer) {
        return st_fail(err, ST_REASON_NPY_INVALID, NULL, "npy header: the body ends inside it");
    }
    if (upload->received != upload->transfer_request.bytes) {
        return st_fail(err, ST_REASON_BODY_LENGTH_MISMATCH, NULL,
                       "the body ends after %" PRIu64 " of %" PRIu64 " bytes", upload->received,
                       upload->transfer_request.bytes);
    }
    return data_digest_verify(&upload->digest, err);
}

static enum st_status upload_finish(struct api_request *request, struct st_error *err)
{
    struct upload *upload = request->context;
    enum st_status status = upload_check(upload, err);
    if (status != ST_OK) {
        upload_close(upload); /* Before the answer, which says that the shard is undefined now. */
        return status;
    }
    server_upload_finish(upload->transfer);
    return upload_done(request, err);
}

/** Headers that would mean something else than what is done here. */
static enum st_status headers_check(struct api_request *request, struct upload *upload,
                                    struct st_error *err)
{
    const char *encoding = api_request_header(request, "Content-Encoding");
    if (api_request_header(request, "Content-Range")) {
        return st_fail(err, ST_REASON_INVALID_HEADER, "Content-Range",
                       "has no meaning on PUT; use ?offset=");
    }
    if (encoding && strcasecmp(encoding, "identity") != 0) {
        return st_fail(err, ST_REASON_UNSUPPORTED_MEDIA_TYPE, "Content-Encoding",
                       "bodies are not decoded here; send them as they are");
    }
    return data_digest_expect(&upload->digest, api_request_header(request, "Content-Digest"), err);
}

/**
 * If-Match and If-None-Match, of the contents as they are shown now. A write that comes in between
 * is seen by the server, which is given the generation.
 */
static enum st_status conditions_check(struct api_request *request, struct upload *upload,
                                       struct st_error *err)
{
    const struct server_tensor *tensor = upload->tensor;
    const char *header = api_request_header(request, "If-Match");
    uint64_t *expected = &upload->transfer_request.expected_generation;
    char etag[API_ETAG_BYTES];
    bool match = false;
    /* A write that was cut changed a shard without a new generation. */
    bool undefined =
        tensor->shard_contents[upload->transfer_request.rank].state == SERVER_CONTENTS_UNDEFINED;
    const char *tag =
        undefined ? DATA_ETAG_NONE : api_view_etag(tensor->contents.generation, tensor->uid, etag);
    enum st_status status = api_if_match(request, tag, err);
    if (status == ST_OK) {
        status = api_if_none_match(request, tag, &match, err);
    }
    if (status == ST_OK && match) {
        status = st_fail(err, ST_REASON_ETAG_MISMATCH, "If-None-Match", "the etag is %s", tag);
        err->http_code = 412;
    }
    if (status == ST_OK && header && strchr(header, '"') && *expected == SERVER_GENERATION_ANY) {
        *expected = tensor->contents.generation;
        upload->pinned = true;
    }
    return status;
}

enum st_status data_put(struct api_request *request, struct st_error *err)
{
    static const struct api_receiver receiver = {upload_receive, upload_finish, upload_state};
    const struct data_put_query *query = request->query;
    struct upload *upload = api_arena_alloc(&request->arena, sizeof(*upload));
    if (!upload) {
        return api_decode_fail_memory(err);
    }
    request->context = upload;
    api_request_on_end(request, upload_end);
    upload->transfer_request.expected_generation = query->expected_generation;
    enum st_status status = headers_check(request, upload, err);
    if (status == ST_OK) {
        status = data_shard_find(request, &upload->transfer_request, &upload->tensor, err);
    }
    if (status == ST_OK) {
        status = conditions_check(request, upload, err);
    }
    if (status == ST_OK) {
        status = request->media == DATA_NPY ? npy_begin(request, upload, err)
                                            : raw_begin(request, upload, err);
    }
    if (status == ST_OK) {
        api_request_receive(request, &receiver);
    }
    return upload_explain(upload, status, err);
}
