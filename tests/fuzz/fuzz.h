#ifndef SYMTENSOR_TESTS_FUZZ_FUZZ_H
#define SYMTENSOR_TESTS_FUZZ_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/** What libFuzzer calls for each input. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/** A property that does not hold is a finding. */
static inline void fuzz_check(int holds)
{
    if (!holds) {
        abort();
    }
}

/** A terminated copy of exactly the input, so that a read behind it is seen. */
static inline char *fuzz_text(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);
    fuzz_check(text != NULL);
    memcpy(text, data, size);
    text[size] = '\0';
    return text;
}

#endif
