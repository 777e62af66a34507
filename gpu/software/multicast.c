#include <stdlib.h>

#include "gpu/software/internal.h"

/**
 * Multicast objects. Binding maps the bound memory once more for ourselves (a view), so what a twin
 * reaches through a multicast address does not depend on any unicast mapping, as on a switch. The
 * mapping of the object itself stays inaccessible: only software_resolve() leads anywhere.
 */

/** Memory of one member behind [start, start + bytes) of the object. */
struct software_binding {
    _Atomic uint64_t pin;
    uint64_t bytes;
    struct software_allocation *allocation;
    char *memory; /**< In the allocation's view. */
};

struct multicast_member {
    int device;
    struct software_intervals bindings; /**< By offset. Changed under ranges_lock. */
};

struct software_multicast {
    struct software_multicast *next, *previous;
    CUmulticastObjectProp prop;
    CUmemGenericAllocationHandle handle; /**< 0: released, lives for its mappings. */
    uint32_t mappings;
    bool has_slot;
    uint32_t member_count; /**< Added so far; all when prop.numDevices. */
    struct multicast_member members[ST_DEVICES_MAX];
};

/* Most devices of an object, so that a twin can list their addresses. */
_Static_assert(ST_DEVICES_MAX <= GPU_KERNEL_RANKS_MAX,
               "every member has a place in gpu_twin_members");

bool software_multicast_complete(const struct software_multicast *multicast)
{
    return multicast->member_count == multicast->prop.numDevices;
}

uint64_t software_multicast_bytes(const struct software_multicast *multicast)
{
    return multicast->prop.size;
}

/** Index of the member on @p device, or member_count. */
static uint32_t multicast_member(const struct software_multicast *multicast, int device)
{
    uint32_t i = 0;
    while (i < multicast->member_count && multicast->members[i].device != device) {
        i++;
    }
    return i;
}

bool software_multicast_has_device(const struct software_multicast *multicast, int device)
{
    return multicast_member(multicast, device) < multicast->member_count;
}

/** Let go of a binding that no lookup can find any more. memory_lock is held. */
static void binding_destroy(struct software_binding *binding)
{
    software_allocation_unview(binding->allocation);
    software_allocation_unuse(binding->allocation);
    software.bindings--;
    free(binding);
}

/** Free the object with its bindings when nothing refers to it. memory_lock is held. */
static void multicast_put(struct software_multicast *multicast)
{
    if (multicast->handle || multicast->mappings) {
        return;
    }
    if (multicast->previous) {
        multicast->previous->next = multicast->next;
    } else {
        software.multicasts = multicast->next;
    }
    if (multicast->next) {
        multicast->next->previous = multicast->previous;
    }
    for (uint32_t i = 0; i < multicast->member_count; i++) {
        struct software_intervals *bindings = &multicast->members[i].bindings;
        for (size_t k = 0; k < bindings->count; k++) {
            binding_destroy(bindings->items[k].object);
        }
        software_intervals_free(bindings);
    }
    software.slots_used -= multicast->has_slot;
    free(multicast);
}

void software_multicast_use(struct software_multicast *multicast)
{
    multicast->mappings++;
}

void software_multicast_unuse(struct software_multicast *multicast)
{
    multicast->mappings--;
    multicast_put(multicast);
}

void software_multicast_release(struct software_multicast *multicast)
{
    software_handle_delete(multicast->handle);
    multicast->handle = 0;
    multicast_put(multicast);
}

uint64_t software_multicast_count(void)
{
    uint64_t count = 0;
    for (struct software_multicast *at = software.multicasts; at; at = at->next) {
        count++;
    }
    return count;
}

void software_multicast_free_all(void)
{
    pthread_mutex_lock(&software.memory_lock);
    while (software.multicasts) {
        software.multicasts->mappings = 0;
        software.multicasts->handle = 0;
        multicast_put(software.multicasts);
    }
    pthread_mutex_unlock(&software.memory_lock);
}

bool software_multicast_members(const struct software_multicast *multicast, uint64_t offset,
                                uint64_t bytes, struct gpu_twin_members *ret,
                                struct software_pins *pins)
{
    for (uint32_t i = 0; i < multicast->member_count; i++) {
        const struct software_intervals *bindings = &multicast->members[i].bindings;
        struct software_binding *binding = software_intervals_find(bindings, offset, bytes);
        if (!binding || (pins && (software_pin_closed(&binding->pin) ||
                                  !software_pins_add(pins, &binding->pin)))) {
            return false;
        }
        uint64_t start = bindings->items[software_intervals_floor(bindings, offset)].start;
        ret->addresses[i] = binding->memory + (offset - start);
    }
    ret->count = multicast->member_count;
    return true;
}

