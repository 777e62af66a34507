#include <inttypes.h>
#include <string.h>

#include "api/data/accept.h"
#include "api/data/data.h"
#include "api/data/digest.h"
#include "api/data/npy.h"
#include "api/data/range.h"
#include "api/data/values.h"
#include "api/resources/outcome.h"
#include "api/resources/view.h"
#include "api/text.h"

/** Bodies up to here are put together before they are sent where a digest is wanted. */
#define DIGEST_BYTES_MAX ST_STAGING_BYTES

/** One GET. Lives in the request's arena. */
struct download {
    struct server_transfer_request transfer_request;
    struct server_tensor *tensor; /**< As of acceptance, once the transfer is open. */
    struct server_transfer *transfer;
    enum data_form form;
    bool partial;     /**< 206 */
    bool conditional; /**< If-Range held for what was seen, of seen_generation. */
    uint64_t seen_generation;
    bool digest;       /**< Repr-Digest is wanted, and cheap. */
    uint64_t elements; /**< Of a JSON reply. */
    char npy[DATA_NPY_HEADER_WRITTEN_MAX];
    size_t npy_bytes, npy_sent;
    char *collected; /**< The body of JSON and digests, as far as it was read. */
    uint64_t collected_bytes;
};

static void download_end(struct api_request *request)
{
    struct download *download = request->context;
    server_transfer_close(download->transfer);
    if (download->tensor) {
        server_snapshot_release(&download->tensor->base);
    }
}

/* ---------------------------------------------------------------- what is asked for */

/** What may be undefined has no entity tag: a write that was cut leaves the generation as it was.
 */
static const char *download_etag(const struct download *download, uint64_t generation,
                                 char buffer[static API_ETAG_BYTES])
{
    return download->transfer_request.allow_undefined
               ? DATA_ETAG_NONE
               : api_view_etag(generation, download->tensor->uid, buffer);
}

/** If-Range (RFC 9110 13.1.5): a Range counts only while the contents are those that the client
 * has. */
static bool range_counts(struct api_request *request, struct download *download)
{
    const char *header = api_request_header(request, "If-Range");
    uint64_t generation = download->tensor->contents.generation;
    char etag[API_ETAG_BYTES];
    download->conditional = header;
    download->seen_generation = generation;
    return !header || strcmp(header, download_etag(download, generation, etag)) == 0;
}

static enum st_status raw_select(struct api_request *request, struct download *download,
                                 struct st_error *err)
{
    const struct data_get_query *query = request->query;
    struct server_transfer_request *wanted = &download->transfer_request;
    const char *header = api_request_header(request, "Range");
    uint64_t total = download->tensor->shard_bytes;
    if (query->has_offset) {
        if (header) {
            return st_fail(err, ST_REASON_INVALID_HEADER, "Range",
                           "cannot be used together with ?offset=");
        }
        if (query->offset > total) {
            return st_fail(err, ST_REASON_RANGE_OUT_OF_BOUNDS, "offset",
                           "must be at most the shard's %" PRIu64 " bytes", total);
        }
        wanted->has_range = true;
        wanted->offset = query->offset;
        wanted->bytes = total - query->offset;
        return ST_OK;
    }
    wanted->bytes = total;
    if (!header || !range_counts(request, download)) {
        return ST_OK;
    }
    enum data_range range = data_range_parse(header, total, &wanted->offset, &wanted->bytes);
    if (range == DATA_RANGE_UNSATISFIABLE) {
        return st_fail(err, ST_REASON_RANGE_NOT_SATISFIABLE, "Range",
                       "lies outside the shard's %" PRIu64 " bytes", total);
    }
    download->partial = wanted->has_range = range == DATA_RANGE_SATISFIABLE;
    return ST_OK;
}

static enum st_status npy_select(struct api_request *request, struct download *download,
                                 struct st_error *err)
{
    const struct data_get_query *query = request->query;
    const struct server_tensor *tensor = download->tensor;
    if (query->has_offset) {
        return st_fail(err, ST_REASON_INVALID_QUERY, "offset", "an npy file is always whole");
    }
    enum st_status status = data_npy_check_dtype(tensor->dtype, err);
    if (status != ST_OK) {
        return status;
    }
    download->transfer_request.logical = true;
    download->transfer_request.bytes = tensor->shard_bytes;
    download->npy_bytes = data_npy_write(tensor->dtype, &tensor->shape, download->npy);
    return ST_OK;
}

