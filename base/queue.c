#include "base/queue.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"

struct st_queue {
    pthread_mutex_t lock;
    pthread_cond_t not_empty; /**< Waits by CLOCK_MONOTONIC. */
    unsigned char *items;     /**< [capacity][item_bytes], a ring. */
    size_t item_bytes;
    size_t capacity;
    size_t first; /**< Slot of the oldest item. */
    size_t length;
    bool closed;
};

struct st_queue *st_queue_create(size_t item_bytes, size_t capacity)
{
    size_t bytes;
    if (__builtin_mul_overflow(item_bytes, capacity, &bytes)) {
        return NULL;
    }
    struct st_queue *queue = calloc(1, sizeof(*queue));
    if (!queue) {
        return NULL;
    }
    queue->items = malloc(bytes);
    if (!queue->items) {
        free(queue);
        return NULL;
    }
    queue->item_bytes = item_bytes;
    queue->capacity = capacity;
    pthread_mutex_init(&queue->lock, NULL);
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&queue->not_empty, &attributes);
    pthread_condattr_destroy(&attributes);
    return queue;
}

void st_queue_destroy(struct st_queue *queue)
{
    if (!queue) {
        return;
    }
    pthread_cond_destroy(&queue->not_empty);
    pthread_mutex_destroy(&queue->lock);
    free(queue->items);
    free(queue);
}

static unsigned char *queue_slot(struct st_queue *queue, size_t position)
{
    return queue->items + (queue->first + position) % queue->capacity * queue->item_bytes;
}

bool st_queue_push(struct st_queue *queue, const void *item)
{
    pthread_mutex_lock(&queue->lock);
    bool fits = !queue->closed && queue->length < queue->capacity;
    if (fits) {
        memcpy(queue_slot(queue, queue->length), item, queue->item_bytes);
        queue->length++;
        pthread_cond_signal(&queue->not_empty);
    }
    pthread_mutex_unlock(&queue->lock);
    return fits;
}

/** Wait once; false when the deadline has passed. The caller holds the lock. */
static bool queue_wait(struct st_queue *queue, uint64_t deadline_ns)
{
    if (deadline_ns == ST_DEADLINE_NEVER) {
        pthread_cond_wait(&queue->not_empty, &queue->lock);
        return true;
    }
    if (st_clock_now_ns() >= deadline_ns) {
        return false;
    }
    struct timespec until = {.tv_sec = (time_t)(deadline_ns / ST_NS_PER_SECOND),
                             .tv_nsec = (long)(deadline_ns % ST_NS_PER_SECOND)};
    pthread_cond_timedwait(&queue->not_empty, &queue->lock, &until);
    return true;
}

bool st_queue_pop(struct st_queue *queue, void *ret_item, uint64_t deadline_ns)
{
    pthread_mutex_lock(&queue->lock);
    bool waiting = true;
    while (queue->length == 0 && !queue->closed && waiting) {
        waiting = queue_wait(queue, deadline_ns);
    }
    bool got = queue->length > 0;
    if (got) {
        memcpy(ret_item, queue_slot(queue, 0), queue->item_bytes);
        queue->first = (queue->first + 1) % queue->capacity;
        queue->length--;
    }
    pthread_mutex_unlock(&queue->lock);
    return got;
}

void st_queue_close(struct st_queue *queue)
{
    pthread_mutex_lock(&queue->lock);
    queue->closed = true;
    pthread_cond_broadcast(&queue->not_empty);
    pthread_mutex_unlock(&queue->lock);
}

size_t st_queue_length(struct st_queue *queue)
{
    pthread_mutex_lock(&queue->lock);
    size_t length = queue->length;
    pthread_mutex_unlock(&queue->lock);
    return length;
}
