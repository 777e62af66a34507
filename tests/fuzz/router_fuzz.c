#include "tests/fuzz/fuzz.h"

#include "api/http/router.h"

static struct http_router *router;

/** The first byte is the method, the rest is the path. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct http_found found;
    if (!router && http_router_create(api_route_tables, &router, NULL) != ST_OK) {
        abort();
    }
    if (!size) {
        return 0;
    }
    enum api_method method = (enum api_method)(data[0] % (API_METHOD_COUNT + 1));
    size_t length = size - 1;
    char *path = malloc(length ? length : 1);
    fuzz_check(path != NULL);
    memcpy(path, data + 1, length);
    if (http_router_find(router, method, path, length, &found) == HTTP_MATCH_ROUTE) {
        fuzz_check(found.entry && found.entry->route && found.id_count <= API_PATH_IDS_MAX);
        for (uint32_t i = 0; i < found.id_count; i++) {
            fuzz_check(found.ids[i].at <= length &&
                       found.ids[i].length <= length - found.ids[i].at);
        }
    }
    free(path);
    return 0;
}
