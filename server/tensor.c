#include "server/registry.h"

#include <stdlib.h>
#include <string.h>

/* ---------------------------------------------------------------- the object */

void tensor_touch(struct tensor *tensor)
{
    tensor->stale = true;
}

void tensor_set_state(struct tensor *tensor, enum server_state state)
{
    tensor->state = state;
    tensor->version++;
    tensor_touch(tensor);
}

uint64_t tensor_version(const struct tensor *tensor)
{
    return tensor->version + (tensor->group->version - tensor->group_version);
}

enum server_state tensor_shown_state(const struct tensor *tensor)
{
    bool going =
        tensor->state == SERVER_STATE_READY && tensor->group->state == SERVER_STATE_DELETING;
    return going ? SERVER_STATE_DELETING : tensor->state;
}

bool tensor_insert(struct tensor *tensor)
{
    struct group *group = tensor->group;
    bool exists = false;
    if (!st_index_insert(&group->server->tensors, tensor->id, tensor, &exists)) {
        return false;
    }
    tensor->next = group->tensors;
    if (group->tensors) {
        group->tensors->previous = tensor;
    }
    group->tensors = tensor;
    group->tensors_count++;
    group_touch(group);
    return true;
}

static void group_unlink(struct tensor *tensor)
{
    struct group *group = tensor->group;
    if (tensor->previous) {
        tensor->previous->next = tensor->next;
    } else {
        group->tensors = tensor->next;
    }
    if (tensor->next) {
        tensor->next->previous = tensor->previous;
    }
    group->tensors_count--;
    group_touch(group);
}

_Static_assert(SERVER_HOLD_STEPS <= ST_INDEX_PASS_KEYS, "one pass over the index for a hold");

void tensors_remove(struct server *server, struct tensor *const *tensors, uint32_t count)
{
    const char *ids[SERVER_HOLD_STEPS];
    uint32_t named = 0;
    for (uint32_t i = 0; i < count; i++) {
        ids[named++] = tensors[i]->id;
        group_unlink(tensors[i]);
        if (named == SERVER_HOLD_STEPS || i + 1 == count) {
            st_index_remove_many(&server->tensors, ids, named);
            named = 0;
        }
    }
}

void tensor_free(struct tensor *tensor)
{
    if (!tensor) {
        return;
    }
    if (tensor->snapshot) {
        server_snapshot_release(&tensor->snapshot->base);
    }
    free(tensor);
}

/* ---------------------------------------------------------------- snapshots */

/** Bytes of the arrays behind a snapshot, in the order in which tensor_render() lays them out. */
static size_t tensor_arrays_bytes(const struct tensor *tensor, const struct registry_meta *meta)
{
    size_t ranks = tensor->group->world_size;
    size_t principals = (size_t)meta->access->read_count + meta->access->write_count;
    return ranks * (sizeof(struct server_contents) + sizeof(struct server_rank)) +
           meta->labels->count * sizeof(struct server_label) + principals * (ST_ID_MAX + 1);
}

static void tensor_render_contents(const struct tensor *tensor, struct server_tensor *view)
{
    for (uint32_t rank = 0; rank < view->world_size; rank++) {
        const struct tensor_shard *shard = &tensor->shards[rank];
        struct server_contents contents = {.generation = shard->generation, .state = shard->state};
        view->ranks[rank].device = tensor->group->devices[rank];
        view->shard_contents[rank] = contents;
        if (contents.generation > view->contents.generation) {
            view->contents.generation = contents.generation;
        }
        if (contents.state > view->contents.state) {
            view->contents.state = contents.state; /* the states are ordered from good to bad */
        }
    }
}

static void copy_array(void *to, const void *from, size_t bytes)
{
    if (bytes) {
        memcpy(to, from, bytes);
    }
}