static enum st_status json_select(struct api_request *request, struct download *download,
                                  struct st_error *err)
{
    const struct data_get_query *query = request->query;
    uint32_t element = st_dtype_info(download->tensor->dtype)->size_bytes;
    uint64_t total = download->tensor->shard_bytes;
    if (query->offset > total) {
        return st_fail(err, ST_REASON_RANGE_OUT_OF_BOUNDS, "offset",
                       "must be at most the shard's %" PRIu64 " bytes", total);
    }
    if (query->offset % element) {
        return st_fail(err, ST_REASON_INVALID_QUERY, "offset",
                       "must be a multiple of an element's %u bytes", element);
    }
    uint64_t most = query->has_count ? query->count : ST_DATA_JSON_ELEMENTS_MAX;
    uint64_t left = (total - query->offset) / element;
    download->elements = most < left ? most : left;
    download->transfer_request.logical = true;
    download->transfer_request.has_range = true;
    download->transfer_request.offset = query->offset;
    download->transfer_request.bytes = download->elements * element;
    return ST_OK;
}

static enum st_status download_select(struct api_request *request, struct download *download,
                                      struct st_error *err)
{
    static enum st_status (*const selects[])(struct api_request *, struct download *,
                                             struct st_error *) = {
        [DATA_RAW] = raw_select,
        [DATA_NPY] = npy_select,
        [DATA_JSON] = json_select,
    };
    const struct data_get_query *query = request->query;
    if (query->has_count && download->form != DATA_JSON) {
        return st_fail(err, ST_REASON_INVALID_QUERY, "count",
                       "is for JSON; send the header \"Accept: application/json\"");
    }
    enum st_status status = selects[download->form](request, download, err);
    const struct server_transfer_request *wanted = &download->transfer_request;
    download->digest = status == ST_OK && download->form != DATA_JSON && !wanted->has_range &&
                       wanted->bytes <= DIGEST_BYTES_MAX &&
                       data_digest_is_wanted(api_request_header(request, "Want-Repr-Digest"));
    return status;
}

/* ---------------------------------------------------------------- answering */

static ssize_t download_read(struct api_request *request, char *buffer, size_t size)
{
    struct download *download = request->context;
    size_t left = download->npy_bytes - download->npy_sent;
    if (left) {
        size_t part = left < size ? left : size;
        memcpy(buffer, download->npy + download->npy_sent, part);
        download->npy_sent += part;
        return (ssize_t)part;
    }
    struct st_error failure;
    for (;;) {
        uint64_t bytes = server_download_read(download->transfer, buffer, size);
        if (bytes) {
            return (ssize_t)bytes;
        }
        enum server_transfer_state state = server_transfer_state(download->transfer, &failure);
        if (state == SERVER_TRANSFER_WAITING) {
            return 0;
        }
        if (state != SERVER_TRANSFER_READY) {
            return -1;
        }
    }
}

static void etag_set(struct api_request *request, const struct download *download,
                     uint64_t generation)
{
    if (!download->transfer_request.allow_undefined) {
        data_etag_set(request, download->tensor, generation);
    }
}

/** The head of a body in one of the two binary forms. */
static void download_head(struct api_request *request, const struct download *download,
                          uint64_t generation)
{
    const struct server_transfer_request *wanted = &download->transfer_request;
    etag_set(request, download, generation);
    if (download->form == DATA_RAW) {
        api_reply_header(request, "Accept-Ranges", "bytes");
    }
    if (download->partial) {
        api_reply_header(request, "Content-Range", "bytes %" PRIu64 "-%" PRIu64 "/%" PRIu64,
                         wanted->offset, wanted->offset + wanted->bytes - 1,
                         download->tensor->shard_bytes);
    }
}

static enum st_status stream_reply(struct api_request *request, struct download *download,
                                   uint64_t generation, struct st_error *err)
{
    unsigned code = download->partial ? 206 : 200;
    const char *type = data_media[download->form];
    uint64_t bytes = download->npy_bytes + download->transfer_request.bytes;
    download_head(request, download, generation);
    return bytes ? api_reply_stream(request, code, type, bytes, download_read, err)
                 : api_reply_copy(request, code, type, "", 0, err);
}

