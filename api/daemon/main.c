#include <errno.h>
#include <jansson.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "api/http/front.h"
#include "api/options.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/thread.h"
#include "base/timer.h"
#include "server/server.h"

/** How often a drain looks whether work has ended. */
#define DRAIN_LOOK_NS (20 * ST_NS_PER_MS)
/** For cancelled work to end, and for replies to be sent: at most, and the last quarter of the
 * grace time at most. */
#define DRAIN_CANCEL_NS (3 * ST_NS_PER_SECOND)
/** For the listeners' threads to end, the time for replies included, and then for devices to be
 * closed: either can hang inside of a driver. */
#define DRAIN_STEP_NS (2 * DRAIN_CANCEL_NS)
/** How often the start looks for a signal. */
#define START_LOOK_NS (100 * ST_NS_PER_MS)

/** Whether devices are being opened, which may take as long as a driver likes. */
enum daemon_phase { DAEMON_OPENING, DAEMON_OPENED, DAEMON_GIVEN_UP };

/** What the process is made of, in the order in which it is made; zero fields were not made. */
struct daemon {
    struct api_options options;
    char host_name[256];
    struct http_front *front;
    struct st_timers *timers;
    struct server *server;
    _Atomic int phase; /**< enum daemon_phase; whoever leaves OPENING decides how it goes on. */
};

/** A thread that ends the process when a step of its end hangs. */
struct daemon_watch {
    struct http_front *front; /**< Whose sockets are then removed, or NULL. */
    const char *message;      /**< What to log then. */
    int result;               /**< The code to end with. */
    _Atomic bool over;
    bool started; /**< Without memory for a thread there is no watch. */
    pthread_t thread;
};

/** Signals that end the process; blocked in all threads and taken by the main one. */
static void daemon_signals(sigset_t *ret_signals)
{
    sigemptyset(ret_signals);
    sigaddset(ret_signals, SIGTERM);
    sigaddset(ret_signals, SIGINT);
}

/** Descriptors bound how much can be served; the hard limit is what the administrator allows. */
static void daemon_raise_descriptors(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
}

/** Descriptors that memory may take, so that connections are still accepted and a client can delete
 * what it made; of a low limit half. */
static uint32_t daemon_memory_descriptors(void)
{
    const uint64_t kept = 2 * ST_HTTP_CONNECTIONS_MAX + ST_DESCRIPTORS_KEPT;
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) {
        return 0;
    }
    uint64_t left = limit.rlim_cur > 2 * kept ? limit.rlim_cur - kept : limit.rlim_cur / 2;
    return left < UINT32_MAX ? (uint32_t)left : UINT32_MAX;
}

static const char *daemon_node_name(struct daemon *daemon)
{
    if (daemon->options.node_name) {
        return daemon->options.node_name;
    }
    if (gethostname(daemon->host_name, sizeof(daemon->host_name) - 1) != 0) {
        snprintf(daemon->host_name, sizeof(daemon->host_name), "localhost");
    }
    return daemon->host_name;
}

static enum st_status daemon_create_server(struct daemon *daemon, const char *node_name,
                                           struct st_error *err)
{
    const struct api_options *options = &daemon->options;
    const struct server_options server_options = {
        .gpu = {.driver = options->driver,
                .software_devices = options->software_devices,
                .software_memory_bytes = options->software_memory_bytes,
                .device_memory_limit = options->device_memory_limit,
                .nvls = options->nvls,
                .nvls_slots = options->nvls_slots,
                .graphs = options->graphs,
                .allocations_max = daemon_memory_descriptors()},
        .node_name = node_name,
        .deterministic = options->deterministic,
    };
    return server_create(&server_options, &daemon->server, err);
}

/** End the process when a signal comes while the main thread is inside of a driver. */
static void *daemon_watch_opening(void *arg)
{
    struct daemon *daemon = arg;
    const struct timespec look = {.tv_nsec = START_LOOK_NS};
    sigset_t signals;
    daemon_signals(&signals);
    while (atomic_load(&daemon->phase) == DAEMON_OPENING) {
        int opening = DAEMON_OPENING;
        if (sigtimedwait(&signals, NULL, &look) <= 0) {
            continue;
        }
        if (atomic_compare_exchange_strong(&daemon->phase, &opening, DAEMON_GIVEN_UP)) {
            st_log(ST_LOG_WARNING, "ended before the devices were opened");
            /* No teardown: other threads are still inside of what it would free. */
            http_front_remove_sockets(daemon->front);
            _exit(0);
        }
        kill(getpid(), SIGTERM); /* just opened: the signal is the main thread's */
    }
    return NULL;
}

