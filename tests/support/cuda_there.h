#ifndef SYMTENSOR_TESTS_SUPPORT_CUDA_THERE_H
#define SYMTENSOR_TESTS_SUPPORT_CUDA_THERE_H

#include <stdbool.h>

/** Exit status of a test that cannot run here. */
#define TEST_SKIPPED 77

/**
 * Whether there is a CUDA driver with a device. Asked in a child, since a driver that was
 * initialised does not survive a fork. Also sees to it that multicast is off in this process: tests
 * run on machines whose switch others use.
 */
bool test_cuda_there(void);

#endif
