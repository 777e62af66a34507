#ifndef SYMTENSOR_API_HTTP_EXCHANGE_H
#define SYMTENSOR_API_HTTP_EXCHANGE_H

#include <microhttpd.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "api/http/front.h"
#include "api/http/router.h"
#include "api/request.h"
#include "base/timer.h"

/**
 * Inside api/http/: what belongs to a front, a listener, a connection and the request on it.
 * Handlers see none of this.
 *
 * Threads: each listener has one thread of libmicrohttpd; everything of a connection belongs to it,
 * but for the fields that `lock` guards and the atomics. Locks: http_listener.lock before
 * http_connection.lock, and that one before the library's own.
 */

#define HTTP_LISTENERS_MAX 3
#define HTTP_HOSTS_MAX 32
#define HTTP_REPLY_HEADERS_MAX 10
#define HTTP_REQUEST_ID_MAX 64
#define HTTP_TARGET_INLINE 256

enum http_listener_kind { HTTP_LISTENER_UNIX, HTTP_LISTENER_TCP, HTTP_LISTENER_HEALTH };

/** A socket of ours in the file system, so that it can be removed again. */
struct http_unix_place {
    char path[108]; /**< "": none. */
    int lock_fd;    /**< Of "<path>.lock"; -1: none. */
    dev_t device;   /**< Of the socket that we made. */
    ino_t inode;
};

struct http_listener {
    struct http_front *front;
    enum http_listener_kind kind;
    char address[160]; /**< For people: "unix:/run/...", "127.0.0.1:7411". */
    int fd;            /**< Listening socket; -1: none. */
    struct http_unix_place place;
    gid_t group; /**< Of the Unix socket: its members are users. */
    struct MHD_Daemon *daemon;
    pthread_mutex_t lock;                /**< Guards the list. */
    struct http_connection *connections; /**< All that are open. */
};

struct http_host {
    const char *text; /**< Without port, without brackets. */
    size_t length;
};

/** What a connection's deadline is for, to be counted. */
enum http_watch { HTTP_WATCH_HEAD, HTTP_WATCH_BODY, HTTP_WATCH_REPLY, HTTP_WATCH_COUNT };

struct http_front {
    struct server *_Atomic server; /**< NULL: it is being made; the health listener answers. */
    struct st_timers *timers;
    struct http_router *router;
    char incarnation[ST_UID_BYTES]; /**< Written before the server is set. */
    struct http_host hosts[HTTP_HOSTS_MAX];
    uint32_t host_count;
    char *host_text; /**< What hosts[] points into, beside the options. */
    struct http_listener listeners[HTTP_LISTENERS_MAX];
    uint32_t listener_count;
    uint64_t request_id_seed;
    _Atomic uint64_t request_id_next;
    _Atomic bool stopping; /**< Nothing may be suspended any more. */
    _Atomic uint32_t connections;
    _Atomic uint32_t requests_active;
    _Atomic uint64_t rejected[ST_REASON_COUNT];
    _Atomic uint64_t cut[HTTP_WATCH_COUNT], aborted;
    _Atomic uint64_t reply_bytes; /**< Of large replies that were not read yet. */
};
void http_front_metrics(const struct http_front *front, struct http_front_metrics *ret);

/** Where a request stands. */
enum http_phase {
    HTTP_PHASE_IDLE, /**< No request. */
    HTTP_PHASE_HEAD, /**< Its first line was seen. */
    HTTP_PHASE_BODY, /**< Its head was accepted, or refused with the refusal still to be sent. */
    HTTP_PHASE_RUN,  /**< It is complete and its handler has run. */
    HTTP_PHASE_SENT, /**< A reply was queued. */
};

/** Headers that the checks look at: member of the enum, name. Gathered in one pass. */
#define HTTP_HEAD_FIELDS(X)                                                                        \
    X(HOST, "Host")                                                                                \
    X(ORIGIN, "Origin")                                                                            \
    X(CONTENT_LENGTH, "Content-Length")                                                            \
    X(CONTENT_TYPE, "Content-Type")                                                                \
    X(CONTENT_ENCODING, "Content-Encoding")                                                        \
    X(CONTENT_RANGE, "Content-Range")                                                              \
    X(TRANSFER_ENCODING, "Transfer-Encoding")                                                      \
    X(EXPECT, "Expect")                                                                            \
    X(GRPC_TIMEOUT, "grpc-timeout")                                                                \
    X(IDEMPOTENCY_KEY, "Idempotency-Key")                                                          \
    X(IF_MATCH, "If-Match")                                                                        \
    X(IF_NONE_MATCH, "If-None-Match")                                                              \
    X(RANGE, "Range")                                                                              \
    X(IF_RANGE, "If-Range")                                                                        \
    X(REQUEST_ID, "x-request-id")
