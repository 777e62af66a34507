#include "tests/unit/gpu/software_fixture.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* Memory of the software driver: accounting, files, sharing, address space and access. */

static struct fixture fixture;

static int setup(void **state)
{
    (void)state;
    struct gpu_software_options options = fixture_options();
    fixture_open(&fixture, &options);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    fixture_close(&fixture);
    return 0;
}

static size_t free_bytes(void)
{
    size_t left;
    size_t total;
    assert_cuda(fixture.driver->cuMemGetInfo(&left, &total));
    assert_int_equal(total, 64ull << 20);
    return left;
}

static void memory_counts_until_handle_and_mapping_are_gone(void **state)
{
    (void)state;
    struct fixture_memory memory;
    assert_int_equal(free_bytes(), 64ull << 20);
    fixture_map(&fixture, 0, 2 * FIXTURE_GRANULE, &memory);
    assert_int_equal(free_bytes(), 60ull << 20);
    assert_cuda(fixture.driver->cuMemRelease(memory.handle));
    assert_int_equal(free_bytes(), 60ull << 20); /* the mapping still holds it */
    CUmemGenericAllocationHandle again;
    assert_cuda(fixture.driver->cuMemRetainAllocationHandle(
        &again, (void *)(uintptr_t)(memory.address + FIXTURE_GRANULE)));
    assert_cuda(fixture.driver->cuMemUnmap(memory.address, memory.bytes));
    assert_int_equal(free_bytes(), 60ull << 20); /* now the handle does */
    assert_cuda(fixture.driver->cuMemRelease(again));
    assert_int_equal(free_bytes(), 64ull << 20);
    assert_cuda(fixture.driver->cuMemAddressFree(memory.address, memory.bytes));
}

static void a_full_device_is_out_of_memory_and_others_are_not(void **state)
{
    (void)state;
    CUmemAllocationProp prop = fixture_prop(0);
    CUmemGenericAllocationHandle first;
    CUmemGenericAllocationHandle second;
    assert_cuda(fixture.driver->cuMemCreate(&first, 64ull << 20, &prop, 0));
    assert_int_equal(fixture.driver->cuMemCreate(&second, FIXTURE_GRANULE, &prop, 0),
                     CUDA_ERROR_OUT_OF_MEMORY);
    prop.location.id = 1;
    assert_cuda(fixture.driver->cuMemCreate(&second, FIXTURE_GRANULE, &prop, 0));
    assert_cuda(fixture.driver->cuMemRelease(first));
    assert_cuda(fixture.driver->cuMemRelease(second));
}

