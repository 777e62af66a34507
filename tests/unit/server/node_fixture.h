#ifndef SYMTENSOR_TESTS_UNIT_SERVER_NODE_FIXTURE_H
#define SYMTENSOR_TESTS_UNIT_SERVER_NODE_FIXTURE_H

#include "tests/support/leak_check.h"

#include "server/server.h"

/**
 * A node on the software driver inside the test's process, driven through server/server.h. What a
 * test expects to succeed fails the test when it does not; what may fail returns its status.
 */

extern const struct server_caller node_caller; /**< An operator without a deadline. */

struct server *node_start(uint32_t devices, uint64_t device_memory_bytes);
void node_stop(struct server *server);

/** A group of @p world_size ranks spread over the devices in turn. */
void node_group(struct server *server, const char *id, uint32_t world_size, uint32_t devices);
/** A row-major tensor of one dimension. */
void node_tensor(struct server *server, const char *group, const char *id, enum st_dtype dtype,
                 uint64_t elements);
void node_tensor_shaped(struct server *server, const char *group, const char *id,
                        enum st_dtype dtype, const struct st_shape *shape);
void node_tensor_delete(struct server *server, const char *id);

/** Wait for the end and let go of the operation. @return its last state, to be released. */
struct server_operation_view *node_finish(struct server_operation *operation);
/** The same; only the status counts: of the error, or ST_OK. */
enum st_status node_finish_status(struct server_operation *operation, struct st_error *err);

/** A request with the defaults of the HTTP contract; @p output may be NULL. */
struct server_collective_request node_collective_request(const char *verb, const char *tensor,
                                                         const char *output, enum st_reduce_op op,
                                                         uint32_t root);
/** Submit and wait; fails the test unless it succeeds. */
void node_collective(struct server *server, const struct server_collective_request *request);

/** Move a whole shard, or what the request says. @return the status of the transfer. */
enum st_status node_put(struct server *server, const char *tensor, uint32_t rank, const void *data,
                        uint64_t bytes, struct st_error *err);
enum st_status node_put_request(struct server *server,
                                const struct server_transfer_request *request, const void *data,
                                uint64_t bytes, struct st_error *err);
enum st_status node_get(struct server *server, const char *tensor, uint32_t rank, void *data,
                        uint64_t bytes, struct st_error *err);

/** One's own hand on a transfer: its thread sleeps until notify. */
struct node_transfer {
    struct server_transfer *transfer;
    struct node_signal *signal;
};
enum st_status node_upload_open(struct server *server,
                                const struct server_transfer_request *request,
                                struct node_transfer *ret, struct st_error *err);
enum st_status node_download_open(struct server *server,
                                  const struct server_transfer_request *request,
                                  struct node_transfer *ret, struct st_error *err);
/** A whole-shard request. */
struct server_transfer_request node_transfer_request(const char *tensor, uint32_t rank);
/** Wait until it is not WAITING, or for @p timeout_ms: WAITING then. */
enum server_transfer_state node_transfer_wait(struct node_transfer *transfer, uint32_t timeout_ms,
                                              struct st_error *err);
/** Write all bytes; false when it failed on the way. */
bool node_upload_bytes(struct node_transfer *transfer, const void *data, uint64_t bytes,
                       struct st_error *err);
bool node_download_bytes(struct node_transfer *transfer, void *data, uint64_t bytes,
                         struct st_error *err);
void node_transfer_close(struct node_transfer *transfer);

/** Contents of one shard. */
struct server_contents node_contents(struct server *server, const char *tensor, uint32_t rank);
/** State of an operation now. */
enum server_operation_state node_operation_state(struct server_operation *operation);

#endif
