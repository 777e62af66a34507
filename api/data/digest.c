#include "api/data/digest.h"

#include <gnutls/gnutls.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HASH_BYTES_MAX 64

static const struct data_digest_algorithm algorithms[] = {
    {"sha-256", GNUTLS_DIG_SHA256},
    {"sha-512", GNUTLS_DIG_SHA512},
};
#define ALGORITHM_COUNT (sizeof(algorithms) / sizeof(algorithms[0]))

/** Base64 of a hash. @return false when memory is out. */
static bool base64_write(const unsigned char *hash, unsigned bytes, char *text, size_t size)
{
    char data[HASH_BYTES_MAX];
    memcpy(data, hash, bytes);
    gnutls_datum_t in = {.data = (unsigned char *)data, .size = bytes}, out = {0};
    if (gnutls_base64_encode2(&in, &out) != 0) {
        return false;
    }
    snprintf(text, size, "%.*s", (int)out.size, (const char *)out.data);
    gnutls_free(out.data);
    return true;
}

/**
 * One member of the dictionary: key=:base64:.
 * @return behind it, or NULL when it is none. *ret_value is behind the first colon.
 */
static const char *member_read(const char *text, size_t *ret_key, const char **ret_value,
                               size_t *ret_value_bytes)
{
    *ret_key = strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789-_.*");
    const char *at = text + *ret_key;
    if (!*ret_key || at[0] != '=' || at[1] != ':') {
        return NULL;
    }
    *ret_value = at + 2;
    *ret_value_bytes =
        strspn(at + 2, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=");
    at += 2 + *ret_value_bytes;
    return *at == ':' ? at + 1 : NULL;
}

static void member_use(struct data_digest *digest, const char *key, size_t key_bytes,
                       const char *value, size_t value_bytes)
{
    for (size_t i = 0; i < ALGORITHM_COUNT && !digest->algorithm; i++) {
        if (strlen(algorithms[i].name) == key_bytes &&
            memcmp(algorithms[i].name, key, key_bytes) == 0 &&
            value_bytes < sizeof(digest->expected)) {
            digest->algorithm = &algorithms[i];
            memcpy(digest->expected, value, value_bytes);
        }
    }
}

/** Read the dictionary; the first algorithm that is known is used. @return false when it is
 * malformed. */
static bool header_read(struct data_digest *digest, const char *header)
{
    const char *at = header;
    for (;;) {
        size_t key_bytes, value_bytes;
        const char *value, *key = at + strspn(at, " \t");
        at = member_read(key, &key_bytes, &value, &value_bytes);
        if (!at) {
            return false;
        }
        member_use(digest, key, key_bytes, value, value_bytes);
        at += strspn(at, " \t");
        if (*at != ',') {
            return !*at;
        }
        at++;
    }
}

static size_t base64_length(const struct data_digest_algorithm *algorithm)
{
    return (gnutls_hash_get_len(algorithm->id) + 2) / 3 * 4;
}

enum st_status data_digest_expect(struct data_digest *digest, const char *header,
                                  struct st_error *err)
{
    if (!header) {
        return ST_OK;
    }
    bool valid = header_read(digest, header) && digest->algorithm;
    /* What cannot be the digest of anything is refused now, before the body overwrites the shard.
     */
    if (!valid || strlen(digest->expected) != base64_length(digest->algorithm)) {
        digest->algorithm = NULL;
        return st_fail(err, ST_REASON_INVALID_HEADER, "Content-Digest",
                       "must be sha-256=:<base64>: or sha-512=:<base64>:");
    }
    if (gnutls_hash_init(&digest->hash, digest->algorithm->id) != 0) {
        digest->algorithm = NULL;
        return st_fail(err, ST_REASON_OUT_OF_MEMORY, NULL, "the server is out of host memory");
    }
    return ST_OK;
}

void data_digest_update(struct data_digest *digest, const void *data, size_t bytes)
{
    if (digest->algorithm) {
        gnutls_hash(digest->hash, data, bytes);
    }
}

enum st_status data_digest_verify(struct data_digest *digest, struct st_error *err)
{
    if (!digest->algorithm) {
        return ST_OK;
    }
    unsigned char hash[HASH_BYTES_MAX];
    char text[DATA_DIGEST_TEXT_BYTES] = "";
    gnutls_hash_output(digest->hash, hash);
    if (!base64_write(hash, gnutls_hash_get_len(digest->algorithm->id), text, sizeof(text))) {
        return st_fail(err, ST_REASON_OUT_OF_MEMORY, NULL, "the server is out of host memory");
    }
    if (strcmp(text, digest->expected) != 0) {
        enum st_status status =
            st_fail(err, ST_REASON_DIGEST_MISMATCH, "Content-Digest",
                    "the body's %s is another one; the shard's contents are undefined now",
                    digest->algorithm->name);
        st_error_add_detail(err, "actual", "%s", text);
        return status;
    }
    return ST_OK;
}

void data_digest_done(struct data_digest *digest)
{
    if (digest->algorithm) {
        gnutls_hash_deinit(digest->hash, NULL);
        digest->algorithm = NULL;
    }
}

bool data_digest_is_wanted(const char *header)
{
    static const char name[] = "sha-256";
    const char *at = header ? strstr(header, name) : NULL;
    if (!at || (at > header && !strchr(" ,\t", at[-1]))) {
        return false;
    }
    at += strlen(name);
    /* A weight of 0 says: not this one (RFC 9530 4). */
    return !*at || *at == ',' || (*at == '=' && at[1] >= '1' && at[1] <= '9');
}

bool data_digest_format(const void *data, size_t bytes, char ret_text[static 64])
{
    unsigned char hash[HASH_BYTES_MAX];
    char text[DATA_DIGEST_TEXT_BYTES];
    if (gnutls_hash_fast(GNUTLS_DIG_SHA256, data, bytes, hash) != 0 ||
        !base64_write(hash, 32, text, sizeof(text))) {
        return false;
    }
    snprintf(ret_text, 64, "%s=:%.44s:", algorithms[0].name, text);
    return true;
}
