#ifndef SYMTENSOR_SERVER_SERVER_H
#define SYMTENSOR_SERVER_SERVER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/limits.h"
#include "gpu/gpu.h"

/**
 * The node: names to objects, order, operations. Everything above calls these functions with plain
 * structs; results travel back as refcounted immutable snapshots. No function here waits for a
 * device: what takes time becomes an operation, and a caller that wants to wait is notified.
 *
 * Thread: any, unless a function says otherwise. The one lock of the registry is never held across
 * a driver call or a caller's callback.
 */
struct server;

/** Plain values; text is copied. */
struct server_options {
    struct gpu_options gpu; /**< gpu.timers is filled in by server_create. */
    const char *node_name;  /**< NULL: the host's name. */
    bool deterministic;     /**< Default of requests that do not say (--deterministic). */
};

ST_MUST_CHECK enum st_status server_create(const struct server_options *options,
                                           struct server **ret_server, struct st_error *err);
/**
 * Destroy: everything is released. Call server_drain() first; what still runs is waited for until
 * @p deadline_ns.
 * @return false when a driver call hangs, so that something stays: the process must end with _exit.
 */
bool server_destroy(struct server *server, uint64_t deadline_ns);

/** Refuse changes from now on (503 NODE_DRAINING); reads and running operations go on. Idempotent.
 */
void server_drain(struct server *server);
/** Accepted operations and transfers that have not ended. */
uint32_t server_unfinished(struct server *server);
/** Cancel every queued operation and transfer (the grace time has passed). */
void server_cancel_all(struct server *server);

/* ---------------------------------------------------------------- who asks */

enum server_role { SERVER_ROLE_VIEWER, SERVER_ROLE_USER, SERVER_ROLE_OPERATOR };

/** Who asks, and how. Valid for the call. */
struct server_caller {
    const char *principal; /**< "anonymous", "uid:1000", a token's name. */
    enum server_role role;
    const char *request_id;
    uint64_t deadline_ns; /**< Monotonic, from grpc-timeout; ST_DEADLINE_NEVER: none. */
};

/* ---------------------------------------------------------------- snapshots */

enum server_resource { SERVER_GROUP, SERVER_TENSOR, SERVER_OPERATION };

/**
 * First member of every snapshot. Immutable once published; the text is the only field that is set
 * later, once, by whoever first renders it (compare-and-swap from NULL), and freed with free().
 */
struct server_snapshot {
    _Atomic uint32_t references;
    enum server_resource resource;
    _Atomic(char *) text; /**< Rendered form, or NULL: see server_snapshot_keep_text(). */
};
void server_snapshot_release(struct server_snapshot *snapshot); /**< NULL: nothing. */
/** Offer rendered text (malloc'd). @return the text that stays with the snapshot: @p text or
 * another thread's. */
const char *server_snapshot_keep_text(struct server_snapshot *snapshot, char *text);

struct server_label {
    char key[ST_LABEL_KEY_MAX + 1];
    char value[ST_LABEL_VALUE_MAX + 1];
};
struct server_labels {
    uint32_t count;
    struct server_label *items; /**< [count], sorted by key. */
};

enum server_state {
    SERVER_STATE_CREATING,
    SERVER_STATE_READY,
    SERVER_STATE_FAILED,
    SERVER_STATE_DELETING
};
const char *server_state_name(enum server_state state); /**< "creating", ... */
bool server_state_parse(const char *text, enum server_state *ret);

enum server_contents_state {
    SERVER_CONTENTS_VALID,
    SERVER_CONTENTS_WRITING,
    SERVER_CONTENTS_UNDEFINED
};
const char *server_contents_state_name(enum server_contents_state state);

struct server_contents {
    uint64_t generation;
    enum server_contents_state state;
};

struct server_rank {
    uint32_t device; /**< Ordinal on the node. (Every rank is on this node; node() names it.) */
};

