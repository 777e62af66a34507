#ifndef SYMTENSOR_BASE_STATUS_H
#define SYMTENSOR_BASE_STATUS_H

#include <stdbool.h>
#include <stdint.h>

#define ST_MUST_CHECK __attribute__((warn_unused_result))
#define ST_PRINTF(format_index, first) __attribute__((format(printf, format_index, first)))

/**
 * The canonical gRPC codes: name, gRPC number, HTTP code, whether a client may simply try again,
 * text. Source: google/rpc/code.proto (numbers and HTTP mapping).
 */
#define ST_STATUSES(X)                                                                             \
    X(OK, 0, 200, false, "success")                                                                \
    X(CANCELLED, 1, 499, false, "cancelled by the caller")                                         \
    X(UNKNOWN, 2, 500, false, "unknown error")                                                     \
    X(INVALID_ARGUMENT, 3, 400, false, "the request is wrong whatever the state of the server")    \
    X(DEADLINE_EXCEEDED, 4, 504, false, "the deadline passed")                                     \
    X(NOT_FOUND, 5, 404, false, "no such resource")                                                \
    X(ALREADY_EXISTS, 6, 409, false, "the id is taken")                                            \
    X(PERMISSION_DENIED, 7, 403, false, "the caller may not do this")                              \
    X(RESOURCE_EXHAUSTED, 8, 429, true, "no room now")                                             \
    X(FAILED_PRECONDITION, 9, 400, false, "the state of the server does not allow this")           \
    X(ABORTED, 10, 409, true, "another request was first")                                         \
    X(OUT_OF_RANGE, 11, 400, false, "past the end")                                                \
    X(UNIMPLEMENTED, 12, 501, false, "this server does not do this")                               \
    X(INTERNAL, 13, 500, false, "an invariant of the server broke")                                \
    X(UNAVAILABLE, 14, 503, true, "the server cannot answer now")                                  \
    X(DATA_LOSS, 15, 500, false, "data was lost")                                                  \
    X(UNAUTHENTICATED, 16, 401, false, "the caller is not known")

enum st_status {
#define X(name, grpc, http, retryable, text) ST_##name = (grpc),
    ST_STATUSES(X)
#undef X
};

/** One row of the status table. */
struct st_status_info {
    const char *name; /**< As printed: "INVALID_ARGUMENT". */
    uint16_t http;    /**< Default HTTP code. */
    bool retryable;
    const char *text;
};

/** The row of @p status; of UNKNOWN for a value outside the table. Thread: any. */
const struct st_status_info *st_status_info(enum st_status status);

/**
 * Machine-readable reasons: name, canonical status, text. One row serves the error that is sent,
 * the documentation and the tests.
 */
