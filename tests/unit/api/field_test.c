#include "tests/support/leak_check.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "api/field.h"

struct inner {
    uint32_t rank;
    bool has_rank;
};

struct outer {
    char id[ST_ID_MAX + 1];
    const char *text;
    uint64_t bytes;
    uint32_t count;
    int32_t offset;
    bool flag;
    int tristate;
    unsigned color;
    struct st_shape shape;
    struct api_strides strides;
    struct api_array devices, ids, items;
    struct server_labels labels;
    struct api_principals readers;
    struct api_number value;
    uint64_t wait_ns;
    struct inner inner;
};

static const char *color_name(unsigned value)
{
    static const char *const names[] = {"red", NULL, "blue"};
    return names[value];
}
static const struct api_names colors = {color_name, 3};

static const struct api_field inner_fields[] = {
    {.name = "rank",
     .type = &api_type_uint32,
     .offset = offsetof(struct inner, rank),
     .flags = API_REQUIRED,
     .has = API_HAS(struct inner, has_rank),
     .max = 7,
     .doc = "Rank."},
    {0},
};

#define ROW(member, kind, ...)                                                                     \
    {                                                                                              \
        .name = #member, .type = &api_type_##kind, .offset = offsetof(struct outer, member),       \
        .doc = "A field.", __VA_ARGS__                                                             \
    }
static const struct api_field outer_fields[] = {
    ROW(id, id, .flags = API_REQUIRED),
    ROW(text, text, .max = 5),
    ROW(bytes, uint64),
    ROW(count, uint32, .min = 1, .max = 10),
    ROW(offset, int32),
    ROW(flag, bool),
    ROW(tristate, tristate),
    ROW(color, enum, .names = &colors),
    ROW(shape, shape),
    ROW(strides, strides),
    ROW(devices, uint32s, .max = 63),
    ROW(ids, ids, .min = 1, .max = 2),
    ROW(items, objects, .fields = inner_fields, .item_bytes = sizeof(struct inner), .max = 3),
    ROW(labels, labels),
    ROW(readers, principals),
    ROW(value, number),
    ROW(wait_ns, seconds, .max = 600),
    ROW(inner, object, .fields = inner_fields),
    {0},
};

static enum st_status decode(const char *json, struct api_arena *arena, struct outer *outer,
                             struct st_error *err)
{
    json_t *object = json_loads(json, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, NULL);
    assert_non_null(object);
    struct api_decoding decoding = {.arena = arena};
    memset(outer, 0, sizeof(*outer));
    enum st_status status = api_fields_decode(&decoding, outer_fields, object, outer, err);
    json_decref(object);
    assert_int_equal(decoding.path_length, 0);
    return status;
}

static void every_type_fills_its_member(void **state)
{
    (void)state;
    struct api_arena arena = {0};
    struct outer outer;
    struct st_error err;
    assert_int_equal(
        decode("{\"id\":\"a.b-c\",\"text\":\"hello\",\"bytes\":9007199254740991,\"count\":10,"
               "\"offset\":-3,\"flag\":true,\"tristate\":false,\"color\":\"blue\","
               "\"shape\":[2,0,3],\"strides\":[3,3,1],\"devices\":[0,63],\"ids\":[\"x\",\"y\"],"
               "\"items\":[{\"rank\":1},{\"rank\":7}],\"labels\":{\"b\":\"2\",\"a\":\"\"},"
               "\"readers\":[\"uid:7\"],\"value\":-5,\"wait_ns\":1.5,\"inner\":{\"rank\":4}}",
               &arena, &outer, &err),
        ST_OK);
    assert_string_equal(outer.id, "a.b-c");
    assert_string_equal(outer.text, "hello");
    assert_true(outer.bytes == 9007199254740991u && outer.count == 10 && outer.offset == -3);
    assert_true(outer.flag && outer.tristate == 0 && outer.color == 2);
    assert_true(outer.shape.rank == 3 && outer.shape.dims[2] == 3 && outer.shape.dims[1] == 0);
    assert_true(outer.strides.rank == 3 && outer.strides.strides.dims[0] == 3);
    assert_true(outer.devices.count == 2 && ((uint32_t *)outer.devices.items)[1] == 63);
    assert_string_equal(((char(*)[ST_ID_MAX + 1]) outer.ids.items)[1], "y");
    assert_true(outer.items.count == 2 && ((struct inner *)outer.items.items)[1].rank == 7);
    assert_true(((struct inner *)outer.items.items)[0].has_rank);
    assert_int_equal(outer.labels.count, 2);
    assert_string_equal(outer.labels.items[0].key, "a");
    assert_string_equal(outer.labels.items[1].value, "2");
    assert_string_equal(outer.readers.items[0], "uid:7");
    assert_true(outer.value.kind == SERVER_NUMBER_INT64 && outer.value.int64_value == -5);
    assert_true(outer.wait_ns == 1500000000u && outer.inner.rank == 4);
    api_arena_done(&arena);
}

