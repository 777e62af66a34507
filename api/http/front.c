#include "api/http/front.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "api/http/exchange.h"
#include "base/clock.h"
#include "base/log.h"

#define FRONT_STOP_POLL_NS (5 * ST_NS_PER_MS)

/* ---------------------------------------------------------------- names that Host may have */

static void front_add_host(struct http_front *front, const char *text)
{
    struct http_host host;
    if (front->host_count < HTTP_HOSTS_MAX && http_host_split(text, &host)) {
        front->hosts[front->host_count++] = host;
    }
}

/** A list of names separated by commas; the copy lives as long as the front. */
static enum st_status front_add_hosts(struct http_front *front, const char *list,
                                      struct st_error *err)
{
    front->host_text = strdup(list);
    if (!front->host_text) {
        return st_fail(err, ST_REASON_OUT_OF_MEMORY, NULL, "no memory for the allowed hosts");
    }
    char *rest = front->host_text;
    for (char *name = strsep(&rest, ","); name; name = strsep(&rest, ",")) {
        struct http_host host;
        if (!http_host_split(name, &host)) {
            return st_fail(err, ST_REASON_INVALID_OPTION, "--allowed-hosts",
                           "\"%s\" is not a host name", name);
        }
        if (front->host_count == HTTP_HOSTS_MAX) {
            return st_fail(err, ST_REASON_INVALID_OPTION, "--allowed-hosts", "more than %d names",
                           HTTP_HOSTS_MAX);
        }
        front->hosts[front->host_count++] = host;
    }
    return ST_OK;
}

static enum st_status front_set_hosts(struct http_front *front,
                                      const struct http_front_options *options,
                                      struct st_error *err)
{
    front_add_host(front, "localhost");
    front_add_host(front, "127.0.0.1");
    front_add_host(front, "[::1]");
    if (options->node_name) {
        front_add_host(front, options->node_name);
    }
    if (options->listen) {
        front_add_host(front, options->listen);
    }
    return options->allowed_hosts ? front_add_hosts(front, options->allowed_hosts, err) : ST_OK;
}

/* ---------------------------------------------------------------- opening */

static struct http_listener *front_add_listener(struct http_front *front,
                                                enum http_listener_kind kind)
{
    struct http_listener *listener = &front->listeners[front->listener_count++];
    *listener = (struct http_listener){.front = front, .kind = kind, .fd = -1};
    listener->place.lock_fd = -1;
    pthread_mutex_init(&listener->lock, NULL);
    return listener;
}

static enum st_status front_open_unix(struct http_front *front, const char *path,
                                      struct st_error *err)
{
    char chosen[108];
    enum st_status status = path ? ST_OK : http_place_default(chosen, err);
    if (status != ST_OK) {
        return status;
    }
    path = path ? path : chosen;
    struct http_listener *listener = front_add_listener(front, HTTP_LISTENER_UNIX);
    snprintf(listener->address, sizeof(listener->address), "unix:%s", path);
    status = http_place_open(path, &listener->place, &listener->fd, err);
    struct stat made;
    listener->group = status == ST_OK && stat(path, &made) == 0 ? made.st_gid : getegid();
    return status;
}

static enum st_status front_open_tcp(struct http_front *front, enum http_listener_kind kind,
                                     const char *option, const char *address, struct st_error *err)
{
    struct http_listener *listener = front_add_listener(front, kind);
    snprintf(listener->address, sizeof(listener->address), "%s", address);
    return http_tcp_open(option, address, &listener->fd, err);
}

static bool option_is_on(const char *value)
{
    return value && strcmp(value, "off") != 0;
}

static enum st_status front_open_all(struct http_front *front,
                                     const struct http_front_options *options, struct st_error *err)
{
    enum st_status status = front_set_hosts(front, options, err);
    if (status == ST_OK && (!options->unix_socket || option_is_on(options->unix_socket))) {
        status = front_open_unix(front, options->unix_socket, err);
    }
    if (status == ST_OK && options->listen) {
        status = front_open_tcp(front, HTTP_LISTENER_TCP, "--listen", options->listen, err);
    }
    if (status == ST_OK && front->listener_count == 0) {
        status = st_fail(err, ST_REASON_INVALID_OPTION, "--unix-socket",
                         "is off and --listen is not given: nobody could reach the server");
    }
    if (status == ST_OK && option_is_on(options->health_listen)) {
        status = front_open_tcp(front, HTTP_LISTENER_HEALTH, "--health-listen",
                                options->health_listen, err);
    }
    return status;
}

enum st_status http_front_open(const struct http_front_options *options,
                               struct http_front **ret_front, struct st_error *err)
{
    struct http_front *front = calloc(1, sizeof(*front));
    if (!front) {
        return st_fail(err, ST_REASON_OUT_OF_MEMORY, NULL, "no memory for the listeners");
    }
    enum st_status status = front_open_all(front, options, err);
    if (status != ST_OK) {
        http_front_destroy(front);
        return status;
    }
    *ret_front = front;
    return ST_OK;
}

/* ---------------------------------------------------------------- running */

