#ifndef SYMTENSOR_API_RESOURCES_OUTCOME_H
#define SYMTENSOR_API_RESOURCES_OUTCOME_H

#include "api/request.h"
#include "server/server.h"

/**
 * What a request answers once its operation was waited for: functions for
 * api_request_wait_operation().
 *
 *   not ended     202, Location, the operation
 *   failed        the error's own code, {"error", "operation"}
 *   succeeded     what the function says
 */

/** Verbs: 200 with the operation. */
enum st_status api_outcome_verb(struct api_request *request, struct server_operation_view **view,
                                struct st_error *err);
/** Deletes: 204. */
enum st_status api_outcome_deleted(struct api_request *request, struct server_operation_view **view,
                                   struct st_error *err);
/** Creates of a group or tensor: 201, Location, ETag, the resource. */
enum st_status api_outcome_group(struct api_request *request, struct server_operation_view **view,
                                 struct st_error *err);
enum st_status api_outcome_tensor(struct api_request *request, struct server_operation_view **view,
                                  struct st_error *err);
/** Cancel: 200 with the operation once it has ended, however it did. */
enum st_status api_outcome_ended(struct api_request *request, struct server_operation_view **view,
                                 struct st_error *err);

/** Answer with a snapshot's text; the reference is taken over. */
enum st_status api_snapshot_reply(struct api_request *request, unsigned code,
                                  struct server_snapshot *snapshot, struct st_error *err);
/** As above, with the ETag of the resource. */
enum st_status api_group_reply(struct api_request *request, unsigned code,
                               struct server_group *group, struct st_error *err);
enum st_status api_tensor_reply(struct api_request *request, unsigned code,
                                struct server_tensor *tensor, struct st_error *err);

/**
 * Go on only if the request's If-Match header, when there is one, names @p etag.
 * @retval ST_FAILED_PRECONDITION ETAG_MISMATCH, answered with 412.
 */
ST_MUST_CHECK enum st_status api_if_match(struct api_request *request, const char *etag,
                                          struct st_error *err);
/** Whether the request has an If-None-Match header that names @p etag. */
ST_MUST_CHECK enum st_status api_if_none_match(struct api_request *request, const char *etag,
                                               bool *ret_match, struct st_error *err);

/** Whether a view shows an operation that has ended. */
bool api_operation_has_ended(const struct server_operation_view *view);

#endif
