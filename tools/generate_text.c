/* SPDX-License-Identifier: MIT
 *
 * The prompts of `ringforge generate`, as texts or ids, and its texts.
 */
#define _GNU_SOURCE /* memmem */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include <hub.h>

#include "generate.h"

#define PROMPT_BYTES ((size_t)64 << 20) /* of --prompts */

static int add_id(struct generate_job *job, struct rf_token_list *list, int32_t id)
{
    if (list->count == list->capacity) {
        const size_t capacity = 2 * list->capacity + 16;
        int32_t *ids = realloc(list->ids, capacity * sizeof(*ids));
        if (!ids)
            return tool_error(job->command, "out of memory");
        list->ids = ids;
        list->capacity = capacity;
    }
    list->ids[list->count++] = id;
    return TOOL_OK;
}

/* "1,2,3" */
static int add_ids(struct generate_job *job, const char *option, const char *text,
                   struct rf_token_list *list)
{
    for (const char *at = text;; at++) {
        const size_t bytes = strcspn(at, ",");
        char what[32];
        int64_t id;
        snprintf(what, sizeof(what), "an id of --%s", option);
        int status = tool_take_int(job->command, what, at, bytes, 0, INT32_MAX, &id);
        if (status == TOOL_OK)
            status = add_id(job, list, (int32_t)id);
        at += bytes;
        if (status != TOOL_OK || !*at)
            return status;
    }
}

static int new_item(struct generate_job *job, struct generate_item **out)
{
    struct generate_item *items =
        realloc(job->items, (size_t)(job->count + 1) * sizeof(*job->items));
    if (!items)
        return tool_error(job->command, "out of memory");
    job->items = items;
    *out = &items[job->count++];
    memset(*out, 0, sizeof(**out));
    return TOOL_OK;
}

/* Reads a whole file, zero-terminated; to be freed. */
static int read_file(struct generate_job *job, const char *option, const char *path, char **out)
{
    FILE *file = fopen(path, "rb");
    size_t bytes = 0, size = 0;
    char *text = NULL;
    if (!file || getdelim(&text, &size, 0, file) < 0 || ferror(file)) {
        const int error = errno;
        if (file)
            fclose(file);
        free(text);
        return tool_error(job->command, "--%s %s: %s", option, path,
                          error ? strerror(error) : "it is empty");
    }
    bytes = strlen(text);
    const bool more = fgetc(file) != EOF;
    fclose(file);
    if (bytes > PROMPT_BYTES || more) {
        free(text);
        return tool_error(job->command, "--%s %s: %s", option, path,
                          more ? "it has a zero byte" : "more than 64 MiB");
    }
    *out = text;
    return TOOL_OK;
}

static int add_text(struct generate_job *job, const char *text, size_t bytes)
{
    const struct rf_encode_opts opts = {.add_special = true};
    struct generate_item *item = NULL;
    if (!job->tokenizer)
        return tool_usage_error(job->command, "%s has no tokenizer.json; pass ids by --prompt-ids",
                                job->o.from);
    const int status = new_item(job, &item);
    if (status != TOOL_OK)
        return status;
    if (rf_tokenizer_encode(job->tokenizer, text, bytes, &opts, &item->prompt) < 0)
        return tool_library_error(job->command, -1);
    const int32_t begin = rf_tokenizer_role(job->tokenizer, RF_TOKEN_BEGIN);
    return item->prompt.count > 0 ? TOOL_OK
           : begin >= 0           ? add_id(job, &item->prompt, begin)
                                  : tool_usage_error(job->command, "a prompt has no tokens");
}

/* ---- conversations --------------------------------------------------------------------------- */

static int open_chat(struct generate_job *job)
{
    const struct rf_chat_opts opts = {
        .tokenizer = job->tokenizer, .model = job->o.from, .form = job->o.chat, .now = job->o.now};
    if (!job->tokenizer)
        return tool_usage_error(job->command, "%s has no tokenizer.json; pass ids by --prompt-ids",
                                job->o.from);
    if (rf_chat_open(&opts, &job->chat) < 0)
        return tool_library_error(job->command, -1);
    return job->o.tools ? read_file(job, "tools", job->o.tools, &job->tools) : TOOL_OK;
}

