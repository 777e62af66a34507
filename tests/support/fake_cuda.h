#ifndef SYMTENSOR_TESTS_SUPPORT_FAKE_CUDA_H
#define SYMTENSOR_TESTS_SUPPORT_FAKE_CUDA_H

/**
 * A libcuda.so.1 for machines without one: a library with cuGetProcAddress() alone
 * (fake_cuda_library.c), which asks the program that loaded it for the calls (fake_cuda.c, linked
 * into the test). They are those of the software driver, so that everything between
 * `--driver cuda` and the devices can run without a device. A program finds it where ctest's
 * environment puts it before the dynamic linker.
 *
 * How the driver looks is said by the environment, each time anew:
 *   FAKE_CUDA_LACKS=cuA,cuB  calls that it does not have
 *   FAKE_CUDA_VERSION=12020  its CUDA version; default 13000
 *   FAKE_CUDA_INIT=100       what cuInit() answers
 *   FAKE_CUDA_DEVICES=2      devices when they are first opened; default 1
 */

/** The call of that name, or NULL. What the library asks for. Thread: any. */
void *fake_cuda_find(const char *symbol);

#endif
