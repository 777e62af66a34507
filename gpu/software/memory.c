#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "gpu/software/internal.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14 */
#endif

/* The name says on which device the memory is: an importing process has nothing else to go by. */
#define MEMORY_NAME "symtensor-device-"
#define MEMORY_SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)
#define MEMORY_HANDLE_TYPES (CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR | CU_MEM_HANDLE_TYPE_FABRIC)
#define MEMORY_LARGE (64 * ST_MIB) /* from here on, look whether the machine has so much */
#define MEMORY_FABRIC_MAGIC 0x7274656e73616265ull

/** What is in the 64 bytes of our fabric handles. They are understood in the process that made
 * them. */
struct memory_fabric {
    uint64_t magic;
    int64_t process;
    uint64_t file_device, file;
};
_Static_assert(sizeof(struct memory_fabric) <= sizeof(CUmemFabricHandle), "must fit a handle");

CUresult software_errno_result(int error)
{
    switch (error) {
    case ENOMEM:
    case ENOSPC:
    case EFBIG:
    case EDQUOT:
        return CUDA_ERROR_OUT_OF_MEMORY;
    case EACCES:
    case EPERM:
        return CUDA_ERROR_NOT_PERMITTED;
    default: /* EMFILE and ENFILE among them: not the device's memory is short */
        return CUDA_ERROR_OPERATING_SYSTEM;
    }
}

void *software_reserve(uint64_t bytes, uint64_t alignment, void *hint)
{
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    uint64_t padded;
    if (hint && !((uintptr_t)hint & (alignment - 1))) {
        void *wished = mmap(hint, bytes, PROT_NONE, flags | MAP_FIXED_NOREPLACE, -1, 0);
        if (wished == hint) {
            return wished;
        }
        if (wished != MAP_FAILED) {
            munmap(wished, bytes);
        }
    }
    if (__builtin_add_overflow(bytes, alignment, &padded)) {
        return NULL;
    }
    char *whole = mmap(NULL, padded, PROT_NONE, flags, -1, 0);
    if (whole == MAP_FAILED) {
        return NULL;
    }
    uint64_t skip = -(uintptr_t)whole & (alignment - 1);
    if (skip) {
        munmap(whole, skip);
    }
    if (alignment > skip) {
        munmap(whole + skip + bytes, alignment - skip);
    }
    return whole + skip;
}

/* ---------------------------------------------------------------- the file behind an allocation */

/**
 * Touch all of a file through a mapping that asks for huge pages: fallocate() alone gives small
 * ones where the kernel hands out huge pages on advice only. Whatever fails here, fallocate() makes
 * good.
 */
static void memory_touch_huge(int fd, uint64_t bytes)
{
    char *address = software_reserve(bytes, SOFTWARE_GRANULARITY, NULL);
    if (!address) {
        return;
    }
    if (ftruncate(fd, (off_t)bytes) == 0 &&
        mmap(address, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) != MAP_FAILED &&
        madvise(address, bytes, MADV_HUGEPAGE) == 0) {
        (void)madvise(address, bytes, MADV_POPULATE_WRITE);
    }
    munmap(address, bytes);
}

/** @return a sealed memfd of @p bytes, all of it there and zero; or -1 with errno. */
static int memory_file_create(int device, uint64_t bytes)
{
    /* Asked for more than there is, fallocate() would take all there is first. */
    if (bytes >= MEMORY_LARGE && bytes > software_machine_available_bytes()) {
        errno = ENOMEM;
        return -1;
    }
    char name[32];
    snprintf(name, sizeof(name), MEMORY_NAME "%d", device);
    int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0) {
        return -1;
    }
    /* It is born 0777: until this, another user could open it for writing through /proc. */
    bool made = fchmod(fd, 0600) == 0;
    if (made && software.huge_pages) {
        memory_touch_huge(fd, bytes);
    }
    made =
        made && fallocate(fd, 0, 0, (off_t)bytes) == 0 && fcntl(fd, F_ADD_SEALS, MEMORY_SEALS) == 0;
    if (!made) {
        int error = errno;
        close(fd);
        errno = error;
        return -1;
    }
    return fd;
}

