#include "tests/support/cuda_there.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gpu/cuda/cuda.h"

static int devices_in_child(void)
{
    const struct gpu_driver *driver = NULL;
    struct st_error err = {0};
    int count = 0;
    if (gpu_cuda_open(&(struct gpu_cuda_options){0}, &driver, &err) != ST_OK) {
        printf("%s\n", err.message);
        return 0;
    }
    CUresult result = driver->cuInit(0);
    result = result == CUDA_SUCCESS ? driver->cuDeviceGetCount(&count) : result;
    if (result != CUDA_SUCCESS) {
        gpu_cuda_init_fail(result, &err);
        printf("%s\n", err.message);
    }
    return count > 0;
}

bool test_cuda_there(void)
{
    int status = 0;
    setenv("NCCL_NVLS_ENABLE", "0", 1);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        int there = devices_in_child();
        fflush(stdout);
        _exit(there ? 0 : 1);
    }
    return waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}