/** Lay the arrays out behind the struct and fill in labels and access. */
static void tensor_render_arrays(struct server_tensor *view, const struct registry_meta *meta)
{
    const struct server_access *access = meta->access;
    view->shard_contents = (struct server_contents *)(view + 1);
    view->ranks = (struct server_rank *)(view->shard_contents + view->world_size);
    view->labels.count = meta->labels->count;
    view->labels.items = (struct server_label *)(view->ranks + view->world_size);
    copy_array(view->labels.items, meta->labels->items,
               meta->labels->count * sizeof(struct server_label));
    registry_sort_labels(&view->labels);
    view->access.read_count = access->read_count;
    view->access.read = (char(*)[ST_ID_MAX + 1])(view->labels.items + view->labels.count);
    copy_array(view->access.read, access->read, access->read_count * sizeof(*access->read));
    view->access.write_count = access->write_count;
    view->access.write = view->access.read + access->read_count;
    copy_array(view->access.write, access->write, access->write_count * sizeof(*access->write));
}

/** What the memory came to; while there is none, what is known of the group. */
static void tensor_render_memory(const struct tensor *tensor, struct server_tensor *view)
{
    bool unwanted =
        tensor->memory_type == GPU_MEMORY_GLOBAL || tensor->multicast == GPU_MULTICAST_DISABLED;
    view->allocated_bytes = tensor->allocated_bytes;
    if (tensor->made) {
        view->multicast_reason = tensor->multicast_reason;
    } else {
        view->multicast_reason =
            unwanted ? GPU_MULTICAST_NOT_REQUESTED : group_multicast_reason(tensor->group);
    }
}

struct server_tensor *tensor_render(const struct tensor *tensor, const struct registry_meta *meta)
{
    struct server_tensor *view = calloc(1, sizeof(*view) + tensor_arrays_bytes(tensor, meta));
    if (!view) {
        return NULL;
    }
    view->base.references = 1;
    view->base.resource = SERVER_TENSOR;
    server_copy_text(view->id, sizeof(view->id), tensor->id);
    server_copy_text(view->uid, sizeof(view->uid), meta->uid);
    server_copy_text(view->owner, sizeof(view->owner), tensor->owner);
    server_copy_text(view->group, sizeof(view->group), tensor->group->id);
    view->create_time_ns = meta->create_time_ns;
    view->version = tensor_version(tensor);
    view->state = tensor_shown_state(tensor);
    view->dtype = tensor->dtype;
    view->shape = tensor->shape;
    view->strides = tensor->strides;
    view->memory_type = tensor->memory_type;
    view->shard_bytes = tensor->shard_bytes;
    view->attachable = tensor->attachable;
    view->world_size = tensor->group->world_size;
    tensor_render_memory(tensor, view);
    tensor_render_arrays(view, meta);
    tensor_render_contents(tensor, view);
    return view;
}

struct server_tensor *tensor_snapshot(struct tensor *tensor)
{
    if (tensor->stale || tensor->snapshot->version != tensor_version(tensor)) {
        const struct server_tensor *old = tensor->snapshot;
        struct registry_meta meta = {
            .create_time_ns = old->create_time_ns, .labels = &old->labels, .access = &old->access};
        server_copy_text(meta.uid, sizeof(meta.uid), old->uid);
        struct server_tensor *fresh = tensor_render(tensor, &meta);
        if (!fresh) {
            return NULL;
        }
        server_snapshot_release(&tensor->snapshot->base);
        tensor->snapshot = fresh;
        tensor->stale = false;
    }
    atomic_fetch_add_explicit(&tensor->snapshot->base.references, 1, memory_order_relaxed);
    return tensor->snapshot;
}

/* ---------------------------------------------------------------- finding */

enum st_status tensor_lookup(struct server *server, const char *id, const char *field,
                             struct tensor **ret_tensor, struct st_error *err)
{
    struct tensor *tensor = st_index_find(&server->tensors, id);
    if (!tensor) {
        char quoted[80];
        return st_fail(err, ST_REASON_TENSOR_NOT_FOUND, field, "no tensor %s",
                       st_error_quote(id, quoted));
    }
    *ret_tensor = tensor;
    return ST_OK;
}