/** Device of a memfd that a software driver made; false when it is anything else. */
static bool memory_file_device(int fd, const struct stat *stat, int *ret_device)
{
    char link[64];
    char name[64] = "";
    const char prefix[] = "/memfd:" MEMORY_NAME;
    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, name, sizeof(name) - 1);
    int seals = fcntl(fd, F_GET_SEALS);
    bool ours = length > 0 && !strncmp(name, prefix, sizeof(prefix) - 1) && seals >= 0 &&
                (seals & MEMORY_SEALS) == MEMORY_SEALS && stat->st_size > 0 &&
                (uint64_t)stat->st_size % SOFTWARE_GRANULARITY == 0;
    if (!ours) {
        return false;
    }
    name[sizeof(prefix) - 1 + strspn(name + sizeof(prefix) - 1, "0123456789")] = '\0';
    uint64_t device;
    if (!st_uint_parse(name + sizeof(prefix) - 1, ST_DEVICES_MAX - 1, &device)) {
        return false;
    }
    *ret_device = (int)device;
    return true;
}

/* ---------------------------------------------------------------- the life of an allocation */

/** Take the file's memory back when nothing uses it any more. memory_lock is held. */
static void allocation_put(struct software_allocation *allocation)
{
    if (allocation->handle_uses || allocation->uses) {
        return;
    }
    if (allocation->previous) {
        allocation->previous->next = allocation->next;
    } else {
        software.allocations = allocation->next;
    }
    if (allocation->next) {
        allocation->next->previous = allocation->previous;
    }
    if (!allocation->foreign) {
        software.devices[allocation->prop.location.id].used_bytes -= allocation->bytes;
    }
    close(allocation->fd);
    free(allocation);
}

void software_allocation_unuse(struct software_allocation *allocation)
{
    allocation->uses--;
    allocation_put(allocation);
}

/** One more handle use; makes the handle where there is none. memory_lock is held. */
static CUresult allocation_retain(struct software_allocation *allocation,
                                  CUmemGenericAllocationHandle *ret_handle)
{
    if (!allocation->handle_uses) {
        allocation->handle = software_handle_new(SOFTWARE_KIND_MEMORY, allocation);
        if (!allocation->handle) {
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
    }
    allocation->handle_uses++;
    *ret_handle = allocation->handle;
    return CUDA_SUCCESS;
}

/** memory_lock is held. */
static void allocation_release(struct software_allocation *allocation)
{
    if (--allocation->handle_uses == 0) {
        software_handle_delete(allocation->handle);
        allocation->handle = 0;
        allocation_put(allocation);
    }
}

/**
 * Enter a file into the list, with one handle.
 * @param prop what it was made with. The fd is kept on success only.
 */
static CUresult allocation_adopt(int fd, const CUmemAllocationProp *prop, bool foreign,
                                 CUmemGenericAllocationHandle *ret_handle)
{
    struct stat stat;
    if (fstat(fd, &stat)) {
        return CUDA_ERROR_OPERATING_SYSTEM;
    }
    struct software_allocation *allocation = calloc(1, sizeof(*allocation));
    if (!allocation) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    allocation->fd = fd;
    allocation->bytes = (uint64_t)stat.st_size;
    allocation->file_device = stat.st_dev;
    allocation->file = stat.st_ino;
    allocation->prop = *prop;
    allocation->foreign = foreign;
    pthread_mutex_lock(&software.memory_lock);
    CUresult result = allocation_retain(allocation, ret_handle);
    if (result) {
        free(allocation);
    } else {
        allocation->next = software.allocations;
        if (allocation->next) {
            allocation->next->previous = allocation;
        }
        software.allocations = allocation;
    }
    pthread_mutex_unlock(&software.memory_lock);
    return result;
}

CUresult software_allocation_view(struct software_allocation *allocation, char **ret_view)
{
    if (!allocation->view_uses) {
        char *view = software_reserve(allocation->bytes, SOFTWARE_GRANULARITY, NULL);
        if (!view) {
            return CUDA_ERROR_OPERATING_SYSTEM;
        }
        if (mmap(view, allocation->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
                 allocation->fd, 0) == MAP_FAILED) {
            CUresult result = software_errno_result(errno);
            munmap(view, allocation->bytes);
            return result;
        }
        allocation->view = view;
    }
    allocation->view_uses++;
    *ret_view = allocation->view;
    return CUDA_SUCCESS;
}

void software_allocation_unview(struct software_allocation *allocation)
{
    if (--allocation->view_uses == 0) {
        munmap(allocation->view, allocation->bytes);
        allocation->view = NULL;
    }
}

void software_memory_free_all(void)
{
    pthread_mutex_lock(&software.memory_lock);
    struct software_allocation *next;
    for (struct software_allocation *at = software.allocations; at; at = next) {
        next = at->next;
        at->handle_uses = 0;
        at->uses = 0;
        allocation_put(at);
    }
    pthread_mutex_unlock(&software.memory_lock);
}

/* ---------------------------------------------------------------- creating */

static CUresult memory_check_prop(const CUmemAllocationProp *prop)
{
    if (!prop || prop->type != CU_MEM_ALLOCATION_TYPE_PINNED ||
        prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
        ((unsigned)prop->requestedHandleTypes & ~(unsigned)MEMORY_HANDLE_TYPES) ||
        prop->allocFlags.compressionType > 1 || prop->allocFlags.gpuDirectRDMACapable > 1 ||
        prop->allocFlags.usage) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return software_enter_device(prop->location.id);
}

CUresult software_cuMemGetAllocationGranularity(size_t *granularity,
                                                const CUmemAllocationProp *prop,
                                                CUmemAllocationGranularity_flags option)
{
    CUresult result = software_enter();
    result = result ? result : memory_check_prop(prop);
    if (result) {
        return result;
    }
    if (!granularity || (unsigned)option > CU_MEM_ALLOC_GRANULARITY_RECOMMENDED) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *granularity = SOFTWARE_GRANULARITY;
    return CUDA_SUCCESS;
}

/** Count @p bytes against the device; false when they do not fit. */
static bool memory_budget_take(int device, uint64_t bytes)
{
    pthread_mutex_lock(&software.memory_lock);
    uint64_t *used = &software.devices[device].used_bytes;
    bool fits = bytes <= software.options.memory_bytes - *used;
    *used += fits ? bytes : 0;
    pthread_mutex_unlock(&software.memory_lock);
    return fits;
}

static void memory_budget_give(int device, uint64_t bytes)
{
    pthread_mutex_lock(&software.memory_lock);
    software.devices[device].used_bytes -= bytes;
    pthread_mutex_unlock(&software.memory_lock);
}

CUresult software_cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size,
                              const CUmemAllocationProp *prop, unsigned long long flags)
{
    CUresult result = software_enter();
    result = result ? result : memory_check_prop(prop);
    if (result) {
        return result;
    }
    if (!handle || flags || size == 0 || size % SOFTWARE_GRANULARITY) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (software.options.no_fabric &&
        ((unsigned)prop->requestedHandleTypes & CU_MEM_HANDLE_TYPE_FABRIC)) {
        return CUDA_ERROR_NOT_PERMITTED;
    }
    int device = prop->location.id;
    if (!memory_budget_take(device, size)) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    int fd = memory_file_create(device, size);
    result = fd < 0 ? software_errno_result(errno) : allocation_adopt(fd, prop, false, handle);
    if (result) {
        if (fd >= 0) {
            close(fd);
        }
        memory_budget_give(device, size);
    }
    return result;
}