static enum st_status json_reply(struct api_request *request, const struct download *download,
                                 uint64_t generation, struct st_error *err)
{
    const struct server_tensor *tensor = download->tensor;
    struct api_text text = {0};
    size_t length = 0;
    api_json_begin(&text, NULL);
    api_json_string(&text, "dtype", st_dtype_info(tensor->dtype)->name);
    api_json_begin_array(&text, "shape");
    for (uint32_t i = 0; i < tensor->shape.rank; i++) {
        api_json_int(&text, NULL, tensor->shape.dims[i]);
    }
    api_json_end_array(&text);
    api_json_uint(&text, "offset_bytes", download->transfer_request.offset);
    api_json_uint(&text, "count", download->elements);
    api_json_uint(&text, "generation", generation);
    data_values_write(&text, "values", tensor->dtype, (const unsigned char *)download->collected,
                      download->elements);
    api_json_end(&text);
    etag_set(request, download, generation);
    char *body = api_text_take(&text, &length);
    return api_reply_json(request, 200, body, length, err);
}

static enum st_status digest_reply(struct api_request *request, const struct download *download,
                                   uint64_t generation, struct st_error *err)
{
    char digest[64];
    size_t bytes = download->npy_bytes + download->collected_bytes;
    if (data_digest_format(download->collected - download->npy_bytes, bytes, digest)) {
        api_reply_header(request, "Repr-Digest", "%s", digest);
    }
    download_head(request, download, generation);
    return api_reply_copy(request, 200, data_media[download->form],
                          download->collected - download->npy_bytes, bytes, err);
}

/**
 * If-Match and If-None-Match, of what would be sent: 412, or 304 as the reply, with which the shard
 * is given back.
 */
static enum st_status conditions_check(struct api_request *request, struct download *download,
                                       uint64_t generation, bool *ret_replied, struct st_error *err)
{
    char etag[API_ETAG_BYTES];
    const char *tag = download_etag(download, generation, etag);
    enum st_status status = api_if_match(request, tag, err);
    if (status == ST_OK) {
        status = api_if_none_match(request, tag, ret_replied, err);
    }
    if (status != ST_OK || !*ret_replied) {
        return status;
    }
    server_transfer_close(download->transfer);
    download->transfer = NULL;
    etag_set(request, download, generation);
    return api_reply_empty(request, 304, err);
}

static enum st_status download_continue(struct api_request *request, struct st_error *err);

/** Read all of a small body. *ret_complete stays false while something is missing; then the request
 * is suspended. */
static enum st_status download_collect(struct api_request *request, struct download *download,
                                       bool *ret_complete, struct st_error *err)
{
    uint64_t wanted = download->transfer_request.bytes;
    while (download->collected_bytes < wanted) {
        uint64_t bytes = server_download_read(download->transfer,
                                              download->collected + download->collected_bytes,
                                              wanted - download->collected_bytes);
        download->collected_bytes += bytes;
        if (bytes) {
            continue;
        }
        enum server_transfer_state state = server_transfer_state(download->transfer, err);
        if (state == SERVER_TRANSFER_FAILED) {
            return err->status;
        }
        if (state == SERVER_TRANSFER_WAITING) {
            api_request_suspend(request, download_continue);
            return ST_OK;
        }
        if (state == SERVER_TRANSFER_DONE) {
            return st_fail(err, ST_REASON_SYSTEM_ERROR, NULL, "the shard ended early");
        }
    }
    *ret_complete = true;
    return ST_OK;
}

/** Room for a body that is put together, an npy header in front included. */
static bool collect_begin(struct api_request *request, struct download *download)
{
    char *room = api_arena_alloc(&request->arena,
                                 download->npy_bytes + download->transfer_request.bytes + 1);
    if (!room) {
        return false;
    }
    memcpy(room, download->npy, download->npy_bytes);
    download->collected = room + download->npy_bytes;
    return true;
}

static enum st_status download_open(struct api_request *request, struct download *download,
                                    struct st_error *err);

/** A write that was accepted before ended meanwhile: what the client has is of no use, so that it
 * gets all. */
static enum st_status download_open_whole(struct api_request *request, struct download *download,
                                          struct st_error *err)
{
    struct server_transfer_request *wanted = &download->transfer_request;
    server_transfer_close(download->transfer);
    download->transfer = NULL;
    download->conditional = download->partial = wanted->has_range = false;
    wanted->offset = 0;
    wanted->bytes = download->tensor->shard_bytes;
    return download_open(request, download, err);
}

