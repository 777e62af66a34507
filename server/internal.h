#ifndef SYMTENSOR_SERVER_INTERNAL_H
#define SYMTENSOR_SERVER_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/clock.h"
#include "base/id.h"
#include "base/index.h"
#include "base/timer.h"
#include "base/workers.h"
#include "server/order.h"
#include "server/server.h"

/**
 * What the files of server/ share: the objects behind the ids and the engine that runs operations.
 *
 * One lock, server->lock, guards everything here that is not constant after creation; "under the
 * lock" below means that one. Locks below it, never the other way: the timers', the workers',
 * gpu/'s own. Under it nobody calls a driver, a caller's callback, or a gpu_*_run(). What has to
 * happen without it is left with server_after() and done by server_unlock().
 *
 * Nobody holds it for long: at most SERVER_HOLD_CHANGES objects are made, or SERVER_HOLD_STEPS
 * looked at or taken away, in one go; who has more to do calls server_breathe() in between, and
 * frees what is gone without the lock. What was found before must be held in place meanwhile (a
 * batch keeps its groups, see registry.h) and what others may have changed is looked at again. All
 * of a batch at once is done only where others must see it at once: the new state of its tensors
 * when it is accepted or ends (a store each), and the ids of one that is cancelled while queued.
 */

/* ---------------------------------------------------------------- the lock */

/** Something to be done once the lock is off; embedded in its owner, zero-filled. */
struct server_after {
    struct server_after *next;
    /** Thread: whichever unlocks, also one of gpu/'s: short, no calls into gpu/. May free the
     * owner. */
    void (*call)(struct server_after *after);
};

#define SERVER_HOLD_CHANGES 8u /**< Inserts into an index, which move what stands behind. */
#define SERVER_HOLD_STEPS 64u

void server_lock(struct server *server);
/** Under the lock: whoever waits for it has it first, and does on the way out what was left with
 * server_after() so far; when nobody waits, that stays. */
void server_breathe(struct server *server);
/** Unlock, then do what was left with server_after(), in that order. */
void server_unlock(struct server *server);
/** Under the lock. Must not be pending already. */
void server_after(struct server *server, struct server_after *after);

/* ---------------------------------------------------------------- work that may block */

/** Threads for what must not run under the lock or on a caller's thread (server/workers.c). */
enum server_pool {
    SERVER_POOL_LAUNCH, /**< gpu_*_run(): short. */
    SERVER_POOL_MEMORY, /**< gpu_team_*(), gpu_memory_*(): see group_memory_submit(). */
    SERVER_POOL_HOST,   /**< Long work of the CPU: checksums. */
    SERVER_POOL_COUNT
};

/** One job, embedded in its owner, zero-filled before first use; may be submitted again after done.
 */
struct server_work {
    void (*run)(struct server_work *work); /**< No lock. */
    void (*done)(
        struct server_work *work); /**< Under the lock, after run; may free or resubmit the work. */
    /** Under the lock: run takes longer than the limit of a driver call, or waits behind a job that
     *  does. Once. run and done still come later. NULL: nothing. */
    void (*overran)(struct server_work *work);
    bool late;  /**< overran was called. */
    bool extra; /**< The pool has a thread more while it runs. */
    bool active;
    uint64_t degraded; /**< Devices that server_work_degrade() marked because of it. */
    /* The rest belongs to workers.c. */
    enum server_pool pool;
    struct group *group;         /**< Memory work: whose list it is on. */
    _Atomic uint64_t started_ns; /**< When the driver call that it is in can have begun. */
    struct server_work *next, *previous;
};

/** Queue a job. Under the lock. Never fails. */
void server_work_submit(struct server *server, enum server_pool pool_index,
                        struct server_work *work);
/** From overran of a job that runs: the devices of a group are degraded until it returns. Under the
 * lock. */
void server_work_degrade(struct server_work *work, const struct group *group);
/**
 * Queue a job of SERVER_POOL_MEMORY behind those of the same group, so that a group holds one
 * thread at most. Under the lock. The group must stay until done.
 */
