/*
 * The peers' side of a benchmark row: one collective of an MPI library, timed call by call.
 * usage: mpi_peer COLLECTIVE BYTES REPEATS   (BYTES: the larger side on one rank)
 * Rank 0 prints one line: the time of each call in microseconds (the slowest rank's), then "ok" or
 * "wrong".
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct run {
    int rank, size;
    int slice; /* elements of one slice */
    int count; /* elements of the larger side */
    float *input, *output;
};

static void call_all_reduce(struct run *r)
{
    MPI_Allreduce(r->input, r->output, r->count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

static void call_reduce_scatter(struct run *r)
{
    MPI_Reduce_scatter_block(r->input, r->output, r->slice, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

static void call_broadcast(struct run *r)
{
    MPI_Bcast(r->output, r->count, MPI_FLOAT, 0, MPI_COMM_WORLD);
}

static void call_all_gather(struct run *r)
{
    MPI_Allgather(r->input, r->slice, MPI_FLOAT, r->output, r->slice, MPI_FLOAT, MPI_COMM_WORLD);
}

static void call_all_to_all(struct run *r)
{
    MPI_Alltoall(r->input, r->slice, MPI_FLOAT, r->output, r->slice, MPI_FLOAT, MPI_COMM_WORLD);
}

/* Value of element i of rank r's input; small integers, so that sums are exact. */
static float input_value(int rank, int i)
{
    return (float)((i * 7 + rank * 13) % 101);
}

static float sum_value(const struct run *r, int i)
{
    float sum = 0;
    for (int rank = 0; rank < r->size; rank++) {
        sum += input_value(rank, i);
    }
    return sum;
}

static float expect_all_reduce(const struct run *r, int i)
{
    return sum_value(r, i);
}

static float expect_reduce_scatter(const struct run *r, int i)
{
    return sum_value(r, r->rank * r->slice + i);
}

static float expect_broadcast(const struct run *r, int i)
{
    (void)r;
    return input_value(0, i);
}

static float expect_all_gather(const struct run *r, int i)
{
    return input_value(i / r->slice, i % r->slice);
}

static float expect_all_to_all(const struct run *r, int i)
{
    return input_value(i / r->slice, r->rank * r->slice + i % r->slice);
}

static const struct row {
    const char *name;
    void (*call)(struct run *r);
    float (*expect)(const struct run *r, int i);
    int small_output; /* the output is one slice */
} rows[] = {
    {"all_reduce", call_all_reduce, expect_all_reduce, 0},
    {"reduce_scatter", call_reduce_scatter, expect_reduce_scatter, 1},
    {"broadcast", call_broadcast, expect_broadcast, 0},
    {"all_gather", call_all_gather, expect_all_gather, 0},
    {"all_to_all", call_all_to_all, expect_all_to_all, 0},
};

static const struct row *find_row(const char *name)
{
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        if (!strcmp(rows[i].name, name)) {
            return &rows[i];
        }
    }
    return NULL;
}

static int is_right(const struct run *r, const struct row *row)
{
    int count = row->small_output ? r->slice : r->count;
    for (int i = 0; i < count; i++) {
        if (r->output[i] != row->expect(r, i)) {
            return 0;
        }
    }
    return 1;
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    struct run r = {0};
    MPI_Comm_rank(MPI_COMM_WORLD, &r.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &r.size);
    const struct row *row = argc == 4 ? find_row(argv[1]) : NULL;
    if (!row) {
        fprintf(stderr, "usage: mpi_peer COLLECTIVE BYTES REPEATS\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
        return 2;
    }
    r.count = (int)(atoll(argv[2]) / (long long)sizeof(float));
    r.slice = r.count / r.size;
    int repeats = atoi(argv[3]);
    r.input = malloc((size_t)r.count * sizeof(float));
    r.output = malloc((size_t)r.count * sizeof(float));
    if (!r.input || !r.output) {
        MPI_Abort(MPI_COMM_WORLD, 2);
        return 2;
    }
    for (int i = 0; i < r.count; i++) {
        r.input[i] = input_value(r.rank, i);
        r.output[i] = r.input[i];
    }
    row->call(&r); /* buffers touched, connections made */
    int right = is_right(&r, row);
    for (int k = 0; k < repeats; k++) {
        MPI_Barrier(MPI_COMM_WORLD);
        double start = MPI_Wtime();
        row->call(&r);
        double mine = MPI_Wtime() - start;
        double slowest = 0;
        MPI_Reduce(&mine, &slowest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
        if (r.rank == 0) {
            printf("%.3f ", slowest * 1e6);
        }
    }
    right = right && is_right(&r, row);
    int all_right = 0;
    MPI_Reduce(&right, &all_right, 1, MPI_INT, MPI_MIN, 0, MPI_COMM_WORLD);
    if (r.rank == 0) {
        printf("%s\n", all_right ? "ok" : "wrong");
    }
    free(r.input);
    free(r.output);
    MPI_Finalize();
    return 0;
}
