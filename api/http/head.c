#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "api/http/exchange.h"
#include "api/http/timeout.h"
#include "base/clock.h"
#include "base/id.h"
#include "base/size.h"

/*
 * Everything that can be refused from a request's first line and headers, in the first call of the
 * library, so that no body is read for it. libmicrohttpd 0.9.75 lets through: Content-Length
 * together with Transfer-Encoding, repeated Content-Length (the rest of the body is then read as
 * the next request), unknown transfer encodings, escapes in paths (which it would undo, cutting at
 * %00), any method, any body length.
 */

/* ---------------------------------------------------------------- headers */

/* tchar of RFC 9110, 5.6.2. libmicrohttpd takes a name with a blank in front of the colon for
 * another header, which a proxy may not. */
#define HTTP_TOKEN_BYTES                                                                           \
    "!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

/*
 * The lines of a head lie one behind the other as they came, and the library shows where each name
 * and value begins and how long they are up to the first NUL; it writes two of them over the CRLF
 * behind a line. So a name that does not begin there, or a head that does not end there, tells of
 * what the texts do not show: a NUL inside a value, a line that begins with one (which ends the
 * head in the eyes of the library), a line that ends without a CR, a folded line (which is copied
 * elsewhere). Only a NUL in the place of the CR stays unseen: it means the same there.
 */
#define LINE_END_BYTES 2
/** Major version of the library up to which this holds; later ones see to it themselves. */
#define LINES_LIBRARY_MAJOR '0'

void http_head_begin(struct http_exchange *exchange, const char *version)
{
    struct http_head *head = &exchange->head;
    /* Method, target and version stand in one buffer too, a NUL behind each. A version that does
     * not follow the target's first NUL means that the target holds one. */
    head->has_bad_target = version != exchange->target_end + 1;
    head->needs_host = strcmp(version, "HTTP/1.0") != 0;
    head->line_end = version + strlen(version) + LINE_END_BYTES;
}

static enum MHD_Result head_gather(void *cls, enum MHD_ValueKind kind, const char *key,
                                   size_t key_bytes, const char *value, size_t value_bytes)
{
    static const struct {
        const char *name;
        size_t length;
    } names[] = {
#define X(field, name) [HTTP_HEAD_##field] = {name, sizeof(name) - 1},
        HTTP_HEAD_FIELDS(X)
#undef X
    };
    (void)kind;
    struct http_head *head = cls;
    head->has_bad_line |= key != head->line_end || !value || memchr(value, '\r', value_bytes);
    head->line_end = value ? value + value_bytes + LINE_END_BYTES : NULL;
    head->has_bad_name |= strspn(key, HTTP_TOKEN_BYTES) != key_bytes;
    for (size_t i = 0; i < HTTP_HEAD_COUNT; i++) {
        if (names[i].length != key_bytes || strncasecmp(names[i].name, key, key_bytes) != 0) {
            continue;
        }
        if (!head->counts[i]) {
            head->values[i] = value ? value : "";
        }
        head->counts[i] = head->counts[i] ? 2 : 1;
        break;
    }
    return MHD_YES;
}

/** Look at all headers. @param method the begin of the head in the library's buffer. */
static void head_gather_all(struct http_exchange *exchange, const char *method)
{
    struct http_head *head = &exchange->head;
    struct MHD_Connection *mhd = exchange->connection->mhd;
    MHD_get_connection_values_n(mhd, MHD_HEADER_KIND, head_gather, head);
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE);
    head->has_bad_line |=
        !info || !head->line_end || head->line_end + LINE_END_BYTES != method + info->header_size;
    head->has_bad_line &= MHD_get_version()[0] == LINES_LIBRARY_MAJOR;
}

static bool request_id_is_valid(const char *text)
{
    size_t length =
        strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-");
    return length >= 1 && length <= HTTP_REQUEST_ID_MAX && !text[length];
}

/** Take the client's request id, or make one: unique in this process, with a random part
 * (splitmix64). */