CUresult software_cuMemRelease(CUmemGenericAllocationHandle handle)
{
    CUresult result = software_enter();
    if (result) {
        return result;
    }
    pthread_mutex_lock(&software.memory_lock);
    struct software_allocation *allocation = software_handle_find(handle, SOFTWARE_KIND_MEMORY);
    struct software_multicast *multicast = software_handle_find(handle, SOFTWARE_KIND_MULTICAST);
    if (allocation) {
        allocation_release(allocation);
    } else if (multicast) {
        software_multicast_release(multicast);
    } else {
        result = CUDA_ERROR_INVALID_VALUE;
    }
    pthread_mutex_unlock(&software.memory_lock);
    return result;
}

CUresult software_cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *address)
{
    CUresult result = software_enter();
    if (result) {
        return result;
    }
    if (!handle) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    pthread_mutex_lock(&software.memory_lock);
    struct software_range *range = software_intervals_find(&software.ranges, (uintptr_t)address, 1);
    bool memory =
        range && range->kind == SOFTWARE_RANGE_MEMORY && !software_pin_closed(&range->pin);
    result = memory ? allocation_retain(range->allocation, handle) : CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_unlock(&software.memory_lock);
    return result;
}

CUresult software_cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *prop,
                                                         CUmemGenericAllocationHandle handle)
{
    CUresult result = software_enter();
    if (result) {
        return result;
    }
    pthread_mutex_lock(&software.memory_lock);
    struct software_allocation *allocation = software_handle_find(handle, SOFTWARE_KIND_MEMORY);
    if (prop && allocation) {
        *prop = allocation->prop;
    } else {
        result = CUDA_ERROR_INVALID_VALUE;
    }
    pthread_mutex_unlock(&software.memory_lock);
    return result;
}

