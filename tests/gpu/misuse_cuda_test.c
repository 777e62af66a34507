#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/contract/gpu/misuse.h"

/* The table of misuse over a real driver, without the rows that need multicast. Each row runs in a
 * process of its own: what a driver does after wrong calls must not colour the next row. */

#define EXIT_SKIPPED 77
#define ROW_SECONDS 20
#define ROW_CRASHED 20000 /* + the signal */

static const char image[] = ".version 7.0\n.target sm_80\n.address_size 64\n"
                            ".visible .entry touch() { ret; }\n";

/** cuGetProcAddress_v2 */
typedef CUresult get_address(const char *symbol, void **address, int version, uint64_t flags,
                             int *status);

/** Fill the table from libcuda; false when it is not there or lacks a call. */
static bool driver_load(struct gpu_driver *driver)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    void *symbol = library ? dlsym(library, "cuGetProcAddress_v2") : NULL;
    get_address *get;
    memcpy(&get, &symbol, sizeof(get));
    if (!get) {
        return false;
    }
    driver->name = "cuda";
    void *address;
    int status;
#define X(call, params, args)                                                                      \
    address = NULL;                                                                                \
    if (get(#call, &address, 12080, 0, &status) || !address) {                                     \
        return false;                                                                              \
    }                                                                                              \
    memcpy(&driver->call, &address, sizeof(address));
    GPU_DRIVER_CALLS(X)
#undef X
    return true;
}

/** In the child: run one row and write its result. */
static void row_child(const struct misuse_row *row, int pipe_end)
{
    static struct gpu_driver driver;
    CUresult result = CUDA_ERROR_NO_DEVICE;
    const struct misuse_driver misuse = {.driver = &driver, .image = image, .function = "touch"};
    alarm(ROW_SECONDS);
    if (driver_load(&driver) && driver.cuInit(0) == CUDA_SUCCESS) {
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

/** Whether there is a driver with a device, asked in a child: cuInit does not survive a fork. */
static bool driver_there(void)
{
    int status;
    pid_t child = fork();
    if (child == 0) {
        static struct gpu_driver driver;
        int count = 0;
        bool there = driver_load(&driver) && driver.cuInit(0) == CUDA_SUCCESS &&
                     driver.cuDeviceGetCount(&count) == CUDA_SUCCESS && count > 0;
        _exit(there ? 0 : 1);
    }
    return waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

int main(void)
{
    static const char *const sources[] = {"seen", "documented", "ours"};
    unsigned wrong = 0;
    if (!driver_there()) {
        printf("no CUDA driver with a device\n");
        return EXIT_SKIPPED;
    }
    for (size_t i = 0; i < misuse_row_count; i++) {
        const struct misuse_row *row = &misuse_rows[i];
        if (row->needs != MISUSE_NEEDS_NOTHING) {
            continue;
        }
        int result = row_run(row);
        bool right = result == (int)row->expected;
        wrong += !right;
        printf("%s %5d expected %3d (%s) %s\n", right ? "ok   " : "WRONG", result,
               (int)row->expected, sources[row->source], row->name);
    }
    printf("%u wrong\n", wrong);
    return wrong ? 1 : 0;
}
