#include "api/route.h"

const struct api_route *const api_route_tables[] = {
    api_probe_routes,
    api_node_routes,
    api_device_routes,
    api_multicast_routes,
    api_group_routes,
    api_tensor_routes,
    api_verb_routes,
    api_data_routes,
    api_operation_routes,
    api_reserved_routes,
    NULL,
};
