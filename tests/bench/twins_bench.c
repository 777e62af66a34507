/**
 * How fast the software twins move memory, beside the fastest bare loop on the same buffers. Rows
 * are interleaved: one run of each contender, then the next round; medians with p10 and p90 are
 * printed.
 *
 *   twins_bench [--mib N] [--ranks N] [--rounds N] [--dtype NAME] [--op NAME] [--variant NAME]
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "gpu/kernels/lines.h"
#include "gpu/kernels/twin.h"
#include "tests/bench/bare_loop.h"

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25 /* Linux 6.1, include/uapi/asm-generic/mman-common.h */
#endif

#define HUGE_PAGE (2ul << 20)
#define RANKS_MAX 16u
#define ROUNDS_MAX 200u
#define BARE_MAX 64u
#define CORES_MAX 64u

struct bench_options {
    uint64_t mib;
    uint32_t ranks, rounds;
    enum st_dtype dtype;
    enum st_reduce_op op;
};

static struct bench_options options = {64, 4, 15, ST_DTYPE_FLOAT32, ST_OP_SUM};
static char *inputs[RANKS_MAX], *outputs[RANKS_MAX];

/* ------------------------------------------------------------------ memory as the driver makes it
 */

/** A shared mapping of huge pages, touched. */
static char *bench_map(size_t bytes)
{
    int fd = memfd_create("twins_bench", MFD_CLOEXEC);
    size_t whole = (bytes + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
    char *reserved = mmap(NULL, whole + HUGE_PAGE, PROT_NONE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (fd < 0 || ftruncate(fd, (off_t)whole) != 0 || reserved == MAP_FAILED) {
        perror("twins_bench: memory");
        exit(1);
    }
    char *aligned = reserved + (HUGE_PAGE - (uintptr_t)reserved % HUGE_PAGE) % HUGE_PAGE;
    char *address = mmap(aligned, whole, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0);
    if (address == MAP_FAILED) {
        perror("twins_bench: mmap");
        exit(1);
    }
    close(fd);
    madvise(address, whole, MADV_HUGEPAGE);
    for (size_t i = 0; i < whole; i++) {
        address[i] = (char)(1 + i * 7 % 13); /* small numbers in every dtype */
    }
    madvise(address, whole, MADV_COLLAPSE); /* also where shared memory gets none on advice */
    return address;
}

static void bench_print_huge_pages(void)
{
    char line[256];
    FILE *file = fopen("/proc/meminfo", "re");
    while (file && fgets(line, sizeof(line), file)) {
        if (strncmp(line, "ShmemHugePages", 14) == 0) {
            printf("huge pages of shared memory: %s", line + 15);
        }
    }
    if (file) {
        fclose(file);
    }
}

/* ------------------------------------------------------------------ a launch on all cores */

static struct {
    pthread_mutex_t lock;
    pthread_cond_t wake, finished;
    unsigned generation, running, threads;
    const struct gpu_twin *twin;
    const void *params;
    uint64_t chunks;
    atomic_uint_fast64_t next;
} pool = {.lock = PTHREAD_MUTEX_INITIALIZER,
          .wake = PTHREAD_COND_INITIALIZER,
          .finished = PTHREAD_COND_INITIALIZER};

static void pool_take_chunks(void)
{
    uint64_t chunk;
    while ((chunk = atomic_fetch_add_explicit(&pool.next, 1, memory_order_relaxed)) < pool.chunks) {
        pool.twin->run(pool.params, chunk, NULL);
    }
    gpu_twin_publish();
}

static void *pool_thread(void *arg)
{
    unsigned seen = 0;
    for (;;) {
        pthread_mutex_lock(&pool.lock);
        while (pool.generation == seen) {
            pthread_cond_wait(&pool.wake, &pool.lock);
        }
        seen = pool.generation;
        pthread_mutex_unlock(&pool.lock);
        pool_take_chunks();
        pthread_mutex_lock(&pool.lock);
        if (--pool.running == 0) {
            pthread_cond_signal(&pool.finished);
        }
        pthread_mutex_unlock(&pool.lock);
    }
    return arg;
}

static void pool_start(unsigned cores)
{
    pool.threads = cores;
    for (unsigned i = 1; i < cores; i++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, pool_thread, NULL) != 0) {
            abort();
        }
        pthread_detach(thread);
    }
}

static uint64_t pool_run(const struct gpu_twin *twin, const void *params)
{
    uint64_t start = st_clock_now_ns();
    pthread_mutex_lock(&pool.lock);
    pool.twin = twin;
    pool.params = params;
    pool.chunks = twin->chunks(params);
    atomic_store(&pool.next, 0);
    pool.running = pool.threads - 1;
    pool.generation++;
    pthread_cond_broadcast(&pool.wake);
    pthread_mutex_unlock(&pool.lock);
    pool_take_chunks();
    pthread_mutex_lock(&pool.lock);
    while (pool.running > 0) {
        pthread_cond_wait(&pool.finished, &pool.lock);
    }
    pthread_mutex_unlock(&pool.lock);
    return st_clock_now_ns() - start;
}

