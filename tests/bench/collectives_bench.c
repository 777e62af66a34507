/*
 * One row of the collectives benchmark: our collective and every candidate for its limit in turn,
 * on one node in this process. BYTES are those of the larger side on one rank; float32; sum.
 *
 * usage: collectives_bench [--driver software|cuda] [--limit loops|copy] [--turns]
 *                          COLLECTIVE BYTES RANKS DEVICES REPEATS
 *
 * Prints one JSON object; "ours_us" are from submit to done, "device_us" (with --limit copy, on one
 * device) between events around the launches. With --turns, one object when the row is set up and
 * one for each line of standard input: "run" (REPEATS calls) or "check".
 */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/bench/bare_loop.h"
#include "tests/bench/bench_row.h"
#include "tests/bench/device_timer.h"

#define VARIANTS_MAX 64
#define REPEATS_MAX 4096
/* A launch below this is timed as a run of launches: one alone is shorter than the clock is good.
 */
#define SMALL_BYTES (1u << 20)
#define SMALL_REPEAT 20u

/** What a row is held against: several candidates, of which the fastest is the limit. */
struct limit {
    const char *name;
    unsigned (*start)(struct bench *b); /**< @return candidates. Before the first run. */
    double (*run)(struct bench *b, unsigned candidate); /**< @return microseconds. */
    void (*describe)(const struct bench *b, unsigned candidate, char *text, size_t bytes);
};

/* ---------------------------------------------------------------- loops on the host */

static struct bare_variant variants[VARIANTS_MAX];
static struct bare_work work;

static char *address(const struct bench *b, const char *tensor, uint32_t rank)
{
    return (char *)(uintptr_t)bench_tensor_address(b->server, tensor, rank);
}

static unsigned loops_start(struct bench *b)
{
    unsigned cores = (unsigned)sysconf(_SC_NPROCESSORS_ONLN);
    bool slices = b->row->input_is_slice || b->row->output_is_slice;
    work = (struct bare_work){.bytes = b->count * sizeof(float),
                              .reads = bench_row_reads(b),
                              .writes = bench_row_writes(b)};
    if (slices) {
        bench_tensor(b->server, "g", "whole", ST_DTYPE_FLOAT32, b->count);
        memset(address(b, "whole", 0), 0, work.bytes);
    }
    for (uint32_t i = 0; i < work.reads; i++) {
        work.input[i] = address(b, b->row->input_is_slice ? "whole" : "in", i);
    }
    for (uint32_t i = 0; i < work.writes; i++) {
        const char *tensor = b->row->output_is_slice ? "whole" : bench_row_output(b);
        work.output[i] = address(b, tensor, b->row->from_root ? i + 1 : i);
    }
    bare_start(cores);
    return bare_variants(cores, variants, VARIANTS_MAX);
}

static double loops_run(struct bench *b, unsigned candidate)
{
    (void)b;
    return (double)bare_run(&work, &variants[candidate]) / 1e3;
}

static void loops_describe(const struct bench *b, unsigned candidate, char *text, size_t bytes)
{
    const struct bare_variant *variant = &variants[candidate];
    (void)b;
    snprintf(text, bytes, "%u threads, %s stores, %zu byte blocks, %u read %u written",
             variant->threads, variant->non_temporal ? "non-temporal" : "normal",
             variant->block_bytes, work.reads, work.writes);
}

/* ---------------------------------------------------------------- copies on the device */

static const char *const copies[] = {"cuMemcpyDtoDAsync", "copy kernel (broadcast of 2 ranks)"};
#define COPIES (sizeof(copies) / sizeof(copies[0]))

/** Bytes of one copy that reads and writes as much as the row. */
static uint64_t copy_bytes(const struct bench *b)
{
    uint64_t arrays = bench_row_reads(b) + bench_row_writes(b);
    return arrays * b->count * sizeof(float) / 2;
}

static unsigned copies_start(struct bench *b)
{
    bench_group(b->server, "c", 2, 1);
    bench_tensor(b->server, "c", "copy", ST_DTYPE_FLOAT32, copy_bytes(b) / sizeof(float));
    bench_fill(b->server, "copy", 1.0);
    return COPIES;
}

static double copies_run(struct bench *b, unsigned candidate)
{
    struct server_collective_request request = b->request;
    const char *algorithm = NULL;
    if (candidate == 0) {
        return device_timer_copy(b->server, "copy", copy_bytes(b));
    }
    request.collective = gpu_collective_find("broadcast");
    snprintf(request.tensor, sizeof(request.tensor), "copy");
    request.output[0] = '\0';
    request.algorithm = gpu_algorithm_find("two_shot"); /* a kernel, also for a plain copy */
    device_timer_start(1);
    bench_collective(b->server, &request, &algorithm);
    return device_timer_stop();
}

static void copies_describe(const struct bench *b, unsigned candidate, char *text, size_t bytes)
{
    snprintf(text, bytes, "%s, %llu bytes", copies[candidate], (unsigned long long)copy_bytes(b));
}

static const struct limit limits[] = {
    {"loops", loops_start, loops_run, loops_describe},
    {"copy", copies_start, copies_run, copies_describe},
};

/* ---------------------------------------------------------------- one row */