struct server_group {
    struct server_snapshot base;
    char id[ST_ID_MAX + 1];
    char uid[ST_UID_BYTES];
    char owner[ST_ID_MAX + 1];
    uint64_t create_time_ns; /**< CLOCK_REALTIME. */
    uint64_t version;        /**< The etag. */
    enum server_state state;
    uint64_t epoch;
    uint32_t world_size;
    struct server_rank *ranks;                  /**< [world_size] */
    enum gpu_multicast_reason multicast_reason; /**< NONE: usable. */
    uint32_t tensors_count;
    struct server_labels labels;
};

struct server_access {
    uint32_t read_count, write_count;
    char (*read)[ST_ID_MAX + 1];  /**< [read_count] principals. */
    char (*write)[ST_ID_MAX + 1]; /**< [write_count] */
};

struct server_tensor {
    struct server_snapshot base;
    char id[ST_ID_MAX + 1];
    char uid[ST_UID_BYTES];
    char owner[ST_ID_MAX + 1];
    char group[ST_ID_MAX + 1];
    uint64_t create_time_ns;
    uint64_t version; /**< The etag: labels, access and state; not the contents. */
    enum server_state state;
    enum st_dtype dtype;
    struct st_shape shape;
    struct st_strides strides;
    enum gpu_memory_type memory_type;
    uint64_t shard_bytes;
    uint64_t allocated_bytes; /**< Per shard. */
    enum gpu_multicast_reason multicast_reason;
    bool attachable;
    uint32_t attachments_count;
    struct server_contents contents; /**< The tensor's generation; worst state of the shards. */
    uint32_t world_size;
    struct server_rank *ranks;              /**< [world_size] */
    struct server_contents *shard_contents; /**< [world_size] generation: of its last write. */
    struct server_labels labels;
    struct server_access access;
};

enum server_operation_state {
    SERVER_OPERATION_QUEUED,
    SERVER_OPERATION_RUNNING,
    SERVER_OPERATION_SUCCEEDED,
    SERVER_OPERATION_FAILED,
    SERVER_OPERATION_CANCELLED,
};
const char *server_operation_state_name(enum server_operation_state state);

enum server_result_kind { SERVER_RESULT_NONE, SERVER_RESULT_CHECKSUMS, SERVER_RESULT_RESOURCES };

enum server_checksum_algorithm { SERVER_CHECKSUM_CRC32C, SERVER_CHECKSUM_SHA256 };
const char *
server_checksum_name(enum server_checksum_algorithm algorithm); /**< "crc32c", "sha256" */
bool server_checksum_parse(const char *text, enum server_checksum_algorithm *ret);

struct server_checksum {
    uint32_t rank;
    char hex[65]; /**< Lower case: 8 digits for crc32c, 64 for sha256. */
};

/** Ids that the record of an operation and its snapshots share. */
struct server_ids {
    _Atomic uint32_t references;
    size_t bytes; /**< Of all of it. */
    const char *items[];
};

/** What a verb answers. */
struct server_result {
    enum server_result_kind kind;
    uint32_t count;
    struct server_checksum *checksums; /**< [count] of CHECKSUMS */
    enum server_checksum_algorithm checksum_algorithm;
    struct server_ids *resources; /**< [count] tensor ids of RESOURCES (batches, creates) */
};

struct server_operation_view {
    struct server_snapshot base;
    char id[ST_ID_MAX + 1];
    const char *verb;            /**< "all_reduce", "create", "batch_delete": static. */
    char target[ST_ID_MAX + 16]; /**< "tensors/x", "groups/g". */
    char owner[ST_ID_MAX + 1];
    char request_id[65];
    enum server_operation_state state;
    const char *algorithm; /**< Static, or NULL. */
    char reason[160];      /**< Why the planner chose it, or "". */
    bool deterministic;
    bool has_plan;                    /**< algorithm, reason and deterministic mean something. */
    uint64_t bytes;                   /**< Of the larger side on one rank. */
    uint64_t bytes_done, bytes_total; /**< On all ranks together; equal after success. */
    uint64_t queued_ns, run_ns;
    double algorithm_bytes_per_second, bus_bytes_per_second; /**< 0: none. */
    uint64_t generation; /**< Of the output after success; 0: none. */
    uint64_t epoch;
    uint64_t create_time_ns, start_time_ns, end_time_ns; /**< Realtime; 0: not yet. */
    struct server_result result;
    bool has_error;
    struct st_error error;
};

