#ifndef SYMTENSOR_TESTS_UNIT_SERVER_REGISTRY_FIXTURE_H
#define SYMTENSOR_TESTS_UNIT_SERVER_REGISTRY_FIXTURE_H

#include "tests/unit/server/node_fixture.h"

/** What the node holds: everything that must come back when tensors and groups go. */
struct holdings {
    uint64_t owned_bytes; /**< Of all devices. */
    unsigned fds;
    unsigned mappings; /**< 0: not compared, as under a sanitizer, which maps as it likes. */
    uint32_t groups, tensors;
};
/** Let malloc stay within one heap, so that mappings are those of the driver. Once, before the node
 * starts. */
void holdings_prepare(void);
struct holdings holdings_of(struct server *server);
void assert_holdings(struct server *server, const struct holdings *expected);

/** A request with the defaults of the HTTP contract. malloc'd: free(). */
struct server_tensor_create *tensor_request(const char *group, const char *id, uint64_t elements);
/** Submit and wait. @return the status of the submission or of the operation. */
enum st_status tensor_make(struct server *server, const char *group, const char *id,
                           uint64_t elements, struct st_error *err);
enum st_status tensor_drop(struct server *server, const char *id, struct st_error *err);
enum st_status group_make(struct server *server, const char *id, uint32_t world_size,
                          struct st_error *err);
enum st_status group_drop(struct server *server, const char *id, bool force, struct st_error *err);
/** @p count tensors called <prefix>0, <prefix>1, ... in one batch. */
enum st_status batch_make(struct server *server, const char *group, const char *prefix,
                          uint32_t count, uint64_t elements, struct st_error *err);
enum st_status batch_drop(struct server *server, const char *prefix, uint32_t count,
                          struct st_error *err);
bool tensor_exists(struct server *server, const char *id);
bool group_exists(struct server *server, const char *id);

#endif