/* ------------------------------------------------------------------ rows */

/** One row: its movements, and how many arrays a bare loop must read and write instead. */
struct bench_row {
    const char *name;
    void (*movements)(struct gpu_move_params *params, uint64_t count);
    bool in_place;
    bool reads_all, writes_all; /* every rank's array, or one array's worth of bytes */
    bool skips_source;          /* the root's own output is not written */
};

static void add_movement(struct gpu_move_params *params, struct gpu_movement movement)
{
    params->movements[params->movement_count++] = movement;
}

static void movements_all_reduce(struct gpu_move_params *params, uint64_t count)
{
    add_movement(params, (struct gpu_movement){.count = count,
                                               .source_rank = GPU_RANK_ALL,
                                               .destination_rank = GPU_RANK_ALL,
                                               .kind = GPU_MOVEMENT_REDUCE});
}

static void movements_reduce_scatter(struct gpu_move_params *params, uint64_t count)
{
    uint64_t slice = count / params->world_size;
    for (uint32_t rank = 0; rank < params->world_size; rank++) {
        add_movement(params, (struct gpu_movement){.source_offset = rank * slice,
                                                   .count = slice,
                                                   .source_rank = GPU_RANK_ALL,
                                                   .destination_rank = (uint16_t)rank,
                                                   .kind = GPU_MOVEMENT_REDUCE});
    }
}

static void movements_broadcast(struct gpu_move_params *params, uint64_t count)
{
    add_movement(params, (struct gpu_movement){.count = count, .destination_rank = GPU_RANK_ALL});
}

static void movements_all_gather(struct gpu_move_params *params, uint64_t count)
{
    uint64_t slice = count / params->world_size;
    for (uint32_t rank = 0; rank < params->world_size; rank++) {
        add_movement(params, (struct gpu_movement){.destination_offset = rank * slice,
                                                   .count = slice,
                                                   .source_rank = (uint16_t)rank,
                                                   .destination_rank = GPU_RANK_ALL});
    }
}

static void movements_all_to_all(struct gpu_move_params *params, uint64_t count)
{
    uint32_t world_size = params->world_size;
    uint64_t slice = count / world_size;
    for (uint32_t i = 0; i < world_size * world_size && i < GPU_KERNEL_MOVEMENTS_MAX; i++) {
        add_movement(params, (struct gpu_movement){.source_offset = i % world_size * slice,
                                                   .destination_offset = i / world_size * slice,
                                                   .count = slice,
                                                   .source_rank = (uint16_t)(i / world_size),
                                                   .destination_rank = (uint16_t)(i % world_size)});
    }
}

static const struct bench_row rows[] = {
    {"all_reduce", movements_all_reduce, false, true, true, false},
    {"all_reduce in place", movements_all_reduce, true, true, true, false},
    {"reduce_scatter", movements_reduce_scatter, false, true, false, false},
    {"broadcast", movements_broadcast, true, false, true, true},
    {"all_gather", movements_all_gather, false, false, true, false},
    {"all_to_all", movements_all_to_all, false, true, true, false},
};
#define ROWS (sizeof(rows) / sizeof(rows[0]))

