#include "server/order.h"

#include <stddef.h>

/** What stands before a place in a queue: which shards somebody reads or writes. */
struct order_before {
    uint64_t read, written;
};

static bool order_fits(const struct order_before *before, const struct order_claim *claim)
{
    uint64_t taken = before->written | (claim->write ? before->read : 0);
    return (claim->shards & taken) == 0;
}

static void order_add(struct order_before *before, const struct order_claim *claim)
{
    if (claim->write) {
        before->written |= claim->shards;
    } else {
        before->read |= claim->shards;
    }
}

static void order_append(struct order_claim *claim)
{
    struct order_queue *queue = claim->queue;
    claim->previous = queue->last;
    claim->next = NULL;
    if (queue->last) {
        queue->last->next = claim;
    } else {
        queue->first = claim;
    }
    queue->last = claim;
    queue->writers += claim->write;
}

static void order_unlink(struct order_claim *claim)
{
    struct order_queue *queue = claim->queue;
    if (claim->previous) {
        claim->previous->next = claim->next;
    } else {
        queue->first = claim->next;
    }
    if (claim->next) {
        claim->next->previous = claim->previous;
    } else {
        queue->last = claim->previous;
    }
    queue->writers -= claim->write;
    queue->waiting -= !claim->granted;
}

/** Whether a claim that was just appended may be granted. */
static bool order_may_enter(const struct order_claim *claim)
{
    const struct order_queue *queue = claim->queue;
    if (!claim->write && queue->writers == 0) {
        return true; /* the usual case in a group's queue: readers only */
    }
    struct order_before before = {0};
    for (const struct order_claim *c = queue->first; c->holder != claim->holder; c = c->next) {
        order_add(&before, c);
        if (!order_fits(&before, claim)) {
            return false;
        }
    }
    return true;
}

bool order_enter(struct order_holder *holder)
{
    holder->waiting = 0;
    holder->entered = true;
    for (uint32_t i = 0; i < holder->count; i++) {
        struct order_claim *claim = &holder->claims[i];
        claim->holder = holder;
        order_append(claim);
        claim->granted = order_may_enter(claim);
        claim->queue->waiting += !claim->granted;
        holder->waiting += !claim->granted;
    }
    return holder->waiting == 0;
}

/** Grant the claims of one holder that stand side by side from @p claim on. @return the claim
 * behind them. */
static struct order_claim *order_grant(struct order_before *before, struct order_claim *claim,
                                       struct order_holder ***tail)
{
    struct order_holder *holder = claim->holder;
    struct order_before own = {0};
    for (; claim && claim->holder == holder; claim = claim->next) {
        if (!claim->granted && order_fits(before, claim)) {
            claim->granted = true;
            claim->queue->waiting--;
            holder->waiting--;
            if (holder->waiting == 0) {
                holder->next = NULL;
                **tail = holder;
                *tail = &holder->next;
            }
        }
        order_add(&own, claim);
    }
    before->read |= own.read;
    before->written |= own.written;
    return claim;
}

/** Grant what can be granted now; holders that became complete go to the end of the list. */
static void order_scan(struct order_queue *queue, struct order_holder ***tail)
{
    struct order_before before = {0};
    struct order_claim *claim = queue->first;
    while (claim && queue->waiting > 0 && before.written != ORDER_ALL) {
        claim = order_grant(&before, claim, tail);
    }
}

struct order_holder *order_leave(struct order_holder *holder)
{
    if (!holder->entered) {
        return NULL;
    }
    holder->entered = false;
    for (uint32_t i = 0; i < holder->count; i++) {
        order_unlink(&holder->claims[i]);
    }
    struct order_holder *runnable = NULL;
    struct order_holder **tail = &runnable;
    for (uint32_t i = 0; i < holder->count; i++) {
        order_scan(holder->claims[i].queue, &tail);
    }
    return runnable;
}
