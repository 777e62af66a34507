#include "tests/fuzz/fuzz.h"

#include "api/data/accept.h"
#include "api/data/range.h"

/** The first 8 bytes are the total, the rest is the header. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const types[] = {"application/octet-stream", "application/json", NULL};
    uint64_t total, first, bytes;
    if (size < sizeof(total)) {
        return 0;
    }
    memcpy(&total, data, sizeof(total));
    char *header = fuzz_text(data + sizeof(total), size - sizeof(total));
    if (data_range_parse(header, total, &first, &bytes) == DATA_RANGE_SATISFIABLE) {
        fuzz_check(bytes > 0 && first < total && bytes <= total - first);
    }
    int choice = data_accept_choose(header, types);
    fuzz_check(choice >= -1 && choice < 2);
    free(header);
    return 0;
}