void http_head_set_request_id(struct http_exchange *exchange)
{
    const char *given = exchange->head.values[HTTP_HEAD_REQUEST_ID];
    if (given && request_id_is_valid(given)) {
        snprintf(exchange->request_id, sizeof(exchange->request_id), "%s", given);
        return;
    }
    struct http_front *front = exchange->connection->listener->front;
    uint64_t bits = front->request_id_seed +
                    atomic_fetch_add_explicit(&front->request_id_next, 1, memory_order_relaxed) *
                        0x9e3779b97f4a7c15ull;
    bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9ull;
    bits = (bits ^ (bits >> 27)) * 0x94d049bb133111ebull;
    bits ^= bits >> 31;
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < 16; i++) {
        exchange->request_id[i] = digits[bits >> (60 - 4 * i) & 15];
    }
    exchange->request_id[16] = '\0';
}

/** What frames the body. Anything doubtful here is how requests are smuggled, so the connection
 * closes. */
static enum st_status head_check_framing(struct http_exchange *exchange, struct st_error *err)
{
    const struct http_head *head = &exchange->head;
    const char *length = head->values[HTTP_HEAD_CONTENT_LENGTH];
    const char *encoding = head->values[HTTP_HEAD_TRANSFER_ENCODING];
    exchange->must_close = true;
    if (head->has_bad_name) {
        return st_fail(err, ST_REASON_INVALID_HEADER, NULL,
                       "a header's name holds a blank or another byte that names do not have");
    }
    if (head->has_bad_target) {
        return st_fail(err, ST_REASON_INVALID_HEADER, NULL, "the target holds a NUL byte");
    }
    if (head->has_bad_line) {
        return st_fail(err, ST_REASON_INVALID_HEADER, NULL,
                       "a line of the head is folded, holds a NUL or CR byte, or does not end in "
                       "CR and LF");
    }
    if (head->needs_host && !head->counts[HTTP_HEAD_HOST]) {
        return st_fail(err, ST_REASON_INVALID_HEADER, "Host", "is required by HTTP/1.1");
    }
    if (head->counts[HTTP_HEAD_CONTENT_LENGTH] > 1) {
        return st_fail(err, ST_REASON_INVALID_HEADER, "Content-Length", "must not be repeated");
    }
    if (length && encoding) {
        return st_fail(err, ST_REASON_INVALID_HEADER, "Transfer-Encoding",
                       "must not be given together with Content-Length");
    }
    if (encoding &&
        (head->counts[HTTP_HEAD_TRANSFER_ENCODING] > 1 || strcasecmp(encoding, "chunked") != 0)) {
        return st_fail(err, ST_REASON_INVALID_HEADER, "Transfer-Encoding", "must be chunked");
    }
    uint64_t bytes = encoding ? API_LENGTH_UNKNOWN : 0;
    if (length && !st_uint_parse(length, ST_JSON_INTEGER_MAX, &bytes)) {
        return st_fail(err, ST_REASON_BODY_TOO_LARGE, "Content-Length",
                       "must be at most %lld in decimal digits", ST_JSON_INTEGER_MAX);
    }
    exchange->must_close = false;
    exchange->request.content_length = bytes;
    exchange->has_body = bytes != 0;
    return ST_OK;
}

bool http_head_has_bad_length(const struct http_connection *connection, struct st_error *ret_error)
{
    const char *length =
        MHD_lookup_connection_value(connection->mhd, MHD_HEADER_KIND, "Content-Length");
    uint64_t bytes;
    if (!length || st_uint_parse(length, UINT64_MAX, &bytes)) {
        return false;
    }
    bool digits = length[0] && !length[strspn(length, "0123456789")];
    return st_fail(ret_error, digits ? ST_REASON_BODY_TOO_LARGE : ST_REASON_INVALID_HEADER,
                   "Content-Length", "must be at most %lld in decimal digits",
                   ST_JSON_INTEGER_MAX) != ST_OK;
}

bool http_head_has_many_cookies(const struct http_connection *connection,
                                struct st_error *ret_error)
{
    /* They are taken apart after the last line and before the first call, in one go. */
    if (MHD_get_connection_values(connection->mhd, MHD_COOKIE_KIND, NULL, NULL) <= 0) {
        return false;
    }
    st_fail(ret_error, ST_REASON_INVALID_HEADER, "Cookie",
            "the head with its cookies needs more than the at most %u bytes of one request",
            ST_HTTP_CONNECTION_MEMORY);
    ret_error->http_code = 431;
    return true;
}

