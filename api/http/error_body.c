#include "api/http/error_body.h"

#define RETRY_AFTER_DEFAULT_MS 1000

/** Reasons whose HTTP code is not their status's. */
static const struct {
    enum st_reason reason;
    uint16_t code;
} reason_codes[] = {
    {ST_REASON_LENGTH_REQUIRED, 411},        {ST_REASON_BODY_TOO_LARGE, 413},
    {ST_REASON_UNSUPPORTED_MEDIA_TYPE, 415}, {ST_REASON_RANGE_NOT_SATISFIABLE, 416},
    {ST_REASON_METHOD_NOT_ALLOWED, 405},     {ST_REASON_TRANSFER_STALLED, 408},
};

unsigned http_error_code(const struct st_error *error)
{
    if (error->http_code) {
        return error->http_code;
    }
    for (size_t i = 0; i < sizeof(reason_codes) / sizeof(reason_codes[0]); i++) {
        if (reason_codes[i].reason == error->reason) {
            return reason_codes[i].code;
        }
    }
    return st_status_info(error->status)->http;
}

bool http_error_retryable(const struct st_error *error)
{
    /* A body that is too large stays so, though the status of both is RESOURCE_EXHAUSTED. */
    return st_status_info(error->status)->retryable && error->reason != ST_REASON_BODY_TOO_LARGE;
}

uint32_t http_error_retry_after_ms(const struct st_error *error)
{
    if (error->retry_after_ms || !http_error_retryable(error)) {
        return error->retry_after_ms;
    }
    /* What was ABORTED may be tried again at once: the other request has been accepted. */
    return error->status == ST_ABORTED ? 0 : RETRY_AFTER_DEFAULT_MS;
}

void http_error_write(struct api_text *text, const char *key, const struct st_error *error)
{
    api_json_begin(text, key);
    api_json_uint(text, "code", http_error_code(error));
    api_json_string(text, "status", st_status_info(error->status)->name);
    api_json_string(text, "message", error->message);
    api_json_bool(text, "retryable", http_error_retryable(error));
    if (http_error_retry_after_ms(error)) {
        api_json_uint(text, "retry_after_ms", http_error_retry_after_ms(error));
    }
    api_json_begin_array(text, "details");
    api_json_begin(text, NULL);
    api_json_string(text, "reason", st_reason_info(error->reason)->name);
    if (error->field[0]) {
        api_json_string(text, "field", error->field);
    }
    for (uint32_t i = 0; i < error->detail_count; i++) {
        api_json_string(text, error->details[i].key, error->details[i].value);
    }
    api_json_end(text);
    api_json_end_array(text);
    api_json_end(text);
}
