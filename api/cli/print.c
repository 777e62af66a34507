#include "api/cli/print.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define COLUMNS_MAX 12
#define CELL_MAX 40

static char *cell_text(const json_t *value)
{
    if (!value || json_is_null(value)) {
        return strdup("-");
    }
    if (json_is_string(value)) {
        return strdup(json_string_value(value));
    }
    return json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);
}

static void print_resource(const json_t *object, FILE *to)
{
    const char *key = NULL;
    json_t *value = NULL;
    int width = 0;
    json_object_foreach((json_t *)(uintptr_t)object, key, value)
    {
        int length = (int)strlen(key);
        width = length > width ? length : width;
    }
    json_object_foreach((json_t *)(uintptr_t)object, key, value)
    {
        char *text = cell_text(value);
        fprintf(to, "%-*s  %s\n", width, key, text ? text : "");
        free(text);
    }
}

/* The columns of a list: what the first item holds and a cell can show. */
static unsigned choose_columns(const json_t *first, const char *columns[static COLUMNS_MAX])
{
    unsigned count = 0;
    const char *key = NULL;
    json_t *value = NULL;
    json_object_foreach((json_t *)(uintptr_t)first, key, value)
    {
        char *text = cell_text(value);
        if (text && strlen(text) <= CELL_MAX && count < COLUMNS_MAX && !json_is_object(value)) {
            columns[count++] = key;
        }
        free(text);
    }
    return count;
}

static int column_width(const json_t *items, const char *column)
{
    int width = (int)strlen(column);
    for (size_t i = 0; i < json_array_size(items); i++) {
        char *text = cell_text(json_object_get(json_array_get(items, i), column));
        int length = text ? (int)strlen(text) : 0;
        width = length > width ? length : width;
        free(text);
    }
    return width < CELL_MAX ? width : CELL_MAX;
}

static void print_list(const json_t *items, FILE *to)
{
    const char *columns[COLUMNS_MAX];
    int widths[COLUMNS_MAX];
    unsigned count = choose_columns(json_array_get(items, 0), columns);
    for (unsigned c = 0; c < count; c++) {
        widths[c] = column_width(items, columns[c]);
        fprintf(to, "%-*s%s", widths[c], columns[c], c + 1 < count ? "  " : "\n");
    }
    for (size_t i = 0; i < json_array_size(items); i++) {
        for (unsigned c = 0; c < count; c++) {
            char *text = cell_text(json_object_get(json_array_get(items, i), columns[c]));
            fprintf(to, "%-*.*s%s", widths[c], widths[c], text ? text : "",
                    c + 1 < count ? "  " : "\n");
            free(text);
        }
    }
}

void cli_print(const json_t *reply, FILE *to)
{
    const char *key = NULL;
    json_t *value = NULL;
    if (json_object_get(reply, "next_page_token")) {
        json_object_foreach((json_t *)(uintptr_t)reply, key, value)
        {
            if (json_is_array(value) && json_array_size(value) > 0) {
                print_list(value, to);
            }
        }
        const char *token = json_string_value(json_object_get(reply, "next_page_token"));
        if (token && *token) {
            fprintf(to, "more: --page_token %s\n", token);
        }
        return;
    }
    print_resource(reply, to);
}
