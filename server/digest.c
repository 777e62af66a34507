#include "server/digest.h"

#include <gnutls/crypto.h>
#include <gnutls/gnutls.h>
#include <isa-l/crc.h>
#include <limits.h>
#include <stdio.h>

#define DIGEST_CRC_INITIAL 0xffffffffu
#define DIGEST_SHA256_BYTES 32

/** One algorithm. */
struct digest_method {
    bool (*init)(struct server_digest *digest);
    void (*update)(struct server_digest *digest, unsigned char *data, int bytes);
    void (*finish)(struct server_digest *digest, char hex[static 65]);
    void (*done)(struct server_digest *digest);
};

static bool crc32c_init(struct server_digest *digest)
{
    digest->crc = DIGEST_CRC_INITIAL;
    return true;
}

static void crc32c_update(struct server_digest *digest, unsigned char *data, int bytes)
{
    digest->crc = crc32_iscsi(data, bytes, digest->crc);
}

static void crc32c_finish(struct server_digest *digest, char hex[static 65])
{
    snprintf(hex, 65, "%08x", digest->crc ^ DIGEST_CRC_INITIAL);
    digest->crc = DIGEST_CRC_INITIAL;
}

static void crc32c_done(struct server_digest *digest)
{
    (void)digest;
}

static bool sha256_init(struct server_digest *digest)
{
    gnutls_hash_hd_t hash = NULL;
    if (gnutls_hash_init(&hash, GNUTLS_DIG_SHA256) < 0) {
        return false;
    }
    digest->hash = hash;
    return true;
}

static void sha256_update(struct server_digest *digest, unsigned char *data, int bytes)
{
    gnutls_hash(digest->hash, data, (size_t)bytes);
}

static void sha256_finish(struct server_digest *digest, char hex[static 65])
{
    unsigned char bytes[DIGEST_SHA256_BYTES];
    gnutls_hash_output(digest->hash, bytes);
    for (size_t i = 0; i < sizeof(bytes); i++) {
        snprintf(hex + 2 * i, 3, "%02x", bytes[i]);
    }
}

static void sha256_done(struct server_digest *digest)
{
    if (digest->hash) {
        gnutls_hash_deinit(digest->hash, NULL);
        digest->hash = NULL;
    }
}

static const struct digest_method digest_methods[] = {
    [SERVER_CHECKSUM_CRC32C] = {crc32c_init, crc32c_update, crc32c_finish, crc32c_done},
    [SERVER_CHECKSUM_SHA256] = {sha256_init, sha256_update, sha256_finish, sha256_done},
};

enum st_status server_digest_init(struct server_digest *digest,
                                  enum server_checksum_algorithm algorithm, struct st_error *err)
{
    *digest = (struct server_digest){.algorithm = algorithm};
    if (!digest_methods[algorithm].init(digest)) {
        return st_fail(err, ST_REASON_OUT_OF_MEMORY, NULL, "no memory for a digest");
    }
    return ST_OK;
}

void server_digest_update(struct server_digest *digest, unsigned char *data, uint64_t bytes)
{
    while (bytes > 0) {
        int piece = bytes > INT_MAX ? INT_MAX : (int)bytes;
        digest_methods[digest->algorithm].update(digest, data, piece);
        data += piece;
        bytes -= (uint64_t)piece;
    }
}

void server_digest_finish(struct server_digest *digest, char ret_hex[static 65])
{
    digest_methods[digest->algorithm].finish(digest, ret_hex);
}

void server_digest_done(struct server_digest *digest)
{
    digest_methods[digest->algorithm].done(digest);
}