void group_memory_submit(struct group *group, struct server_work *work);

/* ---------------------------------------------------------------- holders of claims */

/** What takes a place in the order: an operation or a transfer. First member of both. */
struct server_holder {
    struct order_holder order;
    struct server *server;
    /** Under the lock, once, when all claims are granted after having waited (never inside
     * server_holder_enter()). */
    void (*granted)(struct server_holder *holder);
};
/** Under the lock. @return true when all claims are granted at once. */
bool server_holder_enter(struct server_holder *holder);
/** Under the lock: give all claims back (or up) and tell those that waited for them. */
void server_holder_leave(struct server_holder *holder);

/** Shards of a group's queue: what an operation and a transfer claim there, to read. */
#define GROUP_OPERATIONS UINT64_C(1) /**< Every operation reads it; a barrier writes it. */
#define GROUP_TRANSFERS                                                                            \
    UINT64_C(2) /**< Every transfer reads it; a delete writes both (ORDER_ALL). */

/* ---------------------------------------------------------------- groups and tensors */

struct server_scratch; /* server/collective.c: scratch memories of a group, kept for reuse. */

struct group {
    struct server *server;
    char id[ST_ID_MAX + 1];
    char owner[ST_ID_MAX + 1];
    uint32_t world_size;
    uint32_t devices[ST_NODE_RANKS_MAX]; /**< [world_size] */
    uint64_t granularity_bytes;          /**< Smallest size that is attachable by default. */
    struct gpu_team *team; /**< NULL while creating. Constant while the state is READY. */
    /* Under the lock: */
    enum server_state state;
    uint64_t epoch;
    uint64_t version; /**< Of the state. */
    struct order_queue order;
    uint32_t operations;    /**< Accepted and unfinished. */
    uint32_t running;       /**< Of these, granted. */
    struct tensor *tensors; /**< Chained by next, previous. */
    uint32_t tensors_count;
    struct server_scratch *scratch; /**< NULL until collective.c needs it. */
    /* Jobs of SERVER_POOL_MEMORY, one at a time. */
    struct server_work *memory_first, *memory_last, *memory_running;
    enum gpu_multicast_reason multicast_reason; /**< The team's own; NONE until it is there. */
    bool stuck;                    /**< A driver call of its memory overran and has not returned. */
    struct server_group *snapshot; /**< The newest; stale: rebuilt when asked for. */
    bool stale;
};
/** Memory worker, when the group goes: free all scratch. No lock. NULL: nothing. Implemented in
 * collective.c. */
void server_scratch_destroy(struct server_scratch *scratch);

/** One shard's contents. */
struct tensor_shard {
    uint64_t generation;
    enum server_contents_state state;
    bool was_undefined; /**< Before the write that runs. */
    bool uploading;     /**< A PUT has this shard: from open to close. Kept by transfer.c. */
};

/**
 * A tensor. Whoever holds a claim on its order may use the pointer; it stays until the claim is
 * given back. Constant after acceptance: id, owner, group, dtype to attachable; memory while the
 * state is READY.
 */
struct tensor {
    char id[ST_ID_MAX + 1];
    char owner[ST_ID_MAX + 1];
    struct group *group;
    enum st_dtype dtype;
    struct st_shape shape;
    struct st_strides strides;
    uint64_t elements; /**< Of one shard. */
    uint64_t shard_bytes;
    enum gpu_memory_type memory_type;
    enum gpu_multicast_mode multicast;
    bool attachable;
    struct gpu_memory *memory;
    /* Under the lock: */
    enum server_state state;
    bool made;                /**< The next three are known. */
    uint64_t memory_serial;   /**< As gpu_multicast_info names it. */
    uint64_t allocated_bytes; /**< Per shard. */
    enum gpu_multicast_reason multicast_reason;
    struct order_queue order;
    uint64_t version;               /**< Of labels, access and state; see tensor_version(). */
    uint64_t group_version;         /**< The group's version when the tensor was made. */
    uint32_t uploads;               /**< Shards with uploading set: verbs answer TENSOR_BUSY. */
    struct tensor *next, *previous; /**< In group->tensors. */
    struct server_tensor *snapshot; /**< Never NULL; labels and access live here. */
    bool stale;                     /**< State or contents changed since the snapshot was made. */
    struct tensor_shard shards[];   /**< [group->world_size] */
};

