#include <string.h>
#include <strings.h>

#include "api/http/exchange.h"

bool http_host_split(const char *text, struct http_host *ret_host)
{
    const char *rest;
    if (text[0] == '[') {
        const char *end = strchr(text, ']');
        if (!end) {
            return false;
        }
        *ret_host = (struct http_host){.text = text + 1, .length = (size_t)(end - text - 1)};
        rest = end + 1;
    } else {
        *ret_host = (struct http_host){.text = text, .length = strcspn(text, ":")};
        rest = text + ret_host->length;
    }
    if (*rest == ':') {
        rest++;
        rest += strspn(rest, "0123456789");
    }
    return !*rest && ret_host->length;
}

bool http_host_allowed(const struct http_front *front, const char *host)
{
    struct http_host given;
    if (!http_host_split(host, &given)) {
        return false;
    }
    for (uint32_t i = 0; i < front->host_count; i++) {
        const struct http_host *known = &front->hosts[i];
        if (known->length == given.length &&
            strncasecmp(known->text, given.text, given.length) == 0) {
            return true;
        }
    }
    return false;
}

bool http_origin_allowed(const struct http_front *front, const char *origin)
{
    static const char *const schemes[] = {"http://", "https://"};
    for (size_t i = 0; i < sizeof(schemes) / sizeof(schemes[0]); i++) {
        size_t length = strlen(schemes[i]);
        if (strncasecmp(origin, schemes[i], length) == 0) {
            return http_host_allowed(front, origin + length);
        }
    }
    return false;
}