static enum st_status daemon_start_server(struct daemon *daemon, const char *node_name,
                                          struct st_error *err)
{
    pthread_t watch;
    enum st_status status = st_thread_start("opening", daemon_watch_opening, daemon, &watch, err);
    if (status != ST_OK) {
        return status;
    }
    status = daemon_create_server(daemon, node_name, err);
    int opening = DAEMON_OPENING;
    while (!atomic_compare_exchange_strong(&daemon->phase, &opening, DAEMON_OPENED)) {
        pause(); /* the other thread ends the process */
    }
    pthread_join(watch, NULL);
    return status;
}

static enum st_status daemon_start(struct daemon *daemon, struct st_error *err)
{
    const struct api_options *options = &daemon->options;
    const char *node_name = daemon_node_name(daemon);
    const struct http_front_options front_options = {
        .unix_socket = options->unix_socket,
        .listen = options->listen,
        .health_listen = options->health_listen,
        .allowed_hosts = options->allowed_hosts,
        .node_name = node_name,
    };
    /* The sockets first: devices take seconds to open, an address in use is known at once. */
    enum st_status status = http_front_open(&front_options, &daemon->front, err);
    if (status == ST_OK) {
        status = st_timers_create(&daemon->timers, err);
    }
    if (status == ST_OK) {
        status = http_front_start_health(daemon->front, daemon->timers, err);
    }
    if (status == ST_OK) {
        status = daemon_start_server(daemon, node_name, err);
    }
    if (status == ST_OK) {
        status = http_front_start(daemon->front, daemon->server, err);
    }
    return status;
}

static void daemon_log_ready(const struct daemon *daemon)
{
    char addresses[512] = "";
    size_t length = 0;
    for (unsigned i = 0; http_front_address(daemon->front, i) && length < sizeof(addresses); i++) {
        int added = snprintf(addresses + length, sizeof(addresses) - length, "%s%s", i ? " " : "",
                             http_front_address(daemon->front, i));
        length += added > 0 ? (size_t)added : 0;
    }
    struct server_node node;
    server_node(daemon->server, &node);
    st_log(ST_LOG_INFO, "ready", ST_LOG_TEXT("version", SYMTENSOR_VERSION),
           ST_LOG_TEXT("listening", addresses), ST_LOG_TEXT("node", node.name),
           ST_LOG_TEXT("incarnation", node.incarnation),
           ST_LOG_TEXT("driver", node.capabilities.driver),
           ST_LOG_INT("devices", node.device_count));
}

/** Wait for work to end. @return false when @p deadline_ns or another signal came first. */
static bool daemon_wait_finished(struct daemon *daemon, const sigset_t *signals,
                                 uint64_t deadline_ns)
{
    const struct timespec look = {.tv_nsec = DRAIN_LOOK_NS};
    while (server_unfinished(daemon->server)) {
        if (st_clock_now_ns() >= deadline_ns || sigtimedwait(signals, NULL, &look) > 0) {
            return false;
        }
    }
    return true;
}

static void *daemon_watch_run(void *arg)
{
    struct daemon_watch *watch = arg;
    const struct timespec look = {.tv_nsec = DRAIN_LOOK_NS};
    uint64_t deadline_ns = st_clock_now_ns() + DRAIN_STEP_NS;
    while (!atomic_load(&watch->over) && st_clock_now_ns() < deadline_ns) {
        nanosleep(&look, NULL);
    }
    if (!atomic_load(&watch->over)) {
        st_log(ST_LOG_WARNING, watch->message);
        if (watch->front) {
            http_front_remove_sockets(watch->front);
        }
        _exit(watch->result);
    }
    return NULL;
}

/** @param watch front, message and result are set, the rest is zero. */
static void daemon_watch_start(struct daemon_watch *watch)
{
    struct st_error error;
    watch->started =
        st_thread_start("stopping", daemon_watch_run, watch, &watch->thread, &error) == ST_OK;
}

