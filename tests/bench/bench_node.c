#include "tests/bench/bench_node.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "gpu/memory.h"
#include "server/registry.h"

#define BENCH_DEADLINE_NS (120 * ST_NS_PER_SECOND)

static const struct server_caller caller = {
    .principal = "bench",
    .role = SERVER_ROLE_OPERATOR,
    .request_id = "bench",
    .deadline_ns = ST_DEADLINE_NEVER,
};

/* A thread that sleeps until it is told. */
struct bench_signal {
    pthread_mutex_t lock;
    pthread_cond_t cond;
    bool set;
};

#define BENCH_SIGNAL_INIT                                                                          \
    {                                                                                              \
        PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false                                 \
    }

static void signal_set(void *arg)
{
    struct bench_signal *signal = arg;
    pthread_mutex_lock(&signal->lock);
    signal->set = true;
    pthread_cond_signal(&signal->cond);
    pthread_mutex_unlock(&signal->lock);
}

static void signal_wait(struct bench_signal *signal)
{
    pthread_mutex_lock(&signal->lock);
    while (!signal->set) {
        pthread_cond_wait(&signal->cond, &signal->lock);
    }
    signal->set = false;
    pthread_mutex_unlock(&signal->lock);
}

static void check(enum st_status status, const struct st_error *err)
{
    if (status != ST_OK) {
        fprintf(stderr, "bench: %s: %s\n", st_status_info(status)->name, err->message);
        exit(1);
    }
}

static const struct {
    const char *name;
    enum gpu_driver_choice driver;
    enum gpu_nvls_mode nvls;
} drivers[] = {
    {"software", GPU_DRIVER_SOFTWARE, GPU_NVLS_AUTO},
    /* Multicast of real devices is shared with every other program of the machine: never here. */
    {"cuda", GPU_DRIVER_CUDA, GPU_NVLS_OFF},
};

struct server *bench_node_start(const char *driver, uint32_t devices, uint64_t device_memory_bytes)
{
    size_t row = 0, rows = sizeof(drivers) / sizeof(drivers[0]);
    while (row < rows && strcmp(drivers[row].name, driver) != 0) {
        row++;
    }
    if (row == rows) {
        fprintf(stderr, "bench: no driver is called %s\n", driver);
        exit(2);
    }
    struct server_options options = {
        .gpu = {.driver = drivers[row].driver,
                .nvls = drivers[row].nvls,
                .software_devices = devices,
                .software_memory_bytes = device_memory_bytes},
        .node_name = "bench",
        .deterministic = true,
    };
    struct server *server = NULL;
    struct st_error err = {0};
    check(server_create(&options, &server, &err), &err);
    return server;
}

void bench_node_stop(struct server *server)
{
    server_drain(server);
    if (!server_destroy(server, st_clock_now_ns() + BENCH_DEADLINE_NS)) {
        fprintf(stderr, "bench: the node did not end\n");
        exit(1);
    }
}

static void finish(struct server_operation *operation, const char **ret_algorithm)
{
    struct bench_signal signal = BENCH_SIGNAL_INIT;
    struct server_waiter *waiter = NULL;
    struct st_error err = {0};
    check(server_operation_wait(operation, st_clock_now_ns() + BENCH_DEADLINE_NS, signal_set,
                                &signal, &waiter, &err),
          &err);
    if (waiter) {
        signal_wait(&signal);
        server_waiter_close(waiter);
    }
    struct server_operation_view *view = server_operation_view(operation);
    if (view->state != SERVER_OPERATION_SUCCEEDED) {
        fprintf(stderr, "bench: %s %s: %s\n", view->verb, server_operation_state_name(view->state),
                view->error.message);
        exit(1);
    }
    if (ret_algorithm) {
        *ret_algorithm = view->algorithm;
    }
    server_snapshot_release(&view->base);
    server_operation_release(operation);
}

void bench_tensor_delete(struct server *server, const char *id)
{
    struct server_operation *operation = NULL;
    struct st_error err = {0};
    check(server_tensor_delete(server, &caller, id, false, &operation, &err), &err);
    finish(operation, NULL);
}

void bench_fill(struct server *server, const char *tensor, double value)
{
    struct server_fill_request request = {.pattern = GPU_FILL_VALUE,
                                          .number = SERVER_NUMBER_DOUBLE,
                                          .double_value = value,
                                          .rank = -1,
                                          .expected_generation = SERVER_GENERATION_ANY};
    snprintf(request.tensor, sizeof(request.tensor), "%s", tensor);
    struct server_operation *operation = NULL;
    struct st_error err = {0};
    check(server_fill(server, &caller, &request, &operation, &err), &err);
    finish(operation, NULL);
}

