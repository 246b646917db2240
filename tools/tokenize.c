/* SPDX-License-Identifier: MIT
 *
 * ringforge tokenize: texts to a file of tokens, by the tokenizer of a model's folder. Training
 * maps such a file into memory instead of encoding the texts each time.
 */
#include <string.h>
#include <unistd.h>

#include "tool.h"

struct progress {
    bool shown;
    uint64_t start_ns, last_ns;
};

static void show(void *user, int64_t bytes, int64_t tokens)
{
    struct progress *p = user;
    const uint64_t now = rf_now_ns();
    if (!p->shown || now - p->last_ns < 200000000)
        return;
    p->last_ns = now;
    fprintf(stderr, "\r\033[K%.1f MB, %.1f million tokens, %.1f MB/s", 1e-6 * (double)bytes,
            1e-6 * (double)tokens, 1e3 * (double)bytes / (double)(now - p->start_ns));
}

static int tokenize(const struct tool_command *command, const char *from, const char *data,
                    const char *out, bool raw)
{
    struct rf_tokenizer *tokenizer = NULL;
    struct rf_dataset *dataset = NULL;
    struct progress progress = {isatty(STDERR_FILENO), rf_now_ns(), rf_now_ns()};
    struct rf_data_opts opts = {.progress = show, .user = &progress};
    int rc = rf_tokenizer_open(from, &tokenizer);
    opts.tokenizer = tokenizer;
    if (rc == 0)
        rc = rf_dataset_open_as(data, &opts, &dataset);
    if (progress.shown)
        fprintf(stderr, "\r\033[K");
    if (rc == 0)
        rc = rf_dataset_write(dataset, out, raw);
    if (rc == 0) {
        const int64_t tokens =
            rf_dataset_train_tokens(dataset) + rf_dataset_held_out_tokens(dataset);
        printf("%s: %lld tokens of %d files in %d bits, %.1f s\n", out, (long long)tokens,
               rf_dataset_files(dataset), rf_dataset_vocabulary(dataset) > 65536 ? 32 : 16,
               1e-9 * (double)(rf_now_ns() - progress.start_ns));
    }
    rf_dataset_close(dataset);
    rf_tokenizer_close(tokenizer);
    return rc == 0 ? TOOL_OK : tool_library_error(command, -1);
}

static int tokenize_main(const struct tool_command *command, int argc, char **argv)
{
    const char *from = NULL, *data = NULL, *out = NULL;
    bool raw = false;
    struct tool_option table[] = {
        {"from", TOOL_TEXT, &from, "DIR", "folder with tokenizer.json, or that file",
         .path = TOOL_READS},
        {"data", TOOL_TEXT, &data, "PATH",
         "text file, folder of text files, or .jsonl: an object with a \"text\" on each line",
         .path = TOOL_READS_ALL},
        {"out", TOOL_TEXT, &out, "FILE", "file of tokens, with llm.c's header",
         .path = TOOL_WRITES},
        {"raw", TOOL_FLAG, &raw, NULL, "tokens alone, without the header"},
        {NULL}};
    const int status = tool_options(command, table, argc, argv, NULL);
    if (status != TOOL_OK)
        return status;
    if (!from || !data || !out)
        return tool_usage_error(command, "--from DIR, --data PATH and --out FILE are needed");
    const int writable = tool_outputs_check(command, table);
    return writable != TOOL_OK ? writable : tokenize(command, from, data, out, raw);
}

const struct tool_command tool_tokenize = {
    .name = "tokenize",
    .summary = "turn texts into a file of tokens",
    .usage = "--from DIR --data PATH --out FILE",
    .main = tokenize_main,
};