/** What a caller wants to do with a tensor. */
enum tensor_use { TENSOR_USE_READ, TENSOR_USE_WRITE };

/** Which tensor a request means. */
struct tensor_wanted {
    const char *id;
    enum tensor_use use;
    const char *field; /**< Name of the request's field in errors ("output"), or NULL for the
                          resource of the path. */
};

/**
 * Whether a change may be accepted now: not draining, the caller's deadline has not passed, and it
 * is no viewer. Under the lock.
 * @retval ST_UNAVAILABLE NODE_DRAINING. ST_DEADLINE_EXCEEDED OPERATION_DEADLINE.
 * ST_PERMISSION_DENIED ROLE_REQUIRED.
 */
ST_MUST_CHECK enum st_status server_accept_check(struct server *server,
                                                 const struct server_caller *caller,
                                                 struct st_error *err);
/**
 * Find a tensor whose bytes may be used: it is ready, so is its group, the caller may read or write
 * it. Does not look at uploads or contents. Under the lock.
 * @retval ST_NOT_FOUND TENSOR_NOT_FOUND. ST_FAILED_PRECONDITION, or ST_ABORTED while it is being
 * made, TENSOR_NOT_READY or GROUP_NOT_READY. ST_PERMISSION_DENIED ROLE_REQUIRED.
 */
ST_MUST_CHECK enum st_status tensor_find(struct server *server, const struct server_caller *caller,
                                         const struct tensor_wanted *wanted,
                                         struct tensor **ret_tensor, struct st_error *err);
/** TENSOR_BUSY when a PUT has one of its shards (verbs ask; PUT and GET look at their shard). Under
 * the lock. */
ST_MUST_CHECK enum st_status tensor_check_idle(const struct tensor *tensor, const char *field,
                                               struct st_error *err);
/** Find a group that is ready, for a barrier or a create. Under the lock. */
ST_MUST_CHECK enum st_status group_find(struct server *server, const char *id, const char *field,
                                        struct group **ret_group, struct st_error *err);
/** A reference to the newest snapshot, rebuilt if stale. Under the lock. NULL: memory is out. */
struct server_tensor *tensor_snapshot(struct tensor *tensor);

/* Contents. All under the lock, by whoever holds a granted claim on the shards. */

/** CONTENTS_UNDEFINED unless all of @p shards are valid. Details: rank. */
ST_MUST_CHECK enum st_status tensor_contents_check(const struct tensor *tensor, uint64_t shards,
                                                   const char *field, struct st_error *err);
/** GENERATION_MISMATCH unless the tensor's generation, the highest of its shards', is @p expected
 * or that is SERVER_GENERATION_ANY. */
ST_MUST_CHECK enum st_status tensor_generation_check(const struct tensor *tensor, uint64_t expected,
                                                     struct st_error *err);
/** A write begins: the shards show "writing". */
void tensor_contents_begin(struct tensor *tensor, uint64_t shards);
/** It succeeded: they get the tensor's highest generation + 1. @param full all bytes were written:
 * valid also if it was undefined before. */
void tensor_contents_commit(struct tensor *tensor, uint64_t shards, bool full);
/** It failed or was cancelled: undefined, and another generation, since bytes may have changed. */
void tensor_contents_fail(struct tensor *tensor, uint64_t shards);
/** It was given up before a byte was written: as before. */
void tensor_contents_restore(struct tensor *tensor, uint64_t shards);
/** Highest generation of @p shards. */
uint64_t tensor_generation(const struct tensor *tensor, uint64_t shards);
/** Mask of all shards of the tensor's group. */
uint64_t tensor_shards_all(const struct tensor *tensor);

