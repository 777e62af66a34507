#include "server/registry.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RETRY_AFTER_CREATING_MS 100

/* ---------------------------------------------------------------- ids */

enum st_status registry_choose_id(const struct st_index *index, const char *prefix, const char *id,
                                  char *ret_id, struct st_error *err)
{
    if (id[0] && !st_id_is_valid(id, strlen(id))) {
        char quoted[80];
        return st_fail(err, ST_REASON_INVALID_ID, "id", "%s is no id", st_error_quote(id, quoted));
    }
    server_copy_text(ret_id, ST_ID_MAX + 1, id);
    while (!ret_id[0] || (!id[0] && st_index_find(index, ret_id))) {
        st_id_make(prefix, ret_id, ST_ID_MAX + 1);
    }
    return ST_OK;
}

enum st_status registry_fail_taken(struct st_error *err, const char *what, const char *id,
                                   const char *uid)
{
    enum st_status status = st_fail(err, ST_REASON_ID_TAKEN, "id", "a %s %s exists", what, id);
    if (err) {
        st_error_add_detail(err, "uid", "%s", uid);
    }
    return status;
}

enum st_status registry_fail_not_ready(struct st_error *err, enum st_reason reason,
                                       const char *field, const char *what, const char *id,
                                       enum server_state state)
{
    bool soon = state == SERVER_STATE_CREATING;
    enum st_status status = st_fail_as(err, soon ? ST_ABORTED : ST_FAILED_PRECONDITION, reason,
                                       field, "%s %s is %s", what, id, server_state_name(state));
    if (err && soon) {
        err->retry_after_ms = RETRY_AFTER_CREATING_MS;
    }
    return status;
}

void registry_prefix_error(struct st_error *err, const char *list, uint32_t index)
{
    char field[ST_ERROR_FIELD_MAX];
    char message[ST_ERROR_MESSAGE_MAX];
    bool has_field = err->field[0] != '\0';
    server_copy_text(field, sizeof(field), err->field);
    server_copy_text(message, sizeof(message), err->message);
    snprintf(err->field, sizeof(err->field), "%s[%u]%s%.*s", list, index, has_field ? "." : "",
             ST_ERROR_FIELD_MAX / 2, field);
    /* A message begins with its field. */
    snprintf(err->message, sizeof(err->message), "%s[%u]%s%.*s", list, index,
             has_field ? "." : ": ", ST_ERROR_MESSAGE_MAX - ST_ERROR_FIELD_MAX, message);
}

/* ---------------------------------------------------------------- labels */

static int label_compare(const void *a, const void *b)
{
    const struct server_label *left = a;
    const struct server_label *right = b;
    return strcmp(left->key, right->key);
}

void registry_sort_labels(struct server_labels *labels)
{
    if (labels->count > 1) {
        qsort(labels->items, labels->count, sizeof(*labels->items), label_compare);
    }
}

static const struct server_label *labels_find(const struct server_labels *labels, uint32_t count,
                                              const char *key)
{
    for (uint32_t i = 0; i < count; i++) {
        if (strcmp(labels->items[i].key, key) == 0) {
            return &labels->items[i];
        }
    }
    return NULL;
}

enum st_status registry_check_labels(const struct server_labels *labels, struct st_error *err)
{
    if (labels->count > ST_LABELS_MAX) {
        return st_fail(err, ST_REASON_INVALID_VALUE, "labels", "at most %d labels are kept",
                       ST_LABELS_MAX);
    }
    for (uint32_t i = 0; i < labels->count; i++) {
        if (!labels->items[i].key[0] || labels_find(labels, i, labels->items[i].key)) {
            return st_fail(err, ST_REASON_INVALID_VALUE, "labels",
                           "a label's key must not be empty or stand twice");
        }
    }
    return ST_OK;
}

bool registry_match_labels(const struct server_labels *labels,
                           const struct server_list_query *query)
{
    for (uint32_t i = 0; i < query->label_count; i++) {
        const struct server_label *found = labels_find(labels, labels->count, query->labels[i].key);
        if (!found || strcmp(found->value, query->labels[i].value) != 0) {
            return false;
        }
    }
    return true;
}

/* ---------------------------------------------------------------- who may */

static bool access_names(char (*list)[ST_ID_MAX + 1], uint32_t count, const char *principal)
{
    for (uint32_t i = 0; i < count; i++) {
        if (strcmp(list[i], principal) == 0) {
            return true;
        }
    }
    return false;
}

static bool access_grants(const struct server_access *access, const char *principal,
                          enum registry_right right)
{
    if (!access || right == REGISTRY_MANAGE) {
        return false;
    }
    return access_names(access->write, access->write_count, principal) ||
           (right == REGISTRY_READ && access_names(access->read, access->read_count, principal));
}

enum st_status registry_check_right(const struct server_caller *caller, const char *owner,
                                    const struct server_access *access, enum registry_right right,
                                    struct st_error *err)
{
    bool may =
        caller->role == SERVER_ROLE_OPERATOR ||
        (caller->role == SERVER_ROLE_USER && (strcmp(owner, caller->principal) == 0 ||
                                              access_grants(access, caller->principal, right)));
    if (may) {
        return ST_OK;
    }
    char quoted[80];
    return st_fail(err, ST_REASON_ROLE_REQUIRED, NULL, "%s may not %s what belongs to %s",
                   st_error_quote(caller->principal, quoted),
                   right == REGISTRY_READ ? "read" : "change", owner);
}

enum st_status registry_check_force(const struct server_caller *caller, bool force,
                                    struct st_error *err)
{
    if (force && caller->role != SERVER_ROLE_OPERATOR) {
        return st_fail(err, ST_REASON_ROLE_REQUIRED, "force", "needs the role operator");
    }
    return ST_OK;
}

enum st_status server_accept_check(struct server *server, const struct server_caller *caller,
                                   struct st_error *err)
{
    if (caller->role == SERVER_ROLE_VIEWER) {
        return st_fail(err, ST_REASON_ROLE_REQUIRED, NULL, "a viewer may change nothing");
    }
    if (server->draining) {
        return st_fail(err, ST_REASON_NODE_DRAINING, NULL, "the node takes no more work");
    }
    if (caller->deadline_ns != ST_DEADLINE_NEVER && caller->deadline_ns <= st_clock_now_ns()) {
        return st_fail(err, ST_REASON_OPERATION_DEADLINE, NULL,
                       "the deadline of the request has passed already");
    }
    return ST_OK;
}
