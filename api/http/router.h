#ifndef SYMTENSOR_API_HTTP_ROUTER_H
#define SYMTENSOR_API_HTTP_ROUTER_H

#include <stdatomic.h>
#include <stddef.h>

#include "api/request.h"
#include "api/route.h"

/**
 * Paths to routes: a tree of segments, built once from the route tables and never changed. A
 * segment that holds a ":" ends in a verb, since ids cannot hold one.
 */
struct http_router;

/** Upper bounds of the duration histogram, in microseconds; the last bucket is +Inf. */
#define HTTP_DURATION_BOUNDS(X)                                                                    \
    X(100) X(250) X(1000) X(5000) X(25000) X(100000) X(1000000) X(10000000)
enum {
#define X(microseconds) +1
    HTTP_DURATION_BUCKETS = 1 HTTP_DURATION_BOUNDS(X)
#undef X
};
extern const uint32_t http_duration_bounds_us[HTTP_DURATION_BUCKETS - 1];

/** HTTP codes that are counted by themselves; others count as the last one, 0. */
#define HTTP_CODES_COUNT 26
extern const uint16_t http_codes[HTTP_CODES_COUNT];

/** What one route did so far. */
struct http_route_counters {
    _Atomic uint64_t codes[HTTP_CODES_COUNT];
    _Atomic uint64_t durations[HTTP_DURATION_BUCKETS];
    _Atomic uint64_t duration_us_total;
};

/** One route as it is served: a row, or one of the routes that a row of collectives stands for. */
struct http_route_entry {
    const struct api_route *route; /**< NULL: of the entry for requests without a route. */
    const struct gpu_collective *collective; /**< Or NULL. */
    char *path;                              /**< Template, with the collective's name. */
    struct http_route_counters counters;
};

enum http_match { HTTP_MATCH_ROUTE, HTTP_MATCH_NO_PATH, HTTP_MATCH_NO_METHOD };

/** Where a path led. */
struct http_found {
    struct http_route_entry *entry; /**< HTTP_MATCH_ROUTE only. */
    uint32_t id_count;
    struct {
        size_t at, length; /**< In the path. Not yet checked to be an id. */
    } ids[API_PATH_IDS_MAX];
    char allow[64]; /**< HTTP_MATCH_NO_METHOD: value of Allow. */
};

/**
 * Build from tables, each ending with {0}, the list with NULL.
 * @retval ST_INTERNAL two rows of one method and path, or a template that is none: a bug of the
 * tables.
 */
ST_MUST_CHECK enum st_status http_router_create(const struct api_route *const *tables,
                                                struct http_router **ret_router,
                                                struct st_error *err);
void http_router_destroy(struct http_router *router);
/** Find the route of a path without query. @param method API_METHOD_COUNT: one that no route has.
 * Thread: any. */
enum http_match http_router_find(const struct http_router *router, enum api_method method,
                                 const char *path, size_t length, struct http_found *ret_found);
/** Entry i, in the order of the tables; NULL past the end. The first is the one without a route. */
struct http_route_entry *http_router_entry(const struct http_router *router, size_t i);
/** Count one finished request. Thread: any. */
void http_route_count(struct http_route_entry *entry, unsigned code, uint64_t duration_ns);

#endif
