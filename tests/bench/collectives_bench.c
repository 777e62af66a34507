/*
 * One row of the collectives benchmark on the software driver: our collective and every bare loop
 * in turn, on the same buffers, in one process. usage: collectives_bench COLLECTIVE BYTES RANKS
 * DEVICES REPEATS Prints one JSON object. BYTES are those of the larger side on one rank; float32;
 * sum.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/bench/bare_loop.h"
#include "tests/bench/bench_node.h"

#define VARIANTS_MAX 64

/* How a collective maps to tensors: the sizes of its sides and the arrays that a bare loop touches.
 */
static const struct row {
    const char *name;
    bool input_is_slice, output_is_slice, in_place;
    bool reads_root; /* the bare loop reads one array and writes the others */
} rows[] = {
    {"all_reduce", false, false, false, false}, {"reduce_scatter", false, true, false, false},
    {"broadcast", false, false, true, true},    {"all_gather", true, false, false, false},
    {"all_to_all", false, false, false, false},
};

struct bench {
    const struct row *row;
    struct server *server;
    uint32_t ranks, devices;
    uint64_t count, slice; /* elements of the larger side, of one slice */
    struct server_collective_request request;
};

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

static void put_inputs(const struct bench *b, float *buffer)
{
    uint64_t count = b->row->input_is_slice ? b->slice : b->count;
    for (uint32_t rank = 0; rank < b->ranks; rank++) {
        for (uint64_t i = 0; i < count; i++) {
            buffer[i] = input_value(rank, i);
        }
        bench_put(b->server, "in", rank, buffer, count * sizeof(float));
    }
}

static bool outputs_are_right(const struct bench *b, float *buffer)
{
    uint64_t count = b->row->output_is_slice ? b->slice : b->count;
    const char *tensor = b->row->in_place ? "in" : "out";
    for (uint32_t rank = 0; rank < b->ranks; rank++) {
        bench_get(b->server, tensor, rank, buffer, count * sizeof(float));
        for (uint64_t i = 0; i < count; i++) {
            if (buffer[i] != expected(b, rank, i)) {
                return false;
            }
        }
    }
    return true;
}

static char *address(const struct bench *b, const char *tensor, uint32_t rank)
{
    return (char *)(uintptr_t)bench_tensor_address(b->server, tensor, rank);
}

static void fill_work(const struct bench *b, struct bare_work *work)
{
    uint32_t first_written = b->row->reads_root ? 1 : 0;
    *work = (struct bare_work){.bytes = b->count * sizeof(float)};
    work->reads = b->row->reads_root ? 1 : b->ranks;
    for (uint32_t rank = 0; rank < work->reads; rank++) {
        work->input[rank] = address(b, "in", rank);
    }
    work->writes = b->ranks - first_written;
    for (uint32_t i = 0; i < work->writes; i++) {
        work->output[i] = address(b, b->row->in_place ? "in" : "out", i + first_written);
    }
    /* all_gather reads w slices in all, which is one whole array; reduce_scatter writes as much. */
    if (b->row->input_is_slice) {
        work->reads = 1;
        work->input[0] = address(b, "whole", 0);
    }
    if (b->row->output_is_slice) {
        work->writes = 1;
        work->output[0] = address(b, "whole", 0);
    }
}

static void print_values(const char *name, const double *values, unsigned count)
{
    printf("\"%s\":[", name);
    for (unsigned i = 0; i < count; i++) {
        printf("%s%.2f", i ? "," : "", values[i]);
    }
    printf("]");
}

static void measure(struct bench *b, unsigned repeats)
{
    static double ours[4096], bare[VARIANTS_MAX][4096];
    float *buffer = malloc(b->count * sizeof(float));
    struct bare_variant variants[VARIANTS_MAX];
    unsigned cores = (unsigned)sysconf(_SC_NPROCESSORS_ONLN);
    unsigned variant_count = bare_variants(cores, variants, VARIANTS_MAX);
    struct bare_work work;
    const char *algorithm = NULL;
    if (!buffer) {
        exit(1);
    }
    bare_start(cores);
    put_inputs(b, buffer);
    bench_collective(b->server, &b->request, &algorithm);
    bool right = outputs_are_right(b, buffer);
    fill_work(b, &work);
    for (unsigned i = 0; i < repeats; i++) {
        ours[i] = (double)bench_collective(b->server, &b->request, &algorithm) / 1e3;
        for (unsigned v = 0; v < variant_count; v++) {
            bare[v][i] = (double)bare_run(&work, &variants[v]) / 1e3;
        }
    }
    put_inputs(b, buffer);
    bench_collective(b->server, &b->request, &algorithm);
    right = right && outputs_are_right(b, buffer);
    unsigned best = 0;
    double limit = 0;
    for (unsigned v = 0; v < variant_count; v++) {
        double median = bench_quantile(bare[v], repeats, 0.5);
        if (v == 0 || median < limit) {
            limit = median;
            best = v;
        }
    }
    printf("{\"collective\":\"%s\",\"algorithm\":\"%s\",\"right\":%s,\"limit_us\":%.2f,"
           "\"limit\":\"%u threads, %s stores, %zu byte blocks, %u read %u written\",",
           b->row->name, algorithm, right ? "true" : "false", limit, variants[best].threads,
           variants[best].non_temporal ? "non-temporal" : "normal", variants[best].block_bytes,
           work.reads, work.writes);
    print_values("ours_us", ours, repeats);
    printf("}\n");
    free(buffer);
}

static const struct row *find_row(const char *name)
{
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        if (!strcmp(rows[i].name, name)) {
            return &rows[i];
        }
    }
    return NULL;
}

int main(int argc, char **argv)
{
    struct bench b = {.row = argc == 6 ? find_row(argv[1]) : NULL};
    if (!b.row) {
        fprintf(stderr, "usage: collectives_bench COLLECTIVE BYTES RANKS DEVICES REPEATS\n");
        return 2;
    }
    uint64_t bytes = strtoull(argv[2], NULL, 10);
    b.ranks = (uint32_t)strtoul(argv[3], NULL, 10);
    b.devices = (uint32_t)strtoul(argv[4], NULL, 10);
    unsigned repeats = (unsigned)strtoul(argv[5], NULL, 10);
    b.count = bytes / sizeof(float);
    b.slice = b.count / b.ranks;
    b.server = bench_node_start(b.devices, 0);
    bench_group(b.server, "g", b.ranks, b.devices);
    bench_tensor(b.server, "g", "in", ST_DTYPE_FLOAT32, b.row->input_is_slice ? b.slice : b.count);
    if (!b.row->in_place) {
        bench_tensor(b.server, "g", "out", ST_DTYPE_FLOAT32,
                     b.row->output_is_slice ? b.slice : b.count);
    }
    if (b.row->input_is_slice || b.row->output_is_slice) {
        bench_tensor(b.server, "g", "whole", ST_DTYPE_FLOAT32, b.count);
        memset(address(&b, "whole", 0), 0, b.count * sizeof(float));
    }
    b.request = (struct server_collective_request){
        .collective = gpu_collective_find(b.row->name),
        .tensor = "in",
        .op = ST_OP_SUM,
        .deterministic = -1,
        .expected_generation = SERVER_GENERATION_ANY,
    };
    snprintf(b.request.output, sizeof(b.request.output), "%s", b.row->in_place ? "" : "out");
    measure(&b, repeats < 4096 ? repeats : 4096);
    bench_node_stop(b.server);
    return 0;
}
