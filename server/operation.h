#ifndef SYMTENSOR_SERVER_OPERATION_H
#define SYMTENSOR_SERVER_OPERATION_H

#include "server/internal.h"

/**
 * Between operation.c (how an operation goes), records.c (where it is kept and found) and waiter.c.
 * All under the lock, but for what says otherwise.
 */

/** Give it an id and a place in the table, which holds a reference. */
void server_records_add(struct server *server, struct server_operation *operation);
/** It has ended: it is kept for a while; the oldest go. */
void server_records_keep(struct server *server, struct server_operation *operation);
/** Drop every record. No lock; nothing runs any more. */
void server_records_done(struct server *server);

/** Drop a reference; if it is the last one, it is freed once the lock is off. */
void server_operation_drop(struct server_operation *operation);
/** The target's id, where the spec did not have it, before accept. False: memory is out. */
bool server_operation_set_target(struct server_operation *operation, const char *id);
bool server_operation_ended(const struct server_operation *operation);
/** Cancel, or fail by deadline, what has not ended. */
void server_operation_stop(struct server_operation *operation, bool by_deadline);

/** Move the waiters to the list of those to be told. */
void server_waiters_end(struct server_operation *operation);
/** Tell them. No lock. */
void server_waiters_tell(struct server_operation *operation);

/** The snapshot, new or kept. NULL: memory is out. */
struct server_operation_view *server_operation_render(struct server_operation *operation);

/** work.overran of every operation: it ends now, its devices are degraded; its claims stay until
 * run returns. */
void server_operation_overran(struct server_work *work);

#endif
