#include "tests/support/leak_check.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "api/data/values.h"
#include "api/resources/view.h"

/** Write an object by its rows and read it back with another implementation of JSON. */
static json_t *rendered(const struct api_output *rows, const void *object)
{
    struct api_text text = {0};
    size_t length = 0;
    api_output_write(&text, NULL, rows, object, "node-a");
    char *body = api_text_take(&text, &length);
    assert_non_null(body);
    json_t *json = json_loadb(body, length, JSON_REJECT_DUPLICATES, NULL);
    if (!json) {
        fail_msg("no JSON: %s", body);
    }
    free(body);
    size_t count = 0;
    for (; rows[count].name; count++) {
        assert_non_null(json_object_get(json, rows[count].name));
        assert_true(strlen(rows[count].doc) > 0 && rows[count].type->schema[0] == '"');
    }
    assert_int_equal(json_object_size(json), count);
    return json;
}

static const char *string_at(json_t *json, const char *outer, const char *inner)
{
    json_t *member = json_object_get(json, outer);
    return json_string_value(inner ? json_object_get(member, inner) : member);
}

static struct server_rank ranks[] = {{0}, {3}};
static struct server_label labels[] = {{"env", "prod"}, {"quote", "a\"b\\c\n"}};

static void a_group_shows_every_row_of_its_table(void **state)
{
    (void)state;
    struct server_group group = {.id = "g",
                                 .uid = "0b5b5eaa-0000-4000-8000-000000000000",
                                 .version = 7,
                                 .state = SERVER_STATE_READY,
                                 .world_size = 2,
                                 .ranks = ranks,
                                 .multicast_reason = GPU_MULTICAST_SHARED_DEVICE,
                                 .labels = {2, labels}};
    json_t *json = rendered(api_group_output, &group);
    assert_string_equal(string_at(json, "state", NULL), "ready");
    assert_string_equal(string_at(json, "multicast", "reason"), "SHARED_DEVICE");
    assert_string_equal(string_at(json, "labels", "quote"), "a\"b\\c\n");
    assert_string_equal(string_at(json, "etag", NULL), "\"7-0b5b5eaa\"");
    json_t *rank = json_array_get(json_object_get(json, "ranks"), 1);
    assert_string_equal(json_string_value(json_object_get(rank, "node")), "node-a");
    assert_int_equal(json_integer_value(json_object_get(rank, "device")), 3);
    assert_int_equal(json_array_size(json_object_get(json, "failed_ranks")), 0);
    json_decref(json);
    group.state = SERVER_STATE_FAILED;
    json = rendered(api_group_output, &group);
    assert_int_equal(json_array_size(json_object_get(json, "failed_ranks")), 2);
    json_decref(json);
}

static void a_tensor_shows_every_row_of_its_table(void **state)
{
    (void)state;
    struct server_contents contents[] = {{5, SERVER_CONTENTS_VALID},
                                         {1ull << 53, SERVER_CONTENTS_UNDEFINED}};
    char readers[][ST_ID_MAX + 1] = {"uid:1000"};
    struct server_tensor tensor = {.id = "w",
                                   .dtype = ST_DTYPE_FLOAT8_E4M3FN,
                                   .shape = {2, {3, 0}},
                                   .strides = {{1, 3}},
                                   .memory_type = GPU_MEMORY_GLOBAL,
                                   .multicast_reason = GPU_MULTICAST_NOT_REQUESTED,
                                   .world_size = 2,
                                   .ranks = ranks,
                                   .shard_contents = contents,
                                   .contents = contents[1],
                                   .access = {.read_count = 1, .read = readers}};
    json_t *json = rendered(api_tensor_output, &tensor);
    assert_string_equal(string_at(json, "dtype", NULL), "float8_e4m3fn");
    assert_string_equal(string_at(json, "memory_type", NULL), "global");
    assert_int_equal(json_array_size(json_object_get(json, "shape")), 2);
    /* Beyond 2^53-1 a client without 64-bit integers would read another number. */
    assert_string_equal(string_at(json, "contents", "generation"), "9007199254740992");
    assert_string_equal(string_at(json, "contents", "state"), "undefined");
    json_t *shard = json_array_get(json_object_get(json, "shards"), 0);
    assert_int_equal(
        json_integer_value(json_object_get(json_object_get(shard, "contents"), "generation")), 5);
    assert_int_equal(json_integer_value(json_object_get(json_object_get(json, "dlpack"), "code")),
                     10);
    json_t *read = json_object_get(json_object_get(json, "access"), "read");
    assert_string_equal(json_string_value(json_array_get(read, 0)), "uid:1000");
    json_decref(json);
}

