#include "api/resources/page_token.h"

#include <gnutls/crypto.h>
#include <gnutls/gnutls.h>
#include <pthread.h>
#include <stdint.h>
#include <string.h>

#define CHECK_BYTES 16
#define KEY_BYTES 32
#define HMAC_BYTES 32

static const char base64url[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

static pthread_once_t key_once = PTHREAD_ONCE_INIT;
static unsigned char key[KEY_BYTES];
static bool key_is_made;

static void key_make(void)
{
    key_is_made = gnutls_rnd(GNUTLS_RND_KEY, key, sizeof(key)) == 0;
}

/** The check of @p scope and @p last; the terminator of last is covered, so that nothing shifts. */
static bool token_check(const char *scope, size_t scope_bytes, const char *last,
                        unsigned char ret_check[static HMAC_BYTES])
{
    gnutls_hmac_hd_t hmac;
    pthread_once(&key_once, key_make);
    if (!key_is_made || gnutls_hmac_init(&hmac, GNUTLS_MAC_SHA256, key, sizeof(key)) != 0) {
        return false;
    }
    bool done = gnutls_hmac(hmac, last, strlen(last) + 1) == 0 &&
                gnutls_hmac(hmac, scope, scope_bytes) == 0;
    gnutls_hmac_deinit(hmac, ret_check);
    return done;
}

static void base64url_write(const unsigned char *data, size_t bytes, char *ret_text)
{
    uint32_t bits = 0;
    unsigned held = 0;
    for (size_t i = 0; i < bytes; i++) {
        bits = (bits << 8) | data[i];
        for (held += 8; held >= 6; held -= 6) {
            *ret_text++ = base64url[(bits >> (held - 6)) & 63];
        }
    }
    if (held) {
        *ret_text++ = base64url[(bits << (6 - held)) & 63];
    }
    *ret_text = '\0';
}

/** @return bytes, or 0 when the text is none or too long. */
static size_t base64url_read(const char *text, unsigned char *ret_data, size_t capacity)
{
    uint32_t bits = 0;
    unsigned held = 0;
    size_t bytes = 0;
    for (; *text; text++) {
        const char *digit = strchr(base64url, *text);
        if (!digit || (held + 6 >= 8 && bytes == capacity)) {
            return 0;
        }
        bits = (bits << 6) | (uint32_t)(digit - base64url);
        held += 6;
        if (held >= 8) {
            held -= 8;
            ret_data[bytes++] = (unsigned char)(bits >> held);
        }
    }
    /* Left-over bits are zero in what the writer makes: one spelling a token. */
    return held < 6 && (bits & ((1u << held) - 1)) == 0 ? bytes : 0;
}

bool api_page_token_make(const char *scope, size_t scope_bytes, const char *last,
                         char ret_token[static API_PAGE_TOKEN_BYTES])
{
    unsigned char check[HMAC_BYTES];
    unsigned char data[CHECK_BYTES + ST_ID_MAX];
    size_t length = strlen(last);
    if (length > ST_ID_MAX || !token_check(scope, scope_bytes, last, check)) {
        return false;
    }
    memcpy(data, check, CHECK_BYTES);
    /* Bytes, not text. NOLINTNEXTLINE(bugprone-not-null-terminated-result) */
    memcpy(data + CHECK_BYTES, last, length);
    base64url_write(data, CHECK_BYTES + length, ret_token);
    return true;
}

bool api_page_token_read(const char *scope, size_t scope_bytes, const char *token,
                         char ret_last[static ST_ID_MAX + 1])
{
    unsigned char check[HMAC_BYTES];
    unsigned char data[CHECK_BYTES + ST_ID_MAX];
    char last[ST_ID_MAX + 1] = "";
    size_t bytes = base64url_read(token, data, sizeof(data));
    if (bytes <= CHECK_BYTES) {
        return false;
    }
    memcpy(last, data + CHECK_BYTES, bytes - CHECK_BYTES);
    /* A NUL in the id would make two spellings of one token. */
    if (strlen(last) != bytes - CHECK_BYTES || !token_check(scope, scope_bytes, last, check) ||
        gnutls_memcmp(check, data, CHECK_BYTES) != 0) {
        return false;
    }
    memcpy(ret_last, last, sizeof(last));
    return true;
}
