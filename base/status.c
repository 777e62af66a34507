#include "base/status.h"

static const struct st_status_info status_table[] = {
#define X(name, grpc, http, retryable, text) [grpc] = {#name, http, retryable, text},
    ST_STATUSES(X)
#undef X
};

static const struct st_reason_info reason_table[] = {
#define X(name, status, text) [ST_REASON_##name] = {#name, ST_##status, text},
    ST_REASONS(X)
#undef X
};

const struct st_status_info *st_status_info(enum st_status status)
{
    unsigned row = (unsigned)status;
    if (row >= sizeof(status_table) / sizeof(status_table[0])) {
        row = ST_UNKNOWN;
    }
    return &status_table[row];
}

const struct st_reason_info *st_reason_info(enum st_reason reason)
{
    unsigned row = (unsigned)reason;
    if (row >= ST_REASON_COUNT) {
        row = ST_REASON_NONE;
    }
    return &reason_table[row];
}
