#ifndef SYMTENSOR_BASE_LIMITS_H
#define SYMTENSOR_BASE_LIMITS_H

/**
 * Every bound of the program, in one place. What a client can meet is also shown by GET /v1/node
 * ("limits"); static asserts at the end relate the ones that must fit into each other.
 */

/* Names and text. */
#define ST_ID_MAX 255            /**< Bytes of an id. */
#define ST_UID_BYTES 37          /**< Text of a UUID with its terminator. */
#define ST_ERROR_FIELD_MAX 96    /**< Bytes of the field path in an error, terminator included. */
#define ST_ERROR_MESSAGE_MAX 512 /**< Bytes of an error message, terminator included. */
#define ST_ERROR_DETAILS_MAX 4   /**< Extra key/value pairs of an error. */
#define ST_LABELS_MAX 32         /**< Labels of one resource. */
#define ST_LABEL_KEY_MAX 63      /**< Bytes of a label's key. */
#define ST_LABEL_VALUE_MAX 255   /**< Bytes of a label's value. */

/* Tensors. */
#define ST_SHAPE_RANK_MAX 8 /**< Dimensions of a shape. */
#define ST_JSON_INTEGER_MAX                                                                        \
    9007199254740991LL /**< 2^53-1: the largest integer accepted in JSON.                          \
                        */

/* Groups. */
#define ST_WORLD_SIZE_MAX 8192 /**< Ranks of a group, over all nodes. */
#define ST_NODE_RANKS_MAX 64   /**< Ranks of a group on one node: they ride in kernel parameters. */
#define ST_DEVICES_MAX 64      /**< Devices of a node. */

/* Registry. */
#define ST_GROUPS_MAX 1024
#define ST_TENSORS_MAX 100000
#define ST_BATCH_MAX 1000             /**< Items of one batch. */
#define ST_OPERATIONS_QUEUED_MAX 1024 /**< Accepted and unfinished operations of one group. */
#define ST_OPERATIONS_KEPT_MAX 10000  /**< Finished operations that stay readable. */
#define ST_OPERATION_KEPT_SECONDS 3600
#define ST_OPERATIONS_KEPT_BYTES (128u << 20) /**< Of their records, replies not counted. */
#define ST_OPERATION_WAITERS_MAX 4096         /**< Requests that wait for operations, node-wide. */
#define ST_TRANSFERS_MAX 256 /**< Data bodies in flight, both directions together. */
#define ST_TRANSFERS_PRINCIPAL_MAX (ST_TRANSFERS_MAX / 2) /**< Of these, of one principal. */
#define ST_PAGE_SIZE_DEFAULT 50
#define ST_PAGE_SIZE_MAX 1000

#define ST_INLINE_BYTES                                                                            \
    (1u << 20) /**< Work that reads no more in all may run inside the call that submits it.        \
                */
#define ST_SCRATCH_KEPT_BYTES (16u << 20) /**< Per rank: scratch that a group keeps for reuse. */

#define ST_GRAPHS_MAX 256       /**< Collectives whose launches are kept for replay, node-wide. */
#define ST_GRAPH_NODES_MAX 1024 /**< Launches and copies of one of them, on one device. */

/* Time. */
#define ST_WAIT_SECONDS_DEFAULT 10
#define ST_WAIT_SECONDS_MAX 600
#define ST_TRANSFER_STALL_SECONDS 10 /**< A body without progress for so long is cut. */
#define ST_TRANSFER_CUT_SECONDS 15   /**< Its connection after so long without a byte. */
#define ST_TRANSFER_RATE_MIN 1024    /**< Bytes a second: a slower body is cut too. */
#define ST_DRIVER_CALL_SECONDS                                                                     \
    30 /**< A driver call that takes longer makes its device degraded.                             \
        */

/* HTTP. */
#define ST_HTTP_JSON_BODY_MAX (1u << 20) /**< Bytes of a JSON request body. */
#define ST_HTTP_JSON_DEPTH_MAX 32
#define ST_HTTP_CONNECTIONS_MAX 1024          /**< A listener. */
#define ST_HTTP_HEALTH_CONNECTIONS_MAX 64     /**< The health listener: one more ends another. */
#define ST_HTTP_HEALTH_CONNECTIONS_SPARE 32   /**< Above that, for those that are being ended. */
#define ST_HTTP_QUERY_PARAMETERS_MAX 64       /**< Of one request. */
#define ST_HTTP_CONNECTION_MEMORY (32u << 10) /**< Zeroed for each request: more costs time. */
#define ST_HTTP_HEADER_SECONDS                                                                     \
    10 /**< From accept to a complete head; on a kept connection from its request line on. */
#define ST_HTTP_IDLE_SECONDS 60 /**< From a reply to the request line of the next one. */
#define ST_HTTP_CONNECTIONS_PER_UID_MAX 768 /**< Of the Unix socket's: others keep room. */
#define ST_HTTP_REPLY_SECONDS 20            /**< For a reply to be read, and one more for each: */
#define ST_HTTP_REPLY_BYTES_PER_SECOND (64u << 10)
#define ST_HTTP_REPLIES_BYTES_MAX (256u << 20) /**< Of large replies that wait to be read. */
#define ST_HTTP_REPLY_LARGE_BYTES (64u << 10)  /**< Smaller ones are not counted. */
#define ST_HTTP_PAGE_BYTES (4u << 20)  /**< A page of a list ends with the item that passes it. */
#define ST_DATA_JSON_ELEMENTS_MAX 1024 /**< Elements that a JSON data reply may hold. */

/* Descriptors: memory takes what this and ST_HTTP_CONNECTIONS_MAX for each listener leave over. */
#define ST_DESCRIPTORS_KEPT 256 /**< Of the process itself and of the driver. */

/* Staging of data bodies. */
#define ST_STAGING_BYTES (1u << 20) /**< One pinned buffer. */
#define ST_STAGING_BUFFERS_MAX 64   /**< Buffers of the node. */
#define ST_STAGING_COPIES_MAX 8     /**< More, which only copies between devices get. */

_Static_assert(ST_NODE_RANKS_MAX <= ST_WORLD_SIZE_MAX, "a node's ranks are ranks of a group");
_Static_assert(ST_BATCH_MAX <= ST_TENSORS_MAX, "a batch must fit into the registry");
_Static_assert(ST_HTTP_CONNECTIONS_PER_UID_MAX < ST_HTTP_CONNECTIONS_MAX,
               "one user leaves room for others");
_Static_assert(ST_HTTP_PAGE_BYTES < ST_HTTP_REPLIES_BYTES_MAX / 16, "many pages wait at a time");
_Static_assert(ST_LABELS_MAX < ST_HTTP_QUERY_PARAMETERS_MAX, "all labels fit into one query");
_Static_assert(ST_TRANSFER_STALL_SECONDS < ST_TRANSFER_CUT_SECONDS,
               "a body that stalls can be told so before its connection is cut");
_Static_assert(ST_PAGE_SIZE_DEFAULT <= ST_PAGE_SIZE_MAX, "the default page is a page");
_Static_assert(ST_WAIT_SECONDS_DEFAULT <= ST_WAIT_SECONDS_MAX, "the default wait is a wait");

#endif
