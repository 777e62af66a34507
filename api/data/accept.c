#include "api/data/accept.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <strings.h>

/** One element of the header. */
struct element {
    const char *range; /**< [range_bytes] "type/subtype" */
    size_t range_bytes;
    unsigned quality; /**< Thousandths. */
};

/** "0.5" as thousandths; what is no quality counts as 1. */
static unsigned quality_read(const char *text)
{
    if (text[0] != '0') {
        return 1000;
    }
    unsigned quality = 0, unit = 100;
    if (text[1] == '.') {
        for (const char *at = text + 2; *at >= '0' && *at <= '9' && unit; at++, unit /= 10) {
            quality += (unsigned)(*at - '0') * unit;
        }
    }
    return quality;
}

/** Read the element at @p text. @return behind its comma, or its end. */
static const char *element_read(const char *text, struct element *element)
{
    text += strspn(text, " \t");
    const char *end = text + strcspn(text, ",");
    element->range = text;
    element->range_bytes = strcspn(text, ",; \t");
    element->quality = 1000;
    const char *at = text;
    while ((at = memchr(at, ';', (size_t)(end - at)))) {
        at += 1 + strspn(at + 1, " \t");
        if (strncasecmp(at, "q=", 2) == 0) {
            element->quality = quality_read(at + 2);
        }
    }
    return *end ? end + 1 : end;
}

/** How closely a range names a type: 0 not at all, 1 any type, 2 any of its kind, 3 itself. */
static int element_closeness(const struct element *element, const char *type)
{
    size_t kind = strcspn(type, "/") + 1;
    if (element->range_bytes == strlen(type) &&
        strncasecmp(element->range, type, element->range_bytes) == 0) {
        return 3;
    }
    if (element->range_bytes == kind + 1 && strncasecmp(element->range, type, kind) == 0 &&
        element->range[kind] == '*') {
        return 2;
    }
    return element->range_bytes == 3 && memcmp(element->range, "*/*", 3) == 0;
}

static unsigned type_quality(const char *header, const char *type)
{
    unsigned quality = 0;
    int closest = 0;
    while (*header) {
        struct element element;
        header = element_read(header, &element);
        int closeness = element_closeness(&element, type);
        if (closeness > closest) {
            closest = closeness;
            quality = element.quality;
        }
    }
    return quality;
}

int data_accept_choose(const char *header, const char *const *types)
{
    if (!header || !header[strspn(header, " \t")]) {
        return 0;
    }
    int best = -1;
    unsigned best_quality = 0;
    for (int i = 0; types[i]; i++) {
        unsigned quality = type_quality(header, types[i]);
        if (quality > best_quality) {
            best = i;
            best_quality = quality;
        }
    }
    return best;
}
