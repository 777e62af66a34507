#ifndef SYMTENSOR_SERVER_DIGEST_H
#define SYMTENSOR_SERVER_DIGEST_H

#include <stdint.h>

#include "base/error.h"
#include "server/server.h"

/**
 * A checksum over bytes that come in pieces. crc32c is the CRC-32C of RFC 3720 (of "123456789":
 * e3069283), sha256 that of FIPS 180-4. Thread: one at a time. Blocks: never.
 */
struct server_digest {
    enum server_checksum_algorithm algorithm;
    uint32_t crc;
    void *hash; /**< The library's state; NULL for crc32c. */
};

ST_MUST_CHECK enum st_status server_digest_init(struct server_digest *digest,
                                                enum server_checksum_algorithm algorithm,
                                                struct st_error *err);
/** @param data is only read; not const because the library's functions are not. */
void server_digest_update(struct server_digest *digest, unsigned char *data, uint64_t bytes);
/** Lower-case hex of what came in; the digest starts anew. */
void server_digest_finish(struct server_digest *digest, char ret_hex[static 65]);
void server_digest_done(struct server_digest *digest);

#endif
