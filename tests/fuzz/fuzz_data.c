/* SPDX-License-Identifier: MIT
 *
 * Data sets: the input as a token file or a text, as JSON lines and a JSON list through a
 * tokenizer, and as the tokenizer_config.json with the chat template.
 */
#include <ringforge/data.h>

#include "fuzz.h"

static char folder[] = "data-XXXXXX"; /* in the working directory */
static char lines[64], objects[64], tokens[64], copy[64], model[64], config[64], chat[64];

static void clean_up(void)
{
    unlink(lines);
    unlink(objects);
    unlink(tokens);
    unlink(copy);
    unlink(model);
    unlink(config);
    unlink(chat);
    rmdir(folder);
}

static void start(struct rf_tokenizer **tokenizer)
{
    static const char json[] =
        "{\"model\":{\"type\":\"BPE\",\"unk_token\":\"</s>\",\"vocab\":{\"</s>\":0,\"a\":1,\"b\":"
        "2,\"ab\":3},\"merges\":[\"a b\"]}}";
    static const char messages[] =
        "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\",\"content\":"
        "\"b\"}]}";
    REQUIRE(mkdtemp(folder));
    snprintf(lines, sizeof(lines), "%s/a.jsonl", folder);
    snprintf(objects, sizeof(objects), "%s/a.json", folder);
    snprintf(tokens, sizeof(tokens), "%s/a.bin", folder);
    snprintf(copy, sizeof(copy), "%s/copy", folder);
    snprintf(model, sizeof(model), "%s/tokenizer.json", folder);
    snprintf(config, sizeof(config), "%s/tokenizer_config.json", folder);
    snprintf(chat, sizeof(chat), "%s/chat.jsonl", folder);
    atexit(clean_up);
    write_whole(model, json, sizeof(json) - 1);
    write_whole(chat, messages, sizeof(messages) - 1);
    REQUIRE(rf_tokenizer_open(model, tokenizer) == 0);
}

/* Every token is below the data set's limit, and a written data set reads back the same. */
static void use(const char *path, const struct rf_data_opts *opts, bool write)
{
    struct rf_dataset *data = NULL, *again = NULL;
    int32_t token, target;
    if (rf_dataset_open_as(path, opts, &data) < 0)
        return;
    for (int64_t k = 0; k < 20 && rf_dataset_train_tokens(data) > 1; k++) {
        REQUIRE(rf_dataset_samples(data, 1, (struct rf_sample_range){k, 1, 1}, &token, &target) ==
                0);
        REQUIRE(token >= 0 && token < rf_dataset_vocabulary(data));
        REQUIRE(target >= (rf_dataset_documents(data) ? -1 : 0) &&
                target < rf_dataset_vocabulary(data));
    }
    if (write && rf_dataset_documents(data) == 0) {
        REQUIRE(rf_dataset_write(data, copy, false) == 0);
        REQUIRE(rf_dataset_open(copy, &again) == 0);
        REQUIRE(rf_dataset_train_tokens(again) == rf_dataset_train_tokens(data));
    }
    rf_dataset_close(again);
    rf_dataset_close(data);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct rf_tokenizer *tokenizer;
    if (!tokenizer)
        start(&tokenizer);
    const bool write = size % 64 == 0; /* it syncs, which is slow */
    write_whole(lines, data, size);
    write_whole(tokens, data, size);
    use(lines, &(struct rf_data_opts){.tokenizer = tokenizer}, write);
    use(lines, &(struct rf_data_opts){.tokenizer = tokenizer, .chat = "llama2"}, write);
    write_whole(objects, data, size);
    use(objects, &(struct rf_data_opts){.tokenizer = tokenizer, .seq = 4}, write);
    write_whole(config, data, size);
    use(chat, &(struct rf_data_opts){.tokenizer = tokenizer, .model = folder}, false);
    use(tokens, NULL, write);
    use(tokens, &(struct rf_data_opts){.raw_bytes = 2}, write);
    use(tokens, &(struct rf_data_opts){.raw_bytes = 4}, write);
    return 0;
}
