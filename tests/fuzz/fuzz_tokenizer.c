/* SPDX-License-Identifier: MIT
 *
 * tokenizer.json, and texts for it. The input up to a zero byte is the file, the rest is encoded,
 * and the ids are decoded at once and as a stream.
 */
#define _GNU_SOURCE /* memfd_create */
#include <ringforge/tokenizer.h>
#include <sys/mman.h>

#include "fuzz.h"
#include "tokenizer/utf8.h"

static void use(const struct rf_tokenizer *tokenizer, const char *text, size_t bytes)
{
    struct rf_token_list list = {0};
    struct rf_text out = {0};
    struct rf_decoder *decoder;
    const char *part;
    size_t length;
    const struct rf_encode_opts opts = {.add_special = true};
    if (rf_tokenizer_encode(tokenizer, text, bytes, &opts, &list) == 0) {
        for (size_t i = 0; i < list.count; i++)
            REQUIRE(rf_tokenizer_token(tokenizer, list.ids[i]));
        REQUIRE(rf_tokenizer_decode(tokenizer, list.ids, list.count, false, &out) <= 0);
        REQUIRE(rf_decoder_open(tokenizer, false, &decoder) == 0);
        for (size_t i = 0; i < list.count; i++)
            if (rf_decoder_next(decoder, list.ids[i], &part, &length) == 0)
                REQUIRE(rf_utf8_valid(part, length) == length);
        rf_decoder_close(decoder);
    }
    rf_token_list_free(&list);
    rf_text_free(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static int fd = -1;
    char path[64];
    struct rf_tokenizer *tokenizer = NULL;
    const uint8_t *end = memchr(data, 0, size);
    const size_t length = end ? (size_t)(end - data) : size;
    if (fd < 0)
        fd = memfd_create("fuzz", MFD_CLOEXEC);
    REQUIRE(fd >= 0 && ftruncate(fd, 0) == 0);
    REQUIRE(pwrite(fd, data, length, 0) == (ssize_t)length);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    if (rf_tokenizer_open(path, &tokenizer) == 0)
        use(tokenizer, end ? (const char *)end + 1 : "a b", end ? size - length - 1 : 3);
    rf_tokenizer_close(tokenizer);
    return 0;
}
