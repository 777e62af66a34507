#ifndef SYMTENSOR_TESTS_BENCH_DEVICE_TIMER_H
#define SYMTENSOR_TESTS_BENCH_DEVICE_TIMER_H

#include "tests/bench/bench_node.h"

/**
 * Time that a device spends on an operation, by events: a driver table around the node's own puts
 * an event before its first launch or copy and one behind the last. What the host does beside that
 * is not in it, since each timed operation first queues other work that keeps the device busy until
 * everything is queued. One timer a process; operations on one device only.
 */

/** Put the table around the driver of a node that has no group yet. Time is taken on device 0. */
void device_timer_install(struct server *server);
void device_timer_remove(struct server *server);

/**
 * From now on: do each launch and copy @p repeat times (the operation must bear that, and outputs
 * not be its inputs), between events.
 */
void device_timer_start(uint32_t repeat);
/**
 * The operation is done: its time. Launches are as they were before.
 * @return microseconds of one repetition; below 0 when it used no launch and no copy.
 */
double device_timer_stop(void);

/** One cuMemcpyDtoDAsync between two ranks of a tensor on device 0. @return microseconds. */
double device_timer_copy(struct server *server, const char *tensor, uint64_t bytes);

#endif
