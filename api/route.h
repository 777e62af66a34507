#ifndef SYMTENSOR_API_ROUTE_H
#define SYMTENSOR_API_ROUTE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "api/field.h"
#include "base/error.h"
#include "server/server.h"

struct api_request;

enum api_method { API_GET, API_POST, API_PUT, API_PATCH, API_DELETE, API_METHOD_COUNT };

enum api_body {
    API_BODY_NONE,   /**< A body is refused. */
    API_BODY_JSON,   /**< One object, decoded by `fields` before the handler runs; no body is {}. */
    API_BODY_STREAM, /**< Handed on in pieces: see api_request_receive(). */
};

enum api_route_flags {
    API_ROUTE_WAITS = 1u << 0,       /**< Takes ?wait= (see api_request_wait_operation). */
    API_ROUTE_PUBLIC = 1u << 1,      /**< Needs no credentials. */
    API_ROUTE_HEALTH = 1u << 2,      /**< Also on the health listener. */
    API_ROUTE_COLLECTIVES = 1u << 3, /**< The path ends with ":{collective}": one route for each row
                                        of gpu_collectives[], found in request->collective. */
    API_ROUTE_RESERVED = 1u << 4,    /**< Of a later version: 501 NOT_AVAILABLE_YET, no handler. */
    API_ROUTE_IF_MATCH = 1u << 5, /**< Honours If-Match; others that change something refuse it. */
    API_ROUTE_IF_NONE_MATCH = 1u << 6, /**< And If-None-Match. */
};

/**
 * One route: a row beside its handler; a table ends with {0}.
 *
 * The handler runs on the listener's thread and must not block. For API_BODY_NONE and API_BODY_JSON
 * it runs when the whole request is in; for API_BODY_STREAM before the body is read, so that what
 * it refuses is never sent. It answers with one api_reply_*() call, or asks to be continued with
 * api_request_suspend() or api_request_wait_operation() or (stream) api_request_receive(), and
 * returns ST_OK; or it returns a failure, which is sent as the error body.
 */
struct api_route {
    enum api_method method;
    const char *path; /**< Template: "/v1/tensors/{tensor}/shards/{rank}/data",
                         "/v1/tensors/{tensor}:fill". */
    enum st_status (*handler)(struct api_request *request, struct st_error *err);
    enum server_role role; /**< Least role. */
    enum api_body body;
    unsigned flags;
    const struct api_field *fields; /**< Of the JSON body. */
    size_t body_bytes;              /**< sizeof the body struct. */
    const void *body_defaults;      /**< Copied into it first; NULL: zeros. */
    const struct api_field *query;
    size_t query_bytes;
    const void *query_defaults;
    const char *const
        *media; /**< Of streams: accepted content types, ends with NULL; the first is also the
                     one of a body without Content-Type. request->media is the index. */
    const char *summary; /**< One sentence. */
    const char *success; /**< "200", "201 202": codes of success, for the documentation. */
};

/* The tables, one a resource; api/routes.c lists them. */
extern const struct api_route api_probe_routes[];     /**< api/probes.c */
extern const struct api_route api_node_routes[];      /**< api/resources/node.c: GET /v1/node */
extern const struct api_route api_device_routes[];    /**< api/resources/device.c */
extern const struct api_route api_multicast_routes[]; /**< api/resources/multicast.c */
extern const struct api_route api_group_routes[];     /**< api/resources/group.c */
extern const struct api_route api_tensor_routes[];    /**< api/resources/tensor.c: without verbs */
extern const struct api_route
    api_verb_routes[]; /**< api/resources/verb.c: collectives, fill, copy, checksum */
extern const struct api_route api_operation_routes[]; /**< api/resources/operation.c */
extern const struct api_route api_data_routes[];      /**< api/data/data.c */
extern const struct api_route api_reserved_routes[];  /**< api/reserved.c: of later versions, 501 */
extern const struct api_route *const api_route_tables[]; /**< Ends with NULL. */

const char *api_method_name(enum api_method method);

#endif
