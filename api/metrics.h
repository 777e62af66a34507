#ifndef SYMTENSOR_API_METRICS_H
#define SYMTENSOR_API_METRICS_H

#include "api/http/front.h"
#include "api/http/router.h"
#include "api/text.h"
#include "server/server.h"

/** Where the figures come from. */
struct api_metrics_source {
    struct server *server;
    const struct http_router *router;
    struct http_front_metrics front;
};

/** Write all metrics as Prometheus text (version 0.0.4). Waits for nothing but the registry's lock.
 */
void api_metrics_write(struct api_text *text, const struct api_metrics_source *source);

#endif
