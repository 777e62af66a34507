#include <linux/sockios.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "api/http/exchange.h"
#include "base/clock.h"

#define SUPPLEMENTARY_GROUPS_MAX 256
/** How often the socket of a suspended request is looked at. */
#define CONNECTION_LOOK_NS (3 * ST_NS_PER_SECOND)

/* ---------------------------------------------------------------- clients that are gone */

/** Over TCP a client that will send no more cannot be told from one that is gone. */
static bool client_is_gone(const struct http_connection *connection)
{
    bool tcp = connection->listener->kind != HTTP_LISTENER_UNIX;
    struct pollfd poll_fd = {.fd = connection->fd, .events = tcp ? POLLRDHUP : 0};
    return poll(&poll_fd, 1, 0) > 0 && (poll_fd.revents & (POLLRDHUP | POLLHUP | POLLERR));
}

/** The library does not look at the socket of a suspended request. */
static void connection_look_for_client(struct http_connection *connection)
{
    pthread_mutex_lock(&connection->lock);
    if (connection->suspended && client_is_gone(connection)) {
        atomic_store(&connection->gone, true);
        connection->notified = true;
        connection->suspended = false;
        MHD_resume_connection(connection->mhd);
    }
    pthread_mutex_unlock(&connection->lock);
}

bool http_connection_must_end(const struct http_connection *connection)
{
    return atomic_load(&connection->gone) || atomic_load(&connection->listener->front->stopping);
}

bool api_request_moved(void *arg)
{
    struct http_connection *connection = ((struct http_exchange *)arg)->connection;
    int unsent = 0;
    if (ioctl(connection->fd, SIOCOUTQ, &unsent) != 0) {
        return false;
    }
    /* More is progress too: there was room again. */
    int before = atomic_exchange(&connection->unsent, unsent);
    return before >= 0 && before != unsent;
}

/* ---------------------------------------------------------------- the watchdog */

static uint64_t connection_next_look(struct http_connection *connection, uint64_t now_ns)
{
    pthread_mutex_lock(&connection->lock);
    bool suspended = connection->suspended;
    pthread_mutex_unlock(&connection->lock);
    return now_ns + (suspended ? CONNECTION_LOOK_NS : ST_HTTP_HEADER_SECONDS * ST_NS_PER_SECOND);
}

/*
 * libmicrohttpd's own timeout counts inactivity only, so that one byte a second keeps a connection
 * for ever. The timer looks from time to time instead of being moved at each request: that costs a
 * request one store.
 */
static void connection_watch(void *arg)
{
    struct http_connection *connection = arg;
    struct http_front *front = connection->listener->front;
    uint64_t now_ns = st_clock_now_ns();
    uint64_t deadline_ns = atomic_load(&connection->deadline_ns);
    if (deadline_ns <= now_ns) {
        atomic_fetch_add(&front->cut[atomic_load(&connection->watch)], 1);
        shutdown(connection->fd, SHUT_RDWR);
        return;
    }
    connection_look_for_client(connection);
    uint64_t next_ns = connection_next_look(connection, now_ns);
    if (!st_timer_start(front->timers, &connection->timer,
                        deadline_ns < next_ns ? deadline_ns : next_ns, connection_watch,
                        connection)) {
        shutdown(connection->fd, SHUT_RDWR); /* unwatched is worse than cut */
    }
}

void http_connection_set_deadline(struct http_connection *connection, uint64_t deadline_ns,
                                  enum http_watch watch)
{
    atomic_store_explicit(&connection->watch, (int)watch, memory_order_relaxed);
    atomic_store_explicit(&connection->deadline_ns, deadline_ns, memory_order_relaxed);
}

/* ---------------------------------------------------------------- who it is */

static bool peer_in_group(int fd, gid_t primary, gid_t group)
{
    if (primary == group) {
        return true;
    }
    gid_t groups[SUPPLEMENTARY_GROUPS_MAX];
    socklen_t bytes = sizeof(groups);
    if (getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, groups, &bytes) != 0) {
        return false;
    }
    for (size_t i = 0; i < bytes / sizeof(gid_t); i++) {
        if (groups[i] == group) {
            return true;
        }
    }
    return false;
}

static void connection_identify_unix(struct http_connection *connection)
{
    struct ucred peer;
    socklen_t bytes = sizeof(peer);
    if (getsockopt(connection->fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) != 0) {
        connection->foreign = true;
        return;
    }
    connection->uid = peer.uid;
    snprintf(connection->principal, sizeof(connection->principal), "uid:%u", peer.uid);
    if (peer.uid == 0 || peer.uid == geteuid()) {
        connection->role = SERVER_ROLE_OPERATOR;
    } else if (peer_in_group(connection->fd, peer.gid, connection->listener->group)) {
        connection->role = SERVER_ROLE_USER;
    } else {
        connection->foreign = true;
    }
}

