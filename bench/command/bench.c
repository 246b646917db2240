/* SPDX-License-Identifier: MIT
 *
 * ringforge bench: options of all benchmarks, and the file that runs each.
 */
#include <string.h>

#include "kernel.h"
#include "tools/svg.h"

enum { MOST_SIZES = 1000 };

static const char *const collectives[] = {
    "all_reduce", "all_gather",  "reduce_scatter", "broadcast", "reduce",  "gather",
    "scatter",    "all_to_all",  "sendrecv",       "barrier",   "overlap", "pipeline",
    "staging",    "host_update", "step",           NULL};

static int check(const struct tool_command *command, struct bench_options *o, const char *dtype,
                 const char *redop, const char *order)
{
    int status = tool_read_redop(command, redop, &o->redop);
    if (status == TOOL_OK)
        status = tool_read_order(command, order, &o->order);
    if (status != TOOL_OK)
        return status;
    static const char *const forms[] = {"nn", "nt", "tn", NULL};
    if (tool_choice(o->form, forms) < 0)
        return tool_usage_error(command, "there is no form \"%s\"; there are nn, nt and tn",
                                o->form);
    if (o->max_bytes < o->min_bytes)
        return tool_usage_error(command, "--maxbytes is smaller than --minbytes");
    if (o->step > 0 && (o->max_bytes - o->min_bytes) / o->step >= MOST_SIZES)
        return tool_usage_error(command, "--stepbytes has to make at most %d sizes", MOST_SIZES);
    if (o->plot_path) {
        status = svg_check(command, o->plot_path);
        if (status != TOOL_OK)
            return status;
    }
    return tool_read_dtype(command, dtype, &o->dtype);
}

static int read_wire(const struct tool_command *command, const char *wire, struct bench_options *o)
{
    int status = tool_read_dtype(command, wire, &o->wire_dtype);
    if (status != TOOL_OK || o->wire_dtype == RF_F32)
        return status;
    if (o->wire_dtype != RF_F16 && o->wire_dtype != RF_BF16)
        return tool_usage_error(command, "--wire-dtype is float, half or bfloat16, not %s", wire);
    if (o->dtype != RF_F32)
        return tool_usage_error(command, "--wire-dtype is for float data, not for %s",
                                rf_dtype_name(o->dtype));
    return TOOL_OK;
}

/* Classes of benchmarks; an option belongs to some of these. */
enum {
    COLLECTIVES = 1,
    SIZED = 2, /* collectives of data */
    NAMED = 4, /* collectives with a choice of algorithm */
    REDUCING = 8,
    ROOTED = 16,
    STEPS = 32, /* overlap, pipeline and staging */
    KERNELS = 64,
    PATHS = 128,    /* products with a choice of path */
    PRODUCTS = 256, /* products of any form */
    TRAINING = 512, /* step and host_update */
    TIMED = 1024,   /* overlap and pipeline */
    STAGES = 2048,  /* pipeline */
    ALL = COLLECTIVES | STEPS | KERNELS | TRAINING
};

