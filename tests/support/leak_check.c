#include "tests/support/leak_check.h"

#include <dirent.h>
#include <stdio.h>

unsigned test_open_fds(void)
{
    DIR *dir = opendir("/proc/self/fd");
    assert_non_null(dir);
    unsigned count = 0;
    while (readdir(dir)) {
        count++;
    }
    closedir(dir);
    return count - 3; /* ".", ".." and the directory's own */
}

unsigned test_mappings(void)
{
    FILE *file = fopen("/proc/self/maps", "r");
    assert_non_null(file);
    unsigned lines = 0;
    for (int c = fgetc(file); c != EOF; c = fgetc(file)) {
        lines += c == '\n';
    }
    fclose(file);
    return lines;
}