static void what_is_absent_is_left_alone(void **state)
{
    (void)state;
    struct api_arena arena = {0};
    struct outer outer;
    struct st_error err;
    assert_int_equal(decode("{\"id\":\"x\"}", &arena, &outer, &err), ST_OK);
    assert_true(!outer.inner.has_rank && !outer.text && outer.shape.rank == 0);
    api_arena_done(&arena);
}

static const struct {
    const char *json, *field, *message;
    enum st_reason reason;
} failures[] = {
    {"{}", "id", "is required", ST_REASON_MISSING_FIELD},
    {"[]", "", "must be of type object, not an array", ST_REASON_INVALID_TYPE},
    {"{\"id\":\"x\",\"nope\":1}", "nope", "is not a known field", ST_REASON_UNKNOWN_FIELD},
    {"{\"id\":5}", "id", "must be of type id, not integer", ST_REASON_INVALID_TYPE},
    {"{\"id\":null}", "id", "not null", ST_REASON_INVALID_TYPE},
    {"{\"id\":\"a/b\"}", "id", "must match", ST_REASON_INVALID_ID},
    {"{\"id\":\"\"}", "id", "must match", ST_REASON_INVALID_ID},
    {"{\"id\":\"a..b\"}", "id", "must match", ST_REASON_INVALID_ID},
    {"{\"id\":\"x\",\"text\":\"sixsix\"}", "text", "0 to 5 bytes", ST_REASON_INVALID_VALUE},
    {"{\"id\":\"x\",\"bytes\":4096.0}", "bytes", "fraction", ST_REASON_INVALID_TYPE},
    {"{\"id\":\"x\",\"bytes\":\"4096\"}", "bytes", "a string", ST_REASON_INVALID_TYPE},
    {"{\"id\":\"x\",\"bytes\":-1}", "bytes", "at least 0", ST_REASON_INVALID_VALUE},
    {"{\"id\":\"x\",\"bytes\":9007199254740992}", "bytes", "at most 9007199254740991",
     ST_REASON_INVALID_VALUE},
    {"{\"id\":\"x\",\"count\":0}", "count", "at least 1", ST_REASON_INVALID_VALUE},
    {"{\"id\":\"x\",\"count\":4294967297}", "count", "at most 10", ST_REASON_INVALID_VALUE},
    {"{\"id\":\"x\",\"flag\":1}", "flag", "must be of type boolean", ST_REASON_INVALID_TYPE},
    {"{\"id\":\"x\",\"color\":\"green\"}", "color", "one of \"red\", \"blue\"",
     ST_REASON_INVALID_VALUE},
    {"{\"id\":\"x\",\"shape\":[1,-1]}", "shape[1]", "at least 0", ST_REASON_INVALID_VALUE},
    {"{\"id\":\"x\",\"shape\":[1,true]}", "shape[1]", "integer", ST_REASON_INVALID_TYPE},
    {"{\"id\":\"x\",\"shape\":[1,1,1,1,1,1,1,1,1]}", "shape", "0 to 8 items",
     ST_REASON_INVALID_VALUE},
    {"{\"id\":\"x\",\"shape\":{}}", "shape", "array", ST_REASON_INVALID_TYPE},
    {"{\"id\":\"x\",\"devices\":[64]}", "devices[0]", "at most 63", ST_REASON_INVALID_VALUE},
    {"{\"id\":\"x\",\"ids\":[]}", "ids", "1 to 2 items", ST_REASON_INVALID_VALUE},
    {"{\"id\":\"x\",\"ids\":[\"a\",\"%\"]}", "ids[1]", "must match", ST_REASON_INVALID_ID},
    {"{\"id\":\"x\",\"items\":[{\"rank\":0},{\"rank\":8}]}", "items[1].rank", "at most 7",
     ST_REASON_INVALID_VALUE},
    {"{\"id\":\"x\",\"items\":[{}]}", "items[0].rank", "is required", ST_REASON_MISSING_FIELD},
    {"{\"id\":\"x\",\"items\":[1]}", "items[0]", "object", ST_REASON_INVALID_TYPE},
    {"{\"id\":\"x\",\"inner\":{\"rank\":1,\"x\":1}}", "inner.x", "not a known",
     ST_REASON_UNKNOWN_FIELD},
    {"{\"id\":\"x\",\"labels\":{\"k\":1}}", "labels.k", "string", ST_REASON_INVALID_TYPE},
    {"{\"id\":\"x\",\"labels\":{\"\":\"v\"}}", "labels.", "key must match",
     ST_REASON_INVALID_VALUE},
    {"{\"id\":\"x\",\"readers\":[\"a b\"]}", "readers[0]", "visible", ST_REASON_INVALID_VALUE},
    {"{\"id\":\"x\",\"value\":\"ten\"}", "value", "decimal text", ST_REASON_INVALID_VALUE},
    {"{\"id\":\"x\",\"value\":\"0x10\"}", "value", "decimal text", ST_REASON_INVALID_VALUE},
    {"{\"id\":\"x\",\"value\":\" 1\"}", "value", "decimal text", ST_REASON_INVALID_VALUE},
    {"{\"id\":\"x\",\"value\":\"-\"}", "value", "decimal text", ST_REASON_INVALID_VALUE},
    {"{\"id\":\"x\",\"value\":\"18446744073709551616\"}", "value", "2^64-1",
     ST_REASON_OUT_OF_RANGE_VALUE},
    {"{\"id\":\"x\",\"value\":[]}", "value", "number or string", ST_REASON_INVALID_TYPE},
    {"{\"id\":\"x\",\"wait_ns\":601}", "wait_ns", "0 to 600 seconds", ST_REASON_INVALID_VALUE},
};