/* A conversation as an object with "messages", up to the assistant's answer. */
static int add_chat(struct generate_job *job, const char *where, const char *json, size_t bytes)
{
    struct generate_item *item = NULL;
    const int status = new_item(job, &item);
    if (status != TOOL_OK)
        return status;
    if (rf_chat_prompt(job->chat,
                       &(struct rf_chat_request){
                           .where = where, .json = json, .bytes = bytes, .tools = job->tools},
                       &item->prompt) < 0)
        return tool_library_error(job->command, -1);
    return item->prompt.count > 0 ? TOOL_OK
                                  : tool_usage_error(job->command, "%s: it has no tokens", where);
}

/* A single message of a user. */
static int add_message(struct generate_job *job, const char *text)
{
    cJSON *line = cJSON_CreateObject();
    cJSON *message = cJSON_CreateObject();
    tool_json_put(message, "role=%s content=%s", "user", text);
    cJSON_AddItemToArray(cJSON_AddArrayToObject(line, "messages"), message);
    char *json = cJSON_PrintUnformatted(line);
    const int status = json ? add_chat(job, "--message", json, strlen(json))
                            : tool_error(job->command, "out of memory");
    cJSON_free(json);
    cJSON_Delete(line);
    return status;
}

static int add_line(struct generate_job *job, const char *line, size_t bytes, long long number)
{
    char where[TOOL_PATH_BYTES + 64];
    if (strspn(line, " \t") >= bytes)
        return TOOL_OK;
    snprintf(where, sizeof(where), "--messages %s: line %lld", job->o.messages, number);
    return add_chat(job, where, line, bytes);
}

static int add_prompt(struct generate_job *job, const char *line, size_t bytes, long long number)
{
    (void)number;
    return add_text(job, line, bytes);
}

/* ---- files ----------------------------------------------------------------------------------- */

/* Calls add for each line, without its ending: LF, or CR LF. */
static int add_file(struct generate_job *job, const char *option, const char *path,
                    int (*add)(struct generate_job *, const char *, size_t, long long))
{
    FILE *file = strcmp(path, "-") == 0 ? stdin : fopen(path, "rb");
    char *line = NULL;
    size_t size = 0, all = 0;
    long long number = 0;
    int status = TOOL_OK;
    if (!file)
        return tool_error(job->command, "--%s %s: %s", option, path, strerror(errno));
    for (ssize_t n; status == TOOL_OK && (n = getline(&line, &size, file)) >= 0;) {
        number++;
        if (n > 0 && line[n - 1] == '\n')
            n -= n > 1 && line[n - 2] == '\r' ? 2 : 1;
        all += (size_t)n;
        line[n] = 0;
        if (all > PROMPT_BYTES)
            status = tool_error(job->command, "--%s %s: more than 64 MiB", option, path);
        else
            status = add(job, line, (size_t)n, number);
    }
    if (status == TOOL_OK && ferror(file))
        status = tool_error(job->command, "--%s %s: %s", option, path, strerror(errno));
    free(line);
    if (file != stdin)
        fclose(file);
    return status;
}

/* ---- ends of texts --------------------------------------------------------------------------- */

/* The ids that end a text of the model. generation_config.json is always checked. */
static int read_ends(struct generate_job *job)
{
    char path[TOOL_PATH_BYTES];
    struct hub_ends ends;
    snprintf(path, sizeof(path), "%s/generation_config.json", job->o.from);
    if (hub_read_ends(job->o.from, access(path, F_OK) == 0, &ends) < 0)
        return tool_error(job->command, "--from %s: %s", job->o.from, rf_last_error()->message);
    int status = TOOL_OK;
    for (int i = 0; status == TOOL_OK && !job->o.ignore_end && i < ends.count; i++)
        status = add_id(job, &job->stops, ends.ids[i]);
    return status;
}

/* A special token has no text in generated output, so a stop string that is the text of one acts
 * like its id. */
