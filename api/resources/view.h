#ifndef SYMTENSOR_API_RESOURCES_VIEW_H
#define SYMTENSOR_API_RESOURCES_VIEW_H

#include "api/resources/output.h"
#include "server/server.h"

/** The rows of the resources, and their texts. */
extern const struct api_output api_group_output[];     /**< Of struct server_group. */
extern const struct api_output api_tensor_output[];    /**< Of struct server_tensor. */
extern const struct api_output api_operation_output[]; /**< Of struct server_operation_view. */

/**
 * The JSON text of a snapshot: rendered once, then kept with it.
 * @return NULL when memory is out; else text that lives as long as the snapshot.
 * Thread: any.
 */
const char *api_view_text(struct server *server, struct server_snapshot *snapshot);

/** The etag of a resource: strong and quoted, of its version and the begin of its uid, so that a
 * name that is used again never repeats one. */
#define API_ETAG_BYTES 40
const char *api_view_etag(uint64_t version, const char *uid, char buffer[static API_ETAG_BYTES]);

/**
 * Whether a header such as If-Match names @p etag: "*", or a list of entity tags of which one is
 * equal (strong comparison, RFC 9110 13.1.1; of If-None-Match weak, 13.1.2).
 * @retval ST_INVALID_ARGUMENT INVALID_HEADER, the field is the header: it is no list of entity
 * tags.
 */
ST_MUST_CHECK enum st_status api_etag_match(const char *header, const char *value, const char *etag,
                                            bool *ret_match, struct st_error *err);

#endif