static void failures_name_the_field_and_the_limit(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(failures) / sizeof(failures[0]); i++) {
        struct api_arena arena = {0};
        struct outer outer;
        struct st_error err = {0};
        assert_int_not_equal(decode(failures[i].json, &arena, &outer, &err), ST_OK);
        if (err.reason != failures[i].reason || !strstr(err.message, failures[i].message) ||
            strcmp(err.field, failures[i].field) != 0) {
            fail_msg("%s gives %s, field \"%s\": %s", failures[i].json,
                     st_reason_info(err.reason)->name, err.field, err.message);
        }
        api_arena_done(&arena);
    }
}

static void numbers_keep_all_their_bits(void **state)
{
    (void)state;
    static const struct {
        const char *json;
        struct api_number number;
    } rows[] = {
        {"18446744073709551615", {SERVER_NUMBER_UINT64, 0, 0, UINT64_MAX}},
        {"-9223372036854775808", {SERVER_NUMBER_INT64, 0, INT64_MIN, 0}},
        {"0.1", {SERVER_NUMBER_DOUBLE, 0.1, 0, 0}},
        {"1e3", {SERVER_NUMBER_DOUBLE, 1000, 0, 0}},
        {"Infinity", {SERVER_NUMBER_DOUBLE, INFINITY, 0, 0}},
        {"-Infinity", {SERVER_NUMBER_DOUBLE, -INFINITY, 0, 0}},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct api_arena arena = {0};
        struct outer outer;
        struct st_error err;
        char json[128];
        snprintf(json, sizeof(json), "{\"id\":\"x\",\"value\":\"%s\"}", rows[i].json);
        assert_int_equal(decode(json, &arena, &outer, &err), ST_OK);
        assert_int_equal(outer.value.kind, rows[i].number.kind);
        assert_true(outer.value.uint64_value == rows[i].number.uint64_value);
        assert_true(outer.value.int64_value == rows[i].number.int64_value);
        assert_true(outer.value.double_value == rows[i].number.double_value);
        api_arena_done(&arena);
    }
    struct api_arena arena = {0};
    struct outer outer;
    struct st_error err;
    assert_int_equal(decode("{\"id\":\"x\",\"value\":\"NaN\"}", &arena, &outer, &err), ST_OK);
    assert_true(isnan(outer.value.double_value));
    assert_int_equal(decode("{\"id\":\"x\",\"value\":true}", &arena, &outer, &err), ST_OK);
    assert_int_equal(outer.value.kind, SERVER_NUMBER_BOOL);
    api_arena_done(&arena);
}

/* ---------------------------------------------------------------- queries */

