/* SPDX-License-Identifier: MIT
 *
 * ringforge train: options of the GPT trainer, and what can be checked before a rank is started.
 */
#include <string.h>
#include <unistd.h>

#include "train.h"

/* Whether a running job may take processes in, or this is one that a running job takes in. */
static int check_growth(const struct tool_command *command, struct train_options *o)
{
    struct rf_provider_info info;
    const char *key = getenv("RF_JOB_KEY"), *port = o->join ? strrchr(o->join, ':') : NULL;
    if (o->join && (!port || atoi(port + 1) < 1 || atoi(port + 1) > 65535 || port == o->join))
        return tool_usage_error(command,
                                "--join wants HOST:PORT, with the PORT of the job's "
                                "--accept, not \"%s\"",
                                o->join);
    if (o->join && !o->accept)
        o->accept = atoi(port + 1);
    o->elastic = o->elastic || o->join;
    if (!o->accept)
        return TOOL_OK;
    if (o->accept > 65535)
        return tool_usage_error(command, "--accept %lld is not a port (1 to 65535)",
                                (long long)o->accept);
    if (!o->elastic || !o->save_every)
        return tool_usage_error(command, "--accept PORT is for jobs that take newcomers in when "
                                         "they save: use --elastic, --save DIR and --save-every N "
                                         "with it");
    if (!key || !key[0])
        return tool_usage_error(command, "--accept and --join need RF_JOB_KEY, by which newcomers "
                                         "prove that they belong to the job: set it to the same "
                                         "secret text for the job and for them");
    if (o->ranks.provider && rf_provider_find(o->ranks.provider, &info) == 0 && info.threads)
        return tool_usage_error(command,
                                "--provider %s has ranks that are threads of one process: "
                                "leave it out with --accept or --join",
                                o->ranks.provider);
    return TOOL_OK;
}

static int adapter_options(const struct tool_command *command, const struct train_options *o)
{
    const bool has = setup_adapter(&o->setup) != NULL;
    if (o->export_adapter && !has)
        return tool_usage_error(command, "--export-adapter is for --lora or --adapter DIR");
    if (o->setup.adapter_file && (o->resume || o->join || o->elastic))
        return tool_usage_error(command,
                                "--adapter is what training begins with; leave it out, or "
                                "%s",
                                o->resume ? "--resume (--lora goes on with a checkpoint)"
                                          : "--join and --elastic");
    if (o->export_adapter && rf_export_check(o->export_adapter) < 0)
        return tool_library_error(command, -1);
    return TOOL_OK;
}

static int check(const struct tool_command *command, struct train_options *o)
{
    int ranks = 0;
    int status = tool_ranks_count(command, &o->ranks, &ranks);
    o->batch_given = o->setup.batch > 0;
    if (status == TOOL_OK)
        status = check_growth(command, o);
    if (status == TOOL_OK)
        status = setup_check(command, &o->setup, o->join ? 1 : ranks);
    if (status != TOOL_OK)
        return status;
    o->setup.policy.packed = o->packing;
    if (o->packing && o->setup.mesh.cp > 1)
        return tool_usage_error(command, "--packing is not for ranks of cp in this version");
    int wanted = setup_ranks(&o->setup);
    if (wanted != ranks && !o->join)
        return tool_usage_error(command,
                                "--mesh %s is a grid of %d ranks, but there %s %d; start "
                                "as many, or change the mesh",
                                o->setup.mesh_text, wanted, ranks == 1 ? "is" : "are", ranks);
    if (!o->data)
        return tool_usage_error(command, "--data names the text file or folder to learn from");
    if (strcmp(o->decay, "none") != 0 && strcmp(o->decay, "cosine") != 0)
        return tool_usage_error(command, "there is no --lr-decay \"%s\"; use none or cosine",
                                o->decay);
    if (strcmp(o->scale_lr, "none") != 0 && strcmp(o->scale_lr, "linear") != 0 &&
        strcmp(o->scale_lr, "sqrt") != 0)
        return tool_usage_error(command, "there is no --scale-lr \"%s\"; use linear or sqrt",
                                o->scale_lr);
    if (strcmp(o->scale_lr, "none") != 0 && !o->resume)
        return tool_usage_error(command, "--scale-lr adapts --lr to another batch than that of a "
                                         "checkpoint: it needs --resume DIR");
    if (o->steps < 1)
        return tool_usage_error(command, "--steps has to be 1 or more");
    if (o->sample > 0 && o->setup.head_rows)
        return tool_usage_error(command, "--sample needs all logits of a sequence: leave out "
                                         "--head-rows");
    if (o->sample > 0 && o->setup.mesh.cp > 1)
        return tool_usage_error(command, "--sample needs all logits of a sequence, of which ranks "
                                         "of cp have parts: leave it out, or use another mesh");
    if (o->sample > 0 && o->setup.hub && hub_values(o->setup.hub)->vocab != RF_BYTE_VOCABULARY)
        return tool_usage_error(command, "--sample is for models of bytes: leave it out");
    if (o->sample > 0 && o->temperature <= 0)
        return tool_usage_error(command, "--temperature has to be more than 0");
    if (o->save_every && !o->save)
        return tool_usage_error(command, "--save-every needs --save DIR");
    if (o->chat && !o->setup.from)
        return tool_usage_error(command, "--chat is for the tokenizer of --from DIR");
    if (o->keep && !o->save)
        return tool_usage_error(command, "--keep needs --save DIR");
    if (o->keep < 0 || o->keep > INT32_MAX)
        return tool_usage_error(command, "--keep has to be from 0 to 2147483647");
    status = adapter_options(command, o);
    if (status == TOOL_OK)
        status = export_check(command, &o->export);
    return status == TOOL_OK && o->plot_path ? tool_plot_check(command, o->plot_path) : status;
}

