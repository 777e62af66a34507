#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "tests/bench/bench_node.h"

/**
 * 4 KiB all_reduce over 4 devices, in process: from the submit call that the HTTP handler uses to
 * the end of the operation. Usage: latency_bench [iterations].
 */

#define LATENCY_RANKS 4u
#define LATENCY_BYTES 4096u
#define LATENCY_WARM_UP 1000u
#define LATENCY_DEVICE_BYTES (64ull << 20)

int main(int argc, char **argv)
{
    unsigned iterations = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 10) : 20000;
    double *micros = iterations > 0 ? calloc(iterations, sizeof(*micros)) : NULL;
    if (!micros) {
        fprintf(stderr, "usage: latency_bench [iterations]\n");
        return 2;
    }
    struct server *server = bench_node_start("software", LATENCY_RANKS, LATENCY_DEVICE_BYTES);
    bench_group(server, "g", LATENCY_RANKS, LATENCY_RANKS);
    bench_tensor(server, "g", "t", ST_DTYPE_FLOAT32, LATENCY_BYTES / sizeof(float));
    struct server_collective_request request = {
        .collective = gpu_collective_find("all_reduce"),
        .tensor = "t",
        .op = ST_OP_SUM,
        .deterministic = -1,
        .expected_generation = SERVER_GENERATION_ANY,
    };
    const char *algorithm = NULL;
    for (unsigned i = 0; i < LATENCY_WARM_UP; i++) {
        bench_collective(server, &request, &algorithm);
    }
    for (unsigned i = 0; i < iterations; i++) {
        micros[i] = (double)bench_collective(server, &request, &algorithm) / 1e3;
    }
    printf("all_reduce float32 %u bytes, %u devices, %s: median %.2f us, p10 %.2f, p90 %.2f\n",
           LATENCY_BYTES, LATENCY_RANKS, algorithm, bench_quantile(micros, iterations, 0.5),
           bench_quantile(micros, iterations, 0.1), bench_quantile(micros, iterations, 0.9));
    free(micros);
    bench_node_stop(server);
    return 0;
}
