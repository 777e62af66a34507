#ifndef SYMTENSOR_GPU_GRAPH_H
#define SYMTENSOR_GPU_GRAPH_H

#include "gpu/algorithms/algorithm.h"

/**
 * Executable graphs of collectives that come again. The first run of a key goes to the streams and
 * is remembered; a later one is recorded: the algorithm runs as ever, but what it would launch and
 * copy becomes nodes, one chain for each lane. From then on one call a lane replays it. A run that
 * differs only in its memories sets the nodes of a graph that is there to other addresses. A run
 * that waits between its lanes, or copies through pinned memory, is never recorded.
 *
 * A graph names addresses: it is destroyed before a memory of its key is.
 */

/** What two runs must have in common to be the same launches. */
struct gpu_graph_key {
    const struct gpu_team *team;
    const struct gpu_collective *collective;
    const struct gpu_algorithm *algorithm;
    struct gpu_collective_shape shape;
    enum st_dtype dtype;
    enum st_reduce_op op;
    bool streaming;
};

struct gpu_graph;

/**
 * Run a collective's algorithm: by replaying a graph where one is there or worth being made, else
 * directly. As gpu_algorithm.launch otherwise. Thread: any; two threads may run the same key, of
 * which one then goes without the graph.
 */
ST_MUST_CHECK enum st_status gpu_graph_run(struct gpu_algorithm_run *run,
                                           const struct gpu_algorithm *algorithm,
                                           struct st_error *err);

/* What launches and copies ask while job->graph is set: the calls below take their place. */

/** A kernel launch becomes a node of its lane. The lane's context is current. */
ST_MUST_CHECK enum st_status gpu_graph_add_kernel(struct gpu_graph *graph, struct gpu_lane *lane,
                                                  const struct gpu_launch *launch,
                                                  struct st_error *err);
/** A copy between device addresses becomes a node of its lane. The lane's context is current. */
ST_MUST_CHECK enum st_status gpu_graph_add_copy(struct gpu_graph *graph, struct gpu_lane *lane,
                                                uint64_t to, uint64_t from, uint64_t bytes,
                                                struct st_error *err);
/** What is to be done has no place in a graph. @return a failure, which ends the recording. */
enum st_status gpu_graph_refuse(struct st_error *err);

/** Destroy the graphs that name a memory, or a team. Nothing of theirs may be running. */
void gpu_graphs_forget_memory(struct gpu *gpu, uint64_t serial);
void gpu_graphs_forget_team(struct gpu *gpu, const struct gpu_team *team);

#endif
