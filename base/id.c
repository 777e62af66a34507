#include "base/id.h"

#include <errno.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>

static bool id_is_word(char c)
{
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
}

bool st_id_is_valid(const char *id, size_t length)
{
    if (length == 0 || length > ST_ID_MAX || !id_is_word(id[0]) || id[length - 1] == '.') {
        return false;
    }
    for (size_t i = 1; i < length; i++) {
        if (id[i] == '.' && id[i - 1] == '.') {
            return false;
        }
        if (!id_is_word(id[i]) && id[i] != '.' && id[i] != '-') {
            return false;
        }
    }
    return true;
}

/** Ids must never repeat, so there is no weaker source to fall back to. */
static void id_random(void *buffer, size_t size)
{
    ssize_t got;
    do {
        got = getrandom(buffer, size, 0);
    } while (got < 0 && errno == EINTR);
    if (got < 0 || (size_t)got != size) {
        abort();
    }
}

void st_uid_make(char uid[static ST_UID_BYTES])
{
    uint8_t b[16];
    id_random(b, sizeof(b));
    b[6] = (uint8_t)((b[6] & 0x0f) | 0x40); /* version 4, RFC 9562 section 5.4 */
    b[8] = (uint8_t)((b[8] & 0x3f) | 0x80); /* variant 10 */
    snprintf(uid, ST_UID_BYTES,
             "%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0], b[1],
             b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13], b[14],
             b[15]);
}

void st_id_make(const char *prefix, char *buffer, size_t size)
{
    uint64_t number;
    id_random(&number, sizeof(number));
    snprintf(buffer, size, "%s-%016" PRIx64, prefix, number);
}