enum http_head_field {
#define X(field, name) HTTP_HEAD_##field,
    HTTP_HEAD_FIELDS(X)
#undef X
        HTTP_HEAD_COUNT
};

struct http_head {
    const char *values[HTTP_HEAD_COUNT]; /**< The first of each, or NULL. */
    uint8_t counts[HTTP_HEAD_COUNT];     /**< How often each was given; at most 2. */
    bool has_bad_name;    /**< Some header's name is no token, as in "Content-Length : 4". */
    bool has_bad_target;  /**< The target holds a NUL byte. */
    bool has_bad_line;    /**< Some line is folded, holds a NUL or a CR, or ends without a CR. */
    bool needs_host;      /**< HTTP/1.1. */
    const char *line_end; /**< While lines are looked at: where the next one begins. */
};

struct http_reply_header {
    const char *name;
    const char *value; /**< In the arena. */
};

/** One request. Lives in its connection and is used again for the next one. */
struct http_exchange {
    struct api_request request; /**< First: a handler's request is its exchange. */
    struct http_connection *connection;
    enum http_phase phase;
    enum api_method method; /**< API_METHOD_COUNT: one that no route has. */
    struct http_route_entry *entry;
    uint64_t start_ns;
    char *path; /**< Copy of the target, cut at "?"; NULL: no memory. */
    size_t path_length;
    char *query; /**< Or NULL. */
    const char
        *target_end; /**< Of the target where the parser has it: see http_exchange_handle_mhd(). */
    char target[HTTP_TARGET_INLINE];
    char request_id[HTTP_REQUEST_ID_MAX + 1];
    struct http_head head;
    const char *allow; /**< Value of Allow for a 405, or NULL. */
    bool has_body;
    bool discard;            /**< The body is read and thrown away; the reply waits for its end. */
    uint64_t discard_end_ns; /**< No longer than this. */
    bool must_close;
    bool told;           /**< Its failure was sent past the library. */
    bool settled;        /**< A round of the library's loop ended since the request was complete. */
    uint64_t body_bytes; /**< Received. */
    uint64_t body_calls;
    char *body; /**< JSON: what was received. */
    size_t body_capacity;

    const struct api_receiver *receiver;
    enum st_status (*again)(struct api_request *request, struct st_error *err);
    void (*on_end)(struct api_request *request);
    ssize_t (*stream_read)(struct api_request *request, char *buffer, size_t size);

    struct server_operation *operation; /**< Waited for. */
    struct server_waiter *waiter;
    uint64_t wait_deadline_ns;
    enum st_status (*wait_done)(struct api_request *request, struct server_operation_view **view,
                                struct st_error *err);

    struct MHD_Response *response; /**< The reply, not yet queued. */
    uint64_t reply_bytes;          /**< Of its body, when all of it is there. */
    uint64_t counted_bytes;        /**< Of these, what the front's reply_bytes counts. */
    unsigned code;
    struct http_reply_header headers[HTTP_REPLY_HEADERS_MAX];
    uint32_t header_count;
    bool failed; /**< error says why. */
    struct st_error error;
};

struct http_connection {
    struct http_listener *listener;
    struct http_connection *next, *previous; /**< Guarded by the listener's lock. */
    struct MHD_Connection *mhd;
    int fd;
    uid_t uid; /**< Of a Unix socket. */
    char principal[40];
    enum server_role role;
    bool foreign;                 /**< This user may not use the socket. */
    bool evicted;                 /**< Ended to make room for another. */
    struct st_timer timer;        /**< The watchdog's. */
    _Atomic uint64_t deadline_ns; /**< When it is cut; ST_DEADLINE_NEVER: not now. */
    _Atomic int watch;            /**< enum http_watch */
    _Atomic bool gone;            /**< Its client closed it while a request was suspended. */
    _Atomic bool overdue;         /**< Its deadline passed: it is being cut. */
    _Atomic bool interrupted;     /**< Nobody wants the rest of its request's body. */
    _Atomic bool looked_at_often; /**< The watchdog comes every CONNECTION_LOOK_BODY_NS. */
    /** Bytes of a body that the socket has still to bring; API_LENGTH_UNKNOWN: until it says so. */
    _Atomic uint64_t awaited_bytes;
    _Atomic int unsent;   /**< Bytes in the socket at the last api_request_moved(); -1: none. */
    pthread_mutex_t lock; /**< Guards the two below. */
    bool suspended;
    bool notified; /**< Since the last look. */
    struct http_exchange exchange;
};