static void what_the_machine_cannot_hold_is_out_of_memory_and_not_a_signal(void **state)
{
    (void)state;
    fixture_close(&fixture);
    struct gpu_software_options options = fixture_options();
    options.memory_bytes = 1ull << 62; /* the device has it, the machine does not */
    fixture_open(&fixture, &options);
    CUmemAllocationProp prop = fixture_prop(0);
    CUmemGenericAllocationHandle handle;
    unsigned fds = test_open_fds();
    assert_int_equal(fixture.driver->cuMemCreate(&handle, 1ull << 61, &prop, 0),
                     CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(test_open_fds(), fds);
    size_t left;
    size_t total;
    assert_cuda(fixture.driver->cuMemGetInfo(&left, &total));
    assert_int_equal(left, total);
}

static void new_memory_reads_as_zeros(void **state)
{
    (void)state;
    struct fixture_memory memory;
    fixture_map(&fixture, 2, FIXTURE_GRANULE, &memory);
    const uint64_t *words = (const uint64_t *)(uintptr_t)memory.address;
    for (size_t i = 0; i < FIXTURE_GRANULE / 8; i++) {
        assert_int_equal(words[i], 0);
    }
    fixture_unmap(&fixture, &memory);
}

static void the_file_of_new_memory_is_complete_sealed_and_private(void **state)
{
    (void)state;
    CUmemAllocationProp prop = fixture_prop(0);
    CUmemGenericAllocationHandle handle;
    int fd = -1;
    struct stat stat;
    assert_cuda(fixture.driver->cuMemCreate(&handle, FIXTURE_GRANULE, &prop, 0));
    assert_cuda(fixture.driver->cuMemExportToShareableHandle(
        &fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    assert_int_equal(fstat(fd, &stat), 0);
    assert_int_equal(stat.st_mode & 07777, 0600);
    assert_int_equal(stat.st_size, FIXTURE_GRANULE);
    assert_int_equal(stat.st_blocks * 512, FIXTURE_GRANULE); /* all there: no SIGBUS later */
    assert_int_equal(fcntl(fd, F_GET_SEALS), F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
    assert_int_equal(fcntl(fd, F_GETFD), FD_CLOEXEC);
    assert_int_equal(ftruncate(fd, 0), -1);
    close(fd);
    assert_cuda(fixture.driver->cuMemRelease(handle));
}

static void a_device_cannot_use_what_it_has_no_access_to(void **state)
{
    (void)state;
    struct fixture_memory memory;
    unsigned long long flags;
    CUmemLocation one = {CU_MEM_LOCATION_TYPE_DEVICE, 1};
    CUmemAccessDesc read_only = {one, CU_MEM_ACCESS_FLAGS_PROT_READ};
    fixture_map(&fixture, 0, FIXTURE_GRANULE, &memory);
    assert_cuda(fixture.driver->cuMemGetAccess(&flags, &one, memory.address));
    assert_int_equal(flags, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    assert_cuda(fixture.driver->cuMemSetAccess(memory.address, memory.bytes, &read_only, 1));
    assert_cuda(fixture.driver->cuMemGetAccess(&flags, &one, memory.address));
    assert_int_equal(flags, CU_MEM_ACCESS_FLAGS_PROT_READ);
    assert_cuda(fixture.driver->cuMemsetD8Async(memory.address, 7, 64, fixture.streams[0]));
    assert_int_equal(fixture.driver->cuMemsetD8Async(memory.address, 7, 64, fixture.streams[1]),
                     CUDA_ERROR_INVALID_VALUE);
    char bytes[64];
    assert_cuda(fixture.driver->cuMemcpyDtoHAsync(bytes, memory.address, 64, fixture.streams[1]));
    assert_int_equal(bytes[63], 7);
    fixture_unmap(&fixture, &memory);
}

static void copies_may_span_neighbouring_mappings_but_no_gap(void **state)
{
    (void)state;
    const struct gpu_driver *driver = fixture.driver;
    CUmemAllocationProp prop = fixture_prop(0);
    CUmemAccessDesc access = {prop.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemGenericAllocationHandle handle;
    CUdeviceptr base;
    assert_cuda(driver->cuMemCreate(&handle, FIXTURE_GRANULE, &prop, 0));
    assert_cuda(driver->cuMemAddressReserve(&base, 4 * FIXTURE_GRANULE, 0, 0, 0));
    for (uint64_t slot = 0; slot < 4; slot += slot == 1 ? 2 : 1) { /* 0, 1 and 3 */
        CUdeviceptr at = base + slot * FIXTURE_GRANULE;
        assert_cuda(driver->cuMemMap(at, FIXTURE_GRANULE, 0, handle, 0));
        assert_cuda(driver->cuMemSetAccess(at, FIXTURE_GRANULE, &access, 1));
    }
    CUstream stream = fixture.streams[0];
    assert_cuda(driver->cuMemsetD8Async(base, 1, 2 * FIXTURE_GRANULE, stream));
    assert_int_equal(driver->cuMemsetD8Async(base, 1, 4 * FIXTURE_GRANULE, stream),
                     CUDA_ERROR_INVALID_VALUE);
    assert_cuda(driver->cuStreamSynchronize(stream));
    assert_cuda(driver->cuMemUnmap(base, 2 * FIXTURE_GRANULE)); /* both at once */
    assert_cuda(driver->cuMemUnmap(base + 3 * FIXTURE_GRANULE, FIXTURE_GRANULE));
    assert_cuda(driver->cuMemAddressFree(base, 4 * FIXTURE_GRANULE));
    assert_cuda(driver->cuMemRelease(handle));
}

static void a_reservation_keeps_its_alignment_and_honours_a_free_hint(void **state)
{
    (void)state;
    CUdeviceptr first;
    CUdeviceptr second;
    assert_cuda(fixture.driver->cuMemAddressReserve(&first, FIXTURE_GRANULE, 1ull << 30, 0, 0));
    assert_int_equal(first & ((1ull << 30) - 1), 0);
    CUdeviceptr hint = first + (1ull << 30);
    assert_cuda(fixture.driver->cuMemAddressReserve(&second, FIXTURE_GRANULE, 0, hint, 0));
    CUdeviceptr third;
    assert_cuda(fixture.driver->cuMemAddressReserve(&third, FIXTURE_GRANULE, 0, first, 0));
    assert_int_not_equal(third, first); /* a hint that is taken is only a hint */
    assert_cuda(fixture.driver->cuMemAddressFree(first, FIXTURE_GRANULE));
    assert_cuda(fixture.driver->cuMemAddressFree(second, FIXTURE_GRANULE));
    assert_cuda(fixture.driver->cuMemAddressFree(third, FIXTURE_GRANULE));
}

static void a_thousand_cycles_leave_no_fd_and_no_mapping(void **state)
{
    (void)state;
    struct fixture_memory memory;
    unsigned fds = 0;
    unsigned mappings = 0;
    for (int i = 0; i < 1000; i++) {
        fixture_map(&fixture, i % FIXTURE_DEVICES, FIXTURE_GRANULE, &memory);
        fixture_unmap(&fixture, &memory);
        if (i == 0) {
            fds = test_open_fds();
            mappings = test_mappings();
        }
    }
    assert_int_equal(test_open_fds(), fds);
    assert_int_equal(test_mappings(), mappings);
}

/* ---------------------------------------------------------------- sharing */

static void importing_known_memory_is_one_more_handle_on_it(void **state)
{
    (void)state;
    const struct gpu_driver *driver = fixture.driver;
    CUmemAllocationProp prop = fixture_prop(1);
    CUmemAllocationProp seen;
    CUmemGenericAllocationHandle handle;
    CUmemGenericAllocationHandle imported;
    prop.requestedHandleTypes =
        (CUmemAllocationHandleType)(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR |
                                    CU_MEM_HANDLE_TYPE_FABRIC);
    assert_cuda(driver->cuMemCreate(&handle, FIXTURE_GRANULE, &prop, 0));
    int fd;
    assert_cuda(driver->cuMemExportToShareableHandle(&fd, handle,
                                                     CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    assert_cuda(driver->cuMemImportFromShareableHandle(&imported, (void *)(intptr_t)fd,
                                                       CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    close(fd);
    CUmemFabricHandle fabric;
    CUmemGenericAllocationHandle third;
    assert_cuda(
        driver->cuMemExportToShareableHandle(&fabric, handle, CU_MEM_HANDLE_TYPE_FABRIC, 0));
    assert_cuda(driver->cuMemImportFromShareableHandle(&third, &fabric, CU_MEM_HANDLE_TYPE_FABRIC));
    struct gpu_software_usage usage;
    gpu_software_usage(&usage);
    assert_int_equal(usage.allocations, 1);
    assert_int_equal(usage.allocated_bytes, FIXTURE_GRANULE);
    assert_cuda(driver->cuMemRelease(handle));
    assert_cuda(driver->cuMemGetAllocationPropertiesFromHandle(&seen, imported));
    assert_int_equal(seen.location.id, 1);
    assert_cuda(driver->cuMemRelease(imported));
    assert_cuda(driver->cuMemRelease(third));
    assert_int_equal(driver->cuMemRelease(third), CUDA_ERROR_INVALID_VALUE);
}

static void a_fabric_handle_of_another_process_is_an_invalid_handle(void **state)
{
    (void)state;
    CUmemFabricHandle fabric;
    CUmemGenericAllocationHandle handle;
    memset(&fabric, 0x5a, sizeof(fabric));
    assert_int_equal(
        fixture.driver->cuMemImportFromShareableHandle(&handle, &fabric, CU_MEM_HANDLE_TYPE_FABRIC),
        CUDA_ERROR_INVALID_HANDLE);
}

static void send_fd(int socket, int fd)
{
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = {0};
    char byte = 0;
    struct iovec data = {&byte, 1};
    struct msghdr message = {.msg_iov = &data,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof(control.bytes)};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(header), &fd, sizeof(fd));
    assert_int_equal(sendmsg(socket, &message, 0), 1);
}

static int receive_fd(int socket)
{
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control;
    char byte;
    int fd = -1;
    struct iovec data = {&byte, 1};
    struct msghdr message = {.msg_iov = &data,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof(control.bytes)};
    if (recvmsg(socket, &message, 0) == 1 && CMSG_FIRSTHDR(&message)) {
        memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(fd));
    }
    return fd;
}

/** Another process with a driver of its own: import, check what is there, answer with 2. @return 0:
 * all right. */
static int child_imports(int socket)
{
    struct gpu_software_options options = fixture_options();
    const struct gpu_driver *driver;
    if (gpu_software_open(&options, &driver, NULL) != ST_OK || driver->cuInit(0)) {
        return 10;
    }
    int fd = receive_fd(socket);
    CUmemGenericAllocationHandle handle;
    CUmemAllocationProp prop;
    CUdeviceptr address;
    CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    if (driver->cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)fd,
                                               CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) ||
        driver->cuMemGetAllocationPropertiesFromHandle(&prop, handle) || prop.location.id != 3) {
        return 11;
    }
    if (driver->cuMemAddressReserve(&address, FIXTURE_GRANULE, 0, 0, 0) ||
        driver->cuMemMap(address, FIXTURE_GRANULE, 0, handle, 0) ||
        driver->cuMemSetAccess(address, FIXTURE_GRANULE, &access, 1)) {
        return 12;
    }
    volatile unsigned char *bytes = (unsigned char *)(uintptr_t)address;
    int verdict = bytes[FIXTURE_GRANULE - 1] == 1 ? 0 : 13;
    bytes[0] = 2;
    struct gpu_software_usage usage;
    gpu_software_usage(&usage);
    verdict = usage.allocated_bytes ? 14 : verdict; /* it is not this process's to count */
    gpu_software_close();
    return verdict;
}

static void another_process_imports_the_same_bytes(void **state)
{
    (void)state;
    int sockets[2];
    fixture_close(&fixture); /* fork without threads */
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        _exit(child_imports(sockets[1]));
    }
    struct gpu_software_options options = fixture_options();
    fixture_open(&fixture, &options);
    struct fixture_memory memory;
    fixture_map(&fixture, 3, FIXTURE_GRANULE, &memory);
    fixture_use(&fixture, 3);
    assert_cuda(
        fixture.driver->cuMemsetD8Async(memory.address, 1, FIXTURE_GRANULE, fixture.streams[3]));
    fixture_synchronize(&fixture, 3);
    int fd;
    assert_cuda(fixture.driver->cuMemExportToShareableHandle(
        &fd, memory.handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    send_fd(sockets[0], fd);
    close(fd);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    assert_int_equal(*(volatile unsigned char *)(uintptr_t)memory.address, 2);
    close(sockets[0]);
    close(sockets[1]);
    fixture_unmap(&fixture, &memory);
    fixture_use(&fixture, 0);
}

static void only_sealed_files_of_a_driver_can_be_imported(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int seals;
        off_t bytes;
        CUresult expected;
    } rows[] = {
        {"symtensor-device-1", F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL, FIXTURE_GRANULE,
         CUDA_SUCCESS},
        {"symtensor-device-1", F_SEAL_GROW, FIXTURE_GRANULE, CUDA_ERROR_UNKNOWN},
        {"symtensor-device-1", F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL, 4096, CUDA_ERROR_UNKNOWN},
        {"something-else", F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL, FIXTURE_GRANULE,
         CUDA_ERROR_UNKNOWN},
        {"symtensor-device-9", F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL, FIXTURE_GRANULE,
         CUDA_ERROR_INVALID_DEVICE},
        {"symtensor-device-99999999999999999999", F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL,
         FIXTURE_GRANULE, CUDA_ERROR_UNKNOWN},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        int fd = memfd_create(rows[i].name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
        assert_true(fd >= 0);
        assert_int_equal(ftruncate(fd, rows[i].bytes), 0);
        assert_int_equal(fcntl(fd, F_ADD_SEALS, rows[i].seals), 0);
        CUmemGenericAllocationHandle handle;
        CUresult result = fixture.driver->cuMemImportFromShareableHandle(
            &handle, (void *)(intptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
        assert_int_equal(result, rows[i].expected);
        if (!result) {
            assert_cuda(fixture.driver->cuMemRelease(handle));
        }
        close(fd);
    }
}

static void pinned_host_memory_is_there_for_every_device(void **state)
{
    (void)state;
    const struct gpu_driver *driver = fixture.driver;
    void *host;
    struct fixture_memory memory;
    assert_cuda(driver->cuMemHostAlloc(&host, 1000, CU_MEMHOSTALLOC_PORTABLE));
    fixture_map(&fixture, 0, FIXTURE_GRANULE, &memory);
    memset(host, 9, 1000);
    for (int i = 0; i < FIXTURE_DEVICES; i++) {
        assert_cuda(driver->cuMemcpyHtoDAsync(memory.address, host, 1000, fixture.streams[i]));
        assert_cuda(
            driver->cuMemcpyAsync((uintptr_t)host, memory.address, 1000, fixture.streams[i]));
        fixture_synchronize(&fixture, i);
    }
    assert_int_equal(driver->cuMemcpyHtoDAsync(memory.address + FIXTURE_GRANULE - 1, host, 2,
                                               fixture.streams[0]),
                     CUDA_ERROR_INVALID_VALUE);
    assert_cuda(driver->cuMemFreeHost(host));
    fixture_unmap(&fixture, &memory);
}

static void leaks_of_callers_are_freed_by_close(void **state)
{
    (void)state;
    fixture_close(&fixture);
    unsigned fds = test_open_fds();
    unsigned mappings = test_mappings();
    struct gpu_software_options options = fixture_options();
    fixture_open(&fixture, &options);
    struct fixture_memory memory;
    void *host;
    CUevent event;
    fixture_map(&fixture, 0, FIXTURE_GRANULE, &memory);
    assert_cuda(fixture.driver->cuMemHostAlloc(&host, 4096, 0));
    assert_cuda(fixture.driver->cuEventCreate(&event, 0));
    gpu_software_close();
    assert_int_equal(test_open_fds(), fds);
    assert_true(test_mappings() <= mappings + 4); /* stacks that the C library keeps */
    fixture_open(&fixture, &options);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
        TEST(memory_counts_until_handle_and_mapping_are_gone),
        TEST(a_full_device_is_out_of_memory_and_others_are_not),
        TEST(what_the_machine_cannot_hold_is_out_of_memory_and_not_a_signal),
        TEST(new_memory_reads_as_zeros),
        TEST(the_file_of_new_memory_is_complete_sealed_and_private),
        TEST(a_device_cannot_use_what_it_has_no_access_to),
        TEST(copies_may_span_neighbouring_mappings_but_no_gap),
        TEST(a_reservation_keeps_its_alignment_and_honours_a_free_hint),
        TEST(a_thousand_cycles_leave_no_fd_and_no_mapping),
        TEST(importing_known_memory_is_one_more_handle_on_it),
        TEST(a_fabric_handle_of_another_process_is_an_invalid_handle),
        TEST(another_process_imports_the_same_bytes),
        TEST(only_sealed_files_of_a_driver_can_be_imported),
        TEST(pinned_host_memory_is_there_for_every_device),
        TEST(leaks_of_callers_are_freed_by_close),
#undef TEST
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