static int compare_times(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static void row_bare_work(const struct bench_row *row, size_t bytes, struct bare_work *ret)
{
    memset(ret, 0, sizeof(*ret));
    ret->bytes = bytes;
    ret->reads = row->reads_all ? options.ranks : 1;
    ret->writes = row->writes_all ? options.ranks - row->skips_source : 1;
    char **to = row->in_place ? inputs : outputs;
    for (uint32_t i = 0; i < ret->reads; i++) {
        ret->input[i] = inputs[i];
    }
    for (uint32_t i = 0; i < ret->writes; i++) {
        ret->output[i] = to[i + row->skips_source];
    }
}

static void row_params(const struct bench_row *row, size_t bytes, struct gpu_move_params *ret)
{
    memset(ret, 0, sizeof(*ret));
    ret->world_size = options.ranks;
    ret->dtype = options.dtype;
    ret->op = options.op;
    ret->part_count = 1;
    ret->streaming = 1;
    for (uint32_t i = 0; i < options.ranks; i++) {
        ret->inputs[i] = (uintptr_t)inputs[i];
        ret->outputs[i] = (uintptr_t)(row->in_place ? inputs[i] : outputs[i]);
    }
    row->movements(ret, bytes / st_dtype_info(options.dtype)->size_bytes);
}

/** Median, p10 and p90 of sorted times, as a rate. */
static void row_print_rate(double traffic, const uint64_t *times)
{
    uint32_t tenth = options.rounds / 10;
    printf(" %5.1f GB/s [%.1f-%.1f]", traffic / (double)times[options.rounds / 2],
           traffic / (double)times[options.rounds - 1 - tenth], traffic / (double)times[tenth]);
}

static void row_run(const struct bench_row *row, unsigned cores)
{
    static uint64_t times[BARE_MAX + 1][ROUNDS_MAX];
    struct bare_variant variants[BARE_MAX];
    unsigned bare_count = bare_variants(cores, variants, BARE_MAX);
    size_t bytes = options.mib << 20;
    struct bare_work work;
    struct gpu_move_params params;
    row_bare_work(row, bytes, &work);
    row_params(row, bytes, &params);
    const struct gpu_twin *twin = gpu_twin_find("symtensor_move");
    for (uint32_t round = 0; round < options.rounds; round++) {
        for (unsigned i = 0; i < bare_count; i++) {
            times[i + 1][round] = bare_run(&work, &variants[i]);
        }
        times[0][round] = pool_run(twin, &params);
    }
    unsigned best = 1;
    for (unsigned i = 0; i <= bare_count; i++) {
        qsort(times[i], options.rounds, sizeof(times[i][0]), compare_times);
        best = i > 1 && times[i][options.rounds / 2] < times[best][options.rounds / 2] ? i : best;
    }
    double traffic = (double)(work.reads + work.writes) * (double)bytes;
    const struct bare_variant *winner = &variants[best - 1];
    printf("%-20s %2ur %2uw  bare", row->name, work.reads, work.writes);
    row_print_rate(traffic, times[best]);
    printf(" (%u threads, %s, %zu)  twin", winner->threads, winner->non_temporal ? "nt" : "normal",
           winner->block_bytes);
    row_print_rate(traffic, times[0]);
    printf("  ratio %.2f\n",
           (double)times[best][options.rounds / 2] / (double)times[0][options.rounds / 2]);
    fflush(stdout);
}

static void usage(void)
{
    fprintf(stderr,
            "usage: twins_bench [--mib N] [--ranks 2..%u] [--rounds 1..%u] [--dtype NAME] "
            "[--op NAME] [--variant NAME]\n",
            RANKS_MAX, ROUNDS_MAX);
    exit(2);
}

static bool select_variant(const char *name)
{
    for (const struct gpu_line_variant *const *v = gpu_line_variants; *v; v++) {
        if (strcmp((*v)->name, name) == 0 && (*v)->usable()) {
            gpu_lines_select(*v);
            return true;
        }
    }
    return false;
}

static void parse_options(int argc, char **argv)
{
    for (int i = 1; i + 1 < argc; i += 2) {
        const char *name = argv[i], *value = argv[i + 1];
        bool known = true;
        if (strcmp(name, "--mib") == 0) {
            options.mib = strtoull(value, NULL, 10);
        } else if (strcmp(name, "--ranks") == 0) {
            options.ranks = (uint32_t)strtoul(value, NULL, 10);
        } else if (strcmp(name, "--rounds") == 0) {
            options.rounds = (uint32_t)strtoul(value, NULL, 10);
        } else if (strcmp(name, "--dtype") == 0) {
            known = st_dtype_parse(value, &options.dtype);
        } else if (strcmp(name, "--op") == 0) {
            known = st_reduce_op_parse(value, &options.op);
        } else {
            known = strcmp(name, "--variant") == 0 && select_variant(value);
        }
        if (!known) {
            usage();
        }
    }
    if (argc % 2 == 0 || options.mib == 0 || options.ranks < 2 || options.ranks > RANKS_MAX ||
        options.rounds < 1 || options.rounds > ROUNDS_MAX ||
        !st_reduce_op_supports(options.op, options.dtype)) {
        usage();
    }
}

int main(int argc, char **argv)
{
    parse_options(argc, argv);
    unsigned cores = (unsigned)sysconf(_SC_NPROCESSORS_ONLN);
    cores = cores < CORES_MAX ? cores : CORES_MAX;
    for (uint32_t i = 0; i < options.ranks; i++) {
        inputs[i] = bench_map(options.mib << 20);
        outputs[i] = bench_map(options.mib << 20);
    }
    bare_start(cores);
    pool_start(cores);
    printf("%s %s, %u ranks, %llu MiB, %u cores, %s\n", st_dtype_info(options.dtype)->name,
           st_reduce_op_info(options.op)->name, options.ranks, (unsigned long long)options.mib,
           cores, gpu_lines_variant()->name);
    bench_print_huge_pages();
    for (size_t i = 0; i < ROWS; i++) {
        row_run(&rows[i], cores);
    }
    return 0;
}
