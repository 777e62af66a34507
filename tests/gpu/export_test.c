#include "tests/contract/gpu/rig.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gpu/cuda/cuda.h"
#include "gpu/memory.h"
#include "gpu/team.h"
#include "tests/support/cuda_there.h"

/**
 * Symmetric memory in the hands of another process: a shard's descriptor goes through a socket, the
 * other process imports it with a driver of its own, reads what is there, writes back, and keeps it
 * when the memory is destroyed here.
 */

#define BYTES (5ull << 20)
#define OURS(i) ((uint32_t)(i)*2654435761u)
#define THEIRS(i) (~OURS(i))

static struct rig rig;

/* ---------------------------------------------------------------- the socket */

/** What goes with a descriptor. */
struct parcel {
    uint64_t bytes;
    int32_t ordinal;
};

static bool send_parcel(int socket, const struct parcel *parcel, int fd)
{
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = {0};
    struct parcel copy = *parcel;
    struct iovec part = {&copy, sizeof(copy)};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof(control.bytes)};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(header), &fd, sizeof(fd));
    return sendmsg(socket, &message, 0) == sizeof(copy);
}

static bool receive_parcel(int socket, struct parcel *ret_parcel, int *ret_fd)
{
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = {0};
    struct iovec part = {ret_parcel, sizeof(*ret_parcel)};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof(control.bytes)};
    if (recvmsg(socket, &message, MSG_CMSG_CLOEXEC) != sizeof(*ret_parcel)) {
        return false;
    }
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    if (!header || header->cmsg_type != SCM_RIGHTS) {
        return false;
    }
    memcpy(ret_fd, CMSG_DATA(header), sizeof(*ret_fd));
    return true;
}

/** One byte there or back: whose turn it is. */
static bool tell(int socket, char what)
{
    return write(socket, &what, 1) == 1;
}

static char hear(int socket)
{
    char what = 0;
    return read(socket, &what, 1) == 1 ? what : 0;
}

/* ---------------------------------------------------------------- the other process */

/** Its driver and what it has of the memory. */
struct client {
    const struct gpu_driver *driver;
    CUstream stream;
    CUdeviceptr address;
    uint64_t bytes;
    uint32_t *data; /**< [bytes / 4] */
};

#define CLIENT_STEP(call)                                                                          \
    do {                                                                                           \
        CUresult result_ = (call);                                                                 \
        if (result_ != CUDA_SUCCESS) {                                                             \
            fprintf(stderr, "client: %s: %s\n", #call, gpu_driver_result_name(result_));           \
            return false;                                                                          \
        }                                                                                          \
    } while (0)

static bool client_start(struct client *client, int ordinal)
{
    struct st_error err;
    CUdevice device;
    CUcontext context;
    if (gpu_cuda_open(&(struct gpu_cuda_options){0}, &client->driver, &err) != ST_OK) {
        return false;
    }
    const struct gpu_driver *driver = client->driver;
    CLIENT_STEP(driver->cuInit(0));
    CLIENT_STEP(driver->cuDeviceGet(&device, ordinal));
    CLIENT_STEP(driver->cuDevicePrimaryCtxRetain(&context, device));
    CLIENT_STEP(driver->cuCtxSetCurrent(context));
    CLIENT_STEP(driver->cuStreamCreateWithPriority(&client->stream, CU_STREAM_NON_BLOCKING, 0));
    return true;
}

static bool client_map(struct client *client, const struct parcel *parcel, int fd)
{
    const struct gpu_driver *driver = client->driver;
    CUmemGenericAllocationHandle handle;
    const CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, parcel->ordinal},
                                    CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CLIENT_STEP(driver->cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)fd,
                                                       CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    close(fd);
    CLIENT_STEP(driver->cuMemAddressReserve(&client->address, parcel->bytes, 0, 0, 0));
    CLIENT_STEP(driver->cuMemMap(client->address, parcel->bytes, 0, handle, 0));
    CLIENT_STEP(driver->cuMemRelease(handle));
    CLIENT_STEP(driver->cuMemSetAccess(client->address, parcel->bytes, &access, 1));
    client->bytes = BYTES;
    client->data = malloc(BYTES);
    return client->data != NULL;
}

