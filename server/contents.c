#include "server/registry.h"

#define RETRY_AFTER_BUSY_MS 100

uint64_t tensor_shards_all(const struct tensor *tensor)
{
    uint32_t world_size = tensor->group->world_size;
    return world_size == 64 ? ORDER_ALL : order_rank(world_size) - 1;
}

enum st_status tensor_check_idle(const struct tensor *tensor, const char *field,
                                 struct st_error *err)
{
    if (tensor->uploads == 0) {
        return ST_OK;
    }
    enum st_status status = st_fail(err, ST_REASON_TENSOR_BUSY, field,
                                    "a shard of tensor %s is being written", tensor->id);
    if (err) {
        err->retry_after_ms = RETRY_AFTER_BUSY_MS;
    }
    return status;
}

enum st_status tensor_contents_check(const struct tensor *tensor, uint64_t shards,
                                     const char *field, struct st_error *err)
{
    for (uint32_t rank = 0; rank < tensor->group->world_size; rank++) {
        bool concerned = (shards & order_rank(rank)) != 0;
        if (concerned && tensor->shards[rank].state != SERVER_CONTENTS_VALID) {
            enum st_status status =
                st_fail(err, ST_REASON_CONTENTS_UNDEFINED, field, "shard %u of tensor %s is %s",
                        rank, tensor->id, server_contents_state_name(tensor->shards[rank].state));
            if (err) {
                st_error_add_detail(err, "rank", "%u", rank);
            }
            return status;
        }
    }
    return ST_OK;
}

uint64_t tensor_generation(const struct tensor *tensor, uint64_t shards)
{
    uint64_t highest = 0;
    for (uint32_t rank = 0; rank < tensor->group->world_size; rank++) {
        if ((shards & order_rank(rank)) && tensor->shards[rank].generation > highest) {
            highest = tensor->shards[rank].generation;
        }
    }
    return highest;
}

enum st_status tensor_generation_check(const struct tensor *tensor, uint64_t expected,
                                       struct st_error *err)
{
    uint64_t there = tensor_generation(tensor, ORDER_ALL);
    if (expected == SERVER_GENERATION_ANY || expected == there) {
        return ST_OK;
    }
    enum st_status status =
        st_fail(err, ST_REASON_GENERATION_MISMATCH, "expected_generation",
                "tensor %s is at generation %llu", tensor->id, (unsigned long long)there);
    if (err) {
        st_error_add_detail(err, "generation", "%llu", (unsigned long long)there);
    }
    return status;
}

void tensor_contents_begin(struct tensor *tensor, uint64_t shards)
{
    for (uint32_t rank = 0; rank < tensor->group->world_size; rank++) {
        struct tensor_shard *shard = &tensor->shards[rank];
        if (shards & order_rank(rank)) {
            shard->was_undefined = shard->state == SERVER_CONTENTS_UNDEFINED;
            shard->state = SERVER_CONTENTS_WRITING;
        }
    }
    tensor_touch(tensor);
}

void tensor_contents_commit(struct tensor *tensor, uint64_t shards, bool full)
{
    /* One count for the tensor: a write of any shard shows in its highest generation. */
    uint64_t generation = tensor_generation(tensor, ORDER_ALL) + 1;
    for (uint32_t rank = 0; rank < tensor->group->world_size; rank++) {
        struct tensor_shard *shard = &tensor->shards[rank];
        if (shards & order_rank(rank)) {
            bool undefined = shard->was_undefined && !full;
            shard->state = undefined ? SERVER_CONTENTS_UNDEFINED : SERVER_CONTENTS_VALID;
            shard->generation = generation;
        }
    }
    tensor_touch(tensor);
}

void tensor_contents_fail(struct tensor *tensor, uint64_t shards)
{
    /* Bytes may have changed: whoever knows the generation before must not take them for the same.
     */
    uint64_t generation = tensor_generation(tensor, ORDER_ALL) + 1;
    for (uint32_t rank = 0; rank < tensor->group->world_size; rank++) {
        if (shards & order_rank(rank)) {
            tensor->shards[rank].state = SERVER_CONTENTS_UNDEFINED;
            tensor->shards[rank].generation = generation;
        }
    }
    tensor_touch(tensor);
}

void tensor_contents_restore(struct tensor *tensor, uint64_t shards)
{
    for (uint32_t rank = 0; rank < tensor->group->world_size; rank++) {
        struct tensor_shard *shard = &tensor->shards[rank];
        if (shards & order_rank(rank)) {
            shard->state = shard->was_undefined ? SERVER_CONTENTS_UNDEFINED : SERVER_CONTENTS_VALID;
        }
    }
    tensor_touch(tensor);
}