/* ---------------------------------------------------------------- operations */

/**
 * A kind of operation. An operation is accepted under the lock with all of its claims; when they
 * are granted, begin is asked and then run; its end is told by one call of
 * server_operation_complete(). While it waits it has no thread.
 */
struct server_operation_class {
    const char *verb;
    size_t size; /**< Of the struct that has struct server_operation as its first member. */
    enum server_pool pool; /**< LAUNCH or MEMORY: who calls run (LAUNCH and small on an idle group:
                              the submitter, unless the driver's calls may block). */
    /**
     * Whether an operation that is cancelled while it runs ends as cancelled whatever its work says
     * (its outputs become undefined, or what it made is rolled back). False: it ends as its work
     * does.
     */
    bool cancel_running;
    /**
     * The claims are granted: last checks that depend on the order (contents, generation), marks
     * outputs (tensor_contents_begin). Under the lock. A failure ends the operation with it; inside
     * server_operation_accept() it is the answer, and no operation comes to be.
     */
    enum st_status (*begin)(struct server_operation *operation, struct st_error *err);
    /** Do the work. No lock. Leads to exactly one server_operation_complete(), inside or later. */
    void (*run)(struct server_operation *operation);
    /**
     * It is over: commit or undo what begin and acceptance did; fill generation and result. Under
     * the lock, once, also for what never began (operation->began) and for what accept refused;
     * claims are given back after it.
     */
    void (*end)(struct server_operation *operation, enum st_status status);
    /** Free what the derived struct owns. No lock; maybe on a thread of gpu/, so no calls into it.
     * The operation may live long after end: free bulk in end. */
    void (*destroy)(struct server_operation *operation);
};

#define SERVER_OPERATION_CLAIMS 5 /* without an allocation: two groups, two tensors, one spare */

/** The record of one run, the handle on it, and what its waiters wait for: freed with the last
 * reference. */
struct server_operation {
    struct server_holder holder; /* first: its granted hook finds the operation by it */
    _Atomic uint32_t references;
    const struct server_operation_class *class;
    struct server *server;
    struct group *group; /**< Whose queue counts it; valid until it is over. */
    /** The group whose memory a batch works on now, which a call that hangs is of; NULL: group. */
    _Atomic(struct group *) working_on;
    uint64_t number; /**< The id, as a number. */
    char id[32];
    /* Ten thousand of these are kept, so their texts are as long as they are: two allocations. */
    const char *target_kind; /**< Static. */
    char *target_id;         /**< NULL: the collection. */
    char *texts;             /**< The next three, one after the other. */
    const char *group_id, *owner, *request_id;
    uint64_t deadline_ns;

    /* Set before accept by the verb: */
    bool small;            /**< May run inside the submitting call when the group is idle. */
    const char *algorithm; /**< Static, or NULL. */
    char reason[160];
    bool has_plan, deterministic;
    uint64_t bytes;
    double bus_factor; /**< > 0: bandwidths are shown: bytes / run time, and times this. */
    /**
     * Bytes that it writes or reads on all ranks together, known at acceptance; 0 where nothing
     * moves (deletes, barriers). What is done only grows while it runs, by those who can tell; work
     * of one launch is done at its end. Success makes them equal.
     */
    _Atomic uint64_t bytes_done, bytes_total;

    /* Set in end: */
    uint64_t generation, epoch;
    struct server_result
        result; /**< checksums is malloc'd; the operation lets go of both arrays. */