static void front_panic(void *cls, const char *file, unsigned line, const char *reason)
{
    (void)cls;
    st_log(ST_LOG_ERROR, "libmicrohttpd gave up", ST_LOG_TEXT("file", file),
           ST_LOG_INT("line", line), ST_LOG_TEXT("reason", reason));
    abort();
}

/** Start the health listener, or all others. */
static enum st_status front_start_listeners(struct http_front *front, bool health,
                                            struct st_error *err)
{
    enum st_status status = ST_OK;
    for (uint32_t i = 0; status == ST_OK && i < front->listener_count; i++) {
        if ((front->listeners[i].kind == HTTP_LISTENER_HEALTH) == health) {
            status = http_listener_start(&front->listeners[i], err);
        }
    }
    return status;
}

enum st_status http_front_start_health(struct http_front *front, struct st_timers *timers,
                                       struct st_error *err)
{
    front->timers = timers;
    if (getrandom(&front->request_id_seed, sizeof(front->request_id_seed), 0) < 0) {
        front->request_id_seed = st_clock_realtime_ns();
    }
    MHD_set_panic_func(front_panic, NULL);
    enum st_status status = http_router_create(api_route_tables, &front->router, err);
    return status == ST_OK ? front_start_listeners(front, true, err) : status;
}

enum st_status http_front_start(struct http_front *front, struct server *server,
                                struct st_error *err)
{
    struct server_node node;
    server_node(server, &node);
    snprintf(front->incarnation, sizeof(front->incarnation), "%s", node.incarnation);
    atomic_store(&front->server, server);
    return front_start_listeners(front, false, err);
}

/**
 * Wake every request that waits, and end those whose body still comes; with `stopping` set, none
 * waits again. Later would be too late to say why: the library closes its sockets first.
 */
static void listener_end_requests(struct http_listener *listener)
{
    pthread_mutex_lock(&listener->lock);
    for (struct http_connection *connection = listener->connections; connection;
         connection = connection->next) {
        api_request_notify(&connection->exchange.request);
        api_request_interrupt(&connection->exchange.request);
    }
    pthread_mutex_unlock(&listener->lock);
}

static void front_wait_idle(struct http_front *front, uint64_t deadline_ns)
{
    const struct timespec pause = {.tv_nsec = FRONT_STOP_POLL_NS};
    while (atomic_load(&front->requests_active) && st_clock_now_ns() < deadline_ns) {
        nanosleep(&pause, NULL);
    }
}

void http_front_stop(struct http_front *front, uint64_t deadline_ns)
{
    for (uint32_t i = 0; i < front->listener_count; i++) {
        if (front->listeners[i].daemon) {
            /* Gives the socket back; it is closed when the daemon no longer knows it. */
            MHD_quiesce_daemon(front->listeners[i].daemon);
        }
    }
    front_wait_idle(front, deadline_ns);
    /* The library aborts the process when it is stopped with a suspended connection. */
    atomic_store(&front->stopping, true);
    for (uint32_t i = 0; i < front->listener_count; i++) {
        listener_end_requests(&front->listeners[i]);
    }
    front_wait_idle(front, st_clock_now_ns() + ST_NS_PER_SECOND);
    for (uint32_t i = 0; i < front->listener_count; i++) {
        struct http_listener *listener = &front->listeners[i];
        if (listener->daemon) {
            MHD_stop_daemon(listener->daemon);
            listener->daemon = NULL;
        }
    }
}

void http_front_remove_sockets(struct http_front *front)
{
    for (uint32_t i = 0; i < front->listener_count; i++) {
        http_place_close(&front->listeners[i].place);
    }
}

void http_front_destroy(struct http_front *front)
{
    if (!front) {
        return;
    }
    http_front_stop(front, 0);
    for (uint32_t i = 0; i < front->listener_count; i++) {
        struct http_listener *listener = &front->listeners[i];
        if (listener->fd >= 0) {
            close(listener->fd);
        }
    }
    http_front_remove_sockets(front);
    for (uint32_t i = 0; i < front->listener_count; i++) {
        pthread_mutex_destroy(&front->listeners[i].lock);
    }
    http_router_destroy(front->router);
    free(front->host_text);
    free(front);
}

const char *http_front_address(const struct http_front *front, unsigned i)
{
    return i < front->listener_count ? front->listeners[i].address : NULL;
}

void http_front_metrics(const struct http_front *front, struct http_front_metrics *ret)
{
    for (unsigned i = 0; i < ST_REASON_COUNT; i++) {
        ret->rejected[i] = atomic_load_explicit(&front->rejected[i], memory_order_relaxed);
    }
    ret->cut_head = atomic_load(&front->cut[HTTP_WATCH_HEAD]);
    ret->cut_body = atomic_load(&front->cut[HTTP_WATCH_BODY]);
    ret->cut_reply = atomic_load(&front->cut[HTTP_WATCH_REPLY]);
    ret->aborted = atomic_load(&front->aborted);
    ret->connections = atomic_load(&front->connections);
    ret->requests_active = atomic_load(&front->requests_active);
}