/** Which site the request is meant for, and comes from. */
static enum st_status head_check_site(const struct http_exchange *exchange, struct st_error *err)
{
    const struct http_connection *connection = exchange->connection;
    const struct http_head *head = &exchange->head;
    char quoted[80];
    if (connection->listener->kind == HTTP_LISTENER_HEALTH) {
        return ST_OK;
    }
    if (head->counts[HTTP_HEAD_HOST] > 1 || head->counts[HTTP_HEAD_ORIGIN] > 1) {
        return st_fail(err, ST_REASON_INVALID_HEADER, "Host", "Host or Origin is repeated");
    }
    const char *host = head->values[HTTP_HEAD_HOST];
    if (host && !http_host_allowed(connection->listener->front, host)) {
        return st_fail(err, ST_REASON_FOREIGN_HOST, "Host",
                       "\"%s\" is not one of the names of --allowed-hosts",
                       st_error_quote(host, quoted));
    }
    const char *origin = head->values[HTTP_HEAD_ORIGIN];
    if (origin && !http_origin_allowed(connection->listener->front, origin)) {
        return st_fail(err, ST_REASON_FOREIGN_HOST, "Origin",
                       "\"%s\" is not one of the names of --allowed-hosts",
                       st_error_quote(origin, quoted));
    }
    return ST_OK;
}

/* ---------------------------------------------------------------- path and route */

static enum st_status head_check_path(const struct http_exchange *exchange, struct st_error *err)
{
    if (exchange->path[0] != '/') {
        return st_fail(err, ST_REASON_INVALID_PATH, NULL, "the path must begin with \"/\"");
    }
    for (size_t i = 0; i < exchange->path_length; i++) {
        unsigned char byte = (unsigned char)exchange->path[i];
        if (byte <= 0x20 || byte >= 0x7f || byte == '%') {
            return st_fail(err, ST_REASON_INVALID_PATH, NULL,
                           "byte %zu of the path is 0x%02x: ids need no escapes, and only visible "
                           "ASCII without \"%%\" is taken",
                           i, byte);
        }
    }
    return ST_OK;
}

static enum api_method method_parse(const char *text, bool *ret_head)
{
    *ret_head = strcmp(text, "HEAD") == 0;
    if (*ret_head) {
        return API_GET;
    }
    unsigned method = 0;
    while (method < API_METHOD_COUNT && strcmp(text, api_method_name(method)) != 0) {
        method++;
    }
    return method;
}

static enum st_status head_check_role(const struct http_connection *connection,
                                      const struct api_route *route, struct st_error *err)
{
    static const char *const names[] = {[SERVER_ROLE_VIEWER] = "viewer",
                                        [SERVER_ROLE_USER] = "user",
                                        [SERVER_ROLE_OPERATOR] = "operator"};
    if (route->flags & API_ROUTE_PUBLIC) {
        return ST_OK;
    }
    if (connection->foreign) {
        return st_fail(err, ST_REASON_FOREIGN_USER, NULL,
                       "%s is not the server's user, root or a member of the socket's group",
                       connection->principal[0] ? connection->principal : "this user");
    }
    if (connection->role < route->role) {
        return st_fail(err, ST_REASON_ROLE_REQUIRED, NULL, "this needs the role %s, not %s",
                       names[route->role], names[connection->role]);
    }
    return ST_OK;
}

static enum st_status head_take_ids(struct http_exchange *exchange, const struct http_found *found,
                                    struct st_error *err)
{
    for (uint32_t i = 0; i < found->id_count; i++) {
        char *id = exchange->path + found->ids[i].at;
        if (!st_id_is_valid(id, found->ids[i].length)) {
            return st_fail(
                err, ST_REASON_INVALID_ID, NULL,
                "the path holds an id that does not match "
                "[A-Za-z0-9_][A-Za-z0-9_.-]{0,254}, or has \"..\" or a \".\" at its end");
        }
        exchange->request.ids[i] = id;
    }
    /* Not earlier: the byte behind one id is the slash before the next. */
    for (uint32_t i = 0; i < found->id_count; i++) {
        exchange->path[found->ids[i].at + found->ids[i].length] = '\0';
    }
    return ST_OK;
}

