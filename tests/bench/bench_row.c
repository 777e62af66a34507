#include "tests/bench/bench_row.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct bench_row rows[] = {
    {"all_reduce", false, false, false}, {"reduce_scatter", false, true, false},
    {"broadcast", false, false, true},   {"all_gather", true, false, false},
    {"all_to_all", false, false, false},
};

const struct bench_row *bench_row_find(const char *name)
{
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        if (!strcmp(rows[i].name, name)) {
            return &rows[i];
        }
    }
    return NULL;
}

static uint64_t input_count(const struct bench *b)
{
    return b->row->input_is_slice ? b->slice : b->count;
}

static uint64_t output_count(const struct bench *b)
{
    return b->row->output_is_slice ? b->slice : b->count;
}

const char *bench_row_output(const struct bench *b)
{
    return b->row->from_root ? "in" : "out";
}

void bench_row_create(struct bench *b)
{
    b->buffer = malloc(b->count * sizeof(float));
    if (!b->buffer) {
        fprintf(stderr, "bench: no memory\n");
        exit(1);
    }
    bench_group(b->server, "g", b->ranks, b->devices);
    bench_tensor(b->server, "g", "in", ST_DTYPE_FLOAT32, input_count(b));
    if (!b->row->from_root) {
        bench_tensor(b->server, "g", "out", ST_DTYPE_FLOAT32, output_count(b));
    }
    b->request = (struct server_collective_request){
        .collective = gpu_collective_find(b->row->name),
        .tensor = "in",
        .op = ST_OP_SUM,
        .deterministic = -1,
        .expected_generation = SERVER_GENERATION_ANY,
    };
    snprintf(b->request.output, sizeof(b->request.output), "%s", b->row->from_root ? "" : "out");
}

void bench_row_destroy(struct bench *b)
{
    free(b->buffer);
    b->buffer = NULL;
}

static float input_value(uint32_t rank, uint64_t i)
{
    return (float)((i * 7 + rank * 13) % 101);
}

static float sum_value(const struct bench *b, uint64_t i)
{
    float sum = 0;
    for (uint32_t rank = 0; rank < b->ranks; rank++) {
        sum += input_value(rank, i);
    }
    return sum;
}

static float expected(const struct bench *b, uint32_t rank, uint64_t i)
{
    const char *name = b->row->name;
    if (!strcmp(name, "all_reduce")) {
        return sum_value(b, i);
    }
    if (!strcmp(name, "reduce_scatter")) {
        return sum_value(b, rank * b->slice + i);
    }
    if (!strcmp(name, "broadcast")) {
        return input_value(0, i);
    }
    if (!strcmp(name, "all_gather")) {
        return input_value((uint32_t)(i / b->slice), i % b->slice);
    }
    return input_value((uint32_t)(i / b->slice), rank * b->slice + i % b->slice);
}

void bench_row_put(const struct bench *b)
{
    for (uint32_t rank = 0; rank < b->ranks; rank++) {
        for (uint64_t i = 0; i < input_count(b); i++) {
            b->buffer[i] = input_value(rank, i);
        }
        bench_put(b->server, "in", rank, b->buffer, input_count(b) * sizeof(float));
    }
    if (!b->row->from_root) {
        bench_fill(b->server, "out", -1.0);
    }
}

bool bench_row_is_right(const struct bench *b)
{
    for (uint32_t rank = 0; rank < b->ranks; rank++) {
        bench_get(b->server, bench_row_output(b), rank, b->buffer, output_count(b) * sizeof(float));
        for (uint64_t i = 0; i < output_count(b); i++) {
            if (b->buffer[i] != expected(b, rank, i)) {
                return false;
            }
        }
    }
    return true;
}

uint32_t bench_row_reads(const struct bench *b)
{
    /* Slices of all ranks are one whole array. */
    return b->row->from_root || b->row->input_is_slice ? 1 : b->ranks;
}

uint32_t bench_row_writes(const struct bench *b)
{
    if (b->row->output_is_slice) {
        return 1;
    }
    return b->row->from_root ? b->ranks - 1 : b->ranks;
}
