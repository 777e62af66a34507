#include "api/cli/data.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const struct format {
    const char *name, *media;
} formats[] = {{"raw", "application/octet-stream"},
               {"npy", "application/x-npy"},
               {"json", "application/json"}};
#define FORMAT_COUNT (sizeof(formats) / sizeof(formats[0]))

/* Uploads list what they take; downloads give every format. */
static bool has_media(const struct cli_command *command, const char *media)
{
    const char *const *list = command->route->media;
    for (; list && *list; list++) {
        if (strcmp(*list, media) == 0) {
            return true;
        }
    }
    return !command->route->media;
}

bool cli_data_check_format(const struct cli_command *command, const char *format)
{
    for (size_t i = 0; i < FORMAT_COUNT; i++) {
        if (!format ||
            (strcmp(formats[i].name, format) == 0 && has_media(command, formats[i].media))) {
            return true;
        }
    }
    fprintf(stderr, "symtensor: %s %s has no format '%s'; there are:", command->noun, command->verb,
            format);
    for (size_t i = 0; i < FORMAT_COUNT; i++) {
        if (has_media(command, formats[i].media)) {
            fprintf(stderr, " %s", formats[i].name);
        }
    }
    fputc('\n', stderr);
    return false;
}

static const char *media_of(const char *format)
{
    for (size_t i = 0; format && i < FORMAT_COUNT; i++) {
        if (strcmp(formats[i].name, format) == 0) {
            return formats[i].media;
        }
    }
    return NULL;
}

static bool is_stream(const char *file)
{
    return !file || strcmp(file, "-") == 0;
}

enum cli_data_result cli_data_upload(struct symtensor_client *client,
                                     const struct cli_request *request,
                                     struct symtensor_reply *ret_reply)
{
    FILE *file = is_stream(request->file) ? stdin : fopen(request->file, "rb");
    if (!file) {
        fprintf(stderr, "symtensor: --file %s: %m\n", request->file);
        return CLI_DATA_NO_FILE;
    }
    uint64_t bytes = SYMTENSOR_BYTES_UNKNOWN; /* a pipe */
    if (fseeko(file, 0, SEEK_END) == 0) {
        bytes = (uint64_t)ftello(file);
        rewind(file);
    }
    int result =
        symtensor_put(client, request->path, media_of(request->format), file, bytes, ret_reply);
    fclose(file);
    return result == 0 ? CLI_DATA_DONE : CLI_DATA_NO_REPLY;
}

/* Where a download goes. */
struct target {
    const char *shown; /* for messages */
    char *path;        /* what is replaced, symbolic links followed; NULL: written directly */
    char *temporary;   /* beside it */
    FILE *file;
};

/* Of the running download, for the signal handler. */
static char *volatile temporary_to_remove;

static void remove_and_end(int number)
{
    if (temporary_to_remove) {
        unlink(temporary_to_remove);
    }
    signal(number, SIG_DFL);
    raise(number);
}

static void remove_on_signals(void)
{
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        struct sigaction before;
        /* What the caller ignores (nohup) stays ignored. */
        if (sigaction(numbers[i], NULL, &before) == 0 && before.sa_handler != SIG_IGN) {
            signal(numbers[i], remove_and_end);
        }
    }
}

/* The mode of the file that is replaced, else what a new file gets. */
static mode_t mode_of(const char *path)
{
    struct stat about;
    if (stat(path, &about) == 0) {
        return about.st_mode & 0777;
    }
    mode_t mask = umask(0);
    umask(mask);
    return 0666 & ~mask;
}

static bool open_temporary(struct target *target)
{
    target->path = realpath(target->shown, NULL);
    if (!target->path) {
        target->path = strdup(target->shown); /* new */
    }
    size_t bytes = target->path ? strlen(target->path) + sizeof(".XXXXXX") : 0;
    target->temporary = bytes ? malloc(bytes) : NULL;
    if (!target->temporary) {
        return false;
    }
    snprintf(target->temporary, bytes, "%s.XXXXXX", target->path);
    int fd = mkstemp(target->temporary);
    if (fd < 0) {
        free(target->temporary);
        target->temporary = NULL;
        return false;
    }
    temporary_to_remove = target->temporary;
    remove_on_signals();
    target->file = fdopen(fd, "wb");
    if (!target->file) {
        close(fd);
    }
    return target->file && fchmod(fd, mode_of(target->path)) == 0;
}

static bool open_target(struct target *target, const char *path)
{
    *target = (struct target){.shown = path};
    if (is_stream(path)) {
        target->shown = "standard output";
        target->file = stdout;
        return true;
    }
    struct stat about;
    if (stat(path, &about) == 0 && !S_ISREG(about.st_mode)) {
        target->file = fopen(path, "wb");
        return target->file != NULL;
    }
    return open_temporary(target);
}

/* Put what was written in its place when @p keep, else leave nothing. @return false: not written.
 */
static bool close_target(struct target *target, bool keep)
{
    bool written = target->file && fflush(target->file) == 0 && !ferror(target->file);
    if (target->file && target->file != stdout) {
        written = fclose(target->file) == 0 && written;
    }
    if (target->temporary) {
        bool placed = keep && written && rename(target->temporary, target->path) == 0;
        written = written && (placed || !keep);
        if (!placed) {
            unlink(target->temporary);
        }
        temporary_to_remove = NULL;
    }
    free(target->temporary);
    free(target->path);
    return written;
}

enum cli_data_result cli_data_download(struct symtensor_client *client,
                                       const struct cli_request *request,
                                       struct symtensor_reply *ret_reply)
{
    struct target target;
    if (!open_target(&target, request->file)) {
        fprintf(stderr, "symtensor: cannot write %s: %m\n", target.shown);
        close_target(&target, false);
        return CLI_DATA_NO_FILE;
    }
    int result =
        symtensor_get(client, request->path, media_of(request->format), target.file, ret_reply);
    bool whole = result == 0 && ret_reply->http_code >= 200 && ret_reply->http_code < 300;
    if (!close_target(&target, whole)) {
        fprintf(stderr, "symtensor: cannot write %s: %m\n", target.shown);
        return CLI_DATA_NO_FILE;
    }
    return result == 0 ? CLI_DATA_DONE : CLI_DATA_NO_REPLY;
}
