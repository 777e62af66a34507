#ifndef SYMTENSOR_API_HTTP_FRONT_H
#define SYMTENSOR_API_HTTP_FRONT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/timer.h"
#include "server/server.h"

/**
 * The HTTP side of the process: its listeners, each with one thread of libmicrohttpd, the route
 * table and what was counted. Sockets are opened before the server is made, so that an address in
 * use stops the start at once. Probes are answered from http_front_start_health() on, before there
 * is a server; requests from http_front_start() on.
 */
struct http_front;

/** Plain values; text must live as long as the front. */
struct http_front_options {
    const char *unix_socket;   /**< Path, "off", or NULL: the default place. */
    const char *listen;        /**< "HOST:PORT", or NULL: none. */
    const char *health_listen; /**< "HOST:PORT", or "off". */
    const char *allowed_hosts; /**< Further names for Host, separated by commas, or NULL. */
    const char *node_name;
};

/**
 * Open the sockets. Thread: start-up, before any other thread is there (umask).
 * @retval ST_UNAVAILABLE       ADDRESS_IN_USE: names the address and the option.
 * @retval ST_INVALID_ARGUMENT  INVALID_OPTION: an address that is none, or no place for the socket.
 * @retval ST_INTERNAL          SYSTEM_ERROR: another refusal of the system.
 */
ST_MUST_CHECK enum st_status http_front_open(const struct http_front_options *options,
                                             struct http_front **ret_front, struct st_error *err);
/** Start the health listener: the process is live, and not ready. @p timers outlive the front. */
ST_MUST_CHECK enum st_status
http_front_start_health(struct http_front *front, struct st_timers *timers, struct st_error *err);
/** Start to answer, after http_front_start_health(). @p server outlives the front. */
ST_MUST_CHECK enum st_status http_front_start(struct http_front *front, struct server *server,
                                              struct st_error *err);
/**
 * No new connections; let requests end until @p deadline_ns, then cut them: suspended ones are
 * answered 503 (waits: with the operation as it is). Blocks: until then.
 */
void http_front_stop(struct http_front *front, uint64_t deadline_ns);
/** Remove the sockets from the file system, while http_front_stop() hangs in another thread; only
 * _exit may follow. */
void http_front_remove_sockets(struct http_front *front);
/** Close and remove the sockets. NULL: nothing. */
void http_front_destroy(struct http_front *front);
/** Address of listener i as text, for the readiness line; NULL past the end. */
const char *http_front_address(const struct http_front *front, unsigned i);

/** What /metrics shows of the HTTP side beside the routes. */
struct http_front_metrics {
    uint64_t rejected[ST_REASON_COUNT]; /**< By reason: refused before a handler ran. */
    uint64_t cut_head;                  /**< Connections cut because their head took too long. */
    uint64_t cut_body;                  /**< Because their body did, or came in too many pieces. */
    uint64_t cut_reply;                 /**< Because their reply was read too slowly. */
    uint64_t aborted;                   /**< Requests whose client went away. */
    uint32_t connections;
    uint32_t requests_active;
};

#endif
