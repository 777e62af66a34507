#ifndef SYMTENSOR_SERVER_ORDER_H
#define SYMTENSOR_SERVER_ORDER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/limits.h"

/**
 * The order of acceptance: a FIFO of claims for each tensor (and each group). A claim covers some
 * shards, to read or to write them, and is granted when no earlier claim of its queue that is still
 * there conflicts with it: shares a shard and one of both writes. A holder enters all of its queues
 * at once, so that there is one total order and no deadlock. Pure: no allocation, no lock, no
 * callback.
 *
 * Thread: one at a time (the registry's lock). Blocks: never.
 */

#define ORDER_ALL UINT64_MAX /**< Every shard. */
_Static_assert(ST_NODE_RANKS_MAX <= 64, "the shards of a claim are a mask of 64 bits");

/** The mask of one rank's shard. */
static inline uint64_t order_rank(uint32_t rank)
{
    return UINT64_C(1) << rank;
}

/** Zero-filled: empty. */
struct order_queue {
    struct order_claim *first, *last;
    uint32_t writers; /**< Claims that write. */
    uint32_t waiting; /**< Claims that are not granted. */
};

/** Set queue, shards and write; the rest belongs to order.c. */
struct order_claim {
    struct order_queue *queue;
    uint64_t shards; /**< Mask, not 0. */
    bool write;
    bool granted;
    struct order_holder *holder;
    struct order_claim *previous, *next;
};

/** Who holds claims. Claims of one holder never conflict with each other; those on one queue stand
 * side by side. */
struct order_holder {
    struct order_claim *claims; /**< [count]; stays where it is between enter and leave. */
    uint32_t count;
    uint32_t waiting; /**< Claims that are not granted. */
    bool entered;
    struct order_holder *next; /**< In a list that order_leave() gives. */
};

/** Put all claims at the ends of their queues. @return true when all are granted. */
bool order_enter(struct order_holder *holder);
/**
 * Take all claims away, granted or not. Nothing happens when it has not entered.
 * @return the holders that have all of their claims since then, chained by next; NULL: none.
 */
struct order_holder *order_leave(struct order_holder *holder);

#endif