static enum st_status head_find_route(struct http_exchange *exchange, const char *method_text,
                                      struct st_error *err)
{
    struct api_request *request = &exchange->request;
    const struct http_front *front = exchange->connection->listener->front;
    exchange->method = method_parse(method_text, &request->head);
    struct http_found found;
    enum http_match match = http_router_find(front->router, exchange->method, exchange->path,
                                             exchange->path_length, &found);
    bool health = exchange->connection->listener->kind == HTTP_LISTENER_HEALTH;
    char quoted[80];
    if (match == HTTP_MATCH_NO_METHOD) {
        exchange->allow = api_arena_copy(&request->arena, found.allow, strlen(found.allow));
        return st_fail(err, ST_REASON_METHOD_NOT_ALLOWED, NULL, "%s is not one of %s here",
                       st_error_quote(method_text, quoted), found.allow);
    }
    if (match == HTTP_MATCH_NO_PATH ||
        (health && !(found.entry->route->flags & API_ROUTE_HEALTH))) {
        return st_fail(err, ST_REASON_ROUTE_NOT_FOUND, NULL, "no such path: %s",
                       st_error_quote(exchange->path, quoted));
    }
    exchange->entry = found.entry;
    request->route = found.entry->route;
    request->collective = found.entry->collective;
    enum st_status status = head_check_role(exchange->connection, request->route, err);
    if (status != ST_OK) {
        return status;
    }
    if (request->route->flags & API_ROUTE_RESERVED) {
        return st_fail(err, ST_REASON_NOT_AVAILABLE_YET, NULL,
                       "%s %s is reserved for a later version", method_text, found.entry->path);
    }
    return head_take_ids(exchange, &found, err);
}

/* ---------------------------------------------------------------- body */

/** Whether @p header names @p type, with no parameter but a charset of UTF-8. */
static bool media_is(const char *header, const char *type)
{
    size_t length = strlen(type);
    if (strncasecmp(header, type, length) != 0) {
        return false;
    }
    const char *rest = header + length;
    rest += strspn(rest, " \t");
    if (!*rest) {
        return true;
    }
    if (*rest++ != ';') {
        return false;
    }
    rest += strspn(rest, " \t");
    return strcasecmp(rest, "charset=utf-8") == 0 || strcasecmp(rest, "charset=\"utf-8\"") == 0;
}

static enum st_status head_check_json(const struct http_exchange *exchange, struct st_error *err)
{
    const char *type = exchange->head.values[HTTP_HEAD_CONTENT_TYPE];
    bool patch = exchange->request.route->method == API_PATCH;
    if (!type || !(media_is(type, "application/json") ||
                   (patch && media_is(type, "application/merge-patch+json")))) {
        return st_fail(err, ST_REASON_UNSUPPORTED_MEDIA_TYPE, "Content-Type",
                       "must be application/json (with curl: --json '{...}')");
    }
    uint64_t bytes = exchange->request.content_length;
    if (bytes != API_LENGTH_UNKNOWN && bytes > ST_HTTP_JSON_BODY_MAX) {
        return st_fail(err, ST_REASON_BODY_TOO_LARGE, "Content-Length",
                       "a JSON body must have at most %u bytes, not %" PRIu64,
                       ST_HTTP_JSON_BODY_MAX, bytes);
    }
    return ST_OK;
}

static enum st_status media_fail(const char *const *media, struct st_error *err)
{
    char list[200] = "";
    size_t length = 0;
    for (size_t i = 0; media[i] && length < sizeof(list); i++) {
        int added = snprintf(list + length, sizeof(list) - length, "%s%s", i ? ", " : "", media[i]);
        length += added > 0 ? (size_t)added : 0;
    }
    return st_fail(err, ST_REASON_UNSUPPORTED_MEDIA_TYPE, "Content-Type",
                   "must be one of %s (with curl -T FILE)", list);
}

