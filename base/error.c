#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define QUOTE_INPUT_MAX 64
#define QUOTE_BYTES 80

/** Fill every field but the message's text, and the message's prefix. @return bytes of the prefix.
 */
static size_t error_begin(struct st_error *err, enum st_status status, enum st_reason reason,
                          const char *field)
{
    *err = (struct st_error){.status = status, .reason = reason};
    if (!field || !field[0]) {
        return 0;
    }
    snprintf(err->field, sizeof(err->field), "%s", field);
    snprintf(err->message, sizeof(err->message), "%s: ", err->field);
    return strlen(err->message);
}

enum st_status st_error_fill(struct st_error *err, enum st_reason reason, const char *field,
                             const char *format, ...)
{
    enum st_status status = st_reason_info(reason)->status;
    if (!err) {
        return status;
    }
    size_t prefix = error_begin(err, status, reason, field);
    va_list args;
    va_start(args, format);
    vsnprintf(err->message + prefix, sizeof(err->message) - prefix, format, args);
    va_end(args);
    return status;
}

enum st_status st_error_fill_as(struct st_error *err, enum st_status status, enum st_reason reason,
                                const char *field, const char *format, ...)
{
    if (!err) {
        return status;
    }
    size_t prefix = error_begin(err, status, reason, field);
    va_list args;
    va_start(args, format);
    vsnprintf(err->message + prefix, sizeof(err->message) - prefix, format, args);
    va_end(args);
    return status;
}

void st_error_add_detail(struct st_error *err, const char *key, const char *format, ...)
{
    if (!err || err->detail_count >= ST_ERROR_DETAILS_MAX) {
        return;
    }
    struct st_error_detail *detail = &err->details[err->detail_count++];
    detail->key = key;
    va_list args;
    va_start(args, format);
    vsnprintf(detail->value, sizeof(detail->value), format, args);
    va_end(args);
}

const char *st_error_quote(const char *text, char buffer[static QUOTE_BYTES])
{
    static const char cut_mark[] = "...";
    size_t length = 0;
    for (size_t i = 0; text[i]; i++) {
        unsigned char byte = (unsigned char)text[i];
        char piece[8];
        if (byte >= 0x20 && byte < 0x7f) {
            snprintf(piece, sizeof(piece), "%c", byte);
        } else {
            snprintf(piece, sizeof(piece), "\\x%02x", (unsigned)byte);
        }
        size_t room = QUOTE_BYTES - sizeof(cut_mark) - length;
        if (i == QUOTE_INPUT_MAX || strlen(piece) > room) {
            memcpy(buffer + length, cut_mark, sizeof(cut_mark));
            return buffer;
        }
        memcpy(buffer + length, piece, strlen(piece));
        length += strlen(piece);
    }
    buffer[length] = '\0';
    return buffer;
}