    /* Engine; read-only elsewhere. Under the lock: */
    enum server_operation_state state;
    bool began;    /**< begin said yes. */
    bool over;     /**< end was called, claims are back. (state may have ended earlier: overran.) */
    bool starting; /**< run has not returned. */
    bool inline_start, completed, timer_started, accepted;
    enum st_status status;  /**< Of completion. */
    bool untouched;         /**< It failed before anything was queued on a device. */
    struct st_error *error; /**< malloc'd on failure. */
    _Atomic bool
        cancel_requested; /**< Long work looks at it and completes, undone; see cancel_running. */
    bool deadline_passed; /**< Cancelled by the caller's deadline. */
    uint64_t accepted_ns, started_ns, ended_ns;          /**< Monotonic. */
    uint64_t create_time_ns, start_time_ns, end_time_ns; /**< Realtime. */
    struct server_work work;
    bool settled; /**< server_operation_settle() said yes: too late to cancel. */
    struct server_after after, free_after;
    struct st_timer timer;
    struct server_waiter *waiters, *told;
    struct server_operation *next, *previous; /**< In order of creation. */
    struct server_operation *next_in_bucket;
    struct server_operation *next_kept;
    size_t kept_bytes;                  /**< What keeping it costs. */
    struct server_operation_view *view; /**< Of the ended operation, if asked for more than once. */
    bool shown;                         /**< It was asked for after its end. */
    uint32_t claims_capacity;
    struct order_claim claims[SERVER_OPERATION_CLAIMS];
};

/** What every operation starts from. */
struct server_operation_spec {
    const struct server_operation_class *class;
    const struct server_caller *caller;
    struct group *group;     /**< Whose queue counts it. */
    const char *target_kind; /**< "tensors" or "groups". */
    const char *target_id;   /**< NULL: the collection, as for batches. */
};
/**
 * A new operation, zero-filled behind the base; one reference, the caller's handle. Nothing is
 * visible before server_operation_accept(); until then server_operation_release() just frees it.
 * Thread: any, lock or not. @return NULL: memory is out.
 */
struct server_operation *server_operation_create(struct server *server,
                                                 const struct server_operation_spec *spec);
/** Room for more claims than SERVER_OPERATION_CLAIMS. Before the first claim. False: memory is out.
 */
bool server_operation_reserve_claims(struct server_operation *operation, uint32_t count);
/** Add a claim; there must be room. Claims on one queue one after the other. */
void server_operation_claim(struct server_operation *operation, struct order_queue *queue,
                            uint64_t shards, bool write);
/** TOO_MANY_OPERATIONS when the group has as many as it may. Under the lock. */
ST_MUST_CHECK enum st_status server_operation_check_room(const struct group *group,
                                                         struct st_error *err);
/**
 * Take the place in the order; if it is granted at once, begin. Under the lock. On failure end was
 * called and the caller releases its handle after unlocking.
 * @retval ST_RESOURCE_EXHAUSTED TOO_MANY_OPERATIONS; else what begin says.
 */
ST_MUST_CHECK enum st_status server_operation_accept(struct server_operation *operation,
                                                     struct st_error *err);
/** After accept, without the lock: run small work here; watch the deadline. */
void server_operation_start(struct server_operation *operation);
/**
 * The work has ended. Once for each run. Thread: any, also inside run. No lock held.
 * @param err NULL on ST_OK; copied.
 */
void server_operation_complete(struct server_operation *operation, enum st_status status,
                               const struct st_error *err);
/**
 * For work that can be rolled back, when all of it has been done: OK makes it too late for cancel
 * and deadlines; else it was cancelled meanwhile: roll back and complete with this error. No lock
 * held.
 */
ST_MUST_CHECK enum st_status server_operation_settle(struct server_operation *operation,
                                                     struct st_error *err);
/** A completion for gpu_*_run() that does just this. */
struct gpu_completion server_operation_completion(struct server_operation *operation);
void server_operation_retain(struct server_operation *operation);
/** Its work was asked to stop and cannot yet: it is cancelled for all to see, and its claims stay
 * until the work is complete. No lock held. */
void server_operation_end_early(struct server_operation *operation);
/** From overran of a job that works for an operation: it ends, its devices are degraded if the job
 * itself hangs. Its claims stay until it is complete. Under the lock. */
