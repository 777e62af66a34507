#ifndef SYMTENSOR_SERVER_VERB_H
#define SYMTENSOR_SERVER_VERB_H

#include "server/internal.h"

/** What the verbs of tensors have in common. */

/** A new operation on @p tensor. Under the lock. @retval ST_RESOURCE_EXHAUSTED OUT_OF_MEMORY. */
ST_MUST_CHECK enum st_status
server_verb_create(struct server *server, const struct server_operation_class *class,
                   const struct server_caller *caller, struct tensor *tensor,
                   struct server_operation **ret_operation, struct st_error *err);
/**
 * The end of a verb, without the lock: start what was accepted, or let go of what was not.
 * @param operation NULL when none was made. @param status of accepting. @return @p status.
 */
ST_MUST_CHECK enum st_status server_verb_start(struct server_operation *operation,
                                               enum st_status status,
                                               struct server_operation **ret_operation);

/** A write of some shards of one tensor: what begin and end have to do for it. */
struct server_write {
    struct tensor *tensor;
    uint64_t shards;
    bool full;     /**< Every byte is written. */
    bool launched; /**< From here on a failure may leave half a result. */
    uint64_t expected_generation;
};
/** Under the lock, from begin. @retval ST_ABORTED GENERATION_MISMATCH. */
ST_MUST_CHECK enum st_status server_write_begin(struct server_write *write, struct st_error *err);
/** Under the lock, from end. Nothing when the operation never began. */
void server_write_end(struct server_write *write, struct server_operation *operation,
                      enum st_status status);

#endif
