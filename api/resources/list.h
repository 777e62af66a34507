#ifndef SYMTENSOR_API_RESOURCES_LIST_H
#define SYMTENSOR_API_RESOURCES_LIST_H

#include "api/request.h"
#include "api/text.h"
#include "server/server.h"

/** Lists: {"<name>":[...],"next_page_token":""}. An empty token is the only mark of the end. */

/** The query of every list; a list's own table names the members that it takes. */
struct api_list_query {
    uint32_t page_size; /**< 0: the default; more than the limit counts as the limit. */
    const char *page_token;
    char group[ST_ID_MAX + 1];
    bool has_state;
    unsigned state;
    struct server_labels labels;
};

/** The rows that every list takes; behind them stand its filters. */
#define API_LIST_PAGE_ROWS                                                                         \
    {.name = "page_size",                                                                          \
     .type = &api_type_uint32,                                                                     \
     .offset = offsetof(struct api_list_query, page_size),                                         \
     .doc = "Items of one page; default 50, at most 1000."},                                       \
    {                                                                                              \
        .name = "page_token", .type = &api_type_text,                                              \
        .offset = offsetof(struct api_list_query, page_token), .max = 1024,                        \
        .doc = "The next_page_token of the page before, of a list with the same filters."          \
    }
#define API_LIST_GROUP_ROW                                                                         \
    {                                                                                              \
        .name = "group", .type = &api_type_id, .offset = offsetof(struct api_list_query, group),   \
        .doc = "Only those of this group."                                                         \
    }
#define API_LIST_STATE_ROW(names_of_state)                                                         \
    {                                                                                              \
        .name = "state", .type = &api_type_enum, .offset = offsetof(struct api_list_query, state), \
        .has = API_HAS(struct api_list_query, has_state), .names = &(names_of_state),              \
        .doc = "Only those in this state."                                                         \
    }
#define API_LIST_LABELS_ROW                                                                        \
    {                                                                                              \
        .name = "label.", .type = &api_type_labels, .flags = API_PREFIX,                           \
        .offset = offsetof(struct api_list_query, labels),                                         \
        .doc = "label.KEY=VALUE: only those with this label; several must all be equal."           \
    }
_Static_assert(ST_PAGE_SIZE_DEFAULT == 50 && ST_PAGE_SIZE_MAX == 1000, "the rows above name them");

extern const struct api_names api_group_state_names;     /**< Of enum server_state. */
extern const struct api_names api_operation_state_names; /**< Of enum server_operation_state. */

/** One list of snapshots. */
struct api_list {
    const char *name; /**< "tensors" */
    const struct api_names *states;
    /** As server_*_list(): up to @p query->max snapshots, to be released. */
    uint32_t (*list)(struct server *server, const struct server_list_query *query,
                     struct server_snapshot **ret, bool *ret_more);
    const char *(*id)(const struct server_snapshot *snapshot);
};
/** Answer a request whose query is a struct api_list_query. */
ST_MUST_CHECK enum st_status api_list_reply(struct api_request *request,
                                            const struct api_list *list, struct st_error *err);

/** One list of things that are numbered 0..count-1. */
struct api_numbered_list {
    const char *name; /**< "devices" */
    uint32_t count;
    void (*write)(struct api_text *text, const void *things, uint32_t index);
    const void *things; /**< For write(). */
};
ST_MUST_CHECK enum st_status api_numbered_list_reply(struct api_request *request,
                                                     const struct api_numbered_list *list,
                                                     struct st_error *err);

#endif
