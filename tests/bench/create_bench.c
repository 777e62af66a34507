#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "tests/bench/bench_node.h"

/*
 * How long it takes to create a tensor, zeroed, and to delete it, in process. Each tensor is filled
 * before it is deleted, and the last one is read back: new memory must be zeros.
 * usage: create_bench DRIVER BYTES RANKS REPEATS; BYTES of one rank, all ranks on device 0. Prints
 * JSON.
 */

#define CREATE_REPEATS_MAX 1024

static bool is_zero(struct server *server, float *buffer, uint64_t count, uint32_t ranks)
{
    for (uint32_t rank = 0; rank < ranks; rank++) {
        bench_get(server, "t", rank, buffer, count * sizeof(float));
        for (uint64_t i = 0; i < count; i++) {
            if (buffer[i] != 0) {
                return false;
            }
        }
    }
    return true;
}

static void print_values(const char *name, double *values, unsigned count)
{
    printf(",\"%s\":[", name);
    for (unsigned i = 0; i < count; i++) {
        printf("%s%.2f", i ? "," : "", values[i]);
    }
    printf("]");
}

int main(int argc, char **argv)
{
    static double created[CREATE_REPEATS_MAX], deleted[CREATE_REPEATS_MAX];
    uint64_t count = argc == 5 ? strtoull(argv[2], NULL, 10) / sizeof(float) : 0;
    uint32_t ranks = argc == 5 ? (uint32_t)strtoul(argv[3], NULL, 10) : 0;
    unsigned repeats = argc == 5 ? (unsigned)strtoul(argv[4], NULL, 10) : 0;
    float *buffer = count > 0 ? malloc(count * sizeof(float)) : NULL;
    if (!buffer || ranks < 1 || repeats < 1 || repeats > CREATE_REPEATS_MAX) {
        fprintf(stderr, "usage: create_bench software|cuda BYTES RANKS REPEATS\n");
        free(buffer);
        return 2;
    }
    struct server *server = bench_node_start(argv[1], 1, 0);
    bench_group(server, "g", ranks, 1);
    bool right = true;
    for (unsigned i = 0; i < repeats; i++) {
        uint64_t start = st_clock_now_ns();
        bench_tensor(server, "g", "t", ST_DTYPE_FLOAT32, count);
        created[i] = (double)(st_clock_now_ns() - start) / 1e3;
        right = right && (i + 1 < repeats || is_zero(server, buffer, count, ranks));
        bench_fill(server, "t", 1.0);
        start = st_clock_now_ns();
        bench_tensor_delete(server, "t");
        deleted[i] = (double)(st_clock_now_ns() - start) / 1e3;
    }
    printf("{\"bytes\":%llu,\"ranks\":%u,\"right\":%s", (unsigned long long)count * sizeof(float),
           ranks, right ? "true" : "false");
    print_values("create_us", created, repeats);
    print_values("delete_us", deleted, repeats);
    printf("}\n");
    free(buffer);
    bench_node_stop(server);
    return 0;
}
