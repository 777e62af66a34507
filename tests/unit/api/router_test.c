#include "tests/support/leak_check.h"

#include <string.h>

#include "api/http/router.h"

static const struct api_route first_table[] = {
    {.method = API_GET, .path = "/livez"},
    {.method = API_GET, .path = "/v1/tensors"},
    {.method = API_POST, .path = "/v1/tensors"},
    {.method = API_POST, .path = "/v1/tensors:batch_create"},
    {.method = API_GET, .path = "/v1/tensors/{tensor}"},
    {.method = API_DELETE, .path = "/v1/tensors/{tensor}"},
    {.method = API_POST, .path = "/v1/tensors/{tensor}:fill"},
    {0},
};
static const struct api_route second_table[] = {
    {.method = API_POST,
     .path = "/v1/tensors/{tensor}:{collective}",
     .flags = API_ROUTE_COLLECTIVES},
    {.method = API_GET, .path = "/v1/tensors/{tensor}/shards/{rank}/data"},
    {.method = API_PUT, .path = "/v1/tensors/{tensor}/shards/{rank}/data"},
    {0},
};
static const struct api_route *const tables[] = {first_table, second_table, NULL};

static int make_router(void **state)
{
    struct http_router *router;
    struct st_error err;
    if (http_router_create(tables, &router, &err) != ST_OK) {
        return -1;
    }
    *state = router;
    return 0;
}

static int destroy_router(void **state)
{
    http_router_destroy(*state);
    return 0;
}

static void paths_lead_to_their_routes_and_ids(void **state)
{
    static const struct {
        enum api_method method;
        const char *path, *entry, *ids;
    } rows[] = {
        {API_GET, "/livez", "/livez", ""},
        {API_POST, "/v1/tensors", "/v1/tensors", ""},
        {API_POST, "/v1/tensors:batch_create", "/v1/tensors:batch_create", ""},
        {API_GET, "/v1/tensors/a.b", "/v1/tensors/{tensor}", "a.b,"},
        {API_POST, "/v1/tensors/x:fill", "/v1/tensors/{tensor}:fill", "x,"},
        {API_POST, "/v1/tensors/x:all_reduce", "/v1/tensors/{tensor}:all_reduce", "x,"},
        {API_POST, "/v1/tensors/x:all_to_all", "/v1/tensors/{tensor}:all_to_all", "x,"},
        {API_PUT, "/v1/tensors/x/shards/3/data", "/v1/tensors/{tensor}/shards/{rank}/data", "x,3,"},
        {API_GET, "/v1/tensors/", "/v1/tensors/{tensor}", ","},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct http_found found;
        assert_int_equal(
            http_router_find(*state, rows[i].method, rows[i].path, strlen(rows[i].path), &found),
            HTTP_MATCH_ROUTE);
        assert_string_equal(found.entry->path, rows[i].entry);
        char ids[64] = "";
        for (uint32_t k = 0; k < found.id_count; k++) {
            strncat(ids, rows[i].path + found.ids[k].at, found.ids[k].length);
            strcat(ids, ",");
        }
        assert_string_equal(ids, rows[i].ids);
    }
}

static void a_collective_route_knows_its_collective(void **state)
{
    struct http_found found;
    const char *path = "/v1/tensors/x:reduce_scatter";
    assert_int_equal(http_router_find(*state, API_POST, path, strlen(path), &found),
                     HTTP_MATCH_ROUTE);
    assert_ptr_equal(found.entry->collective, gpu_collective_find("reduce_scatter"));
}

static void unknown_paths_and_verbs_are_not_found(void **state)
{
    static const char *const rows[] = {
        "",
        "/",
        "livez",
        "/livez/",
        "/livez:x",
        "/LIVEZ",
        "/v1",
        "/v1/tensor",
        "/v1/tensors:",
        "/v1/tensors:nope",
        "//livez",
        "/v1//tensors",
        "/v1/tensors/x:",
        "/v1/tensors/x:y",
        "/v1/tensors/x/shards",
        "/v1:fill",
        "/v1/tensors/x:fill:fill",
        "/v1/tensors/x:{collective}",
        "/v1/tensors/x/shards/0/data/",
        "/v1/tensors/x/shards/0/data:fill",
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct http_found found;
        if (http_router_find(*state, API_POST, rows[i], strlen(rows[i]), &found) !=
            HTTP_MATCH_NO_PATH) {
            fail_msg("%s is found", rows[i]);
        }
    }
}

