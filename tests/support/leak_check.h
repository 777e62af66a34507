#ifndef SYMTENSOR_TESTS_SUPPORT_LEAK_CHECK_H
#define SYMTENSOR_TESTS_SUPPORT_LEAK_CHECK_H

/** setjmp, stdarg and stddef must come before cmocka.h; this header brings them all in order. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/** Open file descriptors of this process. */
unsigned test_open_fds(void);
/** Memory mappings of this process (lines of /proc/self/maps). */
unsigned test_mappings(void);

#endif