static void an_operation_shows_every_row_of_its_table(void **state)
{
    (void)state;
    struct server_checksum sums[] = {{.rank = 0, .hex = "e3069283"}};
    struct server_operation_view view = {
        .id = "op-1",
        .verb = "checksum",
        .target = "tensors/w",
        .state = SERVER_OPERATION_SUCCEEDED,
        .result = {.kind = SERVER_RESULT_CHECKSUMS, .count = 1, .checksums = sums}};
    json_t *json = rendered(api_operation_output, &view);
    assert_string_equal(string_at(json, "name", NULL), "operations/op-1");
    assert_true(json_is_true(json_object_get(json, "done")));
    assert_true(json_is_null(json_object_get(json, "error")));
    assert_true(json_is_null(json_object_get(json, "algorithm")));
    assert_true(json_is_null(json_object_get(json, "deterministic")));
    assert_true(json_is_null(json_object_get(json, "bandwidth")));
    assert_string_equal(string_at(json, "result", "algorithm"), "crc32c");
    json_decref(json);

    view = (struct server_operation_view){.id = "op-2",
                                          .verb = "all_reduce",
                                          .algorithm = "two_shot",
                                          .reason = "large",
                                          .has_plan = true,
                                          .algorithm_bytes_per_second = 1.5e9,
                                          .bus_bytes_per_second = 2.25e9,
                                          .state = SERVER_OPERATION_FAILED,
                                          .has_error = true};
    st_fail(&view.error, ST_REASON_DEVICE_LOST, NULL, "device %d", 3);
    json = rendered(api_operation_output, &view);
    assert_string_equal(string_at(json, "error", "status"), "UNAVAILABLE");
    assert_string_equal(string_at(json, "algorithm", NULL), "two_shot");
    assert_true(json_is_false(json_object_get(json, "deterministic")));
    assert_true(json_number_value(json_object_get(json_object_get(json, "bandwidth"),
                                                  "bus_bytes_per_second")) == 2.25e9);
    json_decref(json);
}

static void if_match_is_a_list_of_strong_tags(void **state)
{
    (void)state;
    static const struct {
        const char *value;
        enum st_status status;
        bool match;
    } rows[] = {
        {"*", ST_OK, true},
        {" * ", ST_OK, true},
        {"\"7-abc\"", ST_OK, true},
        {"\"6-abc\", \"7-abc\"", ST_OK, true},
        {"\"6-abc\",\"8-abc\"", ST_OK, false},
        {"W/\"7-abc\"", ST_OK, false},
        {"W/\"7-abc\",\"7-abc\"", ST_OK, true},
        {"\"\"", ST_OK, false},
        {"", ST_INVALID_ARGUMENT, false},
        {"7-abc", ST_INVALID_ARGUMENT, false},
        {"\"7-abc", ST_INVALID_ARGUMENT, false},
        {"\"7-abc\" \"8\"", ST_INVALID_ARGUMENT, false},
        {"\"7-abc\",", ST_INVALID_ARGUMENT, false},
        {"*, \"7-abc\"", ST_INVALID_ARGUMENT, false},
        {"**", ST_INVALID_ARGUMENT, false},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        bool match = false;
        struct st_error error;
        enum st_status status =
            api_etag_match("If-Match", rows[i].value, "\"7-abc\"", &match, &error);
        if (status != rows[i].status || match != rows[i].match) {
            fail_msg("%s", rows[i].value);
        }
    }
}