/* Opens --data: as bytes, or through the tokenizer of --from if that folder has one. */
static int open_data(const struct tool_command *command, const struct train_options *o,
                     struct rf_dataset **out)
{
    struct rf_tokenizer *tokenizer = NULL;
    char path[TOOL_PATH_BYTES] = "";
    if (o->setup.from)
        snprintf(path, sizeof(path), "%s/tokenizer.json", o->setup.from);
    int rc = path[0] && access(path, R_OK) == 0 ? rf_tokenizer_open(o->setup.from, &tokenizer) : 0;
    if (rc == 0)
        rc = rf_dataset_open_as(o->data,
                                &(struct rf_data_opts){.tokenizer = tokenizer,
                                                       .pack = o->packing ? o->setup.seq : 0,
                                                       .chat = o->chat,
                                                       .model = o->setup.from},
                                out);
    rf_tokenizer_close(tokenizer);
    if (rc < 0)
        return tool_library_error(command, -1);
    const int64_t most = o->setup.hub ? hub_values(o->setup.hub)->vocab : RF_BYTE_VOCABULARY;
    if (rf_dataset_vocabulary(*out) > most)
        return tool_error(
            command,
            "%s has token %lld; the vocabulary of the model has %lld tokens: the text "
            "was encoded for another model",
            o->data, (long long)rf_dataset_vocabulary(*out) - 1, (long long)most);
    if (rf_dataset_documents(*out) == 0 && rf_dataset_train_tokens(*out) <= o->setup.seq)
        return tool_error(command,
                          "%s has %lld tokens to train on, fewer than one sequence of "
                          "%lld: more text, or a smaller --seq, is needed",
                          o->data, (long long)rf_dataset_train_tokens(*out),
                          (long long)o->setup.seq);
    return TOOL_OK;
}