/* ---------------------------------------------------------------- creating and adding */

static CUresult multicast_check_prop(const CUmulticastObjectProp *prop)
{
    const unsigned long long types =
        CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR | CU_MEM_HANDLE_TYPE_FABRIC;
    if (software.options.no_multicast) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    bool valid = prop && prop->numDevices > 0 &&
                 prop->numDevices <= software.options.device_count && prop->flags == 0 &&
                 (prop->handleTypes & ~types) == 0;
    return valid ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult software_cuMulticastGetGranularity(size_t *granularity, const CUmulticastObjectProp *prop,
                                            CUmulticastGranularity_flags option)
{
    CUresult result = software_enter();
    result = result ? result : multicast_check_prop(prop);
    if (result) {
        return result;
    }
    if (!granularity || (unsigned)option > CU_MULTICAST_GRANULARITY_RECOMMENDED) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *granularity = option == CU_MULTICAST_GRANULARITY_RECOMMENDED
                       ? software.options.multicast_recommended_bytes
                       : SOFTWARE_GRANULARITY;
    return CUDA_SUCCESS;
}

CUresult software_cuMulticastCreate(CUmemGenericAllocationHandle *handle,
                                    const CUmulticastObjectProp *prop)
{
    CUresult result = software_enter();
    result = result ? result : multicast_check_prop(prop);
    if (result) {
        return result;
    }
    if (!handle || prop->size == 0 || prop->size % SOFTWARE_GRANULARITY) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    struct software_multicast *multicast = calloc(1, sizeof(*multicast));
    uint64_t value = multicast ? software_handle_new(SOFTWARE_KIND_MULTICAST, multicast) : 0;
    if (!value) {
        free(multicast);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    multicast->prop = *prop;
    multicast->handle = value;
    pthread_mutex_lock(&software.memory_lock);
    multicast->next = software.multicasts;
    if (multicast->next) {
        multicast->next->previous = multicast;
    }
    software.multicasts = multicast;
    pthread_mutex_unlock(&software.memory_lock);
    *handle = value;
    return CUDA_SUCCESS;
}

CUresult software_cuMulticastAddDevice(CUmemGenericAllocationHandle handle, CUdevice dev)
{
    CUresult result = software_enter_device(dev);
    if (result) {
        return result;
    }
    pthread_mutex_lock(&software.memory_lock);
    struct software_multicast *multicast = software_handle_find(handle, SOFTWARE_KIND_MULTICAST);
    if (!multicast || software_multicast_complete(multicast) ||
        software_multicast_has_device(multicast, dev)) {
        result = CUDA_ERROR_INVALID_VALUE;
    } else {
        multicast->members[multicast->member_count++].device = dev;
    }
    pthread_mutex_unlock(&software.memory_lock);
    return result;
}

/* ---------------------------------------------------------------- binding */

/** What a cuMulticastBindMem() asks for. */
struct multicast_bind {
    struct software_multicast *multicast;
    struct software_allocation *allocation;
    uint64_t multicast_offset, memory_offset, bytes;
};

/** Whether [offset, offset + bytes) is a piece of @p whole bytes, in granules. */
static bool multicast_piece(uint64_t offset, uint64_t bytes, uint64_t whole)
{
    return bytes > 0 && (offset | bytes) % SOFTWARE_GRANULARITY == 0 && offset <= whole &&
           bytes <= whole - offset;
}

static CUresult bind_check(const struct multicast_bind *bind, uint32_t *ret_member)
{
    const struct software_multicast *multicast = bind->multicast;
    const struct software_allocation *allocation = bind->allocation;
    if (!multicast || !allocation || !software_multicast_complete(multicast) ||
        !multicast_piece(bind->multicast_offset, bind->bytes, multicast->prop.size) ||
        !multicast_piece(bind->memory_offset, bind->bytes, allocation->bytes)) {
        return CUDA_ERROR_INVALID_VALUE; /* incomplete: the real driver would wait, perhaps for ever
                                          */
    }
    if (multicast->prop.handleTypes && !allocation->prop.requestedHandleTypes) {
        return CUDA_ERROR_INVALID_VALUE; /* a shareable object takes shareable memory only */
    }
    uint32_t member = multicast_member(multicast, allocation->prop.location.id);
    if (member == multicast->member_count) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    if (software_intervals_overlap(&multicast->members[member].bindings, bind->multicast_offset,
                                   bind->multicast_offset + bind->bytes)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *ret_member = member;
    return CUDA_SUCCESS;
}

/** The hardware's tables are filled by binding, not by creating: so is our count. memory_lock is
 * held. */
static bool bind_take_slot(struct software_multicast *multicast)
{
    if (!multicast->has_slot && software.slots_used < software.options.multicast_slots) {
        multicast->has_slot = true;
        software.slots_used++;
    }
    return multicast->has_slot;
}

/** memory_lock is held; all checks are done. */
static CUresult bind_insert(const struct multicast_bind *bind, struct software_intervals *bindings)
{
    struct software_binding *binding = calloc(1, sizeof(*binding));
    char *view = NULL;
    CUresult result =
        binding ? software_allocation_view(bind->allocation, &view) : CUDA_ERROR_OUT_OF_MEMORY;
    if (result) {
        free(binding);
        return result;
    }
    binding->bytes = bind->bytes;
    binding->allocation = bind->allocation;
    binding->memory = view + bind->memory_offset;
    bind->allocation->uses++;
    software.bindings++;
    pthread_rwlock_wrlock(&software.ranges_lock);
    bool inserted = software_intervals_reserve(bindings);
    if (inserted) {
        software_intervals_insert(bindings, bind->multicast_offset,
                                  bind->multicast_offset + bind->bytes, binding);
    }
    pthread_rwlock_unlock(&software.ranges_lock);
    if (!inserted) {
        binding_destroy(binding);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    return CUDA_SUCCESS;
}

CUresult software_cuMulticastBindMem(CUmemGenericAllocationHandle handle, size_t multicast_offset,
                                     CUmemGenericAllocationHandle memory, size_t memory_offset,
                                     size_t size, unsigned long long flags)
{
    CUresult result = software_enter();
    if (result) {
        return result;
    }
    if (flags) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    uint32_t member = 0;
    pthread_mutex_lock(&software.memory_lock);
    struct multicast_bind bind = {software_handle_find(handle, SOFTWARE_KIND_MULTICAST),
                                  software_handle_find(memory, SOFTWARE_KIND_MEMORY),
                                  multicast_offset, memory_offset, size};
    result = bind_check(&bind, &member);
    if (!result && !bind_take_slot(bind.multicast)) {
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (!result) {
        result = bind_insert(&bind, &bind.multicast->members[member].bindings);
    }
    pthread_mutex_unlock(&software.memory_lock);
    return result;
}

/** memory_lock is held, and given up while a running command uses the binding. */
static CUresult multicast_unbind(struct software_multicast *multicast, CUdevice device,
                                 uint64_t offset, uint64_t bytes)
{
    uint32_t member = multicast_member(multicast, device);
    if (member == multicast->member_count) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    struct software_intervals *bindings = &multicast->members[member].bindings;
    size_t index = software_intervals_floor(bindings, offset);
    if (index == bindings->count || bindings->items[index].start != offset) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    struct software_binding *binding = bindings->items[index].object;
    if (binding->bytes != bytes || software_pin_closed(&binding->pin)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    multicast->mappings++; /* keep the object while the lock is given up */
    (void)software_pin_close(&binding->pin);
    pthread_rwlock_wrlock(&software.ranges_lock);
    software_intervals_remove(bindings, offset);
    pthread_rwlock_unlock(&software.ranges_lock);
    binding_destroy(binding);
    software_multicast_unuse(multicast);
    return CUDA_SUCCESS;
}

CUresult software_cuMulticastUnbind(CUmemGenericAllocationHandle handle, CUdevice dev,
                                    size_t multicast_offset, size_t size)
{
    CUresult result = software_enter_device(dev);
    if (result) {
        return result;
    }
    pthread_mutex_lock(&software.memory_lock);
    struct software_multicast *multicast = software_handle_find(handle, SOFTWARE_KIND_MULTICAST);
    result = multicast ? multicast_unbind(multicast, dev, multicast_offset, size)
                       : CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_unlock(&software.memory_lock);
    return result;
}
