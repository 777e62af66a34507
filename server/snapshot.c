#include <stdlib.h>
#include <string.h>

#include "server/internal.h"

struct server_ids *server_ids_create(uint32_t count,
                                     const char *(*id)(const void *arg, uint32_t number),
                                     const void *arg)
{
    size_t bytes = sizeof(struct server_ids) + count * sizeof(char *);
    for (uint32_t i = 0; i < count; i++) {
        bytes += strlen(id(arg, i)) + 1;
    }
    struct server_ids *ids = malloc(bytes);
    if (!ids) {
        return NULL;
    }
    atomic_init(&ids->references, 1);
    ids->bytes = bytes;
    char *at = (char *)&ids->items[count];
    for (uint32_t i = 0; i < count; i++) {
        size_t length = strlen(id(arg, i)) + 1;
        memcpy(at, id(arg, i), length);
        ids->items[i] = at;
        at += length;
    }
    return ids;
}

struct server_ids *server_ids_retain(struct server_ids *ids)
{
    if (ids) {
        atomic_fetch_add_explicit(&ids->references, 1, memory_order_relaxed);
    }
    return ids;
}

void server_ids_release(struct server_ids *ids)
{
    if (ids && atomic_fetch_sub_explicit(&ids->references, 1, memory_order_acq_rel) == 1) {
        free(ids);
    }
}

/* Every snapshot is one allocation, arrays included, but for the ids that operations share. */

void server_snapshot_release(struct server_snapshot *snapshot)
{
    if (!snapshot ||
        atomic_fetch_sub_explicit(&snapshot->references, 1, memory_order_acq_rel) != 1) {
        return;
    }
    free(atomic_load_explicit(&snapshot->text, memory_order_relaxed));
    if (snapshot->resource == SERVER_OPERATION) {
        server_ids_release(((struct server_operation_view *)snapshot)->result.resources);
    }
    free(snapshot);
}

const char *server_snapshot_keep_text(struct server_snapshot *snapshot, char *text)
{
    char *there = NULL;
    if (atomic_compare_exchange_strong(&snapshot->text, &there, text)) {
        return text;
    }
    free(text);
    return there;
}

/* ---------------------------------------------------------------- names */

static const char *const state_names[] = {
    [SERVER_STATE_CREATING] = "creating",
    [SERVER_STATE_READY] = "ready",
    [SERVER_STATE_FAILED] = "failed",
    [SERVER_STATE_DELETING] = "deleting",
};

static const char *const contents_names[] = {
    [SERVER_CONTENTS_VALID] = "valid",
    [SERVER_CONTENTS_WRITING] = "writing",
    [SERVER_CONTENTS_UNDEFINED] = "undefined",
};

static const char *const operation_names[] = {
    [SERVER_OPERATION_QUEUED] = "queued",       [SERVER_OPERATION_RUNNING] = "running",
    [SERVER_OPERATION_SUCCEEDED] = "succeeded", [SERVER_OPERATION_FAILED] = "failed",
    [SERVER_OPERATION_CANCELLED] = "cancelled",
};

static const char *const checksum_names[] = {
    [SERVER_CHECKSUM_CRC32C] = "crc32c",
    [SERVER_CHECKSUM_SHA256] = "sha256",
};

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/** Position of @p text among @p names; count: it is none. */
static size_t name_find(const char *const *names, size_t count, const char *text)
{
    size_t i = 0;
    while (i < count && strcmp(names[i], text) != 0) {
        i++;
    }
    return i;
}

const char *server_state_name(enum server_state state)
{
    return state_names[state];
}

bool server_state_parse(const char *text, enum server_state *ret)
{
    size_t found = name_find(state_names, COUNT(state_names), text);
    if (found == COUNT(state_names)) {
        return false;
    }
    *ret = (enum server_state)found;
    return true;
}

const char *server_contents_state_name(enum server_contents_state state)
{
    return contents_names[state];
}

const char *server_operation_state_name(enum server_operation_state state)
{
    return operation_names[state];
}

const char *server_checksum_name(enum server_checksum_algorithm algorithm)
{
    return checksum_names[algorithm];
}

bool server_checksum_parse(const char *text, enum server_checksum_algorithm *ret)
{
    size_t found = name_find(checksum_names, COUNT(checksum_names), text);
    if (found == COUNT(checksum_names)) {
        return false;
    }
    *ret = (enum server_checksum_algorithm)found;
    return true;
}
