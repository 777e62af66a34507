#ifndef SYMTENSOR_H
#define SYMTENSOR_H

/**
 * libsymtensor: talk to a symtensord from C. Requests and replies are JSON text as GET
 * /openapi.json and docs/ describe them; data bodies are streamed from and to files.
 *
 * Before an operation reads memory that your own CUDA stream wrote, synchronise that stream; when
 * an operation is done, its result is visible to all work that is launched afterwards.
 *
 * Thread: a client belongs to one thread at a time; several clients may be used at once.
 */

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SYMTENSOR_API __attribute__((visibility("default")))

/** Where the server is. NULL fields: SYMTENSOR_URL, else SYMTENSOR_UNIX_SOCKET, else the default
 * socket. */
struct symtensor_options {
    const char *unix_socket; /**< Path of the server's socket. */
    const char *url;         /**< "http://host:port". Wins over unix_socket when both are given. */
    long timeout_seconds; /**< Of a whole request beside its ?wait=; 0: none but connect's 10 s. */
};

struct symtensor_client;

/** A reply. Free with symtensor_reply_done(). */
struct symtensor_reply {
    long http_code; /**< 0: no reply came; then `error` says why. */
    char *body;     /**< NUL-terminated, NULL when it went into a file. */
    size_t body_bytes;
    char error[512]; /**< Of the connection, or "". */
};

/** @return NULL when memory is out. */
SYMTENSOR_API struct symtensor_client *symtensor_open(const struct symtensor_options *options);
SYMTENSOR_API void symtensor_close(struct symtensor_client *client);

/**
 * One request.
 * @param path from "/v1/...", with its query.
 * @param json body, or NULL for none.
 * @return 0 when a reply came (whatever its code), -1 otherwise.
 * Blocks: until the reply is there.
 */
SYMTENSOR_API int symtensor_call(struct symtensor_client *client, const char *method,
                                 const char *path, const char *json,
                                 struct symtensor_reply *ret_reply);

#define SYMTENSOR_BYTES_UNKNOWN UINT64_MAX /**< All that the file gives, sent in chunks. */

/** PUT a file's next @p bytes bytes. @param content_type such as "application/x-npy"; NULL: raw. */
SYMTENSOR_API int symtensor_put(struct symtensor_client *client, const char *path,
                                const char *content_type, FILE *file, uint64_t bytes,
                                struct symtensor_reply *ret_reply);

/** GET into a file; a reply that is no success goes into ret_reply->body instead. @param accept
 * NULL: raw. */
SYMTENSOR_API int symtensor_get(struct symtensor_client *client, const char *path,
                                const char *accept, FILE *file, struct symtensor_reply *ret_reply);

SYMTENSOR_API void symtensor_reply_done(struct symtensor_reply *reply);

#ifdef __cplusplus
}
#endif

#endif
