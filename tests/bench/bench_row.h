#ifndef SYMTENSOR_TESTS_BENCH_BENCH_ROW_H
#define SYMTENSOR_TESTS_BENCH_BENCH_ROW_H

#include "tests/bench/bench_node.h"

/** How a collective maps to tensors, and how many arrays it has to read and write at least. */
struct bench_row {
    const char *name;
    bool input_is_slice, output_is_slice;
    bool from_root; /**< In place; one array is read and the others are written. */
};

/** One row on a node: float32, sum, tensors "in" and "out" of the group "g". */
struct bench {
    const struct bench_row *row;
    struct server *server;
    uint32_t ranks, devices;
    uint64_t count, slice; /**< Elements of the larger side of one rank, and of one rank's slice. */
    float *buffer;         /**< [count] */
    struct server_collective_request request;
};

/** @return NULL: there is no such row. */
const struct bench_row *bench_row_find(const char *name);

/** Make the group, the tensors, the buffer and the request. All other fields are set. */
void bench_row_create(struct bench *b);
void bench_row_destroy(struct bench *b);

/** Put the inputs, and values that are no result where results will be. */
void bench_row_put(const struct bench *b);
/** Whether every element of every rank is what the collective says. */
bool bench_row_is_right(const struct bench *b);

/** Whole arrays that have to be read and written, all ranks together. */
uint32_t bench_row_reads(const struct bench *b);
uint32_t bench_row_writes(const struct bench *b);
/** Tensor that holds the results. */
const char *bench_row_output(const struct bench *b);

#endif
