#ifndef SYMTENSOR_SERVER_REGISTRY_H
#define SYMTENSOR_SERVER_REGISTRY_H

#include "server/internal.h"

/** Between the files that make, change and remove groups and tensors. All under the lock. */

/** What a snapshot shows beside the object's own fields. */
struct registry_meta {
    char uid[ST_UID_BYTES];
    uint64_t create_time_ns;
    const struct server_labels *labels;
    const struct server_access *access; /**< NULL: a resource that has none. */
};

/**
 * Check an id that a request gives, or make one where it is "".
 * @param ret_id [ST_ID_MAX + 1]
 * @retval ST_INVALID_ARGUMENT INVALID_ID, field "id".
 */
ST_MUST_CHECK enum st_status registry_choose_id(const struct st_index *index, const char *prefix,
                                                const char *id, char *ret_id, struct st_error *err);
/** ID_TAKEN, with the uid of the resource that has it. */
enum st_status registry_fail_taken(struct st_error *err, const char *what, const char *id,
                                   const char *uid);
/**
 * Not ready: FAILED_PRECONDITION, but ABORTED (to be tried again, soon) of what is being made: the
 * create was first, and its end decides.
 * @param reason TENSOR_NOT_READY or GROUP_NOT_READY. @param what "tensor" or "group".
 */
enum st_status registry_fail_not_ready(struct st_error *err, enum st_reason reason,
                                       const char *field, const char *what, const char *id,
                                       enum server_state state);
/** INVALID_VALUE when there are too many, or one twice; the field is "labels". */
ST_MUST_CHECK enum st_status registry_check_labels(const struct server_labels *labels,
                                                   struct st_error *err);
/** Whether @p labels has all of the query's. */
bool registry_match_labels(const struct server_labels *labels,
                           const struct server_list_query *query);
void registry_sort_labels(struct server_labels *labels);

/** What a caller wants to do with a resource of somebody. */
enum registry_right {
    REGISTRY_READ,   /**< The data. */
    REGISTRY_WRITE,  /**< The data, the labels, delete. */
    REGISTRY_MANAGE, /**< The access lists. */
};
/** ROLE_REQUIRED unless the caller is an operator, the owner, or granted it by @p access (may be
 * NULL). */
ST_MUST_CHECK enum st_status registry_check_right(const struct server_caller *caller,
                                                  const char *owner,
                                                  const struct server_access *access,
                                                  enum registry_right right, struct st_error *err);
/** ROLE_REQUIRED when @p force and the caller is no operator. */
ST_MUST_CHECK enum st_status registry_check_force(const struct server_caller *caller, bool force,
                                                  struct st_error *err);

/* ---------------------------------------------------------------- groups: group.c */

/** The group's state or its tensors' count changed. */
void group_touch(struct group *group);
/** GROUP_NOT_READY unless it is. */
ST_MUST_CHECK enum st_status group_check_ready(const struct group *group, const char *field,
                                               struct st_error *err);
/** DEVICE_DEGRADED when a driver call of the group's memory hangs. */
ST_MUST_CHECK enum st_status group_check_moving(const struct group *group, struct st_error *err);
/** Free the struct; its team must be gone. No lock needed. NULL: nothing. */
void group_free(struct group *group);
/** Why the group's tensors have no multicast; NONE: nothing speaks against it. */
enum gpu_multicast_reason group_multicast_reason(const struct group *group);

/* ---------------------------------------------------------------- tensors: tensor.c */

/** Find by id whatever its state. TENSOR_NOT_FOUND. */
ST_MUST_CHECK enum st_status tensor_lookup(struct server *server, const char *id, const char *field,
                                           struct tensor **ret_tensor, struct st_error *err);
/** TENSOR_NOT_READY or GROUP_NOT_READY unless both are ready. */
ST_MUST_CHECK enum st_status tensor_check_ready(const struct tensor *tensor, const char *field,
                                                struct st_error *err);
/** State or contents are to be shown anew. */
void tensor_touch(struct tensor *tensor);
/** As shown: it moves with the group's too, since a tensor of a group that goes is going. */
uint64_t tensor_version(const struct tensor *tensor);
void tensor_set_state(struct tensor *tensor, enum server_state state);
/** As shown: a tensor of a group that goes is going too. */
enum server_state tensor_shown_state(const struct tensor *tensor);
/** A snapshot of the tensor as it is. NULL: memory is out. */
struct server_tensor *tensor_render(const struct tensor *tensor, const struct registry_meta *meta);
/** Into the index and the group's list. False: memory is out. */
bool tensor_insert(struct tensor *tensor);
/** Out of both: the ids are free. One pass over the index for SERVER_HOLD_STEPS tensors. */
void tensors_remove(struct server *server, struct tensor *const *tensors, uint32_t count);
/** Free the struct; no claim may be left on it, its memory must be gone. No lock needed once it is
 * out of the index. NULL: nothing. */
void tensor_free(struct tensor *tensor);

/** A group that stays while a call picks tensors of it. */
struct tensors_group {
    struct group *group;
    struct server_holder holder;
    struct order_claim claim;
};

/**
 * One operation over several tensors: creates and deletes, single and batched. A call picks its
 * tensors one by one (a create makes them in state creating, a delete sets them to deleting), so
 * that nobody else may use them, and breathes in between; then all of it is accepted, or given
 * back. Two calls that pick the same tensor do not wait for each other: the later one is refused.
 */
struct tensors_operation {
    struct server_operation base;
    bool batch;
    bool withdrawn; /**< The tensors are out of the lists. */
    uint32_t count;
    struct tensor **tensors; /**< [count], malloc'd. NULL once they are gone. */
    uint32_t group_count;
    struct tensors_group *groups; /**< [group_count] of the tensors, distinct, malloc'd. */
    struct server_after gone;
};
/**
 * A tensors_operation of a class with room for @p capacity tensors, all to be filled in; none is
 * yet.
 * @return NULL: memory is out.
 */
struct tensors_operation *tensors_operation_create(struct server *server,
                                                   const struct server_operation_spec *spec,
                                                   uint32_t capacity);
/**
 * The next tensor: its group, which is ready, stays until tensors_operation_let_go(). Now and then
 * the lock is let go of, before this returns.
 */
void tensors_operation_add(struct tensors_operation *operation, struct tensor *tensor);
/**
 * All are picked: look again at what may have changed meanwhile, claim the groups of all tensors
 * and the tensors, to write them; then accept. On failure end was called.
 */
ST_MUST_CHECK enum st_status tensors_operation_accept(struct tensors_operation *operation,
                                                      const struct server_caller *caller,
                                                      struct st_error *err);
/** Accepted or not: the groups may go. */
void tensors_operation_let_go(struct tensors_operation *operation);
/** The result: their ids. */
void tensors_operation_report(struct tensors_operation *operation);
/** Take all tensors out of the lists bit by bit, before the end does. The lock is let go of in
 * between. */
void tensors_operation_withdraw(struct tensors_operation *operation);
/** Take all tensors out, give the claims back; they are freed once the lock is off. */
void tensors_operation_remove(struct tensors_operation *operation);
void tensors_operation_destroy(struct server_operation *operation);
/** "tensors[3]" before the field and the message of an error. */
void registry_prefix_error(struct st_error *err, const char *list, uint32_t index);

#endif
