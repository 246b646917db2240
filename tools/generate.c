/* SPDX-License-Identifier: MIT
 *
 * ringforge generate: text by a model in a hub's folder.
 */
#include "generate.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "from.h"

/* A model that generates. */
struct text_model {
    struct setup setup;
    struct model model;
    struct from from;
};

static void close_model(struct text_model *m)
{
    from_close(&m->from);
    model_destroy(&m->model);
    setup_close(&m->setup);
}

static int open_model(const struct generate_job *job, struct text_model *m, int64_t length)
{
    const struct generate_options *o = &job->o;
    struct setup *s = &m->setup;
    s->from = o->from;
    s->adapter_dir = o->adapter;
    s->seq = length;
    if (hub_open(o->from, &s->hub) < 0 || hub_check_seq(s->hub, length) < 0)
        return tool_error(job->command, "--from %s: %s", o->from, rf_last_error()->message);
    s->type = hub_dtype(s->hub);
    int status = from_open(job->command, s);
    if (status == TOOL_OK)
        status = quantize_parse(job->command, o->quantize, true, s);
    if (status == TOOL_OK && o->dtype)
        status = tool_read_dtype(job->command, o->dtype, &s->type);
    s->residual_type = s->type;
    if (status == TOOL_OK)
        status = adapter_open(job->command, s);
    if (status == TOOL_OK)
        status = model_create(job->command, s, &m->model);
    if (status == TOOL_OK)
        status = from_check(job->command, s, &m->model, &m->from);
    return status == TOOL_OK ? adapter_check(job->command, s, &m->model) : status;
}

static int fill_model(const struct generate_job *job, struct text_model *m, struct rf_generator *g,
                      int rank)
{
    const struct rf_param_source source = from_source(&m->from);
    if (rf_generator_fill(g, &source) < 0)
        return tool_library_error(job->command, rank);
    return adapter_fill_generator(job->command, &m->setup, &m->model, g);
}

/* ---- results --------------------------------------------------------------------------------- */

static cJSON *numbers(const int32_t *ids, int64_t count)
{
    cJSON *array = cJSON_CreateArray();
    for (int64_t i = 0; i < count; i++)
        cJSON_AddItemToArray(array, cJSON_CreateNumber(ids[i]));
    return array;
}

static int add_json(const struct generate_job *job, int index, const struct rf_generated *r,
                    cJSON *rows)
{
    static const char *const ends[] = {"length", "stop", "full"};
    const struct generate_item *item = &job->items[index];
    struct rf_text text = {0};
    cJSON *row = cJSON_CreateObject(), *logprobs = cJSON_CreateArray();
    const int status = generate_text(job, item, r->count, &text);
    cJSON_AddItemToObject(row, "prompt_ids",
                          numbers(item->prompt.ids, (int64_t)item->prompt.count));
    cJSON_AddItemToObject(row, "ids", numbers(r->ids, r->count));
    if (job->tokenizer)
        cJSON_AddStringToObject(row, "text", text.bytes ? text.bytes : "");
    for (int64_t i = 0; i < r->count; i++)
        cJSON_AddItemToArray(logprobs, cJSON_CreateNumber((double)r->logprobs[i]));
    cJSON_AddItemToObject(row, "logprobs", logprobs);
    cJSON_AddStringToObject(row, "finish", ends[r->finish]);
    cJSON_AddItemToArray(rows, row);
    rf_text_free(&text);
    return status;
}

static int print_item(const struct generate_job *job, int index, const struct rf_generated *r)
{
    struct rf_text text = {0};
    const int status = generate_text(job, &job->items[index], r->count, &text);
    if (job->count > 1)
        printf("--- prompt %d\n", index);
    if (job->tokenizer)
        printf("%s\n", text.bytes ? text.bytes : "");
    for (int64_t i = 0; !job->tokenizer && i < r->count; i++)
        printf("%d%s", r->ids[i], i + 1 < r->count ? "," : "\n");
    rf_text_free(&text);
    return status;
}

static int show(const struct generate_job *job, const struct rf_generated *results, double seconds)
{
    int64_t tokens = 0;
    int status = TOOL_OK;
    cJSON *json = job->o.json ? cJSON_CreateObject() : NULL;
    cJSON *rows = json ? cJSON_AddArrayToObject(json, "texts") : NULL;
    for (int i = 0; status == TOOL_OK && i < job->count; i++) {
        tokens += results[i].count;
        if (json)
            status = add_json(job, i, &results[i], rows);
        else if (!job->shows)
            status = print_item(job, i, &results[i]);
    }
    if (job->shows)
        status = generate_end(job, &job->items[0]);
    fprintf(stderr, "%lld tokens in %.2f s, %.1f tokens/s\n", (long long)tokens, seconds,
            seconds > 0 ? (double)tokens / seconds : 0);
    if (json && status == TOOL_OK) {
        cJSON_AddNumberToObject(json, "seconds", seconds);
        return tool_json_write(job->command, job->o.json, json);
    }
    cJSON_Delete(json);
    return status;
}

