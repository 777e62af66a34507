#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "gpu/software/internal.h"

/* What the software driver's defaults derive from. Nothing here fails: what cannot be read has no
 * say. */

#define MACHINE_CACHE_DEFAULT (32 * ST_MIB)
#define MACHINE_PATH_MAX 4096

/** First line of a file, without its end; false when it cannot be read. */
static bool machine_read_line(const char *path, char *line, size_t size)
{
    FILE *file = fopen(path, "re");
    if (!file) {
        return false;
    }
    bool read = fgets(line, (int)size, file) != NULL;
    fclose(file);
    if (read) {
        line[strcspn(line, "\n")] = '\0';
    }
    return read;
}

/** This process's cgroup in a hierarchy: "" is version 2, "memory" and so on version 1. */
static bool machine_cgroup(const char *controller, char *path, size_t size)
{
    FILE *file = fopen("/proc/self/cgroup", "re");
    if (!file) {
        return false;
    }
    char line[MACHINE_PATH_MAX]; /* "ID:CONTROLLER,CONTROLLER:PATH" */
    bool found = false;
    while (!found && fgets(line, sizeof(line), file)) {
        line[strcspn(line, "\n")] = '\0';
        char *controllers = strchr(line, ':');
        char *where = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!where) {
            continue;
        }
        *where++ = '\0';
        controllers++;
        for (char *name = strsep(&controllers, ","); name && !found;
             name = strsep(&controllers, ",")) {
            found = !strcmp(name, controller);
        }
        if (found) {
            found = (size_t)snprintf(path, size, "%s", where) < size;
        }
    }
    fclose(file);
    return found;
}

/** Smallest value that the file @p name has in the cgroup and those above it, of what @p parse
 * makes of it. */
static uint64_t machine_cgroup_minimum(const char *root, const char *controller, const char *name,
                                       uint64_t (*parse)(const char *line))
{
    char group[MACHINE_PATH_MAX];
    uint64_t least = UINT64_MAX;
    if (!machine_cgroup(controller, group, sizeof(group))) {
        return least;
    }
    for (;;) {
        char path[2 * MACHINE_PATH_MAX];
        char line[128];
        snprintf(path, sizeof(path), "%s%s/%s", root, group, name);
        if (machine_read_line(path, line, sizeof(line))) {
            uint64_t value = parse(line);
            least = value < least ? value : least;
        }
        char *slash = strrchr(group, '/');
        if (!slash) {
            return least;
        }
        *slash = '\0'; /* the root's own files come last, with an empty path */
    }
}

static uint64_t machine_parse_bytes(const char *line)
{
    uint64_t bytes;
    return st_uint_parse(line, UINT64_MAX, &bytes) ? bytes : UINT64_MAX; /* "max" is no limit */
}

/** "QUOTA PERIOD" in microseconds, or "max PERIOD". */
static uint64_t machine_parse_cores(const char *line)
{
    unsigned long long quota;
    unsigned long long period;
    if (sscanf(line, "%llu %llu", &quota, &period) != 2 || period == 0) {
        return UINT64_MAX;
    }
    uint64_t cores = quota / period;
    return cores ? cores : 1;
}

uint64_t software_machine_memory_bytes(void)
{
    long pages = sysconf(_SC_PHYS_PAGES);
    long page = sysconf(_SC_PAGESIZE);
    uint64_t bytes = pages > 0 && page > 0 ? (uint64_t)pages * (uint64_t)page : ST_GIB;
    uint64_t limits[] = {
        machine_cgroup_minimum("/sys/fs/cgroup", "", "memory.max", machine_parse_bytes),
        machine_cgroup_minimum("/sys/fs/cgroup/memory", "memory", "memory.limit_in_bytes",
                               machine_parse_bytes),
    };
    for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++) {
        bytes = limits[i] < bytes ? limits[i] : bytes;
    }
    return bytes;
}

uint64_t software_machine_available_bytes(void)
{
    FILE *file = fopen("/proc/meminfo", "re");
    uint64_t bytes = UINT64_MAX;
    char line[128];
    while (file && fgets(line, sizeof(line), file)) {
        unsigned long long kib;
        if (sscanf(line, "MemAvailable: %llu kB", &kib) == 1) {
            bytes = kib * ST_KIB;
            break;
        }
    }
    if (file) {
        fclose(file);
    }
    return bytes;
}

uint64_t software_machine_cache_bytes(void)
{
    /* The kernel's figure is that of one core's cache; sysconf() may give the sum over a whole
     * package. */
    char line[128]; /* "32768K" */
    unsigned long long kib = 0;
    if (machine_read_line("/sys/devices/system/cpu/cpu0/cache/index3/size", line, sizeof(line)) &&
        sscanf(line, "%lluK", &kib) == 1 && kib > 0 && kib < UINT64_MAX / ST_KIB) {
        return kib * ST_KIB;
    }
    long bytes = sysconf(_SC_LEVEL3_CACHE_SIZE);
    return bytes > 0 ? (uint64_t)bytes : MACHINE_CACHE_DEFAULT;
}

uint32_t software_machine_cores(void)
{
    cpu_set_t set;
    uint64_t cores = 1;
    if (!sched_getaffinity(0, sizeof(set), &set)) {
        cores = (uint64_t)CPU_COUNT(&set);
    }
    uint64_t quota = machine_cgroup_minimum("/sys/fs/cgroup", "", "cpu.max", machine_parse_cores);
    cores = quota < cores ? quota : cores;
    return cores < SOFTWARE_THREADS_MAX ? (uint32_t)cores : SOFTWARE_THREADS_MAX;
}

bool software_machine_huge_pages(void)
{
    char line[128]; /* "always within_size [advise] never deny force" */
    return machine_read_line("/sys/kernel/mm/transparent_hugepage/shmem_enabled", line,
                             sizeof(line)) &&
           !strstr(line, "[never]") && !strstr(line, "[deny]");
}
