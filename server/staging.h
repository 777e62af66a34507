#ifndef SYMTENSOR_SERVER_STAGING_H
#define SYMTENSOR_SERVER_STAGING_H

#include "server/internal.h"

/**
 * The node's staging buffers among those who need them. There are fewer buffers than transfers may
 * be open, and a client may stop in the middle of its body: what an idle transfer holds is taken
 * back when somebody waits.
 */

/** A buffer of ST_STAGING_BYTES, or NULL: all are out. No lock. */
void *server_staging_acquire(struct server *server);
/** NULL: nothing. Transfers that wait for a buffer are told. No lock. */
void server_staging_release(struct server *server, void *buffer);
/** Somebody waits: take back what idle transfers hold, soon. Under the lock. */
void server_staging_reclaim(struct server *server);

#endif