static void connection_identify(struct http_connection *connection)
{
    if (connection->listener->kind == HTTP_LISTENER_UNIX) {
        connection_identify_unix(connection);
        return;
    }
    /* TCP is only opened with --insecure; the health listener has public routes only. */
    snprintf(connection->principal, sizeof(connection->principal), "anonymous");
    connection->role =
        connection->listener->kind == HTTP_LISTENER_TCP ? SERVER_ROLE_OPERATOR : SERVER_ROLE_VIEWER;
}

/* ---------------------------------------------------------------- begin and end */

/** Whether the user has as many connections as one may. */
static bool listener_is_full(struct http_listener *listener, uid_t uid)
{
    uint32_t count = 0;
    pthread_mutex_lock(&listener->lock);
    for (const struct http_connection *other = listener->connections; other; other = other->next) {
        count += other->uid == uid;
    }
    pthread_mutex_unlock(&listener->lock);
    return listener->kind == HTTP_LISTENER_UNIX && count >= ST_HTTP_CONNECTIONS_PER_UID_MAX;
}

static void listener_link(struct http_listener *listener, struct http_connection *connection)
{
    pthread_mutex_lock(&listener->lock);
    connection->next = listener->connections;
    if (connection->next) {
        connection->next->previous = connection;
    }
    listener->connections = connection;
    pthread_mutex_unlock(&listener->lock);
    atomic_fetch_add(&listener->front->connections, 1);
}

static void listener_unlink(struct http_listener *listener, struct http_connection *connection)
{
    pthread_mutex_lock(&listener->lock);
    if (connection->previous) {
        connection->previous->next = connection->next;
    } else {
        listener->connections = connection->next;
    }
    if (connection->next) {
        connection->next->previous = connection->previous;
    }
    pthread_mutex_unlock(&listener->lock);
    atomic_fetch_sub(&listener->front->connections, 1);
}

static struct http_connection *connection_create(struct http_listener *listener,
                                                 struct MHD_Connection *mhd)
{
    struct http_connection *connection = calloc(1, sizeof(*connection));
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_CONNECTION_FD);
    if (!connection || !info) {
        free(connection);
        return NULL;
    }
    connection->listener = listener;
    connection->mhd = mhd;
    connection->fd = info->connect_fd;
    connection->exchange.connection = connection;
    connection->unsent = -1;
    pthread_mutex_init(&connection->lock, NULL);
    connection_identify(connection);
    if (listener_is_full(listener, connection->uid)) {
        atomic_fetch_add(&listener->front->rejected[ST_REASON_TOO_MANY_RESOURCES], 1);
        shutdown(connection->fd, SHUT_RDWR);
        pthread_mutex_destroy(&connection->lock);
        free(connection);
        return NULL;
    }
    uint64_t deadline_ns = st_clock_now_ns() + ST_HTTP_HEADER_SECONDS * ST_NS_PER_SECOND;
    atomic_store(&connection->deadline_ns, deadline_ns);
    if (!st_timer_start(listener->front->timers, &connection->timer, deadline_ns, connection_watch,
                        connection)) {
        pthread_mutex_destroy(&connection->lock);
        free(connection);
        return NULL;
    }
    listener_link(listener, connection);
    return connection;
}

static void connection_destroy(struct http_connection *connection)
{
    st_timer_stop(connection->listener->front->timers, &connection->timer);
    listener_unlink(connection->listener, connection);
    pthread_mutex_destroy(&connection->lock);
    free(connection);
}

void http_connection_notify_mhd(void *cls, struct MHD_Connection *mhd, void **socket_context,
                                enum MHD_ConnectionNotificationCode code)
{
    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
        *socket_context = connection_create(cls, mhd);
    } else if (*socket_context) {
        connection_destroy(*socket_context);
        *socket_context = NULL;
    }
}

/* ---------------------------------------------------------------- suspending */

void http_connection_look(struct http_connection *connection)
{
    pthread_mutex_lock(&connection->lock);
    connection->notified = false;
    pthread_mutex_unlock(&connection->lock);
}

bool http_connection_suspend(struct http_connection *connection)
{
    pthread_mutex_lock(&connection->lock);
    bool suspend = !connection->notified && !http_connection_must_end(connection);
    if (suspend) {
        connection->suspended = true;
        MHD_suspend_connection(connection->mhd);
    }
    pthread_mutex_unlock(&connection->lock);
    return suspend;
}

void api_request_notify(void *arg)
{
    struct http_exchange *exchange = arg;
    struct http_connection *connection = exchange->connection;
    pthread_mutex_lock(&connection->lock);
    connection->notified = true;
    if (connection->suspended) {
        connection->suspended = false;
        MHD_resume_connection(connection->mhd);
    }
    pthread_mutex_unlock(&connection->lock);
}