/** Whether the memory holds ours (or theirs). */
static bool client_holds(struct client *client, bool ours)
{
    CLIENT_STEP(client->driver->cuMemcpyDtoHAsync(client->data, client->address, client->bytes,
                                                  client->stream));
    CLIENT_STEP(client->driver->cuStreamSynchronize(client->stream));
    for (size_t i = 0; i < client->bytes / 4; i++) {
        if (client->data[i] != (ours ? OURS(i) : THEIRS(i))) {
            fprintf(stderr, "client: element %zu is %08x\n", i, client->data[i]);
            return false;
        }
    }
    return true;
}

static bool client_write(struct client *client)
{
    for (size_t i = 0; i < client->bytes / 4; i++) {
        client->data[i] = THEIRS(i);
    }
    CLIENT_STEP(client->driver->cuMemcpyHtoDAsync(client->address, client->data, client->bytes,
                                                  client->stream));
    CLIENT_STEP(client->driver->cuStreamSynchronize(client->stream));
    return true;
}

static bool client_run(int socket)
{
    struct client client = {0};
    struct parcel parcel;
    int fd;
    return receive_parcel(socket, &parcel, &fd) && client_start(&client, parcel.ordinal) &&
           client_map(&client, &parcel, fd) && client_holds(&client, true) &&
           client_write(&client) && tell(socket, 'w') && hear(socket) == 'd' &&
           client_holds(&client, false) && tell(socket, 'k');
}

/* ---------------------------------------------------------------- this process */

static int client_socket;
static pid_t client_process;

static void another_process_reads_writes_and_keeps_a_shard(void **state)
{
    (void)state;
    enum { RANK = 1 };
    uint32_t *data = malloc(BYTES);
    int fd = -1, status = 0;
    rig_open(&rig, &(struct rig_options){.devices = 1});
    struct gpu_team *team = rig_team(&rig, 2, 1);
    struct gpu_memory *memory = rig_memory(team, BYTES);
    const struct gpu_allocation *shard = &memory->shards->allocations[RANK];
    for (size_t i = 0; i < BYTES / 4; i++) {
        data[i] = OURS(i);
    }
    rig_write(&rig, team, memory, RANK, data, BYTES);
    CUresult result = rig.gpu->driver->cuMemExportToShareableHandle(
        &fd, shard->handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    assert_int_equal(result, CUDA_SUCCESS);
    const struct parcel parcel = {shard->bytes, (int32_t)shard->device->info.ordinal};
    assert_true(send_parcel(client_socket, &parcel, fd));
    close(fd);
    assert_int_equal(hear(client_socket), 'w');
    rig_read(&rig, team, memory, RANK, data, BYTES);
    for (size_t i = 0; i < BYTES / 4; i++) {
        assert_int_equal(data[i], THEIRS(i));
    }
    rig_read(&rig, team, memory, 0, data, BYTES);
    for (size_t i = 0; i < BYTES / 4; i++) {
        assert_int_equal(data[i], 0);
    }
    gpu_memory_destroy(memory);
    assert_true(tell(client_socket, 'd'));
    assert_int_equal(hear(client_socket), 'k');
    assert_int_equal(waitpid(client_process, &status, 0), client_process);
    assert_int_equal(status, 0);
    gpu_team_destroy(team);
    gpu_close(rig.gpu);
    free(data);
}

int main(void)
{
    int ends[2];
    if (!test_cuda_there()) {
        return TEST_SKIPPED;
    }
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends)) {
        perror("socketpair");
        return 1;
    }
    client_process = fork(); /* before this process has a driver */
    if (client_process == 0) {
        close(ends[0]);
        _exit(client_run(ends[1]) ? 0 : 1);
    }
    close(ends[1]);
    client_socket = ends[0];
    setenv("SYMTENSOR_TEST_DRIVER", "cuda", 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(another_process_reads_writes_and_keeps_a_shard),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
