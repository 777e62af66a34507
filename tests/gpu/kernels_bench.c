#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/kernels/image.h"
#include "tests/gpu/kernels_device.h"

/*
 * How fast symtensor_move is on one device, alone: kernels_bench [IMAGE [BLOCKS]]. IMAGE is a cubin
 * or fat binary to time instead of the embedded one, BLOCKS a grid instead of the server's. Each
 * row is timed beside a copy of the driver that moves as many bytes, in turn; medians of several
 * rounds, by events.
 */

#define EXIT_SKIPPED 77
#define RANKS 4u
#define RANK_BYTES ((uint64_t)256 << 20)
#define ROUNDS 9u
#define SMALL_BYTES 8192u
#define SMALL_LAUNCHES 200u

static struct kernels_device device;
static CUevent before, after;
static uint32_t blocks_asked;

#define CALL(name, ...)                                                                            \
    do {                                                                                           \
        CUresult result = device.driver->name(__VA_ARGS__);                                        \
        if (result != CUDA_SUCCESS) {                                                              \
            printf(#name ": %s\n", gpu_driver_result_name(result));                                \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

/** What is timed: a launch, or a copy of @p copy_bytes. */
struct work {
    struct gpu_move_params *params;
    uint32_t blocks, repeats;
    uint64_t copy_bytes;
};

static double work_time_us(const struct work *work)
{
    float milliseconds = 0;
    CALL(cuEventRecord, before, NULL);
    for (uint32_t i = 0; i < work->repeats; i++) {
        if (work->params) {
            kernels_device_launch(&device, GPU_KERNEL_MOVE, work->params, work->blocks);
        } else {
            CALL(cuMemcpyDtoDAsync, device.address + device.bytes / 2, device.address,
                 work->copy_bytes, NULL);
        }
    }
    CALL(cuEventRecord, after, NULL);
    CALL(cuEventSynchronize, after);
    CALL(cuEventElapsedTime, &milliseconds, before, after);
    return 1000.0 * (double)milliseconds / work->repeats;
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values)
{
    qsort(values, ROUNDS, sizeof(values[0]), compare_doubles);
    return values[ROUNDS / 2];
}

/* ------------------------------------------------------------------ rows */

enum verb {
    ALL_REDUCE,
    ALL_REDUCE_IN_PLACE,
    REDUCE_SCATTER,
    BROADCAST,
    ALL_GATHER,
    ALL_TO_ALL,
    EXCHANGE
};

struct row {
    const char *name;
    enum verb verb;
    enum st_dtype dtype;
    enum st_reduce_op op;
    double bar;      /**< Share of the limit that is asked for; 0: none. */
    uint32_t arrays; /**< Read and written, in quarters of a rank's larger side. */
};

static const struct row rows[] = {
    {"all_reduce float32 sum", ALL_REDUCE, ST_DTYPE_FLOAT32, ST_OP_SUM, 0.93, 32},
    {"all_reduce float32 sum in place", ALL_REDUCE_IN_PLACE, ST_DTYPE_FLOAT32, ST_OP_SUM, 0.93, 32},
    {"reduce_scatter float32 sum", REDUCE_SCATTER, ST_DTYPE_FLOAT32, ST_OP_SUM, 0.93, 20},
    {"broadcast float32", BROADCAST, ST_DTYPE_FLOAT32, ST_OP_SUM, 0.90, 20},
    {"all_gather float32", ALL_GATHER, ST_DTYPE_FLOAT32, ST_OP_SUM, 0.90, 20},
    {"all_to_all float32", ALL_TO_ALL, ST_DTYPE_FLOAT32, ST_OP_SUM, 0.90, 32},
    {"all_to_all in place", EXCHANGE, ST_DTYPE_FLOAT32, ST_OP_SUM, 0, 24},
    {"all_reduce float32 avg", ALL_REDUCE, ST_DTYPE_FLOAT32, ST_OP_AVG, 0, 32},
    {"all_reduce float64 sum", ALL_REDUCE, ST_DTYPE_FLOAT64, ST_OP_SUM, 0, 32},
    {"all_reduce bfloat16 sum", ALL_REDUCE, ST_DTYPE_BFLOAT16, ST_OP_SUM, 0, 32},
    {"all_reduce float16 avg", ALL_REDUCE, ST_DTYPE_FLOAT16, ST_OP_AVG, 0, 32},
    {"all_reduce float8_e4m3fn sum", ALL_REDUCE, ST_DTYPE_FLOAT8_E4M3FN, ST_OP_SUM, 0, 32},
    {"all_reduce int8 max", ALL_REDUCE, ST_DTYPE_INT8, ST_OP_MAX, 0, 32},
    {"all_reduce int64 avg", ALL_REDUCE, ST_DTYPE_INT64, ST_OP_AVG, 0, 32},
};

static void row_movements(const struct row *row, uint64_t count, struct gpu_move_params *params)
{
    uint64_t slice = count / RANKS;
    bool whole =
        row->verb == ALL_REDUCE || row->verb == ALL_REDUCE_IN_PLACE || row->verb == BROADCAST;
    bool pairs = row->verb == ALL_TO_ALL || row->verb == EXCHANGE;
    bool reduces = row->verb <= REDUCE_SCATTER;
    uint32_t movements = whole ? 1 : pairs ? RANKS * RANKS : RANKS;
    for (uint32_t i = 0; i < movements; i++) {
        uint32_t source = pairs ? i / RANKS : i, destination = pairs ? i % RANKS : i;
        struct gpu_movement movement = {
            .count = whole ? count : slice,
            .source_offset = pairs || row->verb == REDUCE_SCATTER ? destination * slice : 0,
            .destination_offset = pairs || row->verb == ALL_GATHER ? source * slice : 0,
            .source_rank = (uint16_t)(reduces ? GPU_RANK_ALL : source),
            .destination_rank =
                (uint16_t)(pairs || row->verb == REDUCE_SCATTER ? destination : GPU_RANK_ALL),
            .kind = reduces ? GPU_MOVEMENT_REDUCE : GPU_MOVEMENT_COPY,
        };
        if (row->verb == EXCHANGE) {
            movement.kind = GPU_MOVEMENT_EXCHANGE;
        }
        if (row->verb != EXCHANGE || source < destination) {
            params->movements[params->movement_count++] = movement;
        }
    }
}

static void row_params(const struct row *row, uint64_t rank_bytes, struct gpu_move_params *params)
{
    bool in_place = row->verb == ALL_REDUCE_IN_PLACE || row->verb == EXCHANGE;
    *params = (struct gpu_move_params){.world_size = RANKS,
                                       .dtype = row->dtype,
                                       .op = row->op,
                                       .part_count = 1,
                                       .streaming = rank_bytes == RANK_BYTES};
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        params->inputs[rank] = device.address + rank * rank_bytes;
        params->outputs[rank] = params->inputs[rank] + (in_place ? 0 : RANKS * rank_bytes);
    }
    row_movements(row, rank_bytes / st_dtype_info(row->dtype)->size_bytes, params);
}

static void row_time(const struct row *row)
{
    struct gpu_move_params params;
    uint64_t bytes = RANK_BYTES / 4 * row->arrays;
    double times[ROUNDS], limits[ROUNDS];
    row_params(row, RANK_BYTES, &params);
    const struct work launch = {
        &params, blocks_asked ? blocks_asked : gpu_kernel_blocks(device.processors, bytes, false),
        3, 0};
    const struct work copy = {NULL, 0, 3, bytes / 2};
    (void)work_time_us(&launch);
    (void)work_time_us(&copy);
    for (uint32_t i = 0; i < ROUNDS; i++) {
        times[i] = work_time_us(&launch);
        limits[i] = work_time_us(&copy);
    }
    double time = median(times), limit = median(limits);
    printf("%-34s %8.1f us %7.0f GB/s   copy %8.1f us %7.0f GB/s   ratio %.3f", row->name, time,
           (double)bytes / time / 1000, limit, (double)bytes / limit / 1000, limit / time);
    printf(row->bar > 0 ? "  bar %.2f %s\n" : "\n", row->bar,
           limit / time >= row->bar ? "met" : "MISSED");
}

/** One small launch, as the difference that a launch more makes, and behind an idle device. */
static void small_time(uint64_t bytes)
{
    struct gpu_move_params params;
    double many[ROUNDS], one[ROUNDS];
    row_params(&rows[0], bytes, &params);
    params.fine = gpu_kernel_is_fine(device.processors, 2 * bytes);
    uint32_t blocks =
        blocks_asked ? blocks_asked : gpu_kernel_blocks(device.processors, 2 * bytes, params.fine);
    const struct work launches = {&params, blocks, SMALL_LAUNCHES, 0},
                      launch = {&params, blocks, 1, 0};
    (void)work_time_us(&launches);
    for (uint32_t i = 0; i < ROUNDS; i++) {
        many[i] = work_time_us(&launches);
        one[i] = work_time_us(&launch);
    }
    printf("all_reduce float32 x%u of %7llu bytes, %3u blocks: %.2f us a launch back to back, %.2f "
           "us alone\n",
           RANKS, (unsigned long long)bytes, blocks, median(many), median(one));
}

/** Random bits: zeros can be faster than data. */
static void memory_fill(void)
{
    size_t piece = (size_t)64 << 20;
    uint32_t *random = malloc(piece), state = 1;
    if (!random) {
        exit(1);
    }
    for (size_t i = 0; i < piece / sizeof(*random); i++) {
        state = state * 1664525u + 1013904223u;
        random[i] = (state >> 9) | 0x3f800000u; /* floats of 1 to 2 */
    }
    for (size_t at = 0; at < device.bytes; at += piece) {
        kernels_device_upload(&device, at, random, piece);
    }
    free(random);
}

int main(int argc, char **argv)
{
    if (!kernels_device_open(argc > 1 && argv[1][0] ? argv[1] : NULL, 2 * RANKS * RANK_BYTES,
                             &device)) {
        return EXIT_SKIPPED;
    }
    blocks_asked = argc > 2 ? (uint32_t)atoi(argv[2]) : 0;
    CALL(cuEventCreate, &before, 0);
    CALL(cuEventCreate, &after, 0);
    memory_fill();
    printf("%u ranks, %llu MiB a rank, %s, %u blocks at most\n", RANKS,
           (unsigned long long)(RANK_BYTES >> 20), argc > 1 ? argv[1] : "the embedded image",
           blocks_asked ? blocks_asked : device.processors * GPU_KERNEL_BLOCKS_PER_PROCESSOR);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        row_time(&rows[i]);
    }
    for (uint64_t bytes = SMALL_BYTES; bytes <= 4u << 20; bytes *= 4) {
        small_time(bytes);
    }
    return kernels_device_wait(&device) ? 0 : 1;
}
