#include "api/http/router.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const uint32_t http_duration_bounds_us[HTTP_DURATION_BUCKETS - 1] = {
#define X(microseconds) microseconds,
    HTTP_DURATION_BOUNDS(X)
#undef X
};

const uint16_t http_codes[HTTP_CODES_COUNT] = {200, 201, 202, 204, 206, 304, 400, 401, 403,
                                               404, 405, 408, 409, 411, 412, 413, 415, 416,
                                               417, 429, 499, 500, 501, 503, 504, 0};

#define COLLECTIVE_SUFFIX ":{collective}"

const char *api_method_name(enum api_method method)
{
    static const char *const names[] = {[API_GET] = "GET",
                                        [API_POST] = "POST",
                                        [API_PUT] = "PUT",
                                        [API_PATCH] = "PATCH",
                                        [API_DELETE] = "DELETE"};
    return method < API_METHOD_COUNT ? names[method] : "OTHER";
}

/** A segment with one verb; "" is the plain segment. */
struct router_verb {
    struct router_verb *next;
    const char *name;
    size_t length;
    struct http_route_entry *entries[API_METHOD_COUNT];
};

struct router_node {
    struct router_node *next;  /**< Sibling. */
    struct router_node *first; /**< Child with a literal segment. */
    struct router_node *any;   /**< Child for a name in braces. */
    const char *segment;
    size_t length;
    struct router_verb *verbs;
};

struct http_router {
    struct router_node root;
    struct http_route_entry **entries; /**< [count] */
    size_t count;
};

/** One segment of a path: [at, at + length), and its verb behind the ":". */
struct segment {
    const char *text;
    size_t length;
    const char *verb; /**< "" when there is none. */
    size_t verb_length;
};

/** Cut the segment that begins at @p path. @return what follows it (at "/" or the end). */
static const char *segment_cut(const char *path, const char *end, struct segment *ret)
{
    const char *slash = memchr(path, '/', (size_t)(end - path));
    const char *stop = slash ? slash : end;
    const char *colon = slash ? NULL : memchr(path, ':', (size_t)(stop - path));
    *ret = (struct segment){.text = path, .length = (size_t)(stop - path), .verb = ""};
    if (colon) {
        /* A colon that ends the path is the verb itself, which none is called. */
        ret->length = (size_t)(colon - path);
        ret->verb = colon + 1 < stop ? colon + 1 : colon;
        ret->verb_length = (size_t)(stop - ret->verb);
    }
    return stop;
}

/* ---------------------------------------------------------------- building */

static struct router_node *node_child(struct router_node *node, const char *text, size_t length)
{
    if (text[0] == '{') {
        if (!node->any) {
            node->any = calloc(1, sizeof(*node->any));
        }
        return node->any;
    }
    struct router_node *child = node->first;
    while (child && (child->length != length || memcmp(child->segment, text, length) != 0)) {
        child = child->next;
    }
    if (!child && (child = calloc(1, sizeof(*child)))) {
        *child = (struct router_node){.next = node->first, .segment = text, .length = length};
        node->first = child;
    }
    return child;
}

static struct router_verb *node_verb(struct router_node *node, const char *name, size_t length)
{
    struct router_verb *verb = node->verbs;
    while (verb && (verb->length != length || memcmp(verb->name, name, length) != 0)) {
        verb = verb->next;
    }
    if (!verb && (verb = calloc(1, sizeof(*verb)))) {
        *verb = (struct router_verb){.next = node->verbs, .name = name, .length = length};
        node->verbs = verb;
    }
    return verb;
}

static struct http_route_entry *router_add_entry(struct http_router *router,
                                                 const struct api_route *route,
                                                 const struct gpu_collective *collective)
{
    struct http_route_entry **entries =
        reallocarray(router->entries, router->count + 1, sizeof(struct http_route_entry *));
    if (!entries) {
        return NULL;
    }
    router->entries = entries;
    struct http_route_entry *entry = calloc(1, sizeof(*entry));
    if (!entry) {
        return NULL;
    }
    entry->route = route;
    entry->collective = collective;
    entries[router->count++] = entry;
    const char *path = route ? route->path : "none";
    size_t length = strlen(path);
    int written;
    if (collective) {
        length -= strlen(COLLECTIVE_SUFFIX);
        written = asprintf(&entry->path, "%.*s:%s", (int)length, path, collective->name);
    } else {
        written = asprintf(&entry->path, "%s", path);
    }
    if (written < 0) {
        entry->path = NULL;
        return NULL;
    }
    return entry;
}

static enum st_status router_fail_memory(struct st_error *err)
{
    return st_fail(err, ST_REASON_OUT_OF_MEMORY, NULL, "no memory for the routes");
}

static enum st_status router_add(struct http_router *router, const struct api_route *route,
                                 const struct gpu_collective *collective, struct st_error *err)
{
    struct http_route_entry *entry = router_add_entry(router, route, collective);
    if (!entry) {
        return router_fail_memory(err);
    }
    struct router_node *node = &router->root;
    struct segment segment = {.verb = ""};
    const char *end = entry->path + strlen(entry->path);
    uint32_t ids = 0;
    for (const char *at = entry->path; at < end;) {
        at = segment_cut(at + 1, end, &segment);
        ids += segment.text[0] == '{';
        node = node_child(node, segment.text, segment.length);
        if (!node) {
            return router_fail_memory(err);
        }
    }
    struct router_verb *verb = node_verb(node, segment.verb, segment.verb_length);
    if (!verb) {
        return router_fail_memory(err);
    }
    if (verb->entries[route->method] || ids > API_PATH_IDS_MAX) {
        return st_fail(err, ST_REASON_SYSTEM_ERROR, NULL, "the route %s %s is in the tables twice",
                       api_method_name(route->method), entry->path);
    }
    verb->entries[route->method] = entry;
    return ST_OK;
}

