#ifndef SYMTENSOR_TESTS_BENCH_BENCH_NODE_H
#define SYMTENSOR_TESTS_BENCH_BENCH_NODE_H

#include "server/server.h"

/**
 * A node inside the benchmark's process, driven through server/server.h as the HTTP handlers drive
 * it. Every function ends the program with a message when something fails: a benchmark has no other
 * answer.
 */

/**
 * @param driver              "software" or "cuda"; multicast of real devices is off.
 * @param devices             of the software driver; a real one has what the machine has.
 * @param device_memory_bytes of the software driver, 0: its default.
 */
struct server *bench_node_start(const char *driver, uint32_t devices, uint64_t device_memory_bytes);
void bench_node_stop(struct server *server);

/** A group with ranks spread over the devices in turn. */
void bench_group(struct server *server, const char *id, uint32_t ranks, uint32_t devices);
/** A row-major tensor of one dimension. */
void bench_tensor(struct server *server, const char *group, const char *id, enum st_dtype dtype,
                  uint64_t elements);
void bench_tensor_delete(struct server *server, const char *id);
/** Every element of every rank. */
void bench_fill(struct server *server, const char *tensor, double value);
void bench_put(struct server *server, const char *tensor, uint32_t rank, const void *data,
               uint64_t bytes);
void bench_get(struct server *server, const char *tensor, uint32_t rank, void *data,
               uint64_t bytes);

/** Address of a shard; on the software driver one of the host, for bare loops over the buffers. */
uint64_t bench_tensor_address(struct server *server, const char *tensor, uint32_t rank);

/** Submit, wait, check. @return nanoseconds from submit to done; *ret_algorithm its name. */
uint64_t bench_collective(struct server *server, const struct server_collective_request *request,
                          const char **ret_algorithm);

/** Median and percentiles of [count] values, which are sorted. @p fraction 0..1. */
double bench_quantile(double *values, unsigned count, double fraction);

#endif
