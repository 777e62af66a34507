#include "tests/support/leak_check.h"

#include <string.h>

#include "server/digest.h"

struct digest_case {
    enum server_checksum_algorithm algorithm;
    const char *text;
    const char *hex;
};

/* RFC 3720 B.4 and the CRC catalogue; FIPS 180-4 examples. */
static const struct digest_case cases[] = {
    {SERVER_CHECKSUM_CRC32C, "123456789", "e3069283"},
    {SERVER_CHECKSUM_CRC32C, "", "00000000"},
    {SERVER_CHECKSUM_SHA256, "abc",
     "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
    {SERVER_CHECKSUM_SHA256, "",
     "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
};

static void known_texts_have_their_known_digests(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct server_digest digest;
        assert_int_equal(server_digest_init(&digest, cases[i].algorithm, NULL), ST_OK);
        unsigned char text[16] = {0};
        size_t length = strlen(cases[i].text);
        memcpy(text, cases[i].text, length);
        char hex[65] = "";
        server_digest_update(&digest, text, length / 2);
        server_digest_update(&digest, text + length / 2, length - length / 2);
        server_digest_finish(&digest, hex);
        assert_string_equal(hex, cases[i].hex);
        server_digest_update(&digest, text, length);
        server_digest_finish(&digest, hex);
        assert_string_equal(hex, cases[i].hex);
        server_digest_done(&digest);
    }
}

static void crc32c_of_32_zero_bytes_is_that_of_rfc_3720(void **state)
{
    (void)state;
    unsigned char zeros[32] = {0};
    struct server_digest digest;
    char hex[65] = "";
    assert_int_equal(server_digest_init(&digest, SERVER_CHECKSUM_CRC32C, NULL), ST_OK);
    server_digest_update(&digest, zeros, sizeof(zeros));
    server_digest_finish(&digest, hex);
    assert_string_equal(hex, "8a9136aa");
    server_digest_done(&digest);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_texts_have_their_known_digests),
        cmocka_unit_test(crc32c_of_32_zero_bytes_is_that_of_rfc_3720),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