static int read_stops(struct generate_job *job)
{
    int status = TOOL_OK;
    for (int i = 0; status == TOOL_OK && i < job->o.stop.count; i++) {
        const char *stop = job->o.stop.item[i];
        struct rf_token_list ids = {0};
        if (rf_tokenizer_encode(job->tokenizer, stop, strlen(stop), NULL, &ids) < 0)
            status = tool_library_error(job->command, -1);
        bool special = false;
        for (size_t k = 0; k < ids.count; k++)
            special = special || rf_tokenizer_is_special(job->tokenizer, ids.ids[k]);
        if (special && ids.count == 1)
            status = add_id(job, &job->stops, ids.ids[0]);
        else if (special)
            status =
                tool_usage_error(job->command,
                                 "--stop %s holds a special token of the tokenizer beside other "
                                 "text; such a token ends a text by itself, so pass it alone",
                                 stop);
        rf_token_list_free(&ids);
    }
    return status;
}

static int open_tokenizer(struct generate_job *job)
{
    char path[TOOL_PATH_BYTES];
    snprintf(path, sizeof(path), "%s/tokenizer.json", job->o.from);
    if (access(path, F_OK) != 0)
        return job->o.stop.count > 0
                   ? tool_usage_error(job->command, "--stop needs a tokenizer.json in %s",
                                      job->o.from)
                   : TOOL_OK;
    return rf_tokenizer_open(job->o.from, &job->tokenizer) < 0
               ? tool_library_error(job->command, -1)
               : TOOL_OK;
}

static int open_decoders(struct generate_job *job)
{
    for (int i = 0; i < job->count; i++) {
        struct generate_item *item = &job->items[i];
        item->ids = malloc((size_t)job->o.max_new * sizeof(*item->ids));
        item->logprobs = malloc((size_t)job->o.max_new * sizeof(*item->logprobs));
        if (!item->ids || !item->logprobs)
            return tool_error(job->command, "out of memory");
        if (job->tokenizer && rf_decoder_open(job->tokenizer, true, &item->decoder) < 0)
            return tool_library_error(job->command, -1);
    }
    return TOOL_OK;
}

static int check_prompts(const struct generate_job *job)
{
    const struct generate_options *o = &job->o;
    if ((o->prompt != NULL) + (o->prompts != NULL) + (o->prompt_ids.count > 0) +
            (o->message != NULL) + (o->messages != NULL) >
        1)
        return tool_usage_error(job->command, "pass prompts in one way: --prompt TEXT, --prompts "
                                              "FILE, --prompt-ids, --message TEXT or --messages "
                                              "FILE");
    for (int i = 0; i < o->stop.count; i++)
        if (!*o->stop.item[i] || (*o->stop.item[i] & 0xc0) == 0x80)
            return tool_usage_error(job->command, "--stop needs a text in UTF-8");
    return TOOL_OK;
}

int generate_open(struct generate_job *job)
{
    const struct generate_options *o = &job->o;
    int status = check_prompts(job);
    if (status == TOOL_OK)
        status = open_tokenizer(job);
    if (status == TOOL_OK && o->prompt)
        status = add_text(job, o->prompt, strlen(o->prompt));
    if (status == TOOL_OK && o->prompts)
        status = add_file(job, "prompts", o->prompts, add_prompt);
    if (status == TOOL_OK && (o->message || o->messages))
        status = open_chat(job);
    if (status == TOOL_OK && o->message)
        status = add_message(job, o->message);
    if (status == TOOL_OK && o->messages)
        status = add_file(job, "messages", o->messages, add_line);
    for (int i = 0; status == TOOL_OK && i < o->prompt_ids.count; i++) {
        struct generate_item *item = NULL;
        status = new_item(job, &item);
        if (status == TOOL_OK)
            status = add_ids(job, "prompt-ids", o->prompt_ids.item[i], &item->prompt);
    }
    if (status == TOOL_OK && job->count == 0)
        status = tool_usage_error(job->command,
                                  "no prompt; pass --prompt TEXT, --prompts FILE, --prompt-ids, "
                                  "--message TEXT or --messages FILE");
    if (status == TOOL_OK)
        status = read_ends(job);
    if (status == TOOL_OK)
        status = read_stops(job);
    for (int i = 0; status == TOOL_OK && i < o->stop_ids.count; i++)
        status = add_ids(job, "stop-id", o->stop_ids.item[i], &job->stops);
    return status == TOOL_OK ? open_decoders(job) : status;
}

