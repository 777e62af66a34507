#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "gpu/software/internal.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14 */
#endif

/** An address range that was reserved. */
struct address_reservation {
    uint64_t address, bytes;
};

static void *address_pointer(uint64_t address)
{
    return (void *)(uintptr_t)address; /* device addresses are host addresses here */
}

/** Whether [address, address + bytes) is made of whole granules and does not wrap. */
static bool address_piece(uint64_t address, uint64_t bytes)
{
    uint64_t end;
    return bytes > 0 && (address | bytes) % SOFTWARE_GRANULARITY == 0 &&
           !__builtin_add_overflow(address, bytes, &end);
}

/** Put inaccessible, unbacked pages where a mapping was. */
static void address_clear(uint64_t address, uint64_t bytes)
{
    (void)mmap(address_pointer(address), bytes, PROT_NONE,
               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}

/* ---------------------------------------------------------------- reserving */

CUresult software_cuMemAddressReserve(CUdeviceptr *address, size_t size, size_t alignment,
                                      CUdeviceptr hint, unsigned long long flags)
{
    CUresult result = software_enter();
    if (result) {
        return result;
    }
    if (!address || flags || size == 0 || size % SOFTWARE_GRANULARITY ||
        (alignment & (alignment - 1))) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    uint64_t aligned = alignment > SOFTWARE_GRANULARITY ? alignment : SOFTWARE_GRANULARITY;
    struct address_reservation *reservation = calloc(1, sizeof(*reservation));
    void *place = reservation ? software_reserve(size, aligned, address_pointer(hint)) : NULL;
    if (!place) {
        free(reservation);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *reservation = (struct address_reservation){(uintptr_t)place, size};
    pthread_mutex_lock(&software.memory_lock);
    bool inserted = software_intervals_reserve(&software.reservations);
    if (inserted) {
        software_intervals_insert(&software.reservations, reservation->address,
                                  reservation->address + size, reservation);
    }
    pthread_mutex_unlock(&software.memory_lock);
    if (!inserted) {
        munmap(place, size);
        free(reservation);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *address = (uintptr_t)place;
    return CUDA_SUCCESS;
}

CUresult software_cuMemAddressFree(CUdeviceptr address, size_t size)
{
    CUresult result = software_enter();
    if (result) {
        return result;
    }
    pthread_mutex_lock(&software.memory_lock);
    struct address_reservation *reservation =
        size ? software_intervals_find(&software.reservations, address, size) : NULL;
    if (!reservation || reservation->address != address || reservation->bytes != size ||
        software_intervals_overlap(&software.ranges, address, address + size)) {
        result = CUDA_ERROR_INVALID_VALUE;
    } else {
        software_intervals_remove(&software.reservations, address);
        munmap(address_pointer(address), size);
        free(reservation);
    }
    pthread_mutex_unlock(&software.memory_lock);
    return result;
}

/* ---------------------------------------------------------------- mapping */

/** Let go of what a range maps. It is in no table any more. memory_lock is held. */
static void mapping_destroy(struct software_range *range)
{
    if (range->allocation) {
        address_clear(range->address, range->bytes);
        software_allocation_unuse(range->allocation);
    } else {
        software_multicast_unuse(range->multicast);
    }
    software.mappings--;
    free(range);
}

/** Map what the range names, without access. memory_lock is held. */
static CUresult mapping_insert(struct software_range *range)
{
    if (range->allocation) {
        if (mmap(address_pointer(range->address), range->bytes, PROT_NONE, MAP_SHARED | MAP_FIXED,
                 range->allocation->fd, 0) == MAP_FAILED) {
            return errno == ENOMEM ? CUDA_ERROR_OPERATING_SYSTEM : software_errno_result(errno);
        }
        if (software.huge_pages) {
            (void)madvise(address_pointer(range->address), range->bytes, MADV_HUGEPAGE);
        }
        range->allocation->uses++;
    } else {
        software_multicast_use(range->multicast);
    }
    software.mappings++;
    return CUDA_SUCCESS;
}

/** Whether what @p handle names can be mapped with so many bytes. Fills in the range. memory_lock
 * is held. */
static bool mapping_resolve(CUmemGenericAllocationHandle handle, struct software_range *range)
{
    range->allocation = software_handle_find(handle, SOFTWARE_KIND_MEMORY);
    range->multicast = software_handle_find(handle, SOFTWARE_KIND_MULTICAST);
    if (range->allocation) {
        range->kind = SOFTWARE_RANGE_MEMORY;
        return true;
    }
    range->kind = SOFTWARE_RANGE_MULTICAST;
    return range->multicast && software_multicast_complete(range->multicast) &&
           range->bytes <= software_multicast_bytes(range->multicast);
}

CUresult software_cuMemMap(CUdeviceptr address, size_t size, size_t offset,
                           CUmemGenericAllocationHandle handle, unsigned long long flags)
{
    CUresult result = software_enter();
    if (result) {
        return result;
    }
    if (flags || !size) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (offset || address % SOFTWARE_GRANULARITY) {
        return CUDA_ERROR_NOT_SUPPORTED; /* as a device says it */
    }
    if (!address_piece(address, size)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    struct software_range *range = calloc(1, sizeof(*range));
    if (!range) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    range->address = address;
    range->bytes = size;
    pthread_mutex_lock(&software.memory_lock);
    if (!software_intervals_find(&software.reservations, address, size) ||
        software_intervals_overlap(&software.ranges, address, address + size) ||
        !mapping_resolve(handle, range)) {
        result = CUDA_ERROR_INVALID_VALUE;
    } else if (range->allocation && size > range->allocation->bytes) {
        result = CUDA_ERROR_NOT_SUPPORTED; /* as a device says it */
    }
    result = result ? result : mapping_insert(range);
    if (result) {
        free(range);
    } else if (!software_range_insert(range)) {
        mapping_destroy(range);
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    pthread_mutex_unlock(&software.memory_lock);
    return result;
}

/**
 * The ranges that make up exactly [address, address + bytes), which must all be mappings.
 * @return index of the first, with their number; or the table's count when it is not so.
 * memory_lock is held.
 */
static size_t mappings_covering(uint64_t address, uint64_t bytes, size_t *ret_number)
{
    const struct software_intervals *table = &software.ranges;
    uint64_t end = address + bytes;
    size_t first = software_intervals_floor(table, address);
    uint64_t at = address;
    size_t index = first;
    for (; index < table->count && at < end; index++) {
        struct software_range *range = table->items[index].object;
        if (table->items[index].start != at || table->items[index].end > end ||
            range->kind == SOFTWARE_RANGE_HOST || software_pin_closed(&range->pin)) {
            return table->count;
        }
        at = table->items[index].end;
    }
    *ret_number = index - first;
    return at == end ? first : table->count;
}

CUresult software_cuMemUnmap(CUdeviceptr address, size_t size)
{
    CUresult result = software_enter();
    if (result) {
        return result;
    }
    if (!address_piece(address, size)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    size_t number = 0;
    pthread_mutex_lock(&software.memory_lock);
    if (mappings_covering(address, size, &number) == software.ranges.count) {
        result = CUDA_ERROR_INVALID_VALUE;
    }
    /* Waiting for users gives up the lock, so each mapping is looked up again when its turn comes.
     */
    for (uint64_t at = address; !result && at < address + size;) {
        struct software_range *range = software_intervals_find(&software.ranges, at, 1);
        if (!range || !software_range_remove(range)) {
            result = CUDA_ERROR_INVALID_VALUE; /* another thread unmaps the same */
            break;
        }
        at += range->bytes;
        mapping_destroy(range);
    }
    pthread_mutex_unlock(&software.memory_lock);
    return result;
}

void software_address_free_all(void)
{
    pthread_mutex_lock(&software.memory_lock);
    while (software.ranges.count) {
        struct software_range *range = software.ranges.items[software.ranges.count - 1].object;
        (void)software_range_remove(range);
        if (range->kind == SOFTWARE_RANGE_HOST) {
            software_host_free(range);
        } else {
            mapping_destroy(range);
        }
    }
    for (size_t i = 0; i < software.reservations.count; i++) {
        struct address_reservation *reservation = software.reservations.items[i].object;
        munmap(address_pointer(reservation->address), reservation->bytes);
        free(reservation);
    }
    software_intervals_free(&software.reservations);
    software_intervals_free(&software.ranges);
    pthread_mutex_unlock(&software.memory_lock);
}

/* ---------------------------------------------------------------- access */

static CUresult access_check(const struct software_range *range, const CUmemAccessDesc *desc)
{
    bool known = desc->flags == CU_MEM_ACCESS_FLAGS_PROT_NONE ||
                 desc->flags == CU_MEM_ACCESS_FLAGS_PROT_READ ||
                 desc->flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    if (!known || desc->location.type != CU_MEM_LOCATION_TYPE_DEVICE) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (software_enter_device(desc->location.id)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (desc->flags == CU_MEM_ACCESS_FLAGS_PROT_NONE) {
        return CUDA_SUCCESS;
    }
    bool reaches =
        range->allocation
            ? software_peer_access(desc->location.id, range->allocation->prop.location.id)
            : software_multicast_has_device(range->multicast, desc->location.id);
    return reaches ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

/** Set masks and protection. The protection goes down only where nobody is in the middle of using
 * it. */
static CUresult access_apply(struct software_range *range, const CUmemAccessDesc *desc,
                             size_t count)
{
    pthread_rwlock_wrlock(&software.ranges_lock);
    uint64_t readable = range->readable;
    uint64_t writable = range->writable;
    for (size_t i = 0; i < count; i++) {
        uint64_t bit = 1ull << desc[i].location.id;
        unsigned flags = desc[i].flags;
        bool write = flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
        readable = flags & CU_MEM_ACCESS_FLAGS_PROT_READ ? readable | bit : readable & ~bit;
        writable = write ? writable | bit : writable & ~bit;
    }
    int protection = (readable ? PROT_READ : 0) | (writable ? PROT_WRITE : 0);
    bool failed = range->allocation && (writable || !atomic_load(&range->pin)) &&
                  mprotect(address_pointer(range->address), range->bytes, protection) != 0;
    int error = errno;
    if (!failed) {
        range->readable = readable;
        range->writable = writable;
    }
    pthread_rwlock_unlock(&software.ranges_lock);
    if (failed) {
        return error == ENOMEM ? CUDA_ERROR_OPERATING_SYSTEM : software_errno_result(error);
    }
    return CUDA_SUCCESS;
}

CUresult software_cuMemSetAccess(CUdeviceptr address, size_t size, const CUmemAccessDesc *desc,
                                 size_t count)
{
    CUresult result = software_enter();
    if (result) {
        return result;
    }
    if (!desc || !count || !address_piece(address, size)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    size_t number = 0;
    pthread_mutex_lock(&software.memory_lock);
    size_t first = mappings_covering(address, size, &number);
    if (first == software.ranges.count) {
        result = CUDA_ERROR_INVALID_VALUE;
    }
    for (size_t i = 0; i < number * count && !result; i++) {
        result = access_check(software.ranges.items[first + i / count].object, &desc[i % count]);
    }
    for (size_t i = 0; i < number && !result; i++) {
        result = access_apply(software.ranges.items[first + i].object, desc, count);
    }
    pthread_mutex_unlock(&software.memory_lock);
    if (!result) {
        /* So that the first command does not pay for the page tables. Being right needs none of it:
         * where nothing may be written, as at a multicast address, it just fails. */
        (void)madvise(address_pointer(address), size, MADV_POPULATE_WRITE);
    }
    return result;
}

CUresult software_cuMemGetAccess(unsigned long long *flags, const CUmemLocation *location,
                                 CUdeviceptr address)
{
    CUresult result = software_enter();
    if (result) {
        return result;
    }
    if (!flags || !location || location->type != CU_MEM_LOCATION_TYPE_DEVICE) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    result = software_enter_device(location->id);
    if (result) {
        return result;
    }
    pthread_rwlock_rdlock(&software.ranges_lock);
    struct software_range *range = software_intervals_find(&software.ranges, address, 1);
    if (range && range->kind != SOFTWARE_RANGE_HOST) {
        *flags = (range->readable >> location->id & 1 ? CU_MEM_ACCESS_FLAGS_PROT_READ : 0u) |
                 (range->writable >> location->id & 1 ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : 0u);
    } else {
        result = CUDA_ERROR_INVALID_VALUE;
    }
    pthread_rwlock_unlock(&software.ranges_lock);
    return result;
}
