#ifndef SYMTENSOR_SERVER_TRANSFER_H
#define SYMTENSOR_SERVER_TRANSFER_H

#include "server/internal.h"

/**
 * A data body, between transfer.c (its place in the order, its end), transfer_data.c (its bytes)
 * and staging.c (who has the buffers).
 *
 * Each transfer has a lock of its own below the registry's: it may be taken under that one, never
 * the other way, and nobody holds two of them. The caller's thread copies bytes and launches;
 * gpu/'s threads bring completions, which only mark slots, settle and notify.
 */

enum transfer_phase {
    TRANSFER_PLACE,     /**< Waits for its place in the order. */
    TRANSFER_MOVING,    /**< Has it. */
    TRANSFER_FINISHING, /**< Upload: all bytes are in, not all are in the shard. */
    TRANSFER_DONE,
    TRANSFER_FAILED,
};

enum transfer_slot_state {
    TRANSFER_SLOT_EMPTY,   /**< Its buffer, if it has one, is spare. */
    TRANSFER_SLOT_FILLING, /**< Upload: bytes of the caller. */
    TRANSFER_SLOT_FLYING,  /**< The device has it. */
    TRANSFER_SLOT_FULL,    /**< Download: bytes for the caller. */
};

#define TRANSFER_SLOTS 2u
#define TRANSFER_ELEMENT_BYTES_MAX 16u /* of any dtype */

/** A staging buffer and the piece of the body in it. */
struct transfer_slot {
    struct server_transfer *transfer;
    void *buffer;
    enum transfer_slot_state state;
    bool held;       /**< The caller's thread copies now, without the lock. */
    bool waiting;    /**< Flying, but the worker has not launched it yet. */
    uint64_t offset; /**< In the body. */
    uint64_t bytes;
    uint64_t taken; /**< Download: of these, read. */
};

struct server_transfer {
    struct server_holder holder; /* first: its granted hook finds the transfer by it */
    struct order_claim claims[2];
    _Atomic uint32_t references; /**< The caller's, one for each flying slot, work and notice. */
    struct server *server;
    char principal[ST_ID_MAX + 1];
    bool upload, allow_undefined;
    uint32_t rank;
    uint64_t expected_generation, deadline_ns;
    uint64_t offset, bytes; /**< Of the body in the shard. */
    struct tensor *tensor;  /**< Until it is settled. */
    struct gpu_team *team;
    struct gpu_transfer_spec spec; /**< Of every launch, but for buffer, offset and bytes. */

    pthread_mutex_t notify_lock; /**< Held while notify runs: close waits for it. */
    void (*notify)(void *arg);
    bool (*moved)(void *arg); /**< NULL: only calls are progress. */
    void *notify_arg;
    bool closed; /**< Under notify_lock. */

    /* Under the registry's lock: */
    struct server_transfer *next, *previous;
    bool began; /**< Upload: the shard shows "writing". */
    struct server_after told;
    _Atomic bool told_pending;
    struct server_work release_work;
    struct server_work launch_work; /**< Where the caller's thread may not launch. */
    bool launching;                 /**< It is submitted and not done. */

    _Atomic bool wants_staging; /**< Set under the registry's lock. */

    pthread_mutex_t lock;
    /* Under it: */
    enum transfer_phase phase;
    bool settled;   /**< The place is given back; set under both locks. */
    bool abandoned; /**< Closed: nobody comes back to it. */
    bool finish_requested;
    struct st_error error; /**< FAILED. */
    struct transfer_slot slots[TRANSFER_SLOTS];
    uint32_t flying;
    bool touched; /**< Upload: bytes of the shard may have changed. */
    bool lacking; /**< Upload: no second buffer to be had before the first one lands. */
    unsigned char carry[TRANSFER_ELEMENT_BYTES_MAX]; /**< Logical uploads: the begun element. */
    uint32_t carry_bytes;                            /**< Behind what the slots have. */
    uint32_t head, tail; /**< Download: the slot to be read, the slot to be launched next. */
    uint64_t accepted;   /**< Upload: bytes taken from the caller. */
    uint64_t asked;      /**< Download: bytes launched. */
    uint64_t position;   /**< Download: bytes given to the caller. */
    uint64_t generation;
    uint64_t last_turn_ns; /**< When the caller did something, or it became the caller's turn. */
    uint64_t turns_ns;     /**< What the caller's turns took before that. */
    uint64_t last_move_ns; /**< When the caller was seen to move without a call. */
    struct st_timer timer;
};

/* transfer.c */

/** Fail it unless it has ended; @p err is copied. Under the transfer's lock. */
void transfer_fail(struct server_transfer *transfer, const struct st_error *err);
/** Give the place back if all is over. Under the registry's lock. */
void transfer_settle(struct server_transfer *transfer);
/** The same, and notify afterwards. Under the registry's lock. */
void transfer_tell(struct server_transfer *transfer);
/** Notify now unless it is closed. No lock. */
void transfer_notify(struct server_transfer *transfer);
void transfer_retain(struct server_transfer *transfer);
void transfer_release(struct server_transfer *transfer);         /**< Lock or not. */
bool transfer_has_ended(const struct server_transfer *transfer); /**< Under the transfer's lock. */
/** The caller has used its turn; the next one begins. Under the transfer's lock. */
void transfer_used_turn(struct server_transfer *transfer);
/** Look again in a while because it waits for a buffer. No lock. */
void transfer_watch_staging(struct server_transfer *transfer);

/* transfer_data.c */

/** Upload: launch what is ready to fly. What completes inside tells nobody: whoever is not the
 * caller has to notify. Thread: not gpu/'s. No lock. */
void transfer_flush(struct server_transfer *transfer);
/** Download: launch into empty slots. Thread: the caller's. No lock. */
void transfer_fetch(struct server_transfer *transfer);
/** Release the buffers that neither the device nor the caller uses. Thread: not gpu/'s. No lock. */
void transfer_release_buffers(struct server_transfer *transfer);
/**
 * Take a buffer that lies idle away. A download that has not been read for a while forgets what it
 * has and reads it again later: its place keeps writers off. Under the transfer's lock. @return
 * NULL: none.
 */
void *transfer_take_idle_buffer(struct server_transfer *transfer, uint64_t now_ns);

/* staging.c */

/** The open transfers of a node. Under the registry's lock. */
struct server_transfers {
    struct server_transfer *first;
    uint32_t open;
    uint32_t wanting; /**< Of these, with wants_staging. */
    bool reclaiming;
    struct server_work reclaim;
    struct server *server;
};

/** Enter the list. Under the registry's lock. @retval ST_RESOURCE_EXHAUSTED TOO_MANY_TRANSFERS,
 * OUT_OF_MEMORY. */
ST_MUST_CHECK enum st_status transfers_add(struct server_transfer *transfer, struct st_error *err);
void transfers_remove(struct server_transfer *transfer);
/** Under the registry's lock. */
void transfers_set_wants(struct server_transfer *transfer, bool wants);
/** A buffer for a transfer; NULL: notify comes when there may be one. @param must false: it can go
 * on without. */
void *transfer_acquire_buffer(struct server_transfer *transfer, bool must);

#endif