/* ---------------------------------------------------------------- the node */

struct server_node {
    char uid[ST_UID_BYTES];
    char incarnation[ST_UID_BYTES];
    const char *name;
    uint64_t start_time_ns;
    bool draining;
    struct gpu_capabilities capabilities;
    uint32_t device_count;
};
void server_node(struct server *server, struct server_node *ret);
/** For devices: gpu_device_info() and its relatives. */
const struct gpu *server_gpu(const struct server *server);
/** Device by ordinal or uuid text; false when there is none. */
bool server_device_find(const struct server *server, const char *text, uint32_t *ret_ordinal);

/** Figures for /metrics; read without waiting for anything but the registry lock. */
struct server_metrics {
    uint32_t groups, tensors, operations_queued, operations_running, operations_kept, transfers,
        waiters;
    uint64_t
        operations_total[SERVER_OPERATION_CANCELLED + 1]; /**< Ended, by final state (others 0). */
    uint64_t collective_bytes_total;
    uint64_t uploaded_bytes_total, downloaded_bytes_total;
};
void server_metrics(struct server *server, struct server_metrics *ret);

/* ---------------------------------------------------------------- groups */

struct server_group_create {
    char id[ST_ID_MAX + 1]; /**< "": made by the server. */
    uint32_t world_size;
    uint32_t devices[ST_NODE_RANKS_MAX]; /**< [world_size] ordinals; not yet checked. */
    struct server_labels labels;         /**< Copied. */
};

struct server_operation; /**< A handle on an operation; release it. */

ST_MUST_CHECK enum st_status server_group_create(struct server *server,
                                                 const struct server_caller *caller,
                                                 const struct server_group_create *request,
                                                 struct server_operation **ret_operation,
                                                 struct st_error *err);
ST_MUST_CHECK enum st_status server_group_get(struct server *server, const char *id,
                                              struct server_group **ret_group,
                                              struct st_error *err);
/** @param force delete its tensors too. */
ST_MUST_CHECK enum st_status
server_group_delete(struct server *server, const struct server_caller *caller, const char *id,
                    bool force, struct server_operation **ret_operation, struct st_error *err);
ST_MUST_CHECK enum st_status
server_group_barrier(struct server *server, const struct server_caller *caller, const char *id,
                     struct server_operation **ret_operation, struct st_error *err);

/** What a list shows, in the order of ids (operations: of creation). Empty text: no filter. */
struct server_list_query {
    const char *after; /**< Id of the last one seen, or "". */
    uint32_t max;      /**< 1..ST_PAGE_SIZE_MAX */
    const char *group; /**< Tensors and operations. */
    const char *state; /**< As printed by the state's name; checked by the caller against the
                          resource's states. */
    uint32_t label_count;
    const struct server_label *labels; /**< All must be equal. */
};
/** @param ret [query->max] snapshots, to be released. @return how many; *ret_more: there are others
 * behind. */
uint32_t server_group_list(struct server *server, const struct server_list_query *query,
                           struct server_group **ret, bool *ret_more);
uint32_t server_tensor_list(struct server *server, const struct server_list_query *query,
                            struct server_tensor **ret, bool *ret_more);
/**
 * Call found(arg, serial, id) for every tensor whose memory has multicast; the serial is that of
 * gpu_multicast_info.bound_ids. Under the registry's lock: it must be short and not call back.
 */
void server_tensor_each_multicast(struct server *server,
                                  void (*found)(void *arg, uint64_t serial, const char *id),
                                  void *arg);