struct query {
    char group[ST_ID_MAX + 1];
    uint32_t page_size;
    bool force, verbose;
    struct server_labels labels;
    uint64_t wait_ns;
};
static const struct api_field query_fields[] = {
    {.name = "group", .type = &api_type_id, .offset = offsetof(struct query, group), .doc = "-"},
    {.name = "page_size",
     .type = &api_type_uint32,
     .offset = offsetof(struct query, page_size),
     .min = 1,
     .max = 1000,
     .doc = "-"},
    {.name = "force", .type = &api_type_bool, .offset = offsetof(struct query, force), .doc = "-"},
    {.name = "label.",
     .type = &api_type_labels,
     .offset = offsetof(struct query, labels),
     .flags = API_PREFIX,
     .doc = "-"},
    {0},
};
static const struct api_field wait_fields[] = {
    {.name = "wait",
     .type = &api_type_seconds,
     .offset = offsetof(struct query, wait_ns),
     .max = 600,
     .doc = "-"},
    {0},
};

static enum st_status parse(const char *text, struct api_arena *arena, struct query *query,
                            struct st_error *err)
{
    *query = (struct query){0};
    const struct api_query_part parts[] = {{query_fields, query}, {wait_fields, query}};
    return api_query_decode(arena, text, parts, 2, err);
}

static void a_query_fills_the_structs_of_all_its_tables(void **state)
{
    (void)state;
    struct api_arena arena = {0};
    struct query query;
    struct st_error err;
    assert_int_equal(parse("group=a.b&page_size=7&force&label.z=1%2B1&label.a=x+y&wait=0.25&",
                           &arena, &query, &err),
                     ST_OK);
    assert_string_equal(query.group, "a.b");
    assert_true(query.page_size == 7 && query.force && query.wait_ns == 250000000u);
    assert_int_equal(query.labels.count, 2);
    assert_string_equal(query.labels.items[0].key, "a");
    assert_string_equal(query.labels.items[0].value, "x y");
    assert_string_equal(query.labels.items[1].value, "1+1");
    assert_int_equal(parse(NULL, &arena, &query, &err), ST_OK);
    assert_int_equal(parse("force=0", &arena, &query, &err), ST_OK);
    assert_false(query.force);
    api_arena_done(&arena);
}

static void wrong_queries_are_refused_with_the_name(void **state)
{
    (void)state;
    static const struct {
        const char *text, *message;
    } rows[] = {
        {"nope=1", "nope: is not a parameter"},
        {"group=a&group=a", "group: is given twice"},
        {"group=", "group: must match"},
        {"group=%2e%2", "malformed escape"},
        {"group=%zz", "malformed escape"},
        {"group=%\x14\x11", "malformed escape"},
        {"group=%3\x11", "malformed escape"},
        {"group=a b", "not escaped"},
        {"label.k=\x01", "not escaped"},
        {"label.k=\x7f", "not escaped"},
        {"group=a%00b", "NUL"},
        {"label.k=%ff", "no UTF-8"},
        {"page_size=0", "page_size: must be at least 1"},
        {"page_size=1e2", "page_size: must be an integer"},
        {"page_size=+5", "page_size: must be an integer"},
        {"page_size=18446744073709551616", "page_size: must be an integer"},
        {"page_size=-1", "page_size: must be at least 1"},
        {"force=yes", "force: must be true or false"},
        {"wait=601", "wait: must be from 0 to 600"},
        {"wait=-1", "wait: must be from 0 to 600"},
        {"wait=nan", "wait: must be from 0 to 600"},
        {"wait=1.2.3", "wait: must be from 0 to 600"},
        {"wait=1e1", "wait: must be from 0 to 600"},
        {"label.=x", "is not a parameter"},
        {"label.k=1&label.k=2", "label.k: is given twice"},
        {"label.%20=x", "key must match"},
        {"=x", "malformed"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct api_arena arena = {0};
        struct query query;
        struct st_error err = {0};
        assert_int_equal(parse(rows[i].text, &arena, &query, &err), ST_INVALID_ARGUMENT);
        if (err.reason != ST_REASON_INVALID_QUERY || !strstr(err.message, rows[i].message)) {
            fail_msg("%s gives %s: %s", rows[i].text, st_reason_info(err.reason)->name,
                     err.message);
        }
        api_arena_done(&arena);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_type_fills_its_member),
        cmocka_unit_test(what_is_absent_is_left_alone),
        cmocka_unit_test(failures_name_the_field_and_the_limit),
        cmocka_unit_test(numbers_keep_all_their_bits),
        cmocka_unit_test(a_query_fills_the_structs_of_all_its_tables),
        cmocka_unit_test(wrong_queries_are_refused_with_the_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