/** The transfer may have got its place: answer, or wait on. */
static enum st_status download_continue(struct api_request *request, struct st_error *err)
{
    struct download *download = request->context;
    enum server_transfer_state state = server_transfer_state(download->transfer, err);
    if (state == SERVER_TRANSFER_FAILED) {
        return err->status;
    }
    if (state == SERVER_TRANSFER_WAITING) {
        api_request_suspend(request, download_continue);
        return ST_OK;
    }
    uint64_t generation = server_transfer_generation(download->transfer);
    bool complete = false, replied = false;
    enum st_status status = conditions_check(request, download, generation, &replied, err);
    if (status != ST_OK || replied) {
        return status;
    }
    if (download->partial && download->conditional && generation != download->seen_generation) {
        return download_open_whole(request, download, err);
    }
    if (download->form != DATA_JSON && !download->digest) {
        return stream_reply(request, download, generation, err);
    }
    if (!download->collected && !collect_begin(request, download)) {
        return api_decode_fail_memory(err);
    }
    status = download_collect(request, download, &complete, err);
    if (status != ST_OK || !complete) {
        return status;
    }
    return download->form == DATA_JSON ? json_reply(request, download, generation, err)
                                       : digest_reply(request, download, generation, err);
}

/** HEAD: what GET would say, without a place in the order. */
static enum st_status download_head_only(struct api_request *request, struct download *download,
                                         struct st_error *err)
{
    const struct server_contents *contents =
        &download->tensor->shard_contents[download->transfer_request.rank];
    if (contents->state == SERVER_CONTENTS_WRITING) {
        return st_fail(err, ST_REASON_TENSOR_BUSY, "rank", "the shard is being written");
    }
    if (contents->state == SERVER_CONTENTS_UNDEFINED &&
        !download->transfer_request.allow_undefined) {
        return st_fail(err, ST_REASON_CONTENTS_UNDEFINED, "rank",
                       "the shard's contents are undefined; ?allow_undefined=true reads them");
    }
    uint64_t generation = download->tensor->contents.generation;
    bool replied = false;
    enum st_status status = conditions_check(request, download, generation, &replied, err);
    return status != ST_OK || replied ? status : stream_reply(request, download, generation, err);
}

static enum st_status download_open(struct api_request *request, struct download *download,
                                    struct st_error *err)
{
    struct server_tensor *opened;
    download->transfer_request.notify = api_request_notify;
    download->transfer_request.moved = api_request_moved;
    download->transfer_request.notify_arg = request;
    enum st_status status =
        server_download_open(request->server, &request->caller, &download->transfer_request,
                             &download->transfer, &opened, err);
    if (status != ST_OK) {
        return status;
    }
    status = data_same_tensor(download->tensor, opened, err);
    server_snapshot_release(&download->tensor->base);
    download->tensor = opened;
    return status == ST_OK ? download_continue(request, err) : status;
}

/** 416 says how many bytes there are, so that it is answered here with its header (RFC
 * 9110 15.5.17). */
static enum st_status unsatisfiable_reply(struct api_request *request,
                                          const struct download *download, struct st_error *err)
{
    struct st_error error = *err;
    api_reply_header(request, "Content-Range", "bytes */%" PRIu64, download->tensor->shard_bytes);
    return api_reply_error_with(request, &error, NULL, NULL, err);
}

enum st_status data_get(struct api_request *request, struct st_error *err)
{
    const struct data_get_query *query = request->query;
    struct download *download = api_arena_alloc(&request->arena, sizeof(*download));
    if (!download) {
        return api_decode_fail_memory(err);
    }
    int form = data_accept_choose(api_request_header(request, "Accept"), data_media);
    if (form < 0) {
        enum st_status status = st_fail(err, ST_REASON_UNSUPPORTED_MEDIA_TYPE, "Accept",
                                        "must allow application/octet-stream, application/x-npy or "
                                        "application/json");
        err->http_code = 406;
        return status;
    }
    download->form = (enum data_form)form;
    download->transfer_request.allow_undefined = query->allow_undefined;
    request->context = download;
    api_request_on_end(request, download_end);
    enum st_status status =
        data_shard_find(request, &download->transfer_request, &download->tensor, err);
    if (status == ST_OK) {
        status = download_select(request, download, err);
    }
    if (status == ST_OUT_OF_RANGE && err->reason == ST_REASON_RANGE_NOT_SATISFIABLE) {
        return unsatisfiable_reply(request, download, err);
    }
    if (status != ST_OK) {
        return status;
    }
    return request->head && download->form != DATA_JSON ? download_head_only(request, download, err)
                                                        : download_open(request, download, err);
}
