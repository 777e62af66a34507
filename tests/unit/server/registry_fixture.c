#include "tests/unit/server/registry_fixture.h"

#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif
#ifndef SANITIZED
#define SANITIZED 0
#endif

void holdings_prepare(void)
{
    mallopt(M_ARENA_MAX, 1);
    mallopt(M_MMAP_MAX, 0);
}

struct holdings holdings_of(struct server *server)
{
    struct holdings holdings = {.fds = test_open_fds(),
                                .mappings = SANITIZED ? 0 : test_mappings()};
    const struct gpu *gpu = server_gpu(server);
    for (uint32_t device = 0; device < gpu_device_count(gpu); device++) {
        struct gpu_device_memory memory;
        gpu_device_memory(gpu, device, &memory);
        holdings.owned_bytes += memory.owned_bytes + memory.quarantined_bytes;
    }
    struct server_metrics metrics;
    server_metrics(server, &metrics);
    holdings.groups = metrics.groups;
    holdings.tensors = metrics.tensors;
    return holdings;
}

void assert_holdings(struct server *server, const struct holdings *expected)
{
    struct holdings now = holdings_of(server);
    assert_int_equal(now.owned_bytes, expected->owned_bytes);
    assert_int_equal(now.fds, expected->fds);
    if (expected->mappings) {
        assert_int_equal(now.mappings, expected->mappings);
    }
    assert_int_equal(now.groups, expected->groups);
    assert_int_equal(now.tensors, expected->tensors);
}

struct server_tensor_create *tensor_request(const char *group, const char *id, uint64_t elements)
{
    struct server_tensor_create *request = calloc(1, sizeof(*request));
    assert_non_null(request);
    snprintf(request->id, sizeof(request->id), "%s", id);
    snprintf(request->group, sizeof(request->group), "%s", group);
    request->dtype = ST_DTYPE_FLOAT32;
    request->shape = (struct st_shape){.rank = 1, .dims = {(int64_t)elements}};
    request->attachable = -1;
    return request;
}

static enum st_status ended(enum st_status submitted, struct server_operation *operation,
                            struct st_error *err)
{
    return submitted == ST_OK ? node_finish_status(operation, err) : submitted;
}

enum st_status tensor_make(struct server *server, const char *group, const char *id,
                           uint64_t elements, struct st_error *err)
{
    struct server_tensor_create *request = tensor_request(group, id, elements);
    struct server_operation *operation = NULL;
    enum st_status status = server_tensor_create(server, &node_caller, request, &operation, err);
    free(request);
    return ended(status, operation, err);
}

enum st_status tensor_drop(struct server *server, const char *id, struct st_error *err)
{
    struct server_operation *operation = NULL;
    enum st_status status = server_tensor_delete(server, &node_caller, id, false, &operation, err);
    return ended(status, operation, err);
}

enum st_status group_make(struct server *server, const char *id, uint32_t world_size,
                          struct st_error *err)
{
    uint32_t devices = gpu_device_count(server_gpu(server));
    struct server_group_create request = {.world_size = world_size};
    snprintf(request.id, sizeof(request.id), "%s", id);
    for (uint32_t rank = 0; rank < world_size; rank++) {
        request.devices[rank] = rank % devices;
    }
    struct server_operation *operation = NULL;
    enum st_status status = server_group_create(server, &node_caller, &request, &operation, err);
    return ended(status, operation, err);
}

enum st_status group_drop(struct server *server, const char *id, bool force, struct st_error *err)
{
    struct server_operation *operation = NULL;
    enum st_status status = server_group_delete(server, &node_caller, id, force, &operation, err);
    return ended(status, operation, err);
}

enum st_status batch_make(struct server *server, const char *group, const char *prefix,
                          uint32_t count, uint64_t elements, struct st_error *err)
{
    struct server_tensor_create *requests = calloc(count, sizeof(*requests));
    assert_non_null(requests);
    for (uint32_t i = 0; i < count; i++) {
        struct server_tensor_create *one = tensor_request(group, "", elements);
        requests[i] = *one;
        free(one);
        snprintf(requests[i].id, sizeof(requests[i].id), "%s%u", prefix, i);
    }
    struct server_operation *operation = NULL;
    enum st_status status =
        server_tensor_batch_create(server, &node_caller, requests, count, &operation, err);
    free(requests);
    return ended(status, operation, err);
}

enum st_status batch_drop(struct server *server, const char *prefix, uint32_t count,
                          struct st_error *err)
{
    char(*ids)[ST_ID_MAX + 1] = calloc(count, sizeof(*ids));
    assert_non_null(ids);
    for (uint32_t i = 0; i < count; i++) {
        snprintf(ids[i], sizeof(ids[i]), "%s%u", prefix, i);
    }
    struct server_operation *operation = NULL;
    const struct server_tensor_batch_delete request = {.ids = (const char(*)[ST_ID_MAX + 1]) ids,
                                                       .count = count};
    enum st_status status =
        server_tensor_batch_delete(server, &node_caller, &request, &operation, err);
    free(ids);
    return ended(status, operation, err);
}

bool tensor_exists(struct server *server, const char *id)
{
    struct server_tensor *tensor = NULL;
    bool exists = server_tensor_get(server, id, &tensor, NULL) == ST_OK;
    if (exists) {
        server_snapshot_release(&tensor->base);
    }
    return exists;
}

bool group_exists(struct server *server, const char *id)
{
    struct server_group *group = NULL;
    bool exists = server_group_get(server, id, &group, NULL) == ST_OK;
    if (exists) {
        server_snapshot_release(&group->base);
    }
    return exists;
}
