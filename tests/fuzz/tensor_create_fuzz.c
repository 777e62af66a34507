#include "tests/fuzz/fuzz.h"

#include "api/http/json_scan.h"
#include "api/resources/tensor_body.h"
#include "base/id.h"

/** A body that was accepted holds only what its rows promise. */
static void check_body(const struct api_tensor_body *body)
{
    struct server_tensor_create create;
    uint64_t elements, bytes;
    fuzz_check(st_id_is_valid(body->group, strlen(body->group)));
    fuzz_check(body->dtype < ST_DTYPE_COUNT && body->shape.rank <= ST_SHAPE_RANK_MAX);
    fuzz_check(body->labels.count <= ST_LABELS_MAX);
    api_tensor_create_fill(body, &create);
    if (st_shape_measure(&create.shape, create.dtype, &elements, &bytes, NULL) == ST_OK) {
        fuzz_check(bytes <= ST_JSON_INTEGER_MAX);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct st_error error = {0};
    json_t *object = NULL;
    char *text = malloc(size ? size : 1);
    fuzz_check(text != NULL);
    memcpy(text, data, size);
    if (http_json_parse(text, size, &object, &error) == ST_OK) {
        struct api_arena arena = {0};
        struct api_decoding decoding = {.arena = &arena};
        struct api_tensor_body body = {.group = ""};
        if (api_fields_decode(&decoding, api_tensor_fields, object, &body, &error) == ST_OK) {
            check_body(&body);
        } else {
            fuzz_check(error.message[0] != '\0');
        }
        struct api_tensor_patch_body patch = {0};
        decoding = (struct api_decoding){.arena = &arena};
        if (api_fields_decode(&decoding, api_tensor_patch_fields, object, &patch, &error) ==
            ST_OK) {
            fuzz_check(patch.labels.set_count + patch.labels.remove_count <= 2 * ST_LABELS_MAX);
        }
        api_arena_done(&arena);
        json_decref(object);
    }
    free(text);
    return 0;
}
