/* SPDX-License-Identifier: MIT
 *
 * ringforge train: options of the GPT trainer.
 */
#include <string.h>
#include <unistd.h>

#include "train.h"

/* Whether a running job may take processes in, or this is one that a running job takes in. */
static int check_growth(const struct tool_command *command, struct train_options *o)
{
    struct rf_provider_info info;
    const char *key = getenv("RF_JOB_KEY"), *port = o->join ? strrchr(o->join, ':') : NULL;
    int64_t number = 0;
    if (o->join && (!port || port == o->join))
        return tool_usage_error(command,
                                "--join wants HOST:PORT, with the PORT of the job's "
                                "--accept, not \"%s\"",
                                o->join);
    if (o->join && tool_take_int(command, "the port of --join", port + 1, strlen(port + 1), 1,
                                 65535, &number) != TOOL_OK)
        return TOOL_USAGE;
    if (o->join && !o->accept)
        o->accept = number;
    o->elastic = o->elastic || o->join;
    if (!o->accept)
        return TOOL_OK;
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

/* Whether this process is one of several ranks, or may meet newcomers, or is one. */
static bool compares(const struct train_options *o)
{
    struct rf_launcher_info launched;
    return o->accept || (rf_launcher_find(&launched) == 0 && launched.size > 1);
}

#define SAVER "rank 0's folder is written to; ranks that do not find it there send it their part"
#define LOADER "rank 0's is loaded; ranks with the same one there read their own copy"

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
    struct tool_option table[SETUP_ROWS + 42];
    setup_init(&o.setup, table);
    const struct tool_option own[] = {
        {"data", 0, TOOL_TEXT, &o.data, "PATH",
         "text file or folder of text files, .jsonl, or a file of tokens; no pipe",
         .path = TOOL_READS_ALL, .ranks = TOOL_CONTENT, .why = TOOL_OWN_COPY, .kept = true},
        {"packing", 0, TOOL_FLAG, &o.packing, NULL,
         "several documents in a row; attention does not reach from one into another",
         .kept = true},
        {"chat", 0, TOOL_TEXT, &o.chat, "FORM",
         "how \"messages\" are written: chatml, llama2, ..., or the file of a template (that of "
         "--from)",
         .needs = "from", .path = TOOL_READS, .kept = true},
        {"date", 0, TOOL_TEXT, &o.date, "YYYY-MM-DD", "the day that chat templates write (today)",
         .needs = "from", .kept = true},
        {"steps", 0, TOOL_INT, &o.steps, "N", "optimizer steps, counted from the very first (200)",
         .least = 1},
        {"lr", 0, TOOL_REAL, &o.lr, "X", "learning rate (3e-3)", .kept = true},
        {"warmup", 0, TOOL_INT, &o.warmup, "N", "steps over which the rate rises from 0 (0)",
         .kept = true},
        {"lr-decay", 0, TOOL_TEXT, &o.decay, "RULE",
         "none, or cosine: a tenth would be reached in the step after the last", .kept = true},
        {"seed", 0, TOOL_INT, &o.seed, "N", "of parameters and data order (1)"},
        {"eval-every", 0, TOOL_INT, &o.eval_every, "N", "held-out loss every N steps (at the end)"},
        {"eval-sequences", 0, TOOL_INT, &o.eval_sequences, "N", "how many to evaluate on (64)"},
        {"save", 0, TOOL_TEXT, &o.save, "DIR", "write a checkpoint at the end",
         .path = TOOL_WRITES_INTO, .beside = "resume", .ranks = TOOL_GIVEN, .why = SAVER},
        {"save-every", 0, TOOL_INT, &o.save_every, "N", "and every N steps, while training goes on",
         .needs = "save"},
        {"export", 0, TOOL_TEXT, &o.export.dir, "DIR",
         "at the end write a hub's files: config.json, model.safetensors or shards, tokenizer",
         .path = TOOL_REPLACES, .ranks = TOOL_GIVEN, .why = TOOL_RANK_0_WRITES},
        {"export-adapter", 0, TOOL_TEXT, &o.export_adapter, "DIR",
         "at the end write the adapters of --lora or --adapter as PEFT's files",
         .needs = "lora|adapter", .path = TOOL_REPLACES, .ranks = TOOL_GIVEN,
         .why = TOOL_RANK_0_WRITES},
        {"export-dtype", 0, TOOL_TEXT, &o.export.dtype, "TYPE",
         "f32, f16 or bf16 (as --from has it, else f32)", .needs = "export"},
        {"export-shard-bytes", 0, TOOL_INT, &o.export.shard_bytes, "BYTES",
         "most of a file, or one tensor (5000000000)", .least = 1, .needs = "export"},
        {"keep", 0, TOOL_INT, &o.keep, "K", "keep the last K checkpoints; 0: all (0)",
         .most = INT32_MAX, .needs = "save"},
        {"resume", 0, TOOL_TEXT, &o.resume, "DIR", "go on from the last checkpoint in DIR",
         .path = TOOL_RESUMES, .ranks = TOOL_GIVEN, .why = LOADER},
        {"scale-lr", 0, TOOL_TEXT, &o.scale_lr, "RULE",
         "go on with another batch: --lr times new batch / old (linear), or its root (sqrt)",
         .needs = "resume"},
        {"change", 0, TOOL_TEXT, &o.change, "NAMES",
         "with --resume: options that may differ from the checkpoint's: lr,data; steps: a cosine "
         "ends at --steps, not where it did",
         .needs = "resume"},
        {"audit", 0, TOOL_INT, &o.audit, "K",
         "every K steps compare what ranks hold copies of; a difference ends training (0: never)"},
        {"elastic", 0, TOOL_FLAG, &o.elastic, NULL,
         "after a rank is lost the others go on, from memory or the last checkpoint in --save"},
        {"accept", 0, TOOL_INT, &o.accept, "PORT",
         "elastic: processes may join while the job runs, here, when it saves (--save-every)",
         .least = 1, .most = 65535},
        {"join", 0, TOOL_TEXT, &o.join, "HOST:PORT",
         "join the running job with that --accept on rank 0's HOST; else the job's options",
         .ranks = TOOL_OWN, .why = "of a process that joins a running job"},
        {"sample", 0, TOOL_INT, &o.sample, "N", "print N bytes that the model writes, at the end"},
        {"prompt", 0, TOOL_TEXT, &o.prompt, "TEXT", "what the sample begins with (a new line)",
         .needs = "sample"},
        {"temperature", 0, TOOL_COUNT, &o.temperature, "X", "of sampling (0.8)", .needs = "sample"},
        {"log", 0, TOOL_TEXT, &o.log_path, "FILE", "one JSON object per step, then a summary",
         .path = TOOL_WRITES, .ranks = TOOL_OWN, .why = TOOL_RANK_0_WRITES},
        {"trace", 0, TOOL_TEXT, &o.trace_path, "FILE", "timeline of all ranks (Perfetto, Chrome)",
         .path = TOOL_WRITES, .ranks = TOOL_GIVEN, .why = TOOL_RANK_0_WRITES},
        {"trace-kernels", 0, TOOL_FLAG, &o.trace_kernels, NULL,
         "in it, every launch under its kernel's name; slower", .needs = "trace"},
        {"plot", 0, TOOL_TEXT, &o.plot_path, "FILE", "draw the loss (.svg or .png)",
         .path = TOOL_DRAWS, .ranks = TOOL_OWN, .why = TOOL_RANK_0_WRITES},
        {"device", 0, TOOL_TEXT, &o.device, "WHICH", "index, or part of a device's name",
         .ranks = TOOL_OWN, .why = TOOL_OWN_DEVICE},
        {"peak", 0, TOOL_REAL, &o.peak, "TFLOPS",
         "what a device can do at best, to tell which part is used (as tuned)", .ranks = TOOL_OWN,
         .why = "only rank 0 prints what it says"},
        {"record-each-step", 0, TOOL_FLAG, &o.record_each_step, NULL,
         "record every step anew instead of replaying it: same bits, for comparison"},
        {"ranks", 0, TOOL_INT, &o.ranks.ranks, "N", "start N ranks on this machine", .least = 1,
         .most = 4096, .ranks = TOOL_OWN, .why = TOOL_LAUNCHED},
        {"provider", 0, TOOL_TEXT, &o.ranks.provider, "NAME",
         "shm, shm+tcp, tcp, ofi-tcp, tcp;ofi_rxm, or loopback (ranks as threads)",
         .ranks = TOOL_OWN, .why = TOOL_JOINED},
        {"timeout", 0, TOOL_REAL, &o.ranks.timeout_s, "S", "of one operation without progress",
         .ranks = TOOL_OWN, .why = TOOL_OWN_PATIENCE},
        {NULL},
    };
    memcpy(table + SETUP_ROWS, own, sizeof(own));
    tool_ranks_begin();
    int status = tool_options(command, table, argc, argv, NULL);
    o.seed_given = o.seed >= 0;
    if (!o.seed_given)
        o.seed = 1;
    if (status == TOOL_OK)
        status = check_growth(command, &o);
    if (status == TOOL_OK)
        status = tool_terms(command, table, false, &o.terms);
    if (status == TOOL_OK)
        status = tool_terms(command, table, true, &o.terms_of_job);
    o.table = table;
    if (status == TOOL_OK)
        status = train_settings_resume(command, &o);
    if (status == TOOL_OK)
        status = train_check(command, &o);
    o.ranks.options = table;
    o.ranks.elastic = o.elastic;
    o.ranks.closes = true;
    o.ranks.joins = o.join != NULL;
    if (status == TOOL_OK)
        status = tool_ranks_outputs(command, &o.ranks);
    /* Once for all ranks of this process, and before any other is started. */
    struct rf_dataset *dataset = NULL;
    if (status == TOOL_OK)
        status = train_open_data(command, &o, &dataset);
    if (status == TOOL_OK && !o.date && rf_dataset_chat(dataset))
        o.date = o.today; /* a checkpoint keeps it: a resumed run reads the same conversations */
    if (status == TOOL_OK)
        train_settings_hash(&o, dataset);
    if (status == TOOL_OK)
        status = train_settings_check_data(command, &o, dataset);
    struct train_job job = {.command = command, .options = &o, .dataset = dataset};
    char *terms = NULL;
    if (status == TOOL_OK && compares(&o))
        status = train_terms(command, &o, dataset, &o.terms);
    if (status == TOOL_OK && compares(&o) && !(terms = train_terms_at_start(&o)))
        status = tool_error(command, "out of memory");
    o.ranks.terms = terms;
    status = status == TOOL_OK ? tool_ranks_run(command, &o.ranks, argv, train_rank, &job)
                               : tool_ranks_refuse(command, status);
    free(terms);
    free(o.terms);
    free(o.terms_of_job);
    rf_dataset_close(job.dataset);
    free(o.settings);
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