static void daemon_watch_end(struct daemon_watch *watch)
{
    atomic_store(&watch->over, true);
    if (watch->started) {
        pthread_join(watch->thread, NULL);
    }
}

/** No more requests; with a watch over it, since the listeners' threads call drivers too. */
static void daemon_stop_front(struct daemon *daemon, uint64_t deadline_ns)
{
    struct daemon_watch watch = {.front = daemon->front,
                                 .message = "ended while a listener hangs in a call of the driver"};
    daemon_watch_start(&watch);
    http_front_stop(daemon->front, deadline_ns);
    daemon_watch_end(&watch);
}

/** Refuse changes, let work end within the grace time, cancel the rest. */
static void daemon_drain(struct daemon *daemon, const sigset_t *signals)
{
    uint64_t grace_ns = daemon->options.drain_seconds * ST_NS_PER_SECOND;
    st_log(ST_LOG_INFO, "draining", ST_LOG_INT("unfinished", server_unfinished(daemon->server)),
           ST_LOG_INT("seconds", daemon->options.drain_seconds));
    server_drain(daemon->server);
    uint64_t start_ns = st_clock_now_ns();
    /* The last quarter, at most DRAIN_CANCEL_NS, is for answering what is cancelled. */
    uint64_t cancel_ns = grace_ns / 4 < DRAIN_CANCEL_NS ? grace_ns / 4 : DRAIN_CANCEL_NS;
    if (!daemon_wait_finished(daemon, signals, start_ns + grace_ns - cancel_ns)) {
        st_log(ST_LOG_WARNING, "cancelling what is left",
               ST_LOG_INT("unfinished", server_unfinished(daemon->server)));
        server_cancel_all(daemon->server);
    }
    /* What was cancelled is answered now; a client that does not read is cut, which frees its
     * transfer. */
    daemon_stop_front(daemon, st_clock_now_ns() +
                                  (cancel_ns > ST_NS_PER_SECOND ? cancel_ns : ST_NS_PER_SECOND));
}

/**
 * Undo what was made.
 * @param result the code that the process ends with, also when a driver call hangs in here.
 * @return false when a driver call hangs: its thread and what it uses stay, and only _exit ends the
 * process.
 */
static bool daemon_stop(struct daemon *daemon, int result)
{
    struct daemon_watch watch = {.message = "ended while a device hangs in being closed",
                                 .result = result};
    http_front_destroy(daemon->front);
    daemon_watch_start(&watch);
    bool clean =
        !daemon->server || server_destroy(daemon->server, st_clock_now_ns() + DRAIN_CANCEL_NS);
    daemon_watch_end(&watch);
    st_timers_destroy(daemon->timers);
    api_options_done(&daemon->options);
    return clean;
}

static int daemon_run(struct daemon *daemon)
{
    struct st_error error;
    sigset_t signals;
    daemon_signals(&signals);
    if (daemon_start(daemon, &error) != ST_OK) {
        st_log_error(ST_LOG_ERROR, "cannot start", &error);
        return 1;
    }
    daemon_log_ready(daemon);
    int number = 0;
    while (sigwait(&signals, &number) != 0) {
    }
    daemon_drain(daemon, &signals);
    return 0;
}

int main(int argc, char **argv)
{
    struct daemon daemon = {0};
    struct st_error error;
    sigset_t signals;
    daemon_signals(&signals);
    pthread_sigmask(SIG_BLOCK, &signals, NULL);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGHUP, SIG_IGN); /* by custom "read again": there is nothing yet that could be */
    json_object_seed(0);     /* its first use is not safe in two threads at once */
    if (api_options_read(argc, (const char *const *)argv, (const char *const *)environ,
                         &daemon.options, &error) != ST_OK) {
        st_log_error(ST_LOG_ERROR, "cannot start", &error);
        api_options_done(&daemon.options);
        return 2;
    }
    if (daemon.options.help || daemon.options.version) {
        if (daemon.options.help) {
            api_options_help(stdout);
        } else {
            printf("symtensord %s\n", SYMTENSOR_VERSION);
        }
        api_options_done(&daemon.options);
        return 0;
    }
    daemon_raise_descriptors();
    int result = daemon_run(&daemon);
    bool clean = daemon_stop(&daemon, result);
    st_log(ST_LOG_INFO, "ended", ST_LOG_INT("code", result));
    if (!clean) {
        _exit(result);
    }
    return result;
}
