#include <string.h>

#include "server/registry.h"

/** The labels of a tensor as a patch changes them. */
struct patched_labels {
    struct server_labels labels; /**< Its items are the array below. */
    struct server_label items[ST_LABELS_MAX];
};

static struct server_label *patched_find(struct patched_labels *patched, const char *key)
{
    for (uint32_t i = 0; i < patched->labels.count; i++) {
        if (strcmp(patched->items[i].key, key) == 0) {
            return &patched->items[i];
        }
    }
    return NULL;
}

static void patched_remove(struct patched_labels *patched, const char *key)
{
    struct server_label *label = patched_find(patched, key);
    if (label) {
        *label = patched->items[--patched->labels.count];
    }
}

static enum st_status patched_set(struct patched_labels *patched, const struct server_label *set,
                                  struct st_error *err)
{
    struct server_label *label = patched_find(patched, set->key);
    if (!label && patched->labels.count == ST_LABELS_MAX) {
        return st_fail(err, ST_REASON_INVALID_VALUE, "labels", "at most %d labels are kept",
                       ST_LABELS_MAX);
    }
    if (!label) {
        label = &patched->items[patched->labels.count++];
    }
    *label = *set;
    return ST_OK;
}

static enum st_status patched_apply(struct patched_labels *patched, const struct server_labels *old,
                                    const struct server_tensor_patch *patch, struct st_error *err)
{
    patched->labels.items = patched->items;
    patched->labels.count = patch->clear_labels ? 0 : old->count;
    memcpy(patched->items, old->items, patched->labels.count * sizeof(*old->items));
    for (uint32_t i = 0; i < patch->remove_count; i++) {
        patched_remove(patched, patch->remove[i]);
    }
    enum st_status status = ST_OK;
    for (uint32_t i = 0; i < patch->set_count && status == ST_OK; i++) {
        status = patched_set(patched, &patch->set[i], err);
    }
    return status;
}

static enum st_status patch_check(struct server *server, const struct server_caller *caller,
                                  const struct tensor *tensor,
                                  const struct server_tensor_patch *patch, struct st_error *err)
{
    bool manages = patch->has_read || patch->has_write;
    enum st_status status = server_accept_check(server, caller, err);
    if (status == ST_OK) {
        status = registry_check_right(caller, tensor->owner, &tensor->snapshot->access,
                                      manages ? REGISTRY_MANAGE : REGISTRY_WRITE, err);
    }
    if (status == ST_OK) {
        status = tensor_check_ready(tensor, NULL, err);
    }
    if (status == ST_OK && patch->if_version && patch->if_version != tensor_version(tensor)) {
        return st_fail(err, ST_REASON_ETAG_MISMATCH, NULL, "tensor %s is at version %llu",
                       tensor->id, (unsigned long long)tensor_version(tensor));
    }
    return status;
}

/** Make the snapshot anew with what the patch says. Under the lock. */
static enum st_status patch_apply(struct tensor *tensor, const struct server_tensor_patch *patch,
                                  struct server_tensor **ret_tensor, struct st_error *err)
{
    const struct server_tensor *old = tensor->snapshot;
    struct patched_labels patched;
    enum st_status status = patched_apply(&patched, &old->labels, patch, err);
    if (status != ST_OK) {
        return status;
    }
    struct server_access access = old->access;
    if (patch->has_read) {
        access.read = patch->access.read;
        access.read_count = patch->access.read_count;
    }
    if (patch->has_write) {
        access.write = patch->access.write;
        access.write_count = patch->access.write_count;
    }
    struct registry_meta meta = {
        .create_time_ns = old->create_time_ns, .labels = &patched.labels, .access = &access};
    server_copy_text(meta.uid, sizeof(meta.uid), old->uid);
    tensor->version++;
    struct server_tensor *fresh = tensor_render(tensor, &meta);
    if (!fresh) {
        tensor->version--;
        return st_fail(err, ST_REASON_OUT_OF_MEMORY, NULL, "no memory");
    }
    server_snapshot_release(&tensor->snapshot->base);
    tensor->snapshot = fresh;
    tensor->stale = false;
    *ret_tensor = tensor_snapshot(tensor);
    return ST_OK;
}

enum st_status server_tensor_patch(struct server *server, const struct server_caller *caller,
                                   const char *id, const struct server_tensor_patch *patch,
                                   struct server_tensor **ret_tensor, struct st_error *err)
{
    struct tensor *tensor = NULL;
    server_lock(server);
    enum st_status status = tensor_lookup(server, id, NULL, &tensor, err);
    if (status == ST_OK) {
        status = patch_check(server, caller, tensor, patch, err);
    }
    if (status == ST_OK) {
        status = patch_apply(tensor, patch, ret_tensor, err);
    }
    server_unlock(server);
    return status;
}