void server_operation_overran_by(struct server_operation *operation, struct server_work *work);

/* ---------------------------------------------------------------- the node */

/** Implemented in transfer.c. Under the lock: fail every open transfer with OPERATION_CANCELLED. */
void server_transfer_cancel_all(struct server *server);
/** The same, for the open uploads to a tensor, or (NULL) to all of the group: a delete by force
 * does not wait for their clients. */
void server_transfer_cancel_uploads(struct server *server, const struct group *group,
                                    const struct tensor *tensor);
struct server_transfers; /* staging.c's list of the open transfers */
/** Implemented in staging.c: server_destroy() calls it when every transfer is closed. NULL:
 * nothing. */
void server_transfers_destroy(struct server_transfers *transfers);

#define SERVER_OPERATION_BUCKETS 16384u

struct server_pool_state {
    struct server *server;
    struct st_workers *workers;
    struct server_work *first, *last; /**< Queued. */
    struct server_work *active;       /**< Running; chained by next, previous. */
    uint32_t drainers;                /**< Threads that take jobs now. */
    uint32_t limit; /**< Most of them: the pool's threads and one for each late job. */
    uint32_t threads;
};

struct server {
    pthread_mutex_t lock;
    pthread_mutex_t gate; /**< Whoever waits for the lock waits here, or has it and is next. */
    struct server_after *after_first, *after_last;
    uint32_t telling; /**< Threads that do what was left with server_after(). */
    struct order_holder *granted_first,
        *granted_last; /**< To be told; a list, so that nothing recurses. */
    bool granting;
    struct gpu *gpu;
    struct st_timers *timers;
    char uid[ST_UID_BYTES], incarnation[ST_UID_BYTES];
    char name[ST_ID_MAX + 1];
    uint64_t start_time_ns; /**< Realtime. */
    bool deterministic;
    bool calls_may_block; /**< Of the driver: no caller's thread launches. Constant. */
    bool draining;
    uint64_t driver_call_ns; /**< Longest that a driver call may take: ST_DRIVER_CALL_SECONDS. */

    struct st_index groups, tensors; /**< Of struct group, struct tensor. */

    struct server_operation *operations_first, *operations_last; /**< In order of creation. */
    struct server_operation *kept_first, *kept_last; /**< Ended, in order of their end. */
    size_t kept_bytes;                               /**< Of these. */
    struct server_operation **buckets;               /**< [SERVER_OPERATION_BUCKETS] by number. */
    uint32_t operations_prefix;                      /**< Random, of the ids of this process. */
    uint64_t operations_made;
    uint32_t waiters, waiters_closing;
    pthread_cond_t waiter_told;

    struct server_pool_state pools[SERVER_POOL_COUNT];
    struct st_timer watchdog;
    bool watching;
    uint32_t works;      /**< Submitted and not done. */
    pthread_cond_t idle; /**< An operation, a transfer or a job ended; by CLOCK_MONOTONIC. */

    struct server_transfers *transfers; /**< transfer.c's own; NULL at start; under the lock. */
    struct server_metrics
        figures; /**< transfers, operations_*, *_total: kept here, under the lock. */
};

/** [count] ids, referenced once. NULL: memory is out. @param id the id with that number. */
struct server_ids *server_ids_create(uint32_t count,
                                     const char *(*id)(const void *arg, uint32_t number),
                                     const void *arg);
struct server_ids *server_ids_retain(struct server_ids *ids); /**< NULL: NULL. */
void server_ids_release(struct server_ids *ids);              /**< NULL: nothing. */
/** For tests: another limit of a driver call than ST_DRIVER_CALL_SECONDS. */
void server_set_driver_call_limit(struct server *server, uint64_t limit_ns);
/** Copy text into a field of @p size bytes, cut if need be. */
void server_copy_text(char *field, size_t size, const char *text);

#endif
