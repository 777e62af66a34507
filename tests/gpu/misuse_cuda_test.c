#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gpu/cuda/cuda.h"
#include "tests/contract/gpu/misuse.h"
#include "tests/support/cuda_there.h"

/* The table of misuse over a real driver, without the rows that need multicast. Each row runs in a
 * process of its own: what a driver does after wrong calls must not colour the next row. */

#define ROW_SECONDS 20
#define ROW_CRASHED 20000 /* + the signal */

static const char image[] = ".version 7.0\n.target sm_80\n.address_size 64\n"
                            ".visible .entry touch() { ret; }\n";

/** In the child: run one row and write its result. */
static void row_child(const struct misuse_row *row, int pipe_end)
{
    CUresult result = CUDA_ERROR_NO_DEVICE;
    struct misuse_driver misuse = {.image = image, .function = "touch"};
    struct st_error err;
    alarm(ROW_SECONDS);
    if (gpu_cuda_open(&(struct gpu_cuda_options){0}, &misuse.driver, &err) == ST_OK &&
        misuse.driver->cuInit(0) == CUDA_SUCCESS) {
        (void)misuse_run(&misuse, row, &result);
    }
    _exit(write(pipe_end, &result, sizeof(result)) == sizeof(result) ? 0 : 1);
}

static int row_run(const struct misuse_row *row)
{
    int ends[2];
    CUresult result;
    int status;
    fflush(stdout);
    if (pipe(ends)) {
        return -1;
    }
    pid_t child = fork();
    if (child == 0) {
        row_child(row, ends[1]);
    }
    close(ends[1]);
    bool answered = read(ends[0], &result, sizeof(result)) == sizeof(result);
    close(ends[0]);
    waitpid(child, &status, 0);
    return answered ? (int)result : ROW_CRASHED + (WIFSIGNALED(status) ? WTERMSIG(status) : 0);
}

int main(void)
{
    static const char *const sources[] = {
        [MISUSE_SEEN] = "seen",       [MISUSE_STRICTER] = "ours is stricter",
        [MISUSE_CRASHES] = "crashes", [MISUSE_DOCUMENTED] = "documented",
        [MISUSE_OURS] = "ours",
    };
    unsigned wrong = 0;
    if (!test_cuda_there()) {
        return TEST_SKIPPED;
    }
    for (size_t i = 0; i < misuse_row_count; i++) {
        const struct misuse_row *row = &misuse_rows[i];
        if (row->needs != MISUSE_NEEDS_NOTHING) {
            continue;
        }
        int result = row_run(row);
        int expected = row->source == MISUSE_STRICTER ? CUDA_SUCCESS : (int)row->expected;
        bool right = result == expected || (row->source == MISUSE_CRASHES && result > ROW_CRASHED);
        wrong += !right;
        printf("%s %5d expected %3d (%s) %s\n", right ? "ok   " : "WRONG", result, expected,
               sources[row->source], row->name);
    }
    printf("%u wrong\n", wrong);
    return wrong ? 1 : 0;
}