CUresult software_cuMemGetInfo(size_t *free_bytes, size_t *total)
{
    struct software_context *context;
    CUresult result = software_enter_context(&context);
    if (result) {
        return result;
    }
    if (!free_bytes || !total) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    pthread_mutex_lock(&software.memory_lock);
    *free_bytes = software.options.memory_bytes - software.devices[context->device].used_bytes;
    pthread_mutex_unlock(&software.memory_lock);
    *total = software.options.memory_bytes;
    return CUDA_SUCCESS;
}

/* ---------------------------------------------------------------- sharing */

/** Write the shareable form of @p allocation. memory_lock is held. */
static CUresult memory_export(const struct software_allocation *allocation,
                              CUmemAllocationHandleType type, void *shareable)
{
    if (type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) {
        int fd = fcntl(allocation->fd, F_DUPFD_CLOEXEC, 0);
        if (fd < 0) {
            return software_errno_result(errno);
        }
        memcpy(shareable, &fd, sizeof(fd));
        return CUDA_SUCCESS;
    }
    struct memory_fabric fabric = {MEMORY_FABRIC_MAGIC, getpid(), allocation->file_device,
                                   allocation->file};
    memset(shareable, 0, sizeof(CUmemFabricHandle));
    memcpy(shareable, &fabric, sizeof(fabric));
    return CUDA_SUCCESS;
}

CUresult software_cuMemExportToShareableHandle(void *shareable, CUmemGenericAllocationHandle handle,
                                               CUmemAllocationHandleType type,
                                               unsigned long long flags)
{
    CUresult result = software_enter();
    if (result) {
        return result;
    }
    pthread_mutex_lock(&software.memory_lock);
    const struct software_allocation *allocation =
        software_handle_find(handle, SOFTWARE_KIND_MEMORY);
    if (software_handle_find(handle, SOFTWARE_KIND_MULTICAST)) {
        result = CUDA_ERROR_NOT_SUPPORTED; /* what it does exists in this process only */
    } else if (!shareable || flags || !allocation ||
               (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR &&
                type != CU_MEM_HANDLE_TYPE_FABRIC) ||
               !((unsigned)allocation->prop.requestedHandleTypes & (unsigned)type)) {
        result = CUDA_ERROR_INVALID_VALUE;
    } else {
        result = memory_export(allocation, type, shareable);
    }
    pthread_mutex_unlock(&software.memory_lock);
    return result;
}

/** One more handle on memory that is known here. @return 400 when it is not. */
static CUresult memory_import_known(uint64_t file_device, uint64_t file,
                                    CUmemGenericAllocationHandle *ret_handle)
{
    CUresult result = CUDA_ERROR_INVALID_HANDLE;
    pthread_mutex_lock(&software.memory_lock);
    for (struct software_allocation *at = software.allocations; at; at = at->next) {
        if (at->file_device == file_device && at->file == file) {
            result = allocation_retain(at, ret_handle);
            break;
        }
    }
    pthread_mutex_unlock(&software.memory_lock);
    return result;
}

static CUresult memory_import_fd(int fd, CUmemGenericAllocationHandle *ret_handle)
{
    struct stat stat;
    if (fstat(fd, &stat)) {
        return CUDA_ERROR_UNKNOWN; /* as a device says it */
    }
    CUresult result = memory_import_known(stat.st_dev, stat.st_ino, ret_handle);
    if (result != CUDA_ERROR_INVALID_HANDLE) {
        return result;
    }
    CUmemAllocationProp prop = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE},
    };
    if (!memory_file_device(fd, &stat, &prop.location.id)) {
        return CUDA_ERROR_UNKNOWN;
    }
    if ((uint32_t)prop.location.id >= software.options.device_count) {
        return CUDA_ERROR_INVALID_DEVICE; /* the other process has devices that we do not */
    }
    int own = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (own < 0) {
        return software_errno_result(errno);
    }
    result = allocation_adopt(own, &prop, true, ret_handle);
    if (result) {
        close(own);
    }
    return result;
}

CUresult software_cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle,
                                                 void *shareable, CUmemAllocationHandleType type)
{
    CUresult result = software_enter();
    if (result) {
        return result;
    }
    if (!handle) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) {
        return memory_import_fd((int)(intptr_t)shareable, handle); /* the fd itself, by value */
    }
    if (type != CU_MEM_HANDLE_TYPE_FABRIC || !shareable) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    struct memory_fabric fabric;
    memcpy(&fabric, shareable, sizeof(fabric));
    if (fabric.magic != MEMORY_FABRIC_MAGIC || fabric.process != getpid()) {
        return CUDA_ERROR_INVALID_HANDLE; /* another domain */
    }
    return memory_import_known(fabric.file_device, fabric.file, handle);
}
