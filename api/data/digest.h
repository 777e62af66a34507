#ifndef SYMTENSOR_API_DATA_DIGEST_H
#define SYMTENSOR_API_DATA_DIGEST_H

#include <gnutls/crypto.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"

/** Digests of HTTP bodies (RFC 9530): sha-256 and sha-512. Zero-filled before first use. */

#define DATA_DIGEST_TEXT_BYTES 96 /**< Base64 of the longest one, with terminator. */

struct data_digest_algorithm {
    const char *name; /**< "sha-256" */
    gnutls_digest_algorithm_t id;
};

/** A digest that is computed over a body, and what it should be. */
struct data_digest {
    const struct data_digest_algorithm *algorithm; /**< NULL: nothing is computed. */
    gnutls_hash_hd_t hash;
    char expected[DATA_DIGEST_TEXT_BYTES]; /**< Base64. */
};

/**
 * Begin, if a Content-Digest header asks for it.
 * @param header its value, or NULL: nothing will be computed.
 * @retval ST_INVALID_ARGUMENT INVALID_HEADER: malformed, or no algorithm that is known here.
 */
ST_MUST_CHECK enum st_status data_digest_expect(struct data_digest *digest, const char *header,
                                                struct st_error *err);
/** Add bytes of the body. */
void data_digest_update(struct data_digest *digest, const void *data, size_t bytes);
/** @retval ST_INVALID_ARGUMENT DIGEST_MISMATCH */
ST_MUST_CHECK enum st_status data_digest_verify(struct data_digest *digest, struct st_error *err);
/** Give back what was begun. */
void data_digest_done(struct data_digest *digest);

/** Whether a Want-Repr-Digest header (or NULL) asks for sha-256. */
bool data_digest_is_wanted(const char *header);
/** "sha-256=:...:" of a whole body. @return false when the library refuses. */
bool data_digest_format(const void *data, size_t bytes, char ret_text[static 64]);

#endif