uint32_t server_operation_list(struct server *server, const struct server_list_query *query,
                               struct server_operation_view **ret, bool *ret_more);

/* ---------------------------------------------------------------- tensors */

struct server_tensor_create {
    char id[ST_ID_MAX + 1]; /**< "": made by the server. */
    char group[ST_ID_MAX + 1];
    enum st_dtype dtype;
    struct st_shape shape;
    bool has_strides;
    struct st_strides strides;
    uint32_t strides_rank; /**< Number of strides given; must equal shape.rank. */
    enum gpu_memory_type memory_type;
    enum gpu_multicast_mode multicast;
    int attachable;              /**< -1: the default for the size; 0, 1. */
    struct server_labels labels; /**< Copied. */
    struct server_access access; /**< Copied. */
};

ST_MUST_CHECK enum st_status server_tensor_create(struct server *server,
                                                  const struct server_caller *caller,
                                                  const struct server_tensor_create *request,
                                                  struct server_operation **ret_operation,
                                                  struct st_error *err);
/** All or nothing, one operation. Field paths in errors start with "tensors[i].". */
ST_MUST_CHECK enum st_status
server_tensor_batch_create(struct server *server, const struct server_caller *caller,
                           const struct server_tensor_create *requests, uint32_t count,
                           struct server_operation **ret_operation, struct st_error *err);
ST_MUST_CHECK enum st_status server_tensor_get(struct server *server, const char *id,
                                               struct server_tensor **ret_tensor,
                                               struct st_error *err);
ST_MUST_CHECK enum st_status
server_tensor_delete(struct server *server, const struct server_caller *caller, const char *id,
                     bool force, struct server_operation **ret_operation, struct st_error *err);
struct server_tensor_batch_delete {
    const char (*ids)[ST_ID_MAX + 1]; /**< [count] */
    uint32_t count;                   /**< 1..ST_BATCH_MAX */
    bool force;
};
/** All or nothing, one operation. Field paths in errors start with "tensors[i]". */
ST_MUST_CHECK enum st_status
server_tensor_batch_delete(struct server *server, const struct server_caller *caller,
                           const struct server_tensor_batch_delete *request,
                           struct server_operation **ret_operation, struct st_error *err);

/** Merge patch of labels and access. A label with an empty value pointer is removed. */
struct server_tensor_patch {
    uint64_t if_version; /**< 0: any; else ETAG_MISMATCH when it differs. */
    uint32_t set_count, remove_count;
    const struct server_label *set;             /**< [set_count] */
    const char (*remove)[ST_LABEL_KEY_MAX + 1]; /**< [remove_count] keys */
    bool clear_labels;                          /**< "labels": null */
    bool has_read, has_write;                   /**< Replace the list. */
    struct server_access access;
};
ST_MUST_CHECK enum st_status server_tensor_patch(struct server *server,
                                                 const struct server_caller *caller, const char *id,
                                                 const struct server_tensor_patch *patch,
                                                 struct server_tensor **ret_tensor,
                                                 struct st_error *err);

/* ---------------------------------------------------------------- verbs */

/**
 * A tensor has one generation, which counts the writes that succeeded, of whichever shards: the
 * contents.generation of its snapshot, what a write answers, and what the ETag of its bytes is made
 * of. A shard shows the one that its last write got, so that the highest of them is the tensor's.
 * A verb's and an upload's expected_generation is compared with the tensor's when the write's turn
 * has come; another one is ST_ABORTED GENERATION_MISMATCH. So an ETag changes, and a write is
 * refused, also when another shard was written.
 */
#define SERVER_GENERATION_ANY UINT64_MAX

