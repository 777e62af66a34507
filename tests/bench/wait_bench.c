#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "tests/bench/bench_node.h"

/*
 * What HTTP adds to a collective that is waited for: 4 KiB all_reduce on 4 devices, over one
 * keep-alive connection to symtensord, beside a bare libmicrohttpd server that answers a POST with
 * the same bytes, and beside the same call in process. Blocks of calls of the three take turns.
 * usage: wait_bench PORT BARE_PORT PATH [ROUNDS [CALLS]]; the server's tensor at PATH must have
 * 1024 float32 elements on 4 ranks. tests/bench/http_bench.sh starts both servers.
 */

#define WAIT_RANKS 4u
#define WAIT_BYTES 4096u
#define WAIT_DEVICE_BYTES (64ull << 20)
#define WAIT_BAR_US 80.0
#define WAIT_SAMPLES_MAX (1u << 20)
#define REPLY_BYTES_MAX 65536
#define REQUEST_BYTES_MAX 1024

static const char body[] = "{\"op\":\"sum\"}";

enum source { SOURCE_HTTP, SOURCE_BARE, SOURCE_IN_PROCESS, SOURCE_COUNT };
static const char *const source_names[SOURCE_COUNT] = {"POST with wait", "bare POST", "in process"};

struct wait_bench {
    int sockets[SOURCE_IN_PROCESS];
    char request[REQUEST_BYTES_MAX];
    size_t request_bytes;
    struct server *server;
    struct server_collective_request collective;
    double *samples[SOURCE_COUNT];
};

static void stop(const char *what)
{
    fprintf(stderr, "wait_bench: %s\n", what);
    exit(1);
}

static int open_connection(const char *port)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)strtoul(port, NULL, 10)),
                                  .sin_addr = {htonl(INADDR_LOOPBACK)}};
    int on = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof(address)) ||
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on))) {
        stop("cannot connect");
    }
    return fd;
}

/** Bytes of the whole reply that starts at @p text, or 0 when its head is not complete yet. */
static size_t reply_length(const char *text)
{
    const char *end = strstr(text, "\r\n\r\n");
    const char *length = end ? strcasestr(text, "\r\ncontent-length:") : NULL;
    if (!end) {
        return 0;
    }
    if (!length || length > end) {
        stop("a reply without a length");
    }
    return (size_t)(end + 4 - text) + strtoul(length + strlen("\r\ncontent-length:"), NULL, 10);
}

/** Send the request and read the whole reply. */
static void post(const struct wait_bench *b, int fd)
{
    static char reply[REPLY_BYTES_MAX];
    size_t got = 0, want = 0;
    if (send(fd, b->request, b->request_bytes, MSG_NOSIGNAL) != (ssize_t)b->request_bytes) {
        stop("the request was not sent");
    }
    while (want == 0 || got < want) {
        ssize_t n = recv(fd, reply + got, sizeof(reply) - 1 - got, 0);
        if (n <= 0) {
            stop("the connection ended, or the reply is too long");
        }
        got += (size_t)n;
        reply[got] = '\0';
        want = want ? want : reply_length(reply);
    }
    if (got != want || strncmp(reply, "HTTP/1.1 200 ", 13) != 0 ||
        !strstr(reply, "\"state\":\"succeeded\"")) {
        fprintf(stderr, "%s\n", reply);
        stop("the reply is not that of a collective that succeeded");
    }
}

static void run_once(const struct wait_bench *b, enum source source)
{
    const char *algorithm = NULL;
    if (source == SOURCE_IN_PROCESS) {
        bench_collective(b->server, &b->collective, &algorithm);
    } else {
        post(b, b->sockets[source]);
    }
}

static void start_node(struct wait_bench *b)
{
    b->server = bench_node_start("software", WAIT_RANKS, WAIT_DEVICE_BYTES);
    bench_group(b->server, "g", WAIT_RANKS, WAIT_RANKS);
    bench_tensor(b->server, "g", "t", ST_DTYPE_FLOAT32, WAIT_BYTES / sizeof(float));
    b->collective = (struct server_collective_request){
        .collective = gpu_collective_find("all_reduce"),
        .tensor = "t",
        .op = ST_OP_SUM,
        .deterministic = -1,
        .expected_generation = SERVER_GENERATION_ANY,
    };
}

static void print(struct wait_bench *b, unsigned count)
{
    double median[SOURCE_COUNT];
    printf("%-16s%11s%10s%10s\n", "4 KiB all_reduce", "median us", "p10", "p90");
    for (unsigned s = 0; s < SOURCE_COUNT; s++) {
        median[s] = bench_quantile(b->samples[s], count, 0.5);
        printf("%-16s%11.1f%10.1f%10.1f\n", source_names[s], median[s],
               bench_quantile(b->samples[s], count, 0.1),
               bench_quantile(b->samples[s], count, 0.9));
    }
    printf("above a bare POST and the call in process: %.1f us (bar %.0f)\n",
           median[SOURCE_HTTP] - median[SOURCE_BARE] - median[SOURCE_IN_PROCESS], WAIT_BAR_US);
}

static void measure(struct wait_bench *b, unsigned rounds, unsigned calls)
{
    for (unsigned s = 0; s < SOURCE_COUNT; s++) {
        b->samples[s] = calloc((size_t)rounds * calls, sizeof(double));
        if (!b->samples[s]) {
            stop("no memory");
        }
        for (unsigned i = 0; i < calls; i++) {
            run_once(b, (enum source)s);
        }
    }
    for (unsigned i = 0; i < rounds * SOURCE_COUNT; i++) {
        unsigned round = i / SOURCE_COUNT, s = i % SOURCE_COUNT;
        for (unsigned call = 0; call < calls; call++) {
            uint64_t start = st_clock_now_ns();
            run_once(b, (enum source)s);
            b->samples[s][round * calls + call] = (double)(st_clock_now_ns() - start) / 1e3;
        }
    }
    print(b, rounds * calls);
    for (unsigned s = 0; s < SOURCE_COUNT; s++) {
        free(b->samples[s]);
    }
}

int main(int argc, char **argv)
{
    static struct wait_bench b;
    unsigned rounds = argc > 4 ? (unsigned)strtoul(argv[4], NULL, 10) : 20;
    unsigned calls = argc > 5 ? (unsigned)strtoul(argv[5], NULL, 10) : 200;
    if (argc < 4 || argc > 6 || rounds < 1 || calls < 1 || rounds > WAIT_SAMPLES_MAX / calls) {
        fprintf(stderr, "usage: wait_bench PORT BARE_PORT PATH [ROUNDS [CALLS]]\n");
        return 2;
    }
    int length =
        snprintf(b.request, sizeof(b.request),
                 "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                 "Content-Length: %zu\r\n\r\n%s",
                 argv[3], sizeof(body) - 1, body);
    if (length < 0 || (size_t)length >= sizeof(b.request)) {
        stop("the path is too long");
    }
    b.request_bytes = (size_t)length;
    start_node(&b);
    b.sockets[SOURCE_HTTP] = open_connection(argv[1]);
    b.sockets[SOURCE_BARE] = open_connection(argv[2]);
    measure(&b, rounds, calls);
    close(b.sockets[SOURCE_HTTP]);
    close(b.sockets[SOURCE_BARE]);
    bench_node_stop(b.server);
    return 0;
}