static void another_method_names_those_that_exist(void **state)
{
    static const struct {
        enum api_method method;
        const char *path, *allow;
    } rows[] = {
        {API_POST, "/livez", "GET, HEAD"},
        {API_METHOD_COUNT, "/v1/tensors", "GET, HEAD, POST"},
        {API_PATCH, "/v1/tensors/x", "GET, HEAD, DELETE"},
        {API_GET, "/v1/tensors/x:fill", "POST"},
        {API_DELETE, "/v1/tensors/x:broadcast", "POST"},
        {API_POST, "/v1/tensors/x/shards/0/data", "GET, HEAD, PUT"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct http_found found;
        assert_int_equal(
            http_router_find(*state, rows[i].method, rows[i].path, strlen(rows[i].path), &found),
            HTTP_MATCH_NO_METHOD);
        assert_string_equal(found.allow, rows[i].allow);
    }
}

static void the_same_route_twice_is_refused(void **state)
{
    (void)state;
    static const struct api_route again[] = {{.method = API_GET, .path = "/livez"}, {0}};
    const struct api_route *const both[] = {first_table, again, NULL};
    struct http_router *router;
    struct st_error err;
    assert_int_equal(http_router_create(both, &router, &err), ST_INTERNAL);
    assert_non_null(strstr(err.message, "GET /livez"));
}

static void every_table_of_the_server_fits_together(void **state)
{
    (void)state;
    struct http_router *router;
    struct st_error err;
    assert_int_equal(http_router_create(api_route_tables, &router, &err), ST_OK);
    for (size_t i = 1; http_router_entry(router, i); i++) {
        const struct http_route_entry *entry = http_router_entry(router, i);
        struct http_found found;
        assert_int_equal(http_router_find(router, entry->route->method, entry->path,
                                          strlen(entry->path), &found),
                         HTTP_MATCH_ROUTE);
        assert_ptr_equal(found.entry, entry);
        assert_true(entry->route->summary && entry->route->summary[0]);
        assert_true(entry->route->handler || (entry->route->flags & API_ROUTE_RESERVED));
        assert_true(entry->route->body != API_BODY_JSON || entry->route->fields);
    }
    http_router_destroy(router);
}

static void requests_are_counted_by_code_and_time(void **state)
{
    struct http_route_entry *entry = http_router_entry(*state, 1);
    http_route_count(entry, 200, 50000);
    http_route_count(entry, 200, 100000);
    http_route_count(entry, 418, 20000000000ull);
    assert_int_equal(entry->counters.codes[0], 2);
    assert_int_equal(entry->counters.codes[HTTP_CODES_COUNT - 1], 1);
    assert_int_equal(entry->counters.durations[0], 2);
    assert_int_equal(entry->counters.durations[HTTP_DURATION_BUCKETS - 1], 1);
    assert_int_equal(entry->counters.duration_us_total, 20000150);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(paths_lead_to_their_routes_and_ids, make_router,
                                        destroy_router),
        cmocka_unit_test_setup_teardown(a_collective_route_knows_its_collective, make_router,
                                        destroy_router),
        cmocka_unit_test_setup_teardown(unknown_paths_and_verbs_are_not_found, make_router,
                                        destroy_router),
        cmocka_unit_test_setup_teardown(another_method_names_those_that_exist, make_router,
                                        destroy_router),
        cmocka_unit_test(the_same_route_twice_is_refused),
        cmocka_unit_test(every_table_of_the_server_fits_together),
        cmocka_unit_test_setup_teardown(requests_are_counted_by_code_and_time, make_router,
                                        destroy_router),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