void generate_close(struct generate_job *job)
{
    for (int i = 0; i < job->count; i++) {
        struct generate_item *item = &job->items[i];
        free(item->prompt.ids);
        free(item->ids);
        free(item->logprobs);
        rf_decoder_close(item->decoder);
        rf_text_free(&item->text);
    }
    free(job->items);
    free(job->stops.ids);
    free(job->tools);
    rf_chat_close(job->chat);
    rf_tokenizer_close(job->tokenizer);
}

/* ---- texts ----------------------------------------------------------------------------------- */

static bool append(struct rf_text *text, const char *more, size_t bytes)
{
    if (text->count + bytes + 1 > text->capacity) {
        const size_t capacity = 2 * text->capacity + bytes + 64;
        char *grown = realloc(text->bytes, capacity);
        if (!grown)
            return false;
        text->bytes = grown;
        text->capacity = capacity;
    }
    memcpy(text->bytes + text->count, more, bytes);
    text->count += bytes;
    text->bytes[text->count] = 0;
    return true;
}

/* The start of the first stop string at or after `from`; the end of the text if none has appeared.
 */
static size_t find_stop(const struct generate_job *job, const struct rf_text *text, size_t from)
{
    size_t first = text->count;
    for (int i = 0; from < text->count && i < job->o.stop.count; i++) {
        const char *stop = job->o.stop.item[i];
        const char *at = memmem(text->bytes + from, text->count - from, stop, strlen(stop));
        if (at && (size_t)(at - text->bytes) < first)
            first = (size_t)(at - text->bytes);
    }
    return first;
}

/* The start of the longest suffix of the text that is a prefix of a stop string. */
static size_t find_beginning(const struct generate_job *job, const struct rf_text *text,
                             size_t from)
{
    for (size_t at = from; at < text->count; at++)
        for (int i = 0; i < job->o.stop.count; i++)
            if (strncmp(text->bytes + at, job->o.stop.item[i], text->count - at) == 0)
                return at;
    return text->count;
}

/* Moves item->checked, before which no stop string begins, and prints the text up to there. last:
 * no text follows. Returns whether a stop string has appeared. */
static bool check_stops(const struct generate_job *job, struct generate_item *item, bool last)
{
    const struct rf_text *text = &item->text;
    const size_t stop = find_stop(job, text, item->checked);
    const size_t to = stop < text->count || last ? stop : find_beginning(job, text, item->checked);
    if (job->shows && to > item->checked) {
        fwrite(text->bytes + item->checked, 1, to - item->checked, stdout);
        fflush(stdout);
    }
    item->checked = to;
    return stop < text->count;
}

bool generate_token(void *user, int64_t prompt, int32_t id, float logprob)
{
    struct generate_job *job = user;
    struct generate_item *item = &job->items[prompt];
    const char *text = NULL;
    size_t bytes = 0;
    (void)logprob;
    if (!item->decoder) {
        if (job->shows)
            printf("%d\n", id);
        return false;
    }
    if (rf_decoder_next(item->decoder, id, &text, &bytes) < 0 || !append(&item->text, text, bytes))
        return true;
    return check_stops(job, item, false);
}

int generate_end(const struct generate_job *job, struct generate_item *item)
{
    const char *text = NULL;
    size_t bytes = 0;
    if (!item->decoder)
        return TOOL_OK;
    if (rf_decoder_end(item->decoder, &text, &bytes) < 0)
        return tool_library_error(job->command, -1);
    if (!append(&item->text, text, bytes))
        return tool_error(job->command, "out of memory");
    check_stops(job, item, true);
    printf("\n");
    return TOOL_OK;
}

int generate_text(const struct generate_job *job, const struct generate_item *item, int64_t count,
                  struct rf_text *out)
{
    if (!job->tokenizer)
        return TOOL_OK;
    if (rf_tokenizer_decode(job->tokenizer, item->ids, (size_t)count, true, out) < 0)
        return tool_library_error(job->command, -1);
    out->count = find_stop(job, out, 0);
    if (out->bytes)
        out->bytes[out->count] = 0;
    return TOOL_OK;
}
