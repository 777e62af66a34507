#ifndef SYMTENSOR_BASE_QUEUE_H
#define SYMTENSOR_BASE_QUEUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/**
 * A bounded queue of value structs between threads. A full queue is an answer, never a wait.
 * Thread: any, on both ends.
 */
struct st_queue;

/** @return NULL when memory is out. @param item_bytes size of one item; @param capacity items, > 0.
 */
struct st_queue *st_queue_create(size_t item_bytes, size_t capacity);
void st_queue_destroy(struct st_queue *queue);
/** Copy *item in; false when full or closed. Blocks: never. */
bool st_queue_push(struct st_queue *queue, const void *item);
/** Copy the oldest out. Blocks: until @p deadline_ns (monotonic), an item or close. @return false:
 * none. */
bool st_queue_pop(struct st_queue *queue, void *ret_item, uint64_t deadline_ns);
/** No more pushes; pops drain what is there, then answer false at once. */
void st_queue_close(struct st_queue *queue);
size_t st_queue_length(struct st_queue *queue);

#endif
