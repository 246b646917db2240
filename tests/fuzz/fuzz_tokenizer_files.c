/* SPDX-License-Identifier: MIT
 *
 * The files beside tokenizer.json: tokenizer_config.json, special_tokens_map.json and
 * added_tokens.json, in this order in the input, separated by zero bytes. A text with the tokens
 * that they name is encoded.
 */
#include <ringforge/tokenizer.h>

#include "fuzz.h"

enum { FILES = 3 };
static char folder[] = "tokenizer-XXXXXX"; /* in the working directory */
static char model[64], files[FILES][64];

static void clean_up(void)
{
    unlink(model);
    for (int i = 0; i < FILES; i++)
        unlink(files[i]);
    rmdir(folder);
}

static void start(void)
{
    static const char *const names[FILES] = {"tokenizer_config.json", "special_tokens_map.json",
                                             "added_tokens.json"};
    static const char json[] =
        "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2},\"merges\":[\"a b\"]},"
        "\"normalizer\":{\"type\":\"Prepend\",\"prepend\":\"b\"},\"added_tokens\":[{\"id\":3,"
        "\"content\":\"<s>\",\"special\":true},{\"id\":4,\"content\":\"<e>\",\"normalized\":false}]"
        "}";
    REQUIRE(mkdtemp(folder));
    snprintf(model, sizeof(model), "%s/tokenizer.json", folder);
    for (int i = 0; i < FILES; i++)
        snprintf(files[i], sizeof(files[i]), "%s/%s", folder, names[i]);
    atexit(clean_up);
    write_whole(model, json, sizeof(json) - 1);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char text[] = "<s>ab<p>a <e> \xe2\x84\xa6<q>";
    struct rf_tokenizer *tokenizer = NULL;
    struct rf_token_list list = {0};
    struct rf_text out = {0};
    if (!model[0])
        start();
    for (int i = 0; i < FILES; i++) {
        const uint8_t *end = memchr(data, 0, size);
        const size_t length = end ? (size_t)(end - data) : size;
        unlink(files[i]);
        if (length > 0)
            write_whole(files[i], data, length);
        data += length + (end != NULL);
        size -= length + (end != NULL);
    }
    if (rf_tokenizer_open(folder, &tokenizer) == 0) {
        REQUIRE(rf_tokenizer_encode(tokenizer, text, sizeof(text) - 1, NULL, &list) == 0);
        for (size_t i = 0; i < list.count; i++)
            REQUIRE(list.ids[i] < rf_tokenizer_vocabulary(tokenizer) &&
                    rf_tokenizer_token(tokenizer, list.ids[i]));
        REQUIRE(rf_tokenizer_decode(tokenizer, list.ids, list.count, true, &out) == 0);
    } else {
        REQUIRE(rf_last_error()->message[0]);
    }
    rf_tokenizer_close(tokenizer);
    rf_token_list_free(&list);
    rf_text_free(&out);
    return 0;
}