static enum st_status head_check_stream(struct http_exchange *exchange, struct st_error *err)
{
    const struct http_head *head = &exchange->head;
    const char *const *media = exchange->request.route->media;
    if (!head->values[HTTP_HEAD_CONTENT_LENGTH] && !head->values[HTTP_HEAD_TRANSFER_ENCODING]) {
        return st_fail(err, ST_REASON_LENGTH_REQUIRED, NULL,
                       "Content-Length or Transfer-Encoding: chunked is required");
    }
    if (head->values[HTTP_HEAD_CONTENT_RANGE]) {
        return st_fail(err, ST_REASON_INVALID_HEADER, "Content-Range",
                       "has no meaning here; use ?offset=");
    }
    const char *type = head->values[HTTP_HEAD_CONTENT_TYPE];
    for (uint32_t i = 0; type && media; i++) {
        if (!media[i]) {
            return media_fail(media, err);
        }
        if (media_is(type, media[i])) {
            exchange->request.media = i;
            break;
        }
    }
    return ST_OK;
}

static enum st_status head_check_body(struct http_exchange *exchange, struct st_error *err)
{
    const struct http_head *head = &exchange->head;
    const char *encoding = head->values[HTTP_HEAD_CONTENT_ENCODING];
    enum api_body kind = exchange->request.route->body;
    if (head->counts[HTTP_HEAD_CONTENT_TYPE] > 1) {
        return st_fail(err, ST_REASON_INVALID_HEADER, "Content-Type", "must not be repeated");
    }
    if (encoding && strcasecmp(encoding, "identity") != 0) {
        return st_fail(err, ST_REASON_UNSUPPORTED_MEDIA_TYPE, "Content-Encoding",
                       "bodies are not decompressed");
    }
    if (kind == API_BODY_STREAM) {
        return head_check_stream(exchange, err);
    }
    if (!exchange->has_body) {
        return ST_OK;
    }
    if (kind == API_BODY_NONE) {
        return st_fail(err, ST_REASON_INVALID_VALUE, NULL, "this request takes no body");
    }
    return head_check_json(exchange, err);
}

/* ---------------------------------------------------------------- query and deadline */

static enum st_status head_set_deadline(struct http_exchange *exchange, struct st_error *err)
{
    const struct http_head *head = &exchange->head;
    if (!head->counts[HTTP_HEAD_GRPC_TIMEOUT]) {
        return ST_OK;
    }
    uint64_t timeout_ns;
    if (head->counts[HTTP_HEAD_GRPC_TIMEOUT] > 1 ||
        !http_timeout_parse(head->values[HTTP_HEAD_GRPC_TIMEOUT], &timeout_ns)) {
        return st_fail(err, ST_REASON_INVALID_HEADER, "grpc-timeout",
                       "must be 1 to 8 digits and one of H, M, S, m, u, n");
    }
    if (!__builtin_add_overflow(exchange->start_ns, timeout_ns, &timeout_ns)) {
        exchange->request.caller.deadline_ns = timeout_ns;
    }
    return ST_OK;
}

static const struct api_field wait_query[] = {
    {.name = "wait",
     .type = &api_type_seconds,
     .offset = offsetof(struct api_request, wait_ns),
     .max = ST_WAIT_SECONDS_MAX,
     .doc = "Seconds to wait for the operation before it is answered with 202."},
    {0},
};

static enum st_status head_decode_query(struct http_exchange *exchange, struct st_error *err)
{
    struct api_request *request = &exchange->request;
    const struct api_route *route = request->route;
    if (route->query_bytes) {
        request->query = api_arena_alloc(&request->arena, route->query_bytes);
        if (!request->query) {
            return api_decode_fail_memory(err);
        }
        if (route->query_defaults) {
            memcpy(request->query, route->query_defaults, route->query_bytes);
        }
    }
    request->wait_ns = ST_WAIT_SECONDS_DEFAULT * ST_NS_PER_SECOND;
    const struct api_query_part parts[] = {
        {.fields = route->query, .target = request->query},
        {.fields = route->flags & API_ROUTE_WAITS ? wait_query : NULL, .target = request},
    };
    return api_query_decode(&request->arena, exchange->query, parts, 2, err);
}

