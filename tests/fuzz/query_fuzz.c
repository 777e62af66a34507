#include "tests/fuzz/fuzz.h"

#include "api/resources/list.h"
#include "api/resources/page_token.h"
#include "api/route.h"

/** The rows of GET /v1/tensors: every kind of query parameter. */
static const struct api_field *list_rows(void)
{
    for (const struct api_route *route = api_tensor_routes; route->path; route++) {
        if (route->method == API_GET && strcmp(route->path, "/v1/tensors") == 0) {
            return route->query;
        }
    }
    abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct st_error error = {0};
    struct api_arena arena = {0};
    struct api_list_query query = {.page_size = 0};
    struct api_query_part part = {.fields = list_rows(), .target = &query};
    char *text = fuzz_text(data, size);
    char last[ST_ID_MAX + 1];
    if (api_query_decode(&arena, text, &part, 1, &error) == ST_OK) {
        fuzz_check(query.labels.count <= ST_LABELS_MAX);
        if (query.page_token) {
            fuzz_check(!api_page_token_read("tensors", 7, query.page_token, last));
        }
    } else {
        fuzz_check(error.message[0] != '\0');
    }
    api_arena_done(&arena);
    free(text);
    return 0;
}