static enum st_status router_add_row(struct http_router *router, const struct api_route *route,
                                     struct st_error *err)
{
    if (!(route->flags & API_ROUTE_COLLECTIVES)) {
        return router_add(router, route, NULL, err);
    }
    for (size_t i = 0; gpu_collectives[i]; i++) {
        enum st_status status = router_add(router, route, gpu_collectives[i], err);
        if (status != ST_OK) {
            return status;
        }
    }
    return ST_OK;
}

static enum st_status router_build(struct http_router *router,
                                   const struct api_route *const *tables, struct st_error *err)
{
    if (!router_add_entry(router, NULL, NULL)) {
        return router_fail_memory(err);
    }
    for (size_t t = 0; tables[t]; t++) {
        for (size_t i = 0; tables[t][i].path; i++) {
            enum st_status status = router_add_row(router, &tables[t][i], err);
            if (status != ST_OK) {
                return status;
            }
        }
    }
    return ST_OK;
}

enum st_status http_router_create(const struct api_route *const *tables,
                                  struct http_router **ret_router, struct st_error *err)
{
    struct http_router *router = calloc(1, sizeof(*router));
    if (!router) {
        return router_fail_memory(err);
    }
    enum st_status status = router_build(router, tables, err);
    if (status != ST_OK) {
        http_router_destroy(router);
        return status;
    }
    *ret_router = router;
    return ST_OK;
}

/** Free what a node holds; the tree is as deep as the longest path, six or so. */
static void node_done(struct router_node *node)
{
    while (node->verbs) {
        struct router_verb *verb = node->verbs;
        node->verbs = verb->next;
        free(verb);
    }
    while (node->first) {
        struct router_node *child = node->first;
        node->first = child->next;
        node_done(child);
        free(child);
    }
    if (node->any) {
        node_done(node->any);
        free(node->any);
    }
}

void http_router_destroy(struct http_router *router)
{
    if (!router) {
        return;
    }
    node_done(&router->root);
    for (size_t i = 0; i < router->count; i++) {
        free(router->entries[i]->path);
        free(router->entries[i]);
    }
    free(router->entries);
    free(router);
}

/* ---------------------------------------------------------------- finding */

static const struct router_node *node_find(const struct router_node *node,
                                           const struct segment *segment)
{
    const struct router_node *child = node->first;
    while (child && (child->length != segment->length ||
                     memcmp(child->segment, segment->text, segment->length) != 0)) {
        child = child->next;
    }
    return child ? child : node->any;
}

static void found_add_id(struct http_found *found, const char *path, const struct segment *segment)
{
    found->ids[found->id_count].at = (size_t)(segment->text - path);
    found->ids[found->id_count].length = segment->length;
    found->id_count++;
}

static const struct router_verb *router_walk(const struct http_router *router, const char *path,
                                             size_t length, struct http_found *found)
{
    const struct router_node *node = &router->root;
    struct segment segment = {.verb = ""};
    const char *end = path + length;
    for (const char *at = path; at < end;) {
        at = segment_cut(at + 1, end, &segment);
        const struct router_node *child = node_find(node, &segment);
        if (!child) {
            return NULL;
        }
        if (child == node->any && found->id_count < API_PATH_IDS_MAX) {
            found_add_id(found, path, &segment);
        }
        node = child;
    }
    const struct router_verb *verb = node->verbs;
    while (verb && (verb->length != segment.verb_length ||
                    memcmp(verb->name, segment.verb, segment.verb_length) != 0)) {
        verb = verb->next;
    }
    return verb;
}

static void found_set_allow(struct http_found *found, const struct router_verb *verb)
{
    size_t length = 0;
    for (unsigned method = 0; method < API_METHOD_COUNT; method++) {
        if (!verb->entries[method] || length >= sizeof(found->allow)) {
            continue;
        }
        int added = snprintf(found->allow + length, sizeof(found->allow) - length, "%s%s%s",
                             length ? ", " : "", api_method_name(method),
                             method == API_GET ? ", HEAD" : "");
        length += added > 0 ? (size_t)added : 0;
    }
}

enum http_match http_router_find(const struct http_router *router, enum api_method method,
                                 const char *path, size_t length, struct http_found *ret_found)
{
    ret_found->entry = NULL;
    ret_found->id_count = 0;
    const struct router_verb *verb =
        length && path[0] == '/' ? router_walk(router, path, length, ret_found) : NULL;
    if (!verb) {
        return HTTP_MATCH_NO_PATH;
    }
    if (method == API_METHOD_COUNT || !verb->entries[method]) {
        found_set_allow(ret_found, verb);
        return HTTP_MATCH_NO_METHOD;
    }
    ret_found->entry = verb->entries[method];
    return HTTP_MATCH_ROUTE;
}

struct http_route_entry *http_router_entry(const struct http_router *router, size_t i)
{
    return i < router->count ? router->entries[i] : NULL;
}

/* ---------------------------------------------------------------- counting */

void http_route_count(struct http_route_entry *entry, unsigned code, uint64_t duration_ns)
{
    uint64_t duration_us = duration_ns / 1000;
    size_t bucket = 0;
    while (bucket < HTTP_DURATION_BUCKETS - 1 && duration_us > http_duration_bounds_us[bucket]) {
        bucket++;
    }
    size_t slot = 0;
    while (slot < HTTP_CODES_COUNT - 1 && http_codes[slot] != code) {
        slot++;
    }
    struct http_route_counters *counters = &entry->counters;
    atomic_fetch_add_explicit(&counters->codes[slot], 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&counters->durations[bucket], 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&counters->duration_us_total, duration_us, memory_order_relaxed);
}
