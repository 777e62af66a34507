#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "api/http/exchange.h"

/*
 * A Unix socket in the file system. "<path>.lock" is held by flock for as long as the server lives,
 * so that two servers that start at once cannot both find the other's socket stale; it is removed
 * while it is held, and whoever takes it looks whether it is still the file at that path.
 */

#define PLACE_BACKLOG 512
#define PLACE_LOCK_TRIES 16
#define PLACE_OPTION "--unix-socket"

static enum st_status place_fail_system(const char *path, const char *what, struct st_error *err)
{
    int error = errno;
    return st_fail(err, ST_REASON_SYSTEM_ERROR, PLACE_OPTION, "cannot %s %s: %s", what, path,
                   strerror(error));
}

static enum st_status place_fail_in_use(const char *path, struct st_error *err)
{
    return st_fail(err, ST_REASON_ADDRESS_IN_USE, PLACE_OPTION,
                   "%s is in use by another server; stop it or name another path", path);
}

/** Make the folder of @p path, if it is not there. Only the last component is made. */
static enum st_status place_make_folder(const char *path, struct st_error *err)
{
    char folder[sizeof(((struct sockaddr_un *)0)->sun_path)];
    snprintf(folder, sizeof(folder), "%s", path);
    char *slash = strrchr(folder, '/');
    if (!slash || slash == folder) {
        return ST_OK;
    }
    *slash = '\0';
    if (mkdir(folder, 0750) != 0 && errno != EEXIST) {
        return place_fail_system(folder, "make the folder", err);
    }
    return ST_OK;
}

/** Whether @p fd is still the file at @p path. */
static bool place_is_same(int fd, const char *path)
{
    struct stat ours, theirs;
    return fstat(fd, &ours) == 0 && stat(path, &theirs) == 0 && ours.st_dev == theirs.st_dev &&
           ours.st_ino == theirs.st_ino;
}

static enum st_status place_lock(const char *path, int *ret_fd, struct st_error *err)
{
    char lock[sizeof(((struct sockaddr_un *)0)->sun_path) + 8];
    snprintf(lock, sizeof(lock), "%s.lock", path);
    for (int i = 0; i < PLACE_LOCK_TRIES; i++) {
        int fd = open(lock, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
        if (fd < 0) {
            return place_fail_system(lock, "open", err);
        }
        if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
            close(fd);
            return place_fail_in_use(path, err);
        }
        if (place_is_same(fd, lock)) {
            *ret_fd = fd;
            return ST_OK;
        }
        close(fd); /* its holder removed it between open and flock */
    }
    return place_fail_in_use(path, err);
}

static void place_unlock(struct http_unix_place *place)
{
    char lock[sizeof(place->path) + 8];
    snprintf(lock, sizeof(lock), "%s.lock", place->path);
    unlink(lock);
    close(place->lock_fd);
    place->lock_fd = -1;
}

static void place_address(const char *path, struct sockaddr_un *ret_address)
{
    *ret_address = (struct sockaddr_un){.sun_family = AF_UNIX};
    snprintf(ret_address->sun_path, sizeof(ret_address->sun_path), "%s", path);
}

/** What is at the path: nothing, or a socket that nobody listens on, which is removed. */
static enum st_status place_clear(const char *path, struct st_error *err)
{
    struct stat found;
    if (lstat(path, &found) != 0) {
        return errno == ENOENT ? ST_OK : place_fail_system(path, "look at", err);
    }
    if (!S_ISSOCK(found.st_mode)) {
        return st_fail(err, ST_REASON_INVALID_OPTION, PLACE_OPTION, "%s exists and is not a socket",
                       path);
    }
    struct sockaddr_un address;
    place_address(path, &address);
    int probe = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (probe < 0) {
        return place_fail_system(path, "probe", err);
    }
    int result = connect(probe, (const struct sockaddr *)&address, sizeof(address));
    int error = errno;
    close(probe);
    /* A full backlog answers EAGAIN: somebody listens. */
    if (result == 0 || error != ECONNREFUSED) {
        return place_fail_in_use(path, err);
    }
    return unlink(path) == 0 ? ST_OK : place_fail_system(path, "remove the stale socket", err);
}

static enum st_status place_bind(const char *path, int *ret_fd, struct st_error *err)
{
    struct sockaddr_un address;
    place_address(path, &address);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) {
        return place_fail_system(path, "make a socket for", err);
    }
    /* Born with its mode: between bind and chmod nobody else could connect either. */
    mode_t mask = umask(0117);
    int result = bind(fd, (const struct sockaddr *)&address, sizeof(address));
    umask(mask);
    if (result != 0 || listen(fd, PLACE_BACKLOG) != 0) {
        enum st_status status = place_fail_system(path, "listen on", err);
        close(fd);
        return status;
    }
    *ret_fd = fd;
    return ST_OK;
}

enum st_status http_place_open(const char *path, struct http_unix_place *ret_place, int *ret_fd,
                               struct st_error *err)
{
    struct http_unix_place place = {.lock_fd = -1};
    if (!path[0] || strlen(path) >= sizeof(place.path)) {
        return st_fail(err, ST_REASON_INVALID_OPTION, PLACE_OPTION,
                       "a path of a Unix socket has 1 to %zu bytes", sizeof(place.path) - 1);
    }
    snprintf(place.path, sizeof(place.path), "%s", path);
    enum st_status status = place_make_folder(path, err);
    if (status == ST_OK) {
        status = place_lock(path, &place.lock_fd, err);
    }
    if (status != ST_OK) {
        return status;
    }
    status = place_clear(path, err);
    if (status == ST_OK) {
        status = place_bind(path, ret_fd, err);
    }
    struct stat made;
    if (status != ST_OK || lstat(path, &made) != 0) {
        place_unlock(&place);
        return status != ST_OK ? status : place_fail_system(path, "look at", err);
    }
    place.device = made.st_dev;
    place.inode = made.st_ino;
    *ret_place = place;
    return ST_OK;
}

void http_place_close(struct http_unix_place *place)
{
    if (!place->path[0]) {
        return;
    }
    struct stat found;
    if (lstat(place->path, &found) == 0 && found.st_dev == place->device &&
        found.st_ino == place->inode) {
        unlink(place->path);
    }
    place_unlock(place);
    place->path[0] = '\0';
}

/** Whether @p folder is there and can be written, or can be made. */
static bool place_folder_usable(const char *folder)
{
    return access(folder, W_OK | X_OK) == 0 || (mkdir(folder, 0750) == 0);
}

enum st_status http_place_default(char path[static 108], struct st_error *err)
{
    const char *runtime = getenv("XDG_RUNTIME_DIR");
    char folder[88];
    snprintf(folder, sizeof(folder), "/run/symtensor");
    bool usable = place_folder_usable(folder);
    if (!usable && runtime && runtime[0] == '/' &&
        (size_t)snprintf(folder, sizeof(folder), "%s/symtensor", runtime) < sizeof(folder)) {
        usable = place_folder_usable(folder);
    }
    if (!usable) {
        return st_fail(err, ST_REASON_INVALID_OPTION, PLACE_OPTION,
                       "no place for the socket: neither /run/symtensor nor "
                       "$XDG_RUNTIME_DIR/symtensor can be used; name a path");
    }
    snprintf(path, 108, "%.*s/symtensord.sock", (int)sizeof(folder), folder);
    return ST_OK;
}