struct server_collective_request {
    const struct gpu_collective *collective;
    char tensor[ST_ID_MAX + 1];
    char output[ST_ID_MAX + 1]; /**< "": in place. */
    enum st_reduce_op op;
    uint32_t root;
    const struct gpu_algorithm *algorithm; /**< NULL: the planner chooses. */
    int deterministic;                     /**< -1: the server's default; 0, 1. */
    uint64_t expected_generation;          /**< Of the output, or SERVER_GENERATION_ANY. */
};
/**
 * Check, plan, take a place in the order of both tensors, and run when it is granted. Small work on
 * an idle group has already run when this returns.
 */
ST_MUST_CHECK enum st_status server_collective(struct server *server,
                                               const struct server_caller *caller,
                                               const struct server_collective_request *request,
                                               struct server_operation **ret_operation,
                                               struct st_error *err);

struct server_fill_request {
    char tensor[ST_ID_MAX + 1];
    enum gpu_fill_pattern pattern;
    /** The value as the request gave it; fitted to the dtype here. OUT_OF_RANGE_VALUE when it does
     * not fit. */
    enum server_number {
        SERVER_NUMBER_DOUBLE,
        SERVER_NUMBER_INT64,
        SERVER_NUMBER_UINT64,
        SERVER_NUMBER_BOOL
    } number;
    double double_value; /**< May be NaN or infinite. */
    int64_t int64_value;
    uint64_t uint64_value;
    int32_t rank; /**< -1: all. */
    uint64_t expected_generation;
};
ST_MUST_CHECK enum st_status server_fill(struct server *server, const struct server_caller *caller,
                                         const struct server_fill_request *request,
                                         struct server_operation **ret_operation,
                                         struct st_error *err);

struct server_copy_request {
    char tensor[ST_ID_MAX + 1];     /**< Source. */
    char dst_tensor[ST_ID_MAX + 1]; /**< "": the same tensor. */
    uint32_t src_rank, dst_rank;
    uint64_t src_offset, dst_offset; /**< Bytes. */
    bool has_bytes;
    uint64_t bytes; /**< Default: all behind src_offset. */
    uint64_t expected_generation;
};
ST_MUST_CHECK enum st_status server_copy(struct server *server, const struct server_caller *caller,
                                         const struct server_copy_request *request,
                                         struct server_operation **ret_operation,
                                         struct st_error *err);

/** Checksums of the bytes in memory order, a shard each. */
ST_MUST_CHECK enum st_status server_checksum(struct server *server,
                                             const struct server_caller *caller, const char *tensor,
                                             enum server_checksum_algorithm algorithm,
                                             struct server_operation **ret_operation,
                                             struct st_error *err);

/* ---------------------------------------------------------------- operations */

/** A handle by id. OPERATION_NOT_FOUND when it never was or is no longer kept. */
ST_MUST_CHECK enum st_status server_operation_find(struct server *server, const char *id,
                                                   struct server_operation **ret_operation,
                                                   struct st_error *err);
void server_operation_release(struct server_operation *operation);
/** The state now. Release with server_snapshot_release(&view->base). */
struct server_operation_view *server_operation_view(struct server_operation *operation);

struct server_waiter;
/**
 * Be told when the operation has ended or @p deadline_ns has passed, whichever is first:
 * notify(arg) once, from any thread, never inside this call.
 * @param ret_waiter NULL when the operation has ended already (notify is not called); else close it
 * with server_waiter_close() after notify ran or to give up.
 * @retval ST_RESOURCE_EXHAUSTED TOO_MANY_OPERATIONS: ST_OPERATION_WAITERS_MAX wait already.
 */
ST_MUST_CHECK enum st_status server_operation_wait(struct server_operation *operation,
                                                   uint64_t deadline_ns, void (*notify)(void *arg),
                                                   void *arg, struct server_waiter **ret_waiter,
                                                   struct st_error *err);
/** After this returns notify does not run. Not from inside notify. NULL: nothing. */
void server_waiter_close(struct server_waiter *waiter);

/** Queued: cancelled at once. Running: it ends as cancelled when its work lets go; outputs become
 * undefined, what was made is taken back; a delete ends as it does. Ended: OPERATION_DONE. */