/* ---- a rank ---------------------------------------------------------------------------------- */

static int64_t longest(const struct generate_job *job)
{
    size_t most = 0;
    for (int i = 0; i < job->count; i++)
        most = job->items[i].prompt.count > most ? job->items[i].prompt.count : most;
    return job->o.length ? job->o.length : (int64_t)most + job->o.max_new;
}

static int run_texts(struct generate_job *job, struct rf_generator *g, int rank)
{
    const struct generate_options *o = &job->o;
    const struct rf_sampling sampling = {.max_new = o->max_new,
                                         .temperature = (float)o->temperature,
                                         .top_k = (int32_t)o->top_k,
                                         .top_p = (float)o->top_p,
                                         .repetition_penalty = (float)o->repetition_penalty,
                                         .seed = (uint64_t)o->seed,
                                         .stop = job->stops.ids,
                                         .stop_count = (int)job->stops.count,
                                         .token = generate_token,
                                         .user = job};
    struct rf_prompt *prompts = calloc((size_t)job->count, sizeof(*prompts));
    struct rf_generated *results = calloc((size_t)job->count, sizeof(*results));
    int status = prompts && results ? TOOL_OK : tool_error(job->command, "out of memory");
    for (int i = 0; status == TOOL_OK && i < job->count; i++) {
        const struct generate_item *item = &job->items[i];
        prompts[i] = (struct rf_prompt){item->prompt.ids, (int64_t)item->prompt.count};
        results[i] = (struct rf_generated){.ids = item->ids, .logprobs = item->logprobs};
    }
    const uint64_t begin = rf_now_ns();
    if (status == TOOL_OK && rf_generate(g, prompts, job->count, &sampling, results) < 0)
        status = tool_library_error(job->command, rank);
    if (status == TOOL_OK && rank == 0)
        status = show(job, results, (double)(rf_now_ns() - begin) * 1e-9);
    free(prompts);
    free(results);
    return status;
}

static int run_rank(struct rf_comm *comm, void *user)
{
    const struct generate_job *given = user;
    struct generate_job job = {.command = given->command, .o = given->o};
    struct text_model model = {0};
    struct rf_device *device = NULL;
    struct rf_generator *g = NULL;
    char text[16];
    const int rank = comm ? rf_comm_rank(comm) : 0;
    int status = generate_open(&job);
    job.shows = job.count == 1 && !job.o.json && rank == 0;
    if (status == TOOL_OK)
        status = open_model(&job, &model, longest(&job));
    if (status == TOOL_OK) {
        const struct rf_generator_opts opts = {.sequences = job.o.batch, .length = longest(&job)};
        if (rf_device_open(tool_rank_device(job.o.device, text), NULL, &device) < 0 ||
            rf_generator_open(device, comm,
                              (struct rf_blocks){model.model.blocks, model.model.count}, &opts,
                              &g) < 0)
            status = tool_library_error(job.command, rank);
    }
    if (status == TOOL_OK)
        status = fill_model(&job, &model, g, rank);
    if (status == TOOL_OK)
        status = run_texts(&job, g, rank);
    rf_generator_close(g);
    rf_device_close(device);
    close_model(&model);
    generate_close(&job);
    return status;
}

static int check_options(const struct tool_command *command, struct generate_options *o)
{
    if (!o->from)
        return tool_usage_error(command, "--from DIR is missing: a folder with config.json");
    struct stat folder;
    if (stat(o->from, &folder) != 0)
        return tool_error(command, "--from %s: %s", o->from, strerror(errno));
    if (!S_ISDIR(folder.st_mode))
        return tool_error(command, "--from %s: it is no folder", o->from);
    const char *lines = o->prompts ? o->prompts : o->messages;
    if (o->ranks.ranks > 1 && lines && strcmp(lines, "-") == 0)
        return tool_usage_error(command, "--%s - is for one rank; pass a file",
                                o->prompts ? "prompts" : "messages");
    return o->date ? tool_read_date(command, o->date, &o->now) : TOOL_OK;
}

