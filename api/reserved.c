#include "api/route.h"

/** A path of a later version. Clients learn from 501 that it is known and not served yet. */
#define RESERVED(verb, template, text)                                                             \
    {                                                                                              \
        .method = (verb), .path = (template), .role = SERVER_ROLE_VIEWER,                          \
        .flags = API_ROUTE_RESERVED, .summary = (text), .success = "200",                          \
    }

const struct api_route api_reserved_routes[] = {
    RESERVED(API_GET, "/openapi.json", "Description of the interface."),
    RESERVED(API_GET, "/v1/node/manifest", "What recreates the node's resources."),
    RESERVED(API_POST, "/v1/node:apply", "Recreate resources from a manifest."),
    RESERVED(API_POST, "/v1/node:drain", "Refuse changes and let work end."),
    RESERVED(API_POST, "/v1/node:undrain", "Take changes again."),
    RESERVED(API_POST, "/v1/groups/{group}:shrink", "Go on without failed ranks."),
    RESERVED(API_GET, "/v1/bundles", "List bundles."),
    RESERVED(API_POST, "/v1/bundles", "Create a bundle."),
    RESERVED(API_GET, "/v1/bundles/{bundle}", "Get a bundle."),
    RESERVED(API_DELETE, "/v1/bundles/{bundle}", "Delete a bundle."),
    RESERVED(API_POST, "/v1/bundles/{bundle}:publish", "Hand new contents to the holders."),
    RESERVED(API_GET, "/v1/bundles/{bundle}/attachments", "List attachments of a bundle."),
    RESERVED(API_POST, "/v1/bundles/{bundle}/attachments", "Offer a bundle to a process."),
    RESERVED(API_GET, "/v1/bundles/{bundle}/attachments/{attachment}", "Get an attachment."),
    RESERVED(API_DELETE, "/v1/bundles/{bundle}/attachments/{attachment}", "End an attachment."),
    RESERVED(API_POST, "/v1/tensors:load", "Load tensors from files."),
    RESERVED(API_POST, "/v1/tensors:save", "Save tensors to files."),
    RESERVED(API_POST, "/v1/tensors/{tensor}:validate", "Compare contents with what is expected."),
    RESERVED(API_GET, "/v1/tensors/{tensor}/views", "List contiguous views."),
    RESERVED(API_POST, "/v1/tensors/{tensor}/views", "Create a contiguous view."),
    RESERVED(API_GET, "/v1/tensors/{tensor}/views/{view}", "Get a contiguous view."),
    RESERVED(API_DELETE, "/v1/tensors/{tensor}/views/{view}", "Delete a contiguous view."),
    RESERVED(API_GET, "/v1/tensors/{tensor}/views/{view}/data", "Read all shards of a tensor."),
    RESERVED(API_GET, "/v1/tensors/{tensor}/attachments", "List attachments of a tensor."),
    RESERVED(API_POST, "/v1/tensors/{tensor}/attachments", "Offer a tensor to a process."),
    RESERVED(API_GET, "/v1/tensors/{tensor}/attachments/{attachment}", "Get an attachment."),
    RESERVED(API_DELETE, "/v1/tensors/{tensor}/attachments/{attachment}", "End an attachment."),
    RESERVED(API_GET, "/v1/session", "Open a session that carries file descriptors."),
    RESERVED(API_GET, "/v1/programs", "List programs."),
    RESERVED(API_POST, "/v1/programs", "Create a program."),
    RESERVED(API_GET, "/v1/programs/{program}", "Get a program."),
    RESERVED(API_DELETE, "/v1/programs/{program}", "Delete a program."),
    RESERVED(API_POST, "/v1/programs/{program}:run", "Run a program."),
    RESERVED(API_POST, "/v1/programs/{program}:replace_output", "Replace an output of a program."),
    RESERVED(API_POST, "/v1/programs/{program}:explain", "Show what a program was lowered to."),
    RESERVED(API_GET, "/v1/programs/{program}/trace", "Show a program's last run."),
    RESERVED(API_GET, "/v1/peers", "List peers."),
    RESERVED(API_POST, "/v1/peers", "Add a peer."),
    RESERVED(API_GET, "/v1/peers/{peer}", "Get a peer."),
    RESERVED(API_DELETE, "/v1/peers/{peer}", "Remove a peer."),
    RESERVED(API_GET, "/v1/events", "Follow what changes."),
    {0},
};