struct run {
    struct bench bench;
    const struct limit *limit;
    unsigned candidates, repeats;
    bool device_time, right;
    const char *algorithm;
    double ours[REPEATS_MAX], device[REPEATS_MAX], limits[VARIANTS_MAX][REPEATS_MAX];
};

static void check(struct run *run)
{
    bench_row_put(&run->bench);
    bench_collective(run->bench.server, &run->bench.request, &run->algorithm);
    run->right = run->right && bench_row_is_right(&run->bench);
}

static void measure(struct run *run)
{
    struct bench *b = &run->bench;
    bool small = b->count * sizeof(float) < SMALL_BYTES;
    for (unsigned i = 0; i < run->repeats; i++) {
        run->ours[i] = (double)bench_collective(b->server, &b->request, &run->algorithm) / 1e3;
        if (run->device_time) {
            device_timer_start(small ? SMALL_REPEAT : 1);
            bench_collective(b->server, &b->request, &run->algorithm);
            run->device[i] = device_timer_stop();
        }
        for (unsigned candidate = 0; candidate < run->candidates; candidate++) {
            run->limits[candidate][i] = run->limit->run(b, candidate);
        }
    }
}

static void print_values(const char *name, const double *values, unsigned count)
{
    printf(",\"%s\":[", name);
    for (unsigned i = 0; i < count; i++) {
        printf("%s%.2f", i ? "," : "", values[i]);
    }
    printf("]");
}

/** @param count of values: 0 when nothing has been measured. */
static void print(struct run *run, unsigned count)
{
    printf("{\"collective\":\"%s\",\"algorithm\":\"%s\",\"right\":%s", run->bench.row->name,
           run->algorithm, run->right ? "true" : "false");
    if (count > 0) {
        char text[160] = "";
        unsigned best = 0;
        print_values("ours_us", run->ours, count);
        if (run->device_time) {
            print_values("device_us", run->device, count);
        }
        for (unsigned i = 0; i < run->candidates; i++) {
            bool faster = bench_quantile(run->limits[i], count, 0.5) <
                          bench_quantile(run->limits[best], count, 0.5);
            best = faster ? i : best;
        }
        run->limit->describe(&run->bench, best, text, sizeof(text));
        printf(",\"limit_us\":%.2f,\"limit\":\"%s\"", bench_quantile(run->limits[best], count, 0.5),
               text);
    }
    printf("}\n");
    fflush(stdout);
}

static void take_turns(struct run *run)
{
    char line[64];
    print(run, 0);
    while (fgets(line, sizeof(line), stdin)) {
        bool measures = !strcmp(line, "run\n");
        if (measures) {
            measure(run);
        } else {
            check(run);
        }
        print(run, measures ? run->repeats : 0);
    }
}

static int usage(void)
{
    fprintf(stderr, "usage: collectives_bench [--driver software|cuda] [--limit loops|copy] "
                    "[--turns] COLLECTIVE BYTES RANKS DEVICES REPEATS\n");
    return 2;
}

static const struct limit *find_limit(const char *name)
{
    for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++) {
        if (!strcmp(limits[i].name, name)) {
            return &limits[i];
        }
    }
    return NULL;
}

/** The positional arguments. @return false: they are wrong. */
static bool parse(struct run *run, char **argv)
{
    struct bench *b = &run->bench;
    b->row = bench_row_find(argv[0]);
    b->ranks = (uint32_t)strtoul(argv[2], NULL, 10);
    b->devices = (uint32_t)strtoul(argv[3], NULL, 10);
    run->repeats = (unsigned)strtoul(argv[4], NULL, 10);
    b->count = strtoull(argv[1], NULL, 10) / sizeof(float);
    b->slice = b->ranks > 0 ? b->count / b->ranks : 0;
    return b->row && b->slice > 0 && b->devices > 0 && run->repeats > 0 &&
           run->repeats <= REPEATS_MAX;
}

int main(int argc, char **argv)
{
    static struct run run = {.right = true};
    static const struct option options[] = {{"driver", required_argument, NULL, 'd'},
                                            {"limit", required_argument, NULL, 'l'},
                                            {"turns", no_argument, NULL, 't'},
                                            {0}};
    const char *driver = "software", *limit = NULL;
    bool turns = false;
    for (int option; (option = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        driver = option == 'd' ? optarg : driver;
        limit = option == 'l' ? optarg : limit;
        turns = turns || option == 't';
        if (option == '?') {
            return usage();
        }
    }
    bool software = !strcmp(driver, "software");
    run.limit = find_limit(limit ? limit : software ? "loops" : "copy");
    if (argc - optind != 5 || !run.limit || !parse(&run, argv + optind) ||
        (run.limit->run == loops_run && !software)) {
        return usage();
    }
    bool timer = run.limit->run == copies_run;
    run.device_time = timer && run.bench.devices == 1;
    run.bench.server = bench_node_start(driver, run.bench.devices, 0);
    if (timer) {
        device_timer_install(run.bench.server);
    }
    bench_row_create(&run.bench);
    check(&run);
    run.candidates = run.limit->start(&run.bench);
    if (turns) {
        take_turns(&run);
    } else {
        measure(&run);
        check(&run);
        print(&run, run.repeats);
    }
    bench_row_destroy(&run.bench);
    if (timer) {
        device_timer_remove(run.bench.server);
    }
    bench_node_stop(run.bench.server);
    return 0;
}