#define ST_REASONS(X)                                                                              \
    X(NONE, UNKNOWN, "no further reason")                                                          \
    /* The shape of a request. */                                                                  \
    X(INVALID_VALUE, INVALID_ARGUMENT, "a field's value is outside its range")                     \
    X(INVALID_TYPE, INVALID_ARGUMENT, "a field has another JSON type than documented")             \
    X(UNKNOWN_FIELD, INVALID_ARGUMENT, "the request holds a field that does not exist")            \
    X(MISSING_FIELD, INVALID_ARGUMENT, "a required field is absent")                               \
    X(INVALID_JSON, INVALID_ARGUMENT, "the body is not one JSON object in UTF-8")                  \
    X(INVALID_ID, INVALID_ARGUMENT, "an id does not match the grammar of ids")                     \
    X(INVALID_PATH, INVALID_ARGUMENT, "the request path holds escapes or other bytes")             \
    X(INVALID_HEADER, INVALID_ARGUMENT, "a header is malformed or repeated")                       \
    X(INVALID_QUERY, INVALID_ARGUMENT, "a query parameter is unknown, repeated or malformed")      \
    X(INVALID_PAGE_TOKEN, INVALID_ARGUMENT, "the page token is not one of this list")              \
    X(LENGTH_REQUIRED, INVALID_ARGUMENT, "the request has no length")                              \
    X(UNSUPPORTED_MEDIA_TYPE, INVALID_ARGUMENT, "the content type is not one that is read here")   \
    X(BODY_TOO_LARGE, RESOURCE_EXHAUSTED, "the body is larger than the limit")                     \
    X(BODY_LENGTH_MISMATCH, INVALID_ARGUMENT, "the body has another length than the data")         \
    X(DIGEST_MISMATCH, INVALID_ARGUMENT, "the body does not match its digest")                     \
    X(RANGE_NOT_SATISFIABLE, OUT_OF_RANGE, "the byte range lies outside the data")                 \
    X(METHOD_NOT_ALLOWED, UNIMPLEMENTED, "the path exists, the method does not")                   \
    X(ROUTE_NOT_FOUND, NOT_FOUND, "no such path")                                                  \
    X(NOT_AVAILABLE_YET, UNIMPLEMENTED, "reserved for a later version")                            \
    X(FOREIGN_HOST, PERMISSION_DENIED, "the Host or Origin header names another site")             \
    X(FOREIGN_USER, PERMISSION_DENIED, "this user may not use the socket")                         \
    X(ROLE_REQUIRED, PERMISSION_DENIED, "the role of the caller does not allow this")              \
    /* Tensors and memory. */                                                                      \
    X(SHAPE_OVERFLOW, INVALID_ARGUMENT, "the number of elements or bytes overflows")               \
    X(NOT_CONTIGUOUS, INVALID_ARGUMENT, "the strides have gaps or overlap")                        \
    X(EXCEEDS_DEVICE_CAPACITY, FAILED_PRECONDITION, "larger than the device can ever hold")        \
    X(GPU_MEMORY_EXHAUSTED, RESOURCE_EXHAUSTED, "no room on the device now")                       \
    X(NO_PEER_ACCESS, FAILED_PRECONDITION, "two devices cannot reach each other's memory")         \
    X(MULTICAST_UNAVAILABLE, FAILED_PRECONDITION, "multicast was required and cannot be had")      \
    X(FD_LIMIT, RESOURCE_EXHAUSTED, "the process is out of file descriptors")                      \
    X(MAP_LIMIT, RESOURCE_EXHAUSTED, "the process is out of memory mappings")                      \
    X(DEVICE_DEGRADED, UNAVAILABLE, "a driver call of the device hangs")                           \
    X(DEVICE_LOST, UNAVAILABLE, "the device reports an error that does not go away")               \
    X(DEVICE_UNAVAILABLE, UNAVAILABLE, "the device could not be opened at start")                  \
    X(DRIVER_ERROR, INTERNAL, "the driver reported an unexpected error")                           \
    X(NO_KERNELS, FAILED_PRECONDITION, "the driver cannot load the kernels")                       \
    X(CONTENTS_UNDEFINED, FAILED_PRECONDITION, "a shard's contents are undefined")                 \
    X(TENSOR_BUSY, ABORTED, "a shard is being written")                                            \
    X(TENSOR_IN_USE, FAILED_PRECONDITION, "the tensor is attached or viewed")                      \
    X(GENERATION_MISMATCH, ABORTED, "the contents changed since they were read")                   \
    X(ETAG_MISMATCH, FAILED_PRECONDITION, "the resource changed since it was read")                \
    X(NPY_DTYPE, INVALID_ARGUMENT, "npy has no such dtype")                                        \
    X(NPY_INVALID, INVALID_ARGUMENT, "the npy header is malformed or does not fit the tensor")     \
    X(OUT_OF_RANGE_VALUE, OUT_OF_RANGE, "a value does not fit the dtype")                          \
    X(OVERLAP, INVALID_ARGUMENT, "source and destination overlap in part")                         \
    X(RANGE_OUT_OF_BOUNDS, OUT_OF_RANGE, "a byte range lies outside the shard")                    \
    X(RANK_OUT_OF_RANGE, OUT_OF_RANGE, "no such rank in the group")                                \
    /* Collectives. */                                                                             \
    X(SHAPE_MISMATCH, INVALID_ARGUMENT, "the shapes do not fit the collective")                    \
    X(DTYPE_MISMATCH, INVALID_ARGUMENT, "input and output differ in dtype")                        \
    X(GROUP_MISMATCH, INVALID_ARGUMENT, "the tensors belong to different groups")                  \
    X(UNSUPPORTED_OP, INVALID_ARGUMENT, "the op does not exist for the dtype")                     \
    X(UNSUPPORTED_ALGORITHM, INVALID_ARGUMENT,                                                     \
      "the algorithm does not fit; details list those that do")                                    \
    X(NOT_DETERMINISTIC, INVALID_ARGUMENT, "the algorithm needs \"deterministic\": false")         \
    /* Registry. */                                                                                \
    X(GROUP_NOT_FOUND, NOT_FOUND, "no such group")                                                 \
    X(TENSOR_NOT_FOUND, NOT_FOUND, "no such tensor")                                               \
    X(DEVICE_NOT_FOUND, NOT_FOUND, "no such device")                                               \
    X(OPERATION_NOT_FOUND, NOT_FOUND, "no such operation")                                         \
    X(MULTICAST_GROUP_NOT_FOUND, NOT_FOUND, "no such multicast object")                            \
    X(NODE_NOT_FOUND, NOT_FOUND, "no such node")                                                   \
    X(ID_TAKEN, ALREADY_EXISTS, "the id is taken")                                                 \
    X(GROUP_NOT_EMPTY, FAILED_PRECONDITION, "the group still has tensors")                         \
    X(GROUP_NOT_READY, FAILED_PRECONDITION, "the group is being made, has failed or is going")     \
    X(TENSOR_NOT_READY, FAILED_PRECONDITION, "the tensor is being made or is going")               \
    X(TOO_MANY_OPERATIONS, RESOURCE_EXHAUSTED, "the queue is full")                                \
    X(TOO_MANY_RESOURCES, RESOURCE_EXHAUSTED, "a limit of GET /v1/node is reached")                \
    X(TOO_MANY_REPLIES, RESOURCE_EXHAUSTED, "too many bytes of replies wait to be read")           \
    X(TOO_MANY_TRANSFERS, RESOURCE_EXHAUSTED, "too many data bodies are in flight")                \
    X(NODE_DRAINING, UNAVAILABLE, "the node is draining")                                          \
    X(NODE_STARTING, UNAVAILABLE, "the devices are being opened")                                  \
    X(OPERATION_CANCELLED, CANCELLED, "the operation was cancelled")                               \
    X(OPERATION_DONE, FAILED_PRECONDITION, "the operation has ended already")                      \
    X(OPERATION_DEADLINE, DEADLINE_EXCEEDED, "the deadline passed")                                \
    X(TRANSFER_STALLED, DEADLINE_EXCEEDED, "the body made no progress")                            \
    X(TRANSFER_ABORTED, CANCELLED, "the client went away before its request was over")             \
    /* Start-up. */                                                                                \
    X(INVALID_OPTION, INVALID_ARGUMENT, "an option's value is wrong")                              \
    X(ADDRESS_IN_USE, UNAVAILABLE, "a listen address is in use")                                   \
    X(NO_DRIVER, FAILED_PRECONDITION, "no driver of the wanted kind")                              \
    X(SYSTEM_ERROR, INTERNAL, "the operating system refused")                                      \
    X(OUT_OF_MEMORY, RESOURCE_EXHAUSTED, "the server is out of host memory")

enum st_reason {
#define X(name, status, text) ST_REASON_##name,
    ST_REASONS(X)
#undef X
        ST_REASON_COUNT
};

/** One row of the reason table. */
struct st_reason_info {
    const char *name;
    enum st_status status;
    const char *text;
};

/** The row of @p reason; of NONE for a value outside the table. Thread: any. */
const struct st_reason_info *st_reason_info(enum st_reason reason);

#endif