static int train_main(const struct tool_command *command, int argc, char **argv)
{
    struct train_options o = {.steps = 200,
                              .seed = -1,
                              .lr = 3e-3,
                              .temperature = 0.8,
                              .eval_sequences = 64,
                              .decay = "none",
                              .scale_lr = "none",
                              .prompt = "\n"};
    struct tool_option table[SETUP_ROWS + 40];
    setup_init(&o.setup, table);
    const struct tool_option own[] = {
        {"data", 0, TOOL_TEXT, &o.data, "PATH",
         "text file or folder of text files, .jsonl, or a file of tokens; no pipe"},
        {"packing", 0, TOOL_FLAG, &o.packing, NULL,
         "several documents in a row; attention does not reach from one into another"},
        {"chat", 0, TOOL_TEXT, &o.chat, "FORM",
         "how \"messages\" are written: chatml, llama2, ... (as in the chat template of --from)"},
        {"steps", 0, TOOL_INT, &o.steps, "N", "optimizer steps, counted from the very first (200)"},
        {"lr", 0, TOOL_REAL, &o.lr, "X", "learning rate (3e-3)"},
        {"warmup", 0, TOOL_INT, &o.warmup, "N", "steps over which the rate rises from 0 (0)"},
        {"lr-decay", 0, TOOL_TEXT, &o.decay, "RULE",
         "none, or cosine: a tenth would be reached in the step after the last"},
        {"seed", 0, TOOL_INT, &o.seed, "N", "of parameters and data order (1)"},
        {"eval-every", 0, TOOL_INT, &o.eval_every, "N", "held-out loss every N steps (at the end)"},
        {"eval-sequences", 0, TOOL_INT, &o.eval_sequences, "N", "how many to evaluate on (64)"},
        {"save", 0, TOOL_TEXT, &o.save, "DIR", "write a checkpoint at the end"},
        {"save-every", 0, TOOL_INT, &o.save_every, "N",
         "and every N steps, while training goes on"},
        {"export", 0, TOOL_TEXT, &o.export.dir, "DIR",
         "at the end write a hub's files: config.json, model.safetensors or shards, tokenizer"},
        {"export-adapter", 0, TOOL_TEXT, &o.export_adapter, "DIR",
         "at the end write the adapters of --lora or --adapter as PEFT's files"},
        {"export-dtype", 0, TOOL_TEXT, &o.export.dtype, "TYPE",
         "f32, f16 or bf16 (as --from has it, else f32)"},
        {"export-shard-bytes", 0, TOOL_INT, &o.export.shard_bytes, "BYTES",
         "most of a file, or one tensor (5000000000)"},
        {"keep", 0, TOOL_INT, &o.keep, "K", "keep the last K checkpoints; 0: all (0)"},
        {"resume", 0, TOOL_TEXT, &o.resume, "DIR", "go on from the last checkpoint in DIR"},
        {"scale-lr", 0, TOOL_TEXT, &o.scale_lr, "RULE",
         "go on with another batch: --lr times new batch / old (linear), or its root (sqrt)"},
        {"audit", 0, TOOL_INT, &o.audit, "K",
         "every K steps compare what ranks hold copies of; a difference ends training (0: never)"},
        {"elastic", 0, TOOL_FLAG, &o.elastic, NULL,
         "after a rank is lost the others go on, from memory or the last checkpoint in --save"},
        {"accept", 0, TOOL_INT, &o.accept, "PORT",
         "elastic: processes may join while the job runs, here, when it saves (--save-every)"},
        {"join", 0, TOOL_TEXT, &o.join, "HOST:PORT",
         "join the running job with that --accept on rank 0's HOST; else the job's options"},
        {"sample", 0, TOOL_INT, &o.sample, "N", "print N bytes that the model writes, at the end"},
        {"prompt", 0, TOOL_TEXT, &o.prompt, "TEXT", "what the sample begins with (a new line)"},
        {"temperature", 0, TOOL_REAL, &o.temperature, "X", "of sampling (0.8)"},
        {"log", 0, TOOL_TEXT, &o.log_path, "FILE", "one JSON object per step, then a summary"},
        {"trace", 0, TOOL_TEXT, &o.trace_path, "FILE", "timeline of all ranks (Perfetto, Chrome)"},
        {"trace-kernels", 0, TOOL_FLAG, &o.trace_kernels, NULL,
         "in it, every launch under its kernel's name; slower"},
        {"plot", 0, TOOL_TEXT, &o.plot_path, "FILE", "draw the loss (.svg or .png)"},
        {"device", 0, TOOL_TEXT, &o.device, "WHICH", "index, or part of a device's name"},
        {"peak", 0, TOOL_REAL, &o.peak, "TFLOPS",
         "what a device can do at best, to tell which part is used (as tuned)"},
        {"record-each-step", 0, TOOL_FLAG, &o.record_each_step, NULL,
         "record every step anew instead of replaying it: same bits, for comparison"},
        {"ranks", 0, TOOL_INT, &o.ranks.ranks, "N", "start N ranks on this machine"},
        {"provider", 0, TOOL_TEXT, &o.ranks.provider, "NAME",
         "shm, shm+tcp, tcp, ofi-tcp, tcp;ofi_rxm, or loopback (ranks as threads)"},
        {"timeout", 0, TOOL_REAL, &o.ranks.timeout_s, "S", "of one operation without progress"},
        {NULL},
    };
    memcpy(table + SETUP_ROWS, own, sizeof(own));
    int status = tool_options(command, table, argc, argv, NULL);
    const struct tool_output outputs[] = {{"save", o.save, TOOL_OUTPUT_FOLDER},
                                          {"log", o.log_path, TOOL_OUTPUT_FILE},
                                          {"trace", o.trace_path, TOOL_OUTPUT_FILE},
                                          {"plot", o.plot_path, TOOL_OUTPUT_PLOT},
                                          {NULL}};
    if (status == TOOL_OK)
        status = check(command, &o);
    o.ranks.outputs = o.join ? NULL : outputs; /* those are rank 0's */
    o.ranks.elastic = o.elastic;
    o.ranks.closes = true;
    o.ranks.joins = o.join != NULL;
    if (status == TOOL_OK)
        status = tool_ranks_outputs(command, &o.ranks);
    if (status != TOOL_OK) {
        setup_close(&o.setup);
        return status;
    }
    o.seed_given = o.seed >= 0;
    if (!o.seed_given)
        o.seed = 1;
    /* Once for all ranks of this process, and before any other is started. */
    struct rf_dataset *dataset = NULL;
    status = open_data(command, &o, &dataset);
    struct train_job job = {.command = command, .options = &o, .dataset = dataset};
    if (status == TOOL_OK && o.accept)
        status = train_terms(command, table, dataset, &o.terms);
    if (status == TOOL_OK)
        status = tool_ranks_run(command, &o.ranks, argv, train_rank, &job);
    free(o.terms);
    rf_dataset_close(dataset);
    setup_close(&o.setup);
    return status;
}

const struct tool_command tool_train = {
    .name = "train",
    .summary = "train a GPT on text, on one rank or many",
    .usage = "--data PATH [OPTIONS]",
    .main = train_main,
    .notes =
        "SIGTERM, or SIGINT (Ctrl-C), to the program or to any rank: all ranks finish the step,\n"
        "save if --save is given, and end by the signal (status 143 or 130). A second signal,\n"
        "half a second later or more, ends at once. A loss that is not finite ends training\n"
        "with status 1, and the last checkpoint stays as it was; so does a training of which\n"
        "every step was skipped, or that had no token to learn.\n",
};