/* ---- connection.c */
void http_connection_notify_mhd(void *cls, struct MHD_Connection *mhd, void **socket_context,
                                enum MHD_ConnectionNotificationCode code);
/** Cut the connection if its present phase is not over at @p deadline_ns. */
void http_connection_set_deadline(struct http_connection *connection, uint64_t deadline_ns,
                                  enum http_watch watch);
/**
 * Say how much of a body the socket has still to bring (0: nothing, API_LENGTH_UNKNOWN: more).
 * @param often look soon and often whether the client is still there: somebody is held up by it.
 */
void http_connection_await(struct http_connection *connection, uint64_t bytes, bool often);
/** End the reading of a body: http_exchange_completed_mhd() follows, on the listener's thread, once
 * what the client has sent up to now is read. Thread: any. */
void http_connection_interrupt(struct http_connection *connection);
/** Whether nothing may wait on it any more: the front stops, or the client is gone. */
bool http_connection_must_end(const struct http_connection *connection);
/** Forget notifications up to now. */
void http_connection_look(struct http_connection *connection);
/** Suspend, unless something was notified since the last look or it must end. @return whether
 * suspended. */
bool http_connection_suspend(struct http_connection *connection);

/* ---- head.c: what is refused before a body is read */
ST_MUST_CHECK enum st_status http_head_check(struct http_exchange *exchange, const char *method,
                                             struct st_error *err);
/** Note what the library shows of the request line only here: texts in its buffer. */
void http_head_begin(struct http_exchange *exchange, const char *version);
/** Whether the head that is being received has a fault that the library refuses before
 * http_head_check() could. @param ret_error written then. */
typedef bool http_head_fault(const struct http_connection *connection, struct st_error *ret_error);
http_head_fault http_head_has_bad_length;   /**< No number, or larger than any. */
http_head_fault http_head_has_many_cookies; /**< Being taken apart, with memory running out. */
/** Give the request its id: the client's or a new one. */
void http_head_set_request_id(struct http_exchange *exchange);

/* ---- reply.c */
/** Make the reply of a failure the exchange's. */
void http_reply_error(struct http_exchange *exchange, const struct st_error *error);
/** Send a failure past the library, which takes no reply in the middle of a request. Nothing of
 * another reply may be on its way, and the connection must be closed behind it. */
void http_reply_send_cut(struct http_exchange *exchange, const struct st_error *error);
/** Queue the reply. */
enum MHD_Result http_reply_queue(struct http_exchange *exchange);
/** Forget a reply that was not queued. */
void http_reply_drop(struct http_exchange *exchange);

/* ---- exchange.c */
void *http_exchange_uri_mhd(void *cls, const char *uri, struct MHD_Connection *mhd);
enum MHD_Result http_exchange_handle_mhd(void *cls, struct MHD_Connection *mhd, const char *url,
                                         const char *method, const char *version,
                                         const char *upload, size_t *upload_bytes,
                                         void **request_context);
void http_exchange_completed_mhd(void *cls, struct MHD_Connection *mhd, void **request_context,
                                 enum MHD_RequestTerminationCode code);

/* ---- wait.c */
/** Give back what api_request_wait_operation() holds. */
void http_wait_done(struct http_exchange *exchange);

/* ---- place.c, listener.c */
ST_MUST_CHECK enum st_status http_place_open(const char *path, struct http_unix_place *ret_place,
                                             int *ret_fd, struct st_error *err);
void http_place_close(struct http_unix_place *place);
/** The default path, where it can be used: see the documentation of --unix-socket. */
ST_MUST_CHECK enum st_status http_place_default(char path[static 108], struct st_error *err);
ST_MUST_CHECK enum st_status http_tcp_open(const char *option, const char *address, int *ret_fd,
                                           struct st_error *err);
ST_MUST_CHECK enum st_status http_listener_start(struct http_listener *listener,
                                                 struct st_error *err);

/* ---- host.c */
/** Host part of "host", "host:port", "[v6]:port"; false when it is none of these. */
bool http_host_split(const char *text, struct http_host *ret_host);
bool http_host_allowed(const struct http_front *front, const char *host);
bool http_origin_allowed(const struct http_front *front, const char *origin);

#endif
