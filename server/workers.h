#ifndef SYMTENSOR_SERVER_WORKERS_H
#define SYMTENSOR_SERVER_WORKERS_H

#include "server/internal.h"

/** Start the pools' threads; server_pools_destroy() also after a failure. Thread: start-up. */
ST_MUST_CHECK enum st_status server_pools_create(struct server *server, struct st_error *err);
/** Run what is queued, join the threads and stop the watchdog. No lock held. Blocks: for the jobs.
 */
void server_pools_destroy(struct server *server);

#endif