ST_MUST_CHECK enum st_status server_operation_cancel(struct server_operation *operation,
                                                     const struct server_caller *caller,
                                                     struct st_error *err);

/* ---------------------------------------------------------------- data bodies */

/**
 * A data body on its way into or out of one shard. It takes its place in the tensor's order when it
 * is opened and holds only its shard. Opening answers TENSOR_BUSY at once while the shard is being
 * written. A transfer belongs to one thread (its connection's); notify comes from any thread and
 * means: look again. Without progress by the caller for ST_TRANSFER_STALL_SECONDS, or with less
 * than ST_TRANSFER_RATE_MIN bytes for each second of the caller's behind these, it fails with
 * TRANSFER_STALLED.
 */
struct server_transfer;

enum server_transfer_state {
    SERVER_TRANSFER_WAITING, /**< For its place, a staging buffer or the device: notify will come.
                              */
    SERVER_TRANSFER_READY,   /**< Upload: takes bytes. Download: has bytes. */
    SERVER_TRANSFER_DONE,    /**< Upload: finished and visible. Download: all bytes were read. */
    SERVER_TRANSFER_FAILED,
};

struct server_transfer_request {
    char tensor[ST_ID_MAX + 1];
    uint32_t rank;
    bool logical;           /**< Row-major logical order (npy, JSON) instead of memory order. */
    bool has_range;         /**< Else the whole shard. */
    uint64_t offset, bytes; /**< Within the shard; checked. Logical ones are whole elements. */
    bool allow_undefined;   /**< Downloads only. */
    uint64_t expected_generation; /**< Uploads: of the tensor, or SERVER_GENERATION_ANY. */
    void (*notify)(void *arg);
    /** Downloads: whether the reader's side took bytes since the last call, though it asks for no
     * more yet; NULL: only reading counts as progress. Thread: the timers'; as notify, not after
     * the transfer was closed. */
    bool (*moved)(void *arg);
    void *notify_arg; /**< Of both. */
};

/**
 * Open. The tensor's metadata as of acceptance comes with it, so that a reply's head can be
 * written.
 * @param ret_tensor a snapshot to release.
 */
ST_MUST_CHECK enum st_status server_upload_open(struct server *server,
                                                const struct server_caller *caller,
                                                const struct server_transfer_request *request,
                                                struct server_transfer **ret_transfer,
                                                struct server_tensor **ret_tensor,
                                                struct st_error *err);
ST_MUST_CHECK enum st_status server_download_open(struct server *server,
                                                  const struct server_caller *caller,
                                                  const struct server_transfer_request *request,
                                                  struct server_transfer **ret_transfer,
                                                  struct server_tensor **ret_tensor,
                                                  struct st_error *err);
/** @param err filled when FAILED. */
enum server_transfer_state server_transfer_state(struct server_transfer *transfer,
                                                 struct st_error *err);
/** Hand bytes over. @return how many were taken; fewer than @p bytes: wait for notify. Only when
 * READY. */
uint64_t server_upload_write(struct server_transfer *transfer, const void *data, uint64_t bytes);
/** Whether it has failed. Unlike the state, any thread may ask this, also from notify. */
bool server_transfer_has_failed(struct server_transfer *transfer);
/** All bytes are in: DONE follows (notify). Fewer than announced: it fails and the shard is
 * undefined. */
void server_upload_finish(struct server_transfer *transfer);
/** Take bytes. @return how many; 0: look at the state. */
uint64_t server_download_read(struct server_transfer *transfer, void *buffer, uint64_t bytes);
/** Generation of the tensor: after an upload's DONE the one that it got; of a download that of when
 * its place came, which an ETag of its bytes names. Of use as expected_generation. */
uint64_t server_transfer_generation(const struct server_transfer *transfer);
/** Close at any time; an unfinished upload of which bytes were on their way makes its shard's
 * contents undefined. After it notify does not run. NULL: nothing. */
void server_transfer_close(struct server_transfer *transfer);

#endif