/** If-None-Match compares weakly. */
static void a_weak_tag_matches_where_nothing_is_written(void **state)
{
    (void)state;
    static const struct {
        const char *value;
        bool match;
    } rows[] = {
        {"\"7-abc\"", true},          {"W/\"7-abc\"", true},    {"\"8\", W/\"7-abc\"", true},
        {"W/\"8\", \"7-ab\"", false}, {"W/\"W/7-abc\"", false}, {"*", true},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        bool match = !rows[i].match;
        struct st_error error;
        enum st_status status =
            api_etag_match("If-None-Match", rows[i].value, "\"7-abc\"", &match, &error);
        if (status != ST_OK || match != rows[i].match) {
            fail_msg("%s", rows[i].value);
        }
    }
}

/** Elements of one dtype and the JSON that shows them. */
static void values_of_every_kind_are_exact_json(void **state)
{
    (void)state;
    static const struct {
        enum st_dtype dtype;
        unsigned char data[32];
        uint64_t count;
        const char *json;
    } rows[] = {
        {ST_DTYPE_BOOL, {0, 1, 7}, 3, "[false,true,true]"},
        {ST_DTYPE_UINT8, {0, 255}, 2, "[0,255]"},
        {ST_DTYPE_INT8, {0x80, 0x7f}, 2, "[-128,127]"},
        {ST_DTYPE_INT32, {0xff, 0xff, 0xff, 0xff}, 1, "[-1]"},
        {ST_DTYPE_INT64,
         {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x1f, 0, 0, 0, 0, 0, 0, 0, 0x20, 0},
         2,
         "[9007199254740991,\"9007199254740992\"]"},
        {ST_DTYPE_INT64,
         {0x01, 0, 0, 0, 0, 0, 0xe0, 0xff, 0, 0, 0, 0, 0, 0, 0, 0x80},
         2,
         "[-9007199254740991,\"-9223372036854775808\"]"},
        {ST_DTYPE_UINT64,
         {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff},
         1,
         "[\"18446744073709551615\"]"},
        {ST_DTYPE_FLOAT32,
         {0, 0, 0x80, 0x3f, 0, 0, 0xc0, 0x7f, 0, 0, 0x80, 0x7f, 0, 0, 0x80, 0xff},
         4,
         "[1,\"NaN\",\"Infinity\",\"-Infinity\"]"},
        {ST_DTYPE_FLOAT32, {0xcd, 0xcc, 0xcc, 0x3d}, 1, "[0.10000000149011612]"},
        {ST_DTYPE_FLOAT64, {0, 0, 0, 0, 0, 0, 0, 0x80}, 1, "[-0.0]"},
        {ST_DTYPE_BFLOAT16, {0x80, 0x3f}, 1, "[1]"},
        {ST_DTYPE_FLOAT16, {0, 0}, 0, "[]"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct api_text text = {0};
        data_values_write(&text, NULL, rows[i].dtype, rows[i].data, rows[i].count);
        assert_string_equal(text.data, rows[i].json);
        api_text_done(&text);
    }
}

static void a_state_of_a_device_has_a_name_of_its_own(void **state)
{
    (void)state;
    static const char *const names[] = {[GPU_DEVICE_OK] = "ok",
                                        [GPU_DEVICE_DEGRADED] = "degraded",
                                        [GPU_DEVICE_LOST] = "lost",
                                        [GPU_DEVICE_UNAVAILABLE] = "unavailable"};
    assert_int_equal(sizeof(names) / sizeof(names[0]), GPU_DEVICE_STATE_COUNT);
    for (unsigned i = 0; i < GPU_DEVICE_STATE_COUNT; i++) {
        assert_string_equal(gpu_device_state_name((enum gpu_device_state)i), names[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_weak_tag_matches_where_nothing_is_written),
        cmocka_unit_test(a_group_shows_every_row_of_its_table),
        cmocka_unit_test(a_tensor_shows_every_row_of_its_table),
        cmocka_unit_test(an_operation_shows_every_row_of_its_table),
        cmocka_unit_test(if_match_is_a_list_of_strong_tags),
        cmocka_unit_test(values_of_every_kind_are_exact_json),
        cmocka_unit_test(a_state_of_a_device_has_a_name_of_its_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