enum st_status tensor_check_ready(const struct tensor *tensor, const char *field,
                                  struct st_error *err)
{
    if (tensor->state != SERVER_STATE_READY) {
        return st_failure(registry_fail_not_ready(err, ST_REASON_TENSOR_NOT_READY, field, "tensor",
                                                  tensor->id, tensor->state));
    }
    return group_check_ready(tensor->group, field, err);
}

enum st_status tensor_find(struct server *server, const struct server_caller *caller,
                           const struct tensor_wanted *wanted, struct tensor **ret_tensor,
                           struct st_error *err)
{
    struct tensor *tensor = NULL;
    enum st_status status = tensor_lookup(server, wanted->id, wanted->field, &tensor, err);
    if (status == ST_OK) {
        enum registry_right right = wanted->use == TENSOR_USE_READ ? REGISTRY_READ : REGISTRY_WRITE;
        status = registry_check_right(caller, tensor->owner, &tensor->snapshot->access, right, err);
    }
    if (status == ST_OK) {
        status = tensor_check_ready(tensor, wanted->field, err);
    }
    if (status == ST_OK) {
        *ret_tensor = tensor;
    }
    return status;
}

enum st_status server_tensor_get(struct server *server, const char *id,
                                 struct server_tensor **ret_tensor, struct st_error *err)
{
    struct tensor *tensor = NULL;
    struct server_tensor *snapshot = NULL;
    server_lock(server);
    enum st_status status = tensor_lookup(server, id, NULL, &tensor, err);
    if (status == ST_OK) {
        snapshot = tensor_snapshot(tensor);
        status = snapshot ? ST_OK : st_fail(err, ST_REASON_OUT_OF_MEMORY, NULL, "no memory");
    }
    server_unlock(server);
    if (status == ST_OK) {
        *ret_tensor = snapshot;
    }
    return status;
}

static bool tensor_matches(const struct tensor *tensor, const struct server_list_query *query)
{
    return (!query->group[0] || strcmp(query->group, tensor->group->id) == 0) &&
           (!query->state[0] ||
            strcmp(query->state, server_state_name(tensor_shown_state(tensor))) == 0) &&
           registry_match_labels(&tensor->snapshot->labels, query);
}

/** Behind position @p at of the tensors, letting others have the lock now and then. @return where
 * to go on. */
static size_t tensor_list_next(struct server *server, size_t at)
{
    if ((at + 1) % SERVER_HOLD_STEPS != 0) {
        return at + 1;
    }
    char last[ST_ID_MAX + 1];
    server_copy_text(last, sizeof(last), server->tensors.entries[at].key);
    server_breathe(server);
    return st_index_after(&server->tensors, last);
}

uint32_t server_tensor_list(struct server *server, const struct server_list_query *query,
                            struct server_tensor **ret, bool *ret_more)
{
    uint32_t count = 0;
    *ret_more = false;
    server_lock(server);
    size_t at = st_index_after(&server->tensors, query->after);
    while (at < server->tensors.count && !*ret_more) {
        struct tensor *tensor = server->tensors.entries[at].value;
        bool shown = tensor_matches(tensor, query);
        if (shown && count == query->max) {
            *ret_more = true;
        } else if (shown) {
            ret[count] = tensor_snapshot(tensor);
            count += ret[count] != NULL;
        }
        at = tensor_list_next(server, at);
    }
    server_unlock(server);
    return count;
}

void server_tensor_each_multicast(struct server *server,
                                  void (*found)(void *arg, uint64_t serial, const char *id),
                                  void *arg)
{
    server_lock(server);
    for (size_t at = 0; at < server->tensors.count; at = tensor_list_next(server, at)) {
        const struct tensor *tensor = server->tensors.entries[at].value;
        if (tensor->made && tensor->multicast_reason == GPU_MULTICAST_NONE) {
            found(arg, tensor->memory_serial, tensor->id);
        }
    }
    server_unlock(server);
}
