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
/** And that of one whose body somebody is held up by. */
#define CONNECTION_LOOK_BODY_NS (500 * ST_NS_PER_MS)
/** Between the end of reading, which lets the reason be sent, and the end of everything. */
#define CONNECTION_CUT_NS (1 * ST_NS_PER_SECOND)

/* ---------------------------------------------------------------- clients that are gone */

static bool socket_shows(const struct http_connection *connection, short events)
{
    struct pollfd poll_fd = {.fd = connection->fd, .events = events};
    return poll(&poll_fd, 1, 0) > 0 && (poll_fd.revents & (events | POLLHUP | POLLERR));
}

/** Whether the client sends no more though the socket does not hold the rest of the body. */
static bool client_broke_off(const struct http_connection *connection, uint64_t awaited_bytes)
{
    int unread = 0;
    if (!socket_shows(connection, POLLRDHUP) || ioctl(connection->fd, FIONREAD, &unread) != 0) {
        return false;
    }
    return awaited_bytes == API_LENGTH_UNKNOWN ? unread == 0 : (uint64_t)unread < awaited_bytes;
}

/**
 * Whether nobody reads the reply of a suspended request. A client may end its sending behind a
 * complete request and is answered nevertheless; over TCP it cannot be told from one that is gone,
 * so that a wait for an operation, which may be answered at any time, is answered then.
 */
static bool client_is_gone(const struct http_connection *connection)
{
    uint64_t awaited_bytes = atomic_load(&connection->awaited_bytes);
    /* Of chunks the library may hold some that were not offered yet. */
    if (awaited_bytes && awaited_bytes != API_LENGTH_UNKNOWN &&
        client_broke_off(connection, awaited_bytes)) {
        return true;
    }
    bool tcp = connection->listener->kind != HTTP_LISTENER_UNIX;
    return socket_shows(connection, tcp && connection->exchange.operation ? POLLRDHUP : 0);
}

/**
 * The library does not look at the socket of a suspended request. Of others it misses an end that
 * came together with the bytes before it: its events are edges, and it takes a short read for the
 * last one. Closing our side of the reading makes another edge, and changes nothing else.
 */
static void connection_look_for_client(struct http_connection *connection)
{
    uint64_t awaited_bytes = atomic_load(&connection->awaited_bytes);
    pthread_mutex_lock(&connection->lock);
    if (connection->suspended && client_is_gone(connection)) {
        atomic_store(&connection->gone, true);
        connection->notified = true;
        connection->suspended = false;
        MHD_resume_connection(connection->mhd);
    } else if (!connection->suspended && awaited_bytes &&
               client_broke_off(connection, awaited_bytes)) {
        shutdown(connection->fd, SHUT_RD);
    }
    pthread_mutex_unlock(&connection->lock);
}

void http_connection_interrupt(struct http_connection *connection)
{
    atomic_store(&connection->interrupted, true);
    shutdown(connection->fd, SHUT_RD);
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
    /* In this order: http_connection_await() sets the bytes first. */
    bool often = atomic_exchange(&connection->looked_at_often, false) &&
                 atomic_load(&connection->awaited_bytes) != 0;
    if (often) {
        atomic_store(&connection->looked_at_often, true);
    }
    return now_ns + (often       ? CONNECTION_LOOK_BODY_NS
                     : suspended ? CONNECTION_LOOK_NS
                                 : ST_HTTP_HEADER_SECONDS * ST_NS_PER_SECOND);
}

/**
 * The time is over. What is being received is not read any further, so that its end, on the
 * listener's thread, can say why; whatever is left after that is cut off.
 * @return whether to look again.
 */
static bool connection_cut(struct http_connection *connection, uint64_t deadline_ns,
                           uint64_t now_ns)
{
    enum http_watch watch = (enum http_watch)atomic_load(&connection->watch);
    bool first = !atomic_exchange(&connection->overdue, true);
    if (first) {
        atomic_fetch_add(&connection->listener->front->cut[watch], 1);
    }
    if (!first || watch == HTTP_WATCH_REPLY) {
        shutdown(connection->fd, SHUT_RDWR);
        return false;
    }
    /* Not if it moved: the end came too late, and a reply is on its way. */
    atomic_compare_exchange_strong(&connection->deadline_ns, &deadline_ns,
                                   now_ns + CONNECTION_CUT_NS);
    shutdown(connection->fd, SHUT_RD);
    return true;
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
    if (deadline_ns <= now_ns && !connection_cut(connection, deadline_ns, now_ns)) {
        return;
    }
    connection_look_for_client(connection);
    uint64_t next_ns, again_ns = connection_next_look(connection, now_ns);
    bool started = true;
    do { /* Once more if what is waited for changed meanwhile: the timer was moved in vain then. */
        next_ns = again_ns;
        deadline_ns = atomic_load(&connection->deadline_ns);
        started = st_timer_start(front->timers, &connection->timer,
                                 deadline_ns < next_ns ? deadline_ns : next_ns, connection_watch,
                                 connection);
        again_ns = connection_next_look(connection, now_ns);
    } while (started && again_ns < next_ns);
    if (!started) {
        shutdown(connection->fd, SHUT_RDWR); /* unwatched is worse than cut */
    }
}

void http_connection_await(struct http_connection *connection, uint64_t bytes, bool often)
{
    atomic_store(&connection->awaited_bytes, bytes);
    if (bytes && often && !atomic_exchange(&connection->looked_at_often, true)) {
        uint64_t look_ns = st_clock_now_ns() + CONNECTION_LOOK_BODY_NS;
        uint64_t deadline_ns = atomic_load(&connection->deadline_ns);
        /* Without memory it is looked at when the timer comes as it stands. */
        st_timer_start(connection->listener->front->timers, &connection->timer,
                       deadline_ns < look_ns ? deadline_ns : look_ns, connection_watch, connection);
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

/** Whether its head is still to come. */
static bool connection_is_idle(const struct http_connection *connection)
{
    return connection->exchange.phase <= HTTP_PHASE_HEAD;
}

/**
 * Make room on the health listener: end the oldest of the connections that have not asked anything,
 * else the oldest. Probes ask at once and are answered at once, so that it is not theirs; who only
 * holds connections open loses those.
 */
static void listener_make_room(struct http_listener *listener)
{
    struct http_connection *oldest = NULL, *idle = NULL;
    uint32_t count = 0;
    pthread_mutex_lock(&listener->lock);
    /* The newest is first. */
    for (struct http_connection *other = listener->connections; other; other = other->next) {
        if (!other->evicted) {
            count++;
            oldest = other;
            idle = connection_is_idle(other) ? other : idle;
        }
    }
    struct http_connection *evicted = idle ? idle : oldest;
    if (evicted && count >= ST_HTTP_HEALTH_CONNECTIONS_MAX) {
        evicted->evicted = true;
        shutdown(evicted->fd, SHUT_RDWR);
    }
    pthread_mutex_unlock(&listener->lock);
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
    if (listener->kind == HTTP_LISTENER_HEALTH) {
        listener_make_room(listener);
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
