#include <errno.h>
#include <netdb.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "api/http/exchange.h"
#include "base/log.h"
#include "base/size.h"

#define LISTENER_BACKLOG 512

/* ---------------------------------------------------------------- TCP sockets */

/** "host:port" or "[v6]:port"; the port is required. */
static bool address_split(const char *address, char host[static 256], const char **ret_port)
{
    struct http_host part;
    const char *colon = strrchr(address, ':');
    uint64_t port;
    /* getaddrinfo would take 99999 and cut it to 16 bits. */
    if (!colon || !st_uint_parse(colon + 1, UINT16_MAX, &port) || port == 0 ||
        !http_host_split(address, &part) || part.length >= 256) {
        return false;
    }
    memcpy(host, part.text, part.length);
    host[part.length] = '\0';
    *ret_port = colon + 1;
    return true;
}

static int tcp_bind(const struct addrinfo *info)
{
    int fd = socket(info->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) {
        return -1;
    }
    /* A restart must not wait for the old connections' TIME_WAIT. */
    int one = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    if (bind(fd, info->ai_addr, info->ai_addrlen) != 0 || listen(fd, LISTENER_BACKLOG) != 0) {
        int error = errno;
        close(fd);
        errno = error;
        return -1;
    }
    return fd;
}

enum st_status http_tcp_open(const char *option, const char *address, int *ret_fd,
                             struct st_error *err)
{
    char host[256];
    const char *port;
    if (!address_split(address, host, &port)) {
        return st_fail(err, ST_REASON_INVALID_OPTION, option,
                       "\"%s\" is not HOST:PORT or [IPV6]:PORT", address);
    }
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV};
    struct addrinfo *infos;
    int failure = getaddrinfo(host, port, &hints, &infos);
    if (failure != 0) {
        return st_fail(err, ST_REASON_INVALID_OPTION, option, "%s: %s", address,
                       gai_strerror(failure));
    }
    int fd = -1;
    for (const struct addrinfo *info = infos; info && fd < 0; info = info->ai_next) {
        fd = tcp_bind(info);
    }
    int error = errno;
    freeaddrinfo(infos);
    if (fd < 0 && error == EADDRINUSE) {
        return st_fail(err, ST_REASON_ADDRESS_IN_USE, option,
                       "%s is in use by another process; name another address", address);
    }
    if (fd < 0) {
        return st_fail(err, ST_REASON_SYSTEM_ERROR, option, "cannot listen on %s: %s", address,
                       strerror(error));
    }
    *ret_fd = fd;
    return ST_OK;
}

/* ---------------------------------------------------------------- the library's daemon */

/**
 * Some heads are refused by the library with a page whose head is there twice. It logs that before
 * it sends it, on the listener's thread, but not of which connection. So the one that shows the
 * fault is looked for, and refused by us; nothing more can be sent to it then.
 */
static void listener_refuse(struct http_listener *listener, http_head_fault *fault)
{
    struct st_error error = {0};
    pthread_mutex_lock(&listener->lock);
    for (struct http_connection *connection = listener->connections; connection;
         connection = connection->next) {
        struct http_exchange *exchange = &connection->exchange;
        if (exchange->phase == HTTP_PHASE_HEAD && !exchange->told && fault(connection, &error)) {
            http_reply_send_cut(exchange, &error);
            atomic_fetch_add(&listener->front->rejected[error.reason], 1);
            shutdown(connection->fd, SHUT_RDWR);
        }
    }
    pthread_mutex_unlock(&listener->lock);
}

static void __attribute__((format(printf, 2, 0)))
listener_log(void *cls, const char *format, va_list args)
{
    static const struct {
        const char *text; /**< Of the library's message. */
        http_head_fault *fault;
    } faults[] = {
        {"Content-Length' header", http_head_has_bad_length},
        {"allocate header record", http_head_has_many_cookies},
    };
    char message[256];
    for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++) {
        if (strstr(format, faults[i].text)) {
            listener_refuse(cls, faults[i].fault);
        }
    }
    vsnprintf(message, sizeof(message), format, args);
    message[strcspn(message, "\r\n")] = '\0';
    st_log(ST_LOG_DEBUG, "libmicrohttpd", ST_LOG_TEXT("detail", message));
}

/** Escapes are left as they are: paths with one are refused, and queries are undone by api/field.c.
 */
static size_t listener_unescape(void *cls, struct MHD_Connection *connection, char *text)
{
    (void)cls;
    (void)connection;
    return strlen(text);
}

/*
 * The library's own strictness is off: it closes without a reply, or with one whose head is there
 * twice, where api/http/head.c says what is wrong.
 */
enum st_status http_listener_start(struct http_listener *listener, struct st_error *err)
{
    const unsigned flags =
        MHD_USE_EPOLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ITC | MHD_USE_ERROR_LOG;
    unsigned connections = listener->kind == HTTP_LISTENER_HEALTH
                               ? ST_HTTP_HEALTH_CONNECTIONS_MAX + ST_HTTP_HEALTH_CONNECTIONS_SPARE
                               : ST_HTTP_CONNECTIONS_MAX;
    listener->daemon = MHD_start_daemon(
        flags, 0, NULL, NULL, http_exchange_handle_mhd, listener, MHD_OPTION_EXTERNAL_LOGGER,
        listener_log, listener, MHD_OPTION_LISTEN_SOCKET, listener->fd,
        MHD_OPTION_STRICT_FOR_CLIENT, 0, MHD_OPTION_CONNECTION_LIMIT, connections,
        MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)ST_HTTP_IDLE_SECONDS,
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)ST_HTTP_CONNECTION_MEMORY,
        MHD_OPTION_URI_LOG_CALLBACK, http_exchange_uri_mhd, listener, MHD_OPTION_UNESCAPE_CALLBACK,
        listener_unescape, NULL, MHD_OPTION_NOTIFY_CONNECTION, http_connection_notify_mhd, listener,
        MHD_OPTION_NOTIFY_COMPLETED, http_exchange_completed_mhd, listener,
        MHD_OPTION_SIGPIPE_HANDLED_BY_APP, 1, MHD_OPTION_END);
    if (!listener->daemon) {
        return st_fail(err, ST_REASON_SYSTEM_ERROR, NULL, "cannot start the listener %s",
                       listener->address);
    }
    return ST_OK;
}