void bench_group(struct server *server, const char *id, uint32_t ranks, uint32_t devices)
{
    struct server_group_create request = {.world_size = ranks};
    snprintf(request.id, sizeof(request.id), "%s", id);
    for (uint32_t rank = 0; rank < ranks; rank++) {
        request.devices[rank] = rank % devices;
    }
    struct server_operation *operation = NULL;
    struct st_error err = {0};
    check(server_group_create(server, &caller, &request, &operation, &err), &err);
    finish(operation, NULL);
}

void bench_tensor(struct server *server, const char *group, const char *id, enum st_dtype dtype,
                  uint64_t elements)
{
    struct server_tensor_create *request = calloc(1, sizeof(*request));
    if (!request) {
        exit(1);
    }
    snprintf(request->id, sizeof(request->id), "%s", id);
    snprintf(request->group, sizeof(request->group), "%s", group);
    request->dtype = dtype;
    request->shape.rank = 1;
    request->shape.dims[0] = (int64_t)elements;
    request->attachable = -1;
    struct server_operation *operation = NULL;
    struct st_error err = {0};
    check(server_tensor_create(server, &caller, request, &operation, &err), &err);
    free(request);
    finish(operation, NULL);
}

static enum server_transfer_state wait_transfer(struct server_transfer *transfer,
                                                struct bench_signal *signal)
{
    struct st_error err = {0};
    enum server_transfer_state state = server_transfer_state(transfer, &err);
    while (state == SERVER_TRANSFER_WAITING) {
        signal_wait(signal);
        state = server_transfer_state(transfer, &err);
    }
    if (state == SERVER_TRANSFER_FAILED) {
        fprintf(stderr, "bench: transfer: %s\n", err.message);
        exit(1);
    }
    return state;
}

static struct server_transfer_request transfer_request(const char *tensor, uint32_t rank,
                                                       struct bench_signal *signal)
{
    struct server_transfer_request request = {.rank = rank,
                                              .expected_generation = SERVER_GENERATION_ANY,
                                              .notify = signal_set,
                                              .notify_arg = signal};
    snprintf(request.tensor, sizeof(request.tensor), "%s", tensor);
    return request;
}

void bench_put(struct server *server, const char *tensor, uint32_t rank, const void *data,
               uint64_t bytes)
{
    struct bench_signal signal = BENCH_SIGNAL_INIT;
    struct server_transfer_request request = transfer_request(tensor, rank, &signal);
    struct server_transfer *transfer = NULL;
    struct server_tensor *snapshot = NULL;
    struct st_error err = {0};
    check(server_upload_open(server, &caller, &request, &transfer, &snapshot, &err), &err);
    server_snapshot_release(&snapshot->base);
    const char *from = data;
    for (uint64_t sent = 0; sent < bytes;) {
        wait_transfer(transfer, &signal);
        sent += server_upload_write(transfer, from + sent, bytes - sent);
    }
    server_upload_finish(transfer);
    wait_transfer(transfer, &signal);
    server_transfer_close(transfer);
}

void bench_get(struct server *server, const char *tensor, uint32_t rank, void *data, uint64_t bytes)
{
    struct bench_signal signal = BENCH_SIGNAL_INIT;
    struct server_transfer_request request = transfer_request(tensor, rank, &signal);
    struct server_transfer *transfer = NULL;
    struct server_tensor *snapshot = NULL;
    struct st_error err = {0};
    check(server_download_open(server, &caller, &request, &transfer, &snapshot, &err), &err);
    server_snapshot_release(&snapshot->base);
    char *to = data;
    for (uint64_t got = 0; got < bytes;) {
        wait_transfer(transfer, &signal);
        got += server_download_read(transfer, to + got, bytes - got);
    }
    server_transfer_close(transfer);
}

uint64_t bench_tensor_address(struct server *server, const char *tensor, uint32_t rank)
{
    struct tensor *found = NULL;
    struct st_error err = {0};
    server_lock(server);
    enum st_status status = tensor_lookup(server, tensor, "tensor", &found, &err);
    uint64_t address = status == ST_OK ? gpu_memory_address(found->memory, rank) : 0;
    server_unlock(server);
    check(status, &err);
    return address;
}

uint64_t bench_collective(struct server *server, const struct server_collective_request *request,
                          const char **ret_algorithm)
{
    struct server_operation *operation = NULL;
    struct st_error err = {0};
    uint64_t start = st_clock_now_ns();
    check(server_collective(server, &caller, request, &operation, &err), &err);
    finish(operation, ret_algorithm);
    return st_clock_now_ns() - start;
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double bench_quantile(double *values, unsigned count, double fraction)
{
    qsort(values, count, sizeof(values[0]), compare_doubles);
    return values[(unsigned)(fraction * (count - 1) + 0.5)];
}