static unsigned kinds_of(const char *op)
{
    static const struct {
        const char *op;
        unsigned kinds;
    } rows[] = {
        {"all_reduce", COLLECTIVES | SIZED | NAMED | REDUCING},
        {"reduce_scatter", COLLECTIVES | SIZED | NAMED | REDUCING},
        {"reduce", COLLECTIVES | SIZED | NAMED | REDUCING | ROOTED},
        {"broadcast", COLLECTIVES | SIZED | NAMED | ROOTED},
        {"gather", COLLECTIVES | SIZED | NAMED | ROOTED},
        {"scatter", COLLECTIVES | SIZED | NAMED | ROOTED},
        {"sendrecv", COLLECTIVES | SIZED},
        {"barrier", COLLECTIVES | NAMED},
        {"overlap", STEPS | TIMED},
        {"pipeline", STEPS | TIMED | STAGES},
        {"staging", STEPS},
        {"host_update", TRAINING},
        {"step", TRAINING},
        {"matmul", KERNELS | PATHS | PRODUCTS},
        {"matmul_gelu", KERNELS | PATHS},
        {"matmul_batch", KERNELS | PATHS},
        {"ops", KERNELS | PATHS | PRODUCTS},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        if (strcmp(op, rows[i].op) == 0)
            return rows[i].kinds;
    return bench_kernel_find(op) ? KERNELS : COLLECTIVES | SIZED | NAMED;
}

static int check_use(const struct tool_command *command, const struct tool_option *table,
                     const char *op)
{
    bool factor = false, step = false;
    for (const struct tool_option *o = table; o->name; o++) {
        if (o->said && !(o->uses & kinds_of(op)))
            return tool_usage_error(command, "--%s is not used by %s", o->name, op);
        factor |= o->said && strcmp(o->name, "stepfactor") == 0;
        step |= o->said && strcmp(o->name, "stepbytes") == 0;
    }
    return factor && step ? tool_usage_error(command, "--stepfactor has no effect beside "
                                                      "--stepbytes; leave one of them out")
                          : TOOL_OK;
}

/* Lists everything that can be measured, for messages. */
static const char *there_are(char *text, size_t size)
{
    size_t used = 0;
    for (int i = 0; collectives[i] && used < size; i++)
        used += (size_t)snprintf(text + used, size - used, "%s, ", collectives[i]);
    for (int i = 0; bench_kernel_rows[i] && used < size; i++)
        used += (size_t)snprintf(text + used, size - used, "%s, ", bench_kernel_rows[i]->name);
    if (used < size)
        snprintf(text + used, size - used, "or ops for all kernels");
    return text;
}

/* Options may stand on both sides of the operation. */
static int read_words(const struct tool_command *command, struct tool_option *table, int argc,
                      char **argv, struct bench_options *o)
{
    char names[1024];
    int after = 0;
    int status = tool_options(command, table, argc, argv, &after);
    if (status != TOOL_OK)
        return status;
    if (after >= argc)
        return tool_usage_error(command, "say what to measure: %s",
                                there_are(names, sizeof(names)));
    o->op = argv[after];
    status = tool_options(command, table, argc - after, argv + after, NULL);
    if (status != TOOL_OK)
        return status;
    if (strcmp(o->op, "ops") == 0 || bench_kernel_find(o->op) ||
        tool_choice(o->op, collectives) >= 0)
        return TOOL_OK;
    return tool_usage_error(command, "there is no benchmark \"%s\" in this version; there are %s",
                            o->op, there_are(names, sizeof(names)));
}

static int run(const struct tool_command *command, const struct bench_options *o, char **argv)
{
    static const struct {
        const char *op;
        int (*measure)(const struct tool_command *command, const struct bench_options *options);
    } others[] = {{"ops", bench_kernels},
                  {"step", bench_step},
                  {"host_update", bench_host_update},
                  {"overlap", bench_overlap},
                  {"staging", bench_staging}};
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
        if (strcmp(o->op, others[i].op) == 0)
            return others[i].measure(command, o);
    if (bench_kernel_find(o->op))
        return bench_kernels(command, o);
    return strcmp(o->op, "pipeline") == 0 ? bench_pipeline(command, o, argv)
                                          : bench_collective(command, o, argv);
}

static int bench_main(const struct tool_command *command, int argc, char **argv)
{
    struct bench_options o = {.min_bytes = 4,
                              .max_bytes = 16 << 20,
                              .factor = 4,
                              .samples = 20,
                              .warmup = 3,
                              .check = 1,
                              .in_place = 1,
                              .together = 1,
                              .scale = 1,
                              .times = "100x100x100",
                              .form = "nn"};
    const char *dtype = "float", *redop = "sum", *order = "any", *wire = "float";
    struct tool_option table[] = {
        {"minbytes", TOOL_INT, &o.min_bytes, "BYTES", "smallest size (4), such as 8K or 64M",
         SIZED},
        {"maxbytes", TOOL_INT, &o.max_bytes, "BYTES", "largest size (16M)", SIZED},
        {"stepfactor", TOOL_INT, &o.factor, "N", "factor between one size and the next (4)", SIZED,
         .least = 2, .most = 1 << 20},
        {"stepbytes", TOOL_INT, &o.step, "BYTES",
         "difference between one size and the next, in place of --stepfactor", SIZED, .least = 1},
        {"iters", TOOL_INT, &o.samples, "N", "number of timed samples per size (20)", ALL,
         .least = 1, .most = 100000},
        {"warmup_iters", TOOL_INT, &o.warmup, "N", "number of untimed calls before (3)",
         COLLECTIVES | TRAINING, .most = 100000},
        {"agg_iters", TOOL_INT, &o.together, "N",
         "number of calls in a group, timed together; times are of one (1)", COLLECTIVES,
         .least = 1, .most = 1000},
        {"in-place", TOOL_INT, &o.in_place, "0|1",
         "measurement in place, too, if there is such a form (1)", SIZED, .most = 1},
        {"op", TOOL_TEXT, &redop, "OP", "reduction: sum (default), avg, min, max or prod",
         REDUCING},
        {"wire-dtype", TOOL_TEXT, &wire, "TYPE",
         "type in which float data is sent, and added in float: float, half, bfloat16 (float)",
         REDUCING},
        {"check", TOOL_INT, &o.check, "0|1", "check of every element on every rank (1)", SIZED,
         .most = 1},
        {"root", TOOL_INT, &o.root, "RANK", "root of a broadcast, reduce, gather or scatter (0)",
         ROOTED, .most = 65535},
        {"order", TOOL_TEXT, &order, "ORDER", "order of sums: any (default), ring or tree",
         REDUCING},
        {"algorithm", TOOL_TEXT, &o.algorithm, "NAME",
         "algorithm: ring, flat, direct, ... (by size)", NAMED},
        {"private-buffers", TOOL_FLAG, &o.private_buffers, NULL,
         "memory of the caller's own in place of the library's", SIZED},
        {"one-clock", TOOL_FLAG, &o.one_clock, NULL,
         "times from the first rank's start to the last one's end; with --ranks", SIZED,
         .needs = "ranks"},
        {"rewrite", TOOL_FLAG, &o.rewrite, NULL,
         "input written anew before each call, untimed, as programs do", SIZED},
        {"ranks", TOOL_INT, &o.ranks.ranks, "N",
         "number of ranks to start on this machine; pipeline: 2 to 8 (4)", COLLECTIVES | STAGES,
         .least = 1, .most = 4096, .ranks = TOOL_OWN, .why = TOOL_LAUNCHED},
        {"provider", TOOL_TEXT, &o.ranks.provider, "NAME",
         "network between ranks: shm, shm+tcp, tcp, ofi-tcp, tcp;ofi_rxm, ofi-shm, or loopback "
         "(ranks as threads)",
         COLLECTIVES | STAGES, .ranks = TOOL_OWN, .why = TOOL_JOINED},
        {"timeout", TOOL_REAL, &o.ranks.timeout_s, "S",
         "longest time of one operation without progress, seconds", COLLECTIVES | STEPS,
         .ranks = TOOL_OWN, .why = TOOL_OWN_PATIENCE},
        {"scale", TOOL_COUNT, &o.scale, "X",
         "overlap, pipeline: factor of the time of every block and transfer (1)", TIMED,
         .most = 1000},
        {"times", TOOL_TEXT, &o.times, "FxIxW",
         "pipeline: milliseconds of a rank's blocks for a micro-batch: forward, backward for "
         "inputs, for weights (100x100x100)",
         STAGES},
        {"schedule", TOOL_TEXT, &o.schedule, "NAME",
         "pipeline: the only schedule to measure: naive, gpipe, 1f1b, interleaved:2, zbh1, zbv, "
         "2bw, data parallel, zero 3 (all)",
         STAGES},
        {"link-gbps", TOOL_REAL, &o.link_gbps, "G",
         "bandwidth of the link in Gbit/s, to print the share that is used", SIZED},
        {"shape", TOOL_LIST, &o.shapes, "AxB",
         "kernels: sizes in place of those of models, may be repeated; step: six sizes; "
         "host_update: number of parameters (16777216)",
         KERNELS | TRAINING},
        {"dtype", TOOL_TEXT, &dtype, "TYPE",
         "type of data, f32 unless given: float half bfloat16 double int8 uint8 int32 int64; "
         "kernels, step: f32, f16, bf16; host_update: type of the parameters' copy (f32: none)",
         SIZED | KERNELS | TRAINING},
        {"path", TOOL_TEXT, &o.path, "NAME", "matmul: kernel to use: cooperative, subgroup, tiled",
         PATHS},
        {"split", TOOL_INT, &o.split, "N",
         "matmul: number of bf16 parts whose products on matrix units make an f32 product",
         PRODUCTS, .most = 16},
        {"form", TOOL_TEXT, &o.form, "NAME",
         "matmul: nn, nt (second operand transposed) or tn (first operand transposed) (nn)",
         PRODUCTS},
        {"device", TOOL_TEXT, &o.device, "WHICH", "device: its index, or part of its name",
         STEPS | KERNELS | TRAINING, .ranks = TOOL_OWN, .why = TOOL_OWN_DEVICE},
        {"json", TOOL_FILE, &o.json_path, "FILE", "the rows as JSON (no FILE: printed)", ALL,
         .path = TOOL_WRITES, .ranks = TOOL_OWN, .why = TOOL_RANK_0_WRITES},
        {"plot", TOOL_TEXT, &o.plot_path, "FILE",
         "picture (.svg): bus bandwidth by size; pipeline: the predicted step above the "
         "measured one, of one --schedule",
         COLLECTIVES | KERNELS | STAGES, .path = TOOL_WRITES, .ranks = TOOL_OWN,
         .why = TOOL_RANK_0_WRITES},
        {NULL},
    };
    tool_ranks_begin();
    int status = read_words(command, table, argc, argv, &o);
    if (status == TOOL_OK)
        status = check(command, &o, dtype, redop, order);
    if (status == TOOL_OK)
        status = read_wire(command, wire, &o);
    if (status == TOOL_OK)
        status = check_use(command, table, o.op);
    const bool ranked = !o.op || (kinds_of(o.op) & COLLECTIVES);
    if (!ranked) /* each process measures by itself */
        tool_errors_release(command);
    if (status != TOOL_OK)
        return tool_ranks_refuse(command, status);
    o.ranks.options = table;
    status = tool_ranks_outputs(command, &o.ranks);
    return status == TOOL_OK ? run(command, &o, argv) : tool_ranks_refuse(command, status);
}

const struct tool_command tool_bench = {
    .name = "bench",
    .summary = "measure collectives and kernels, checking every result",
    .usage =
        "OP [OPTIONS]     OP: all_reduce all_gather reduce_scatter broadcast reduce gather "
        "scatter all_to_all sendrecv barrier; overlap (of a step), pipeline (every schedule), "
        "staging (of tensors), step "
        "(of training), host_update (of an optimizer, in memory of the host); a kernel (matmul "
        "attention layernorm gelu adamw ...), or ops for all kernels",
    .main = bench_main,
};