static int generate_main(const struct tool_command *command, int argc, char **argv)
{
    struct generate_job job = {
        .command = command,
        .o = {.max_new = 32, .batch = 8, .repetition_penalty = 1, .quantize = "auto"}};
    struct generate_options *o = &job.o;
    struct tool_option table[] = {
        {"from", TOOL_TEXT, &o->from, "DIR", "model as a hub's folder", .path = TOOL_READS,
         .ranks = TOOL_CONTENT, .why = TOOL_OWN_COPY},
        {"adapter", TOOL_TEXT, &o->adapter, "DIR",
         "low-rank adapters as PEFT's folder: adapter_config.json, adapter_model.safetensors",
         .path = TOOL_READS, .ranks = TOOL_CONTENT, .why = TOOL_OWN_COPY},
        {"prompt", TOOL_TEXT, &o->prompt, "TEXT", "prompt"},
        {"prompts", TOOL_TEXT, &o->prompts, "FILE",
         "file with a prompt in each line; -: standard input", .path = TOOL_READS,
         .ranks = TOOL_CONTENT, .why = TOOL_OWN_COPY},
        {"prompt-ids", TOOL_LIST, &o->prompt_ids, "IDS", "prompt as ids: 1,2,3; may be repeated"},
        {"message", TOOL_TEXT, &o->message, "TEXT",
         "words of a user, answered by the assistant as the model's chat template has it"},
        {"messages", TOOL_TEXT, &o->messages, "FILE",
         "file with a conversation in each line, {\"messages\": [...]}, to be answered; -: "
         "standard input",
         .path = TOOL_READS, .ranks = TOOL_CONTENT, .why = TOOL_OWN_COPY},
        {"tools", TOOL_TEXT, &o->tools, "FILE",
         "JSON list of tools for conversations without \"tools\"", .needs = "message|messages",
         .path = TOOL_READS, .ranks = TOOL_CONTENT, .why = TOOL_OWN_COPY},
        {"chat", TOOL_TEXT, &o->chat, "FORM",
         "form of conversations: chatml, llama2, ..., or the file of a chat template (that of "
         "--from)",
         .needs = "message|messages", .path = TOOL_READS},
        {"date", TOOL_TEXT, &o->date, "YYYY-MM-DD", "day that chat templates write (today)",
         .needs = "message|messages"},
        {"max-new", TOOL_INT, &o->max_new, "N", "number of tokens of each text (32)", .least = 1,
         .most = 1 << 24},
        {"temperature", TOOL_REAL, &o->temperature, "T", "temperature of sampling; 0 = none (0)"},
        {"top-k", TOOL_INT, &o->top_k, "K",
         "number of most probable tokens to sample from; 0 = all (0)", .most = INT32_MAX,
         .needs = "temperature"},
        {"top-p", TOOL_REAL, &o->top_p, "P",
         "probability of the most probable tokens to sample from, together; 0 = all (0)", .most = 1,
         .needs = "temperature"},
        {"repetition-penalty", TOOL_REAL, &o->repetition_penalty, "R",
         "divisor of positive logits of earlier tokens, factor of negative ones (1)"},
        {"stop", TOOL_LIST, &o->stop, "TEXT", "text that ends an answer; may be repeated"},
        {"stop-id", TOOL_LIST, &o->stop_ids, "IDS", "ids that end a text, besides the model's"},
        {"ignore-end", TOOL_FLAG, &o->ignore_end, NULL,
         "no end at the ids that end a text of this model"},
        {"seed", TOOL_INT, &o->seed, "N", "seed of sampling (0)", .needs = "temperature"},
        {"batch", TOOL_INT, &o->batch, "N", "number of prompts computed together on each rank (8)",
         .least = 1, .most = 1 << 16},
        {"length", TOOL_INT, &o->length, "N",
         "largest number of tokens of a prompt and its text, for which there is memory (as needed)",
         .least = 1, .most = 1 << 24},
        {"dtype", TOOL_TEXT, &o->dtype, "TYPE",
         "type of weights: f32, f16 or bf16 (as config.json says)"},
        {"quantize", TOOL_TEXT, &o->quantize, "KIND",
         "type of the layers' weights: none, nf4, int8, fp8, mxfp4, nvfp4; auto: nf4 if the files "
         "have them so, else none (auto)"},
        {"device", TOOL_TEXT, &o->device, "WHICH", "device: its index, or part of its name",
         .ranks = TOOL_OWN, .why = TOOL_OWN_DEVICE},
        {"ranks", TOOL_INT, &o->ranks.ranks, "N",
         "number of ranks to start on this machine, which divide the prompts", .least = 1,
         .most = 4096, .ranks = TOOL_OWN, .why = TOOL_LAUNCHED},
        {"provider", TOOL_TEXT, &o->ranks.provider, "NAME",
         "network between ranks: shm, shm+tcp, tcp, ofi-tcp, tcp;ofi_rxm, ofi-shm, or loopback "
         "(ranks as threads)",
         .ranks = TOOL_OWN, .why = TOOL_JOINED},
        {"timeout", TOOL_REAL, &o->ranks.timeout_s, "S",
         "longest time of one operation without progress, seconds", .ranks = TOOL_OWN,
         .why = TOOL_OWN_PATIENCE},
        {"json", TOOL_FILE, &o->json, "FILE",
         "ids, texts and logarithms of probabilities as JSON (no FILE: printed)",
         .path = TOOL_WRITES, .ranks = TOOL_OWN, .why = TOOL_RANK_0_WRITES},
        {NULL}};
    tool_ranks_begin();
    int status = tool_options(command, table, argc, argv, NULL);
    if (status == TOOL_OK)
        status = check_options(command, o);
    if (status != TOOL_OK)
        return tool_ranks_refuse(command, status);
    o->ranks.options = table;
    return tool_ranks_run(command, &o->ranks, argv, run_rank, &job);
}

const struct tool_command tool_generate = {"generate", "generate text with a model",
                                           "--from DIR --prompt TEXT [OPTIONS]", generate_main};