static enum st_status head_check_expect(const struct http_exchange *exchange, struct st_error *err)
{
    const char *expect = exchange->head.values[HTTP_HEAD_EXPECT];
    if (!expect ||
        (exchange->head.counts[HTTP_HEAD_EXPECT] == 1 && strcasecmp(expect, "100-continue") == 0)) {
        return ST_OK;
    }
    enum st_status status = st_fail(err, ST_REASON_INVALID_HEADER, "Expect",
                                    "nothing but 100-continue can be expected here");
    err->http_code = 417;
    return status;
}

/** A client that gives a key sends again what it saw no reply of: ignored, that would run twice. */
static enum st_status head_check_key(const struct http_exchange *exchange, struct st_error *err)
{
    if (exchange->method == API_GET || !exchange->head.counts[HTTP_HEAD_IDEMPOTENCY_KEY]) {
        return ST_OK;
    }
    return st_fail(err, ST_REASON_NOT_AVAILABLE_YET, "Idempotency-Key",
                   "is reserved for a later version; leave it out, and look whether a request took "
                   "effect before sending it again");
}

/**
 * A condition that a request to change something would not be held to is refused, and so is a
 * second line of one, of which only the first would count.
 */
static enum st_status head_check_conditions(const struct http_exchange *exchange,
                                            struct st_error *err)
{
    static const struct {
        enum http_head_field field;
        const char *name;
        unsigned flag; /**< Of the routes that honour it, beside those that only read; 0: any. */
    } rows[] = {
        {HTTP_HEAD_IF_MATCH, "If-Match", API_ROUTE_IF_MATCH},
        {HTTP_HEAD_IF_NONE_MATCH, "If-None-Match", API_ROUTE_IF_NONE_MATCH},
        {HTTP_HEAD_RANGE, "Range", 0},
        {HTTP_HEAD_IF_RANGE, "If-Range", 0},
    };
    const struct api_route *route = exchange->request.route;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        uint8_t count = exchange->head.counts[rows[i].field];
        if (count > 1) {
            return st_fail(err, ST_REASON_INVALID_HEADER, rows[i].name, "must not be repeated");
        }
        if (count && rows[i].flag && route->method != API_GET && !(route->flags & rows[i].flag)) {
            return st_fail(err, ST_REASON_INVALID_HEADER, rows[i].name,
                           "is not looked at here, so the request would run without it; verbs "
                           "take \"expected_generation\"");
        }
    }
    return ST_OK;
}

/* ---------------------------------------------------------------- all of it */

static void head_set_caller(struct http_exchange *exchange)
{
    const struct http_connection *connection = exchange->connection;
    exchange->request.server = atomic_load(&connection->listener->front->server);
    exchange->request.caller = (struct server_caller){.principal = connection->principal,
                                                      .deadline_ns = ST_DEADLINE_NEVER,
                                                      .role = connection->role,
                                                      .request_id = exchange->request_id};
}

enum st_status http_head_check(struct http_exchange *exchange, const char *method,
                               struct st_error *err)
{
    head_gather_all(exchange, method);
    http_head_set_request_id(exchange);
    head_set_caller(exchange);
    enum st_status status = head_check_framing(exchange, err);
    if (status == ST_OK) {
        status = head_check_site(exchange, err);
    }
    if (status == ST_OK && !exchange->path) {
        status = api_decode_fail_memory(err);
    }
    if (status == ST_OK) {
        status = head_check_path(exchange, err);
    }
    if (status == ST_OK) {
        status = head_find_route(exchange, method, err);
    }
    if (status == ST_OK) {
        status = head_check_expect(exchange, err);
    }
    if (status == ST_OK) {
        status = head_check_key(exchange, err);
    }
    if (status == ST_OK) {
        status = head_check_conditions(exchange, err);
    }
    if (status == ST_OK) {
        status = head_set_deadline(exchange, err);
    }
    if (status == ST_OK) {
        status = head_check_body(exchange, err);
    }
    if (status == ST_OK) {
        status = head_decode_query(exchange, err);
    }
    return status;
}
