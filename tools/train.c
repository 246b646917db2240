/* SPDX-License-Identifier: MIT
 *
 * ringforge train: options of the GPT trainer.
 */
#include <string.h>
#include <unistd.h>

#include "train.h"

/* Checks whether a running job may accept newcomers, or this process is one. */
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
    if (!o->elastic || (!o->save_every && !train_sync_on(o)))
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

/* Whether this process is one of several ranks, may meet newcomers, or is one. */
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
                              .prompt = "\n",
                              .sync = "none",
                              .disk_slowdown = 2};
    const struct tool_option own[] = {
        {"data", TOOL_TEXT, &o.data, "PATH",
         "text file or folder of text files, .jsonl, or file of tokens; no pipe",
         .path = TOOL_READS_ALL, .ranks = TOOL_CONTENT, .why = TOOL_OWN_COPY, .kept = true},
        {"packing", TOOL_FLAG, &o.packing, NULL,
         "several documents in a row, without attention from one into another", .kept = true},
        {"chat", TOOL_TEXT, &o.chat, "FORM",
         "form of \"messages\": chatml, llama2, ..., or the file of a chat template (that of "
         "--from)",
         .needs = "from", .path = TOOL_READS, .kept = true},
        {"date", TOOL_TEXT, &o.date, "YYYY-MM-DD", "day that chat templates write (today)",
         .needs = "from", .kept = true},
        {"steps", TOOL_INT, &o.steps, "N",
         "number of optimizer steps, counted from the very first (200)", .least = 1},
        {"lr", TOOL_REAL, &o.lr, "X", "learning rate (3e-3)", .kept = true},
        {"warmup", TOOL_INT, &o.warmup, "N", "number of steps over which the rate rises from 0 (0)",
         .kept = true},
        {"lr-decay", TOOL_TEXT, &o.decay, "RULE",
         "decay of the rate: none, or cosine, which would reach a tenth in the step after the last "
         "(none)",
         .kept = true},
        {"seed", TOOL_INT, &o.seed, "N", "seed of parameters and data order (1)"},
        {"eval-every", TOOL_INT, &o.eval_every, "N",
         "steps between measurements of the held-out loss (one at the end)"},
        {"eval-sequences", TOOL_INT, &o.eval_sequences, "N",
         "number of sequences of such a measurement (64)"},
        {"save", TOOL_TEXT, &o.save, "DIR",
         "folder of checkpoints, of which one is written at the end", .path = TOOL_WRITES_INTO,
         .beside = "resume", .ranks = TOOL_GIVEN, .why = SAVER},
        {"save-every", TOOL_INT, &o.save_every, "N", "steps between checkpoints during training",
         .needs = "save"},
        {"export", TOOL_TEXT, &o.export.dir, "DIR",
         "folder for the trained model as a hub's files: config.json, model.safetensors or shards, "
         "tokenizer",
         .path = TOOL_REPLACES, .ranks = TOOL_GIVEN, .why = TOOL_RANK_0_WRITES},
        {"export-adapter", TOOL_TEXT, &o.export_adapter, "DIR",
         "folder for the trained adapters of --lora or --adapter as PEFT's files",
         .needs = "lora|adapter", .path = TOOL_REPLACES, .ranks = TOOL_GIVEN,
         .why = TOOL_RANK_0_WRITES},
        {"export-dtype", TOOL_TEXT, &o.export.dtype, "TYPE",
         "type of exported weights: f32, f16 or bf16 (as --from has it, else f32)",
         .needs = "export"},
        {"export-shard-bytes", TOOL_INT, &o.export.shard_bytes, "BYTES",
         "largest size of an exported file, unless one tensor is larger (5000000000)", .least = 1,
         .needs = "export"},
        {"disk", TOOL_TEXT, &o.disk, "DIR",
         "folder on a disk, for --offload optimizer=disk; its file has no name, and ends with the "
         "job",
         .needs = "offload", .path = TOOL_WRITES_INTO, .beside = "save", .ranks = TOOL_OWN,
         .why = "each host has a disk of its own"},
        {"disk-slowdown", TOOL_REAL, &o.disk_slowdown, "X",
         "limit of the time of a step, in times of that without its waits for the disk; 0 = none "
         "(2)",
         .needs = "disk"},
        {"keep", TOOL_INT, &o.keep, "K", "number of last checkpoints that are kept; 0 = all (0)",
         .most = INT32_MAX, .needs = "save"},
        {"resume", TOOL_TEXT, &o.resume, "DIR",
         "folder of checkpoints, the last of which is continued", .path = TOOL_RESUMES,
         .ranks = TOOL_GIVEN, .why = LOADER},
        {"scale-lr", TOOL_TEXT, &o.scale_lr, "RULE",
         "rule that adapts --lr to another batch on --resume: linear (new / old batch), or sqrt "
         "(its root)",
         .needs = "resume"},
        {"change", TOOL_TEXT, &o.change, "NAMES",
         "names of options that may differ from the checkpoint's on --resume: lr,data; steps: a "
         "cosine ends at --steps, not where it did",
         .needs = "resume"},
        {"sync", TOOL_TEXT, &o.sync, "RULE",
         "exchange of parameters instead of gradients, among workers of a --mesh each (of one "
         "rank): "
         "local:H, diloco:H, gossip:H, fedavg:H, fedopt:H or fedprox:H with H local steps between "
         "exchanges, "
         "and "
         "keys such as graph=ring,form=nf4,lr=0.7,delay=2; or a store of the parameters: server, "
         "server:async or server:stale=S with servers=N, hogwild, hogwild:racy "
         "(docs/decentralised.md)",
         .kept = true},
        {"coordinator", TOOL_TEXT, &o.coordinator, "HOST:PORT",
         "address of ringforge coordinate, of which this process is a client with data of its own; "
         "training ends with it, or after --steps",
         .needs = "sync"},
        {"client", TOOL_TEXT, &o.client, "NAME",
         "name of this client in the coordinator's list; its key is in RF_CLIENT_KEY",
         .needs = "coordinator"},
        {"update-clip", TOOL_REAL, &o.update_clip, "C",
         "largest norm of the difference that this client sends in a round (no limit)",
         .needs = "coordinator"},
        {"update-noise", TOOL_REAL, &o.update_noise, "Z",
         "standard deviation of the noise on that difference, by --update-clip; the end of "
         "training says its epsilon (0)",
         .needs = "update-clip"},
        {"secure-aggregation", TOOL_INT, &o.secure, "T",
         "refusal of a coordinator that could learn less than the sum of T clients' updates; "
         "without it the coordinator decides",
         .least = 2, .most = 255, .needs = "coordinator"},
        {"peers", TOOL_TEXT, &o.peers, "FILE",
         "file of a line \"NAME IDENTITY\" for each client (coordinate --identity): who is not in "
         "it, or has not signed its keys, is refused; without it the coordinator is trusted with "
         "keys",
         .needs = "secure-aggregation", .path = TOOL_READS, .ranks = TOOL_CONTENT,
         .why = "the path may differ; the contents must be the same"},
        {"audit", TOOL_INT, &o.audit, "K",
         "steps between comparisons of what ranks hold copies of; a difference ends training; 0 = "
         "never (0)"},
        {"elastic", TOOL_FLAG, &o.elastic, NULL,
         "continuation after a rank is lost, from memory or the last checkpoint in --save"},
        {"accept", TOOL_INT, &o.accept, "PORT",
         "port at which processes may join the elastic job, whenever it saves (--save-every), or "
         "behind an exchange of --sync",
         .least = 1, .most = 65535},
        {"join", TOOL_TEXT, &o.join, "HOST:PORT",
         "address of a running job to join: its --accept on rank 0's HOST; the other options as "
         "the job's",
         .ranks = TOOL_OWN, .why = "of a process that joins a running job"},
        {"sample", TOOL_INT, &o.sample, "N", "number of bytes that the model writes at the end"},
        {"prompt", TOOL_TEXT, &o.prompt, "TEXT", "beginning of the sample (a new line)",
         .needs = "sample"},
        {"temperature", TOOL_COUNT, &o.temperature, "X", "temperature of sampling (0.8)",
         .needs = "sample"},
        {"log", TOOL_TEXT, &o.log_path, "FILE", "file of one JSON object per step, then a summary",
         .path = TOOL_WRITES, .ranks = TOOL_OWN, .why = TOOL_RANK_0_WRITES},
        {"trace", TOOL_TEXT, &o.trace_path, "FILE",
         "file of the timeline of all ranks (Perfetto, Chrome)", .path = TOOL_WRITES,
         .ranks = TOOL_GIVEN, .why = TOOL_RANK_0_WRITES},
        {"trace-kernels", TOOL_FLAG, &o.trace_kernels, NULL,
         "every launch in the timeline, under its kernel's name; slower", .needs = "trace"},
        {"plot", TOOL_TEXT, &o.plot_path, "FILE", "picture of the loss (.svg)", .path = TOOL_WRITES,
         .ranks = TOOL_OWN, .why = TOOL_RANK_0_WRITES},
        {"plot-staleness", TOOL_TEXT, &o.plot_staleness, "FILE",
         "picture of the staleness of a store's gradients (.svg)", .needs = "sync",
         .path = TOOL_WRITES, .ranks = TOOL_OWN, .why = TOOL_RANK_0_WRITES},
        {"device", TOOL_TEXT, &o.device, "WHICH", "device: its index, or part of its name",
         .ranks = TOOL_OWN, .why = TOOL_OWN_DEVICE},
        {"peak", TOOL_REAL, &o.peak, "TFLOPS",
         "best speed of a device's products, to print the share that is used (as tuned)",
         .ranks = TOOL_OWN, .why = "only rank 0 prints what it says"},
        {"record-each-step", TOOL_FLAG, &o.record_each_step, NULL,
         "every step recorded anew instead of replayed: same bits, for comparison"},
        {"ranks", TOOL_INT, &o.ranks.ranks, "N", "number of ranks to start on this machine",
         .least = 1, .most = 4096, .ranks = TOOL_OWN, .why = TOOL_LAUNCHED},
        {"provider", TOOL_TEXT, &o.ranks.provider, "NAME",
         "network between ranks: shm, shm+tcp, tcp, ofi-tcp, tcp;ofi_rxm, ofi-shm, or loopback "
         "(ranks as threads)",
         .ranks = TOOL_OWN, .why = TOOL_JOINED},
        {"timeout", TOOL_REAL, &o.ranks.timeout_s, "S",
         "longest time of one operation without progress, seconds", .ranks = TOOL_OWN,
         .why = TOOL_OWN_PATIENCE},
        {NULL},
    };
    struct tool_option table[SETUP_ROWS + sizeof(own) / sizeof(own[0])];
    setup_init(&o.setup, table);
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
