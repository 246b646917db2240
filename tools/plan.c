/* SPDX-License-Identifier: MIT
 *
 * ringforge plan: the memory and the traffic of a training setup, per rank, for any number of ranks
 * and without a device; and, with the rates of one, the time of a step.
 */
#include <string.h>

#include "plan.h"
#include "plan_peak.h"
#include "timeline.h"

struct outcome {
    struct rf_plan *plan; /* of rank 0 */
    struct rf_bytes *per_rank;
    struct rf_work *work;        /* of a step, per rank; NULL: it cannot be counted */
    struct rf_block_cost *costs; /* equal on all ranks */
    int ranks;
    double bubble;
    int version_lag;
    int64_t params;
    struct rf_scaling scaling;          /* of rank 0 */
    struct rf_held held[RF_HELD_COUNT]; /* likewise */
    int again;                          /* blocks of a recomputed segment; 0: none */
    int *stages, stage_count;           /* blocks of each stage */
    bool disk;                          /* something is on a disk */
    struct plan_rates rates;
    struct prediction prediction; /* if the rates are known */
};

/* --params gives no block to count. A block that cannot be counted shows when it runs, too.
 */
static void count_blocks(const struct rf_plan *plan, const struct model *model, struct outcome *out)
{
    out->costs = calloc((size_t)model->count, sizeof(*out->costs));
    if (!out->costs || rf_block_costs(plan, out->costs) < 0)
        return;
    out->work = calloc((size_t)out->ranks, sizeof(*out->work));
}

static void take_stages(const struct rf_plan *plan, struct outcome *out)
{
    int count = 0;
    const int *blocks = rf_plan_stage_blocks(plan, &count);
    out->stages = calloc((size_t)count, sizeof(*out->stages));
    for (int s = 0; out->stages && s < count; s++)
        out->stages[out->stage_count++] = blocks[s];
}

static int plan_all(const struct tool_command *command, const struct setup *setup,
                    const struct model *model, const char *plot_path, struct outcome *out)
{
    struct rf_plan *plan = NULL;
    int rc = rf_plan_build((struct rf_blocks){model->blocks, model->count}, &setup->mesh,
                           &setup->policy, 0, &plan);
    if (rc == 0) {
        count_blocks(plan, model, out);
        rc = rf_plan_all_ranks(plan, out->costs, out->per_rank, out->work);
        rc = rc == 0 ? rf_plan_peak(plan, out->held) : rc;
        out->bubble = rf_plan_bubble(plan);
        out->version_lag = rf_plan_version_lag(plan);
        out->params = rf_plan_param_count(plan);
        out->again = rf_plan_recompute(plan);
        take_stages(plan, out);
        rf_plan_scaling(plan, &out->scaling);
    }
    int status = rc < 0 ? TOOL_USAGE : TOOL_OK;
    if (rc < 0)
        tool_library_error(command, -1);
    if (status == TOOL_OK && out->rates.known && !out->work)
        status = tool_library_error(command, -1);
    if (status == TOOL_OK && out->rates.known)
        status = predict(command, plan, out->costs, setup, &out->rates, &out->prediction);
    if (status == TOOL_OK && plot_path)
        status = plan_plot_write(command, plot_path, setup, &out->prediction);
    out->plan = plan;
    return status;
}

/* Arithmetic of a micro-batch in `count` blocks from `first` on. */
static double flops_of(const struct outcome *o, int first, int count)
{
    double sum = 0;
    for (int b = first; b < first + count; b++)
        sum += (double)o->costs[b].forward.flops + (double)o->costs[b].backward_input[0].flops +
               (double)o->costs[b].backward_weight[0].flops;
    return sum;
}

static cJSON *to_json(const struct setup *setup, const struct outcome *o)
{
    cJSON *json = tool_json_new("ranks=%d bubble=%g version_lag=%d param_count=%g recompute=%d",
                                o->ranks, o->bubble, o->version_lag, (double)o->params, o->again);
    cJSON_AddItemToObject(json, "stages", cJSON_CreateIntArray(o->stages, o->stage_count));
    cJSON *scaling = cJSON_AddObjectToObject(json, "scaling");
    tool_json_put(scaling, "params=%g tokens=%g fixed=%g", (double)o->scaling.params,
                  (double)o->scaling.tokens, (double)o->scaling.fixed);
    plan_peak_json(o->held, setup, json);
    cJSON *list = cJSON_AddArrayToObject(json, "per_rank");
    for (int r = 0; r < o->ranks; r++) {
        const struct rf_bytes *b = &o->per_rank[r];
        cJSON *row = tool_json_new(
            "params=%g grads=%g optimizer=%g activations=%g comm=%g scratch=%g host=%g sent=%g",
            (double)b->params, (double)b->grads, (double)b->optimizer, (double)b->activations,
            (double)b->comm, (double)b->scratch, (double)b->host, (double)b->sent);
        if (o->disk)
            tool_json_put(row, "disk=%g disk_moved=%g", (double)b->disk, (double)b->disk_moved);
        if (o->work) {
            tool_json_put(row, "flops=%g repeated_flops=%g read=%g written=%g",
                          (double)o->work[r].flops, (double)o->work[r].repeated,
                          (double)o->work[r].read, (double)o->work[r].written);
        }
        cJSON_AddItemToArray(list, row);
    }
    if (o->prediction.sim)
        prediction_json(&o->prediction, json);
    return json;
}

enum { ROW_BYTES = 256 };

static void row_text(const struct rf_bytes *b, char row[ROW_BYTES])
{
    char text[9][24];
    const uint64_t values[9] = {b->params,
                                b->grads,
                                b->optimizer,
                                b->activations,
                                b->comm,
                                b->scratch,
                                b->params + b->grads + b->optimizer + b->activations + b->comm +
                                    b->scratch,
                                b->host,
                                b->sent};
    for (int i = 0; i < 9; i++)
        tool_bytes_text(values[i], text[i], sizeof(text[i]));
    snprintf(row, ROW_BYTES, "%10s %10s %10s %11s %10s %10s %10s %10s %12s", text[0], text[1],
             text[2], text[3], text[4], text[5], text[6], text[7], text[8]);
}

/* Neighbours with equal rows share one. */
static void print_ranks(const struct outcome *o)
{
    char row[ROW_BYTES], next[ROW_BYTES], ranks[32];
    for (int first = 0, end; first < o->ranks; first = end) {
        row_text(&o->per_rank[first], row);
        for (end = first + 1; end < o->ranks; end++) {
            row_text(&o->per_rank[end], next);
            if (strcmp(next, row) != 0)
                break;
        }
        snprintf(ranks, sizeof(ranks), first == end - 1 ? "%d" : "%d-%d", first, end - 1);
        printf("%11s %s\n", ranks, row);
    }
}

static void print_scaling(const struct setup *setup, const struct outcome *o)
{
    const struct rf_scaling *s = &o->scaling;
    char text[3][24];
    printf("\nOf rank 0's memory %s grow with the parameters, %s with activations times the "
           "micro-batch (%lld tokens), %s with neither\n",
           tool_bytes_text(s->params, text[0], sizeof(text[0])),
           tool_bytes_text(s->tokens, text[1], sizeof(text[1])),
           (long long)(setup->policy.batch / setup->policy.micro_batches * setup->policy.seq),
           tool_bytes_text(s->fixed, text[2], sizeof(text[2])));
    if (o->again)
        printf("Blocks are computed again in segments of %d, of which the last output is kept "
               "(--recompute every=%d)\n",
               o->again, o->again);
}

/* The work of a step: that of all ranks, and what the busiest one computes and moves. */
static void print_work(const struct outcome *o)
{
    char text[4][32];
    struct rf_work all = {0};
    int most = 0;
    if (!o->work)
        return;
    for (int r = 0; r < o->ranks; r++) {
        rf_work_add(&all, &o->work[r], 1);
        most = o->work[r].flops > o->work[most].flops ? r : most;
    }
    printf("Arithmetic of a step: %s, at most %s on a rank, which reads %s and writes %s for it\n",
           tool_flops_text((double)all.flops, text[0], sizeof(text[0])),
           tool_flops_text((double)o->work[most].flops, text[1], sizeof(text[1])),
           tool_bytes_text(o->work[most].read, text[2], sizeof(text[2])),
           tool_bytes_text(o->work[most].written, text[3], sizeof(text[3])));
}

static void print_stages(const struct outcome *o)
{
    double all = 0;
    int first = 0;
    if (o->stage_count < 2)
        return;
    for (int s = 0; s < o->stage_count; s++)
        first += o->stages[s];
    if (o->work)
        all = flops_of(o, 0, first);
    printf("Blocks of the %d stages%s: ", o->stage_count,
           all > 0 ? ", and their share of the arithmetic" : "");
    first = 0;
    for (int s = 0; s < o->stage_count; first += o->stages[s++]) {
        printf("%s%d", s ? ", " : "", o->stages[s]);
        if (all > 0)
            printf(" (%.1f %%)", 100 * flops_of(o, first, o->stages[s]) / all);
    }
    printf("\n");
}

/* Of the rank with most, and the time at the given rate. */
static void print_disk(const struct outcome *o)
{
    char text[3][24], time[48] = "";
    const struct rf_bytes *most = &o->per_rank[0];
    for (int r = 1; r < o->ranks; r++)
        most = o->per_rank[r].disk > most->disk ? &o->per_rank[r] : most;
    if (!o->disk)
        return;
    if (o->rates.disk > 0)
        snprintf(time, sizeof(time), ", which takes %s",
                 plan_time_text((double)most->disk_moved / (1e9 * o->rates.disk), text[2],
                                sizeof(text[2])));
    printf("On the disk: %s of optimizer states of a rank; a step reads and writes %s%s\n",
           tool_bytes_text(most->disk, text[0], sizeof(text[0])),
           tool_bytes_text(most->disk_moved, text[1], sizeof(text[1])), time);
}

static void print_table(const struct setup *setup, const struct outcome *o)
{
    char mesh[64];
    printf("%lld parameters on %d rank%s (%s), batch %lld of %lld tokens in %lld micro-batches, "
           "%s order\n\n",
           (long long)o->params, o->ranks, o->ranks == 1 ? "" : "s", setup_mesh_text(setup, mesh),
           (long long)setup->policy.batch, (long long)setup->policy.seq,
           (long long)setup->policy.micro_batches, rf_order_name(setup->policy.order));
    printf("%11s %10s %10s %10s %11s %10s %10s %10s %10s %12s\n", "rank", "params", "grads",
           "optimizer", "activations", "comm", "scratch", "total", "with host", "sent/step");
    print_ranks(o);
    print_disk(o);
    print_scaling(setup, o);
    print_stages(o);
    printf("Idle share of a step by the schedule: %.1f %%\n", 100 * o->bubble);
    if (o->version_lag)
        printf("Gradients of a step are those of the weights of %d update before\n",
               o->version_lag);
    print_work(o);
    plan_peak_print(o->held, setup);
    if (o->prediction.sim)
        prediction_print(&o->prediction);
}

struct plan_options {
    struct setup setup;
    double params;
    int64_t ranks;
    const char *json_path, *plot_path;
    bool compare, explain, fits;
    struct plan_sync sync;
    struct plan_search search;
};

/* The ranks of all workers. */
static int64_t all_ranks(const struct plan_options *o)
{
    return o->sync.clients ? o->sync.clients : o->sync.rule ? o->ranks : setup_ranks(&o->setup);
}

static int check(const struct tool_command *command, struct plan_options *o,
                 struct plan_rates *rates)
{
    if (rates->hosts_text && !o->ranks && (!o->setup.mesh_text || o->sync.rule)) {
        int status = plan_hosts_check(command, rates);
        if (status != TOOL_OK)
            return status;
        o->ranks = (int64_t)rates->hosts * rates->host_ranks;
    }
    o->setup.any_batch = true;
    int status = setup_check(command, &o->setup, o->ranks && !o->sync.rule ? (int)o->ranks : 1);
    o->sync.optimizer = o->setup.policy.optimizer;
    o->sync.clip = o->setup.policy.clip;
    if (status == TOOL_OK && o->sync.rule)
        status = plan_is_served(&o->sync)
                     ? plan_served_check(command, &o->setup, o->ranks, &o->sync)
                     : plan_sync_check(command, &o->setup, o->ranks, &o->sync);
    if (status != TOOL_OK)
        return status;
    if (o->ranks && !o->sync.rule && o->setup.mesh_text && o->ranks != setup_ranks(&o->setup))
        return tool_usage_error(command, "--ranks %d contradicts --mesh %s", (int)o->ranks,
                                o->setup.mesh_text);
    if (setup_ranks(&o->setup) > PLAN_MAX_RANKS)
        return tool_usage_error(command, "plans are made for up to %d ranks", PLAN_MAX_RANKS);
    if (o->plot_path)
        status = svg_check(command, o->plot_path);
    if (status == TOOL_OK)
        status = plan_rates_check(command, &o->setup, o->plot_path ? "--plot" : NULL, rates);
    if (status == TOOL_OK && rates->known && o->sync.workers > 1 && !(rates->link > 0))
        return tool_usage_error(command,
                                "--sync needs --link-gbps, which says how fast ranks send");
    if (status == TOOL_OK && rates->hosts_text && all_ranks(o) != rates->hosts * rates->host_ranks)
        return tool_usage_error(command, "--hosts %s has %d ranks, %s %d", rates->hosts_text,
                                rates->hosts * rates->host_ranks,
                                o->sync.rule ? "the workers" : "the mesh", (int)all_ranks(o));
    if (status == TOOL_OK && rates->known && o->params > 0)
        return tool_usage_error(command, "--params says nothing of arithmetic, so no time can be "
                                         "predicted; describe a model by --layers and so on");
    return status;
}

/* Prints and writes the results once all are known. */
static int tell(const struct tool_command *command, const struct plan_options *o,
                const struct model *model, const struct outcome *out)
{
    const bool print = !(o->json_path && strcmp(o->json_path, "-") == 0) &&
                       !(o->plot_path && strcmp(o->plot_path, "-") == 0);
    cJSON *json = o->json_path ? to_json(&o->setup, out) : NULL;
    int status = TOOL_OK;
    if (print && o->params > 0)
        printf("%s%d layers of equal size%s\n",
               o->setup.given[SETUP_LAYERS] ? "" : "Assumed: ", model->count,
               o->setup.given[SETUP_LAYERS] ? "" : ", as a GPT of this size has (--layers N)");
    if (json && o->params > 0)
        cJSON_AddNumberToObject(json, "layers", model->count);
    if (print)
        print_table(&o->setup, out);
    if (print && o->explain)
        status = plan_explain(command, out->plan, &o->setup.mesh, out->ranks);
    if (o->params > 0 && status == TOOL_OK)
        status = plan_zero(command, &o->setup, model, print, json);
    if (o->compare && status == TOOL_OK)
        status = plan_compare(command, &o->setup, model, &out->rates, print, json);
    const struct plan_view view = {out->plan, out->costs, &out->rates, &out->prediction};
    if (o->sync.rule && status == TOOL_OK)
        status = (plan_is_served(&o->sync) ? plan_served : plan_sync)(command, &o->sync, &o->setup,
                                                                      model, &view, print, json);
    if (json && status == TOOL_OK)
        return tool_json_write(command, o->json_path, json);
    cJSON_Delete(json);
    return status;
}

static int print_plan(const struct tool_command *command, const struct plan_options *o,
                      const struct plan_rates *rates)
{
    struct outcome out = {
        .ranks = setup_ranks(&o->setup), .rates = *rates, .disk = o->setup.on_disk != 0};
    struct model model = {NULL};
    int status = o->params > 0 ? model_create_sized(command, &o->setup, o->params, &model)
                               : model_create(command, &o->setup, &model);
    if (status != TOOL_OK)
        return status;
    out.per_rank = calloc((size_t)out.ranks, sizeof(*out.per_rank));
    if (!out.per_rank)
        status = tool_error(command, "out of memory for %d ranks", out.ranks);
    if (status == TOOL_OK)
        status = plan_all(command, &o->setup, &model, o->plot_path, &out);
    if (status == TOOL_OK)
        status = tell(command, o, &model, &out);
    prediction_free(&out.prediction);
    rf_plan_destroy(out.plan);
    free(out.per_rank);
    free(out.work);
    free(out.costs);
    free(out.stages);
    model_destroy(&model);
    return status;
}

/* Refuses options that need a single plan. */
static int check_several(const struct tool_command *command, const struct plan_options *o)
{
    if (o->search.wanted && o->fits)
        return tool_usage_error(command, "--fits does not go with --search; use either");
    const char *other = o->params > 0                           ? "params"
                        : o->compare                            ? "compare"
                        : o->explain                            ? "explain"
                        : o->sync.rule                          ? "sync"
                        : o->plot_path                          ? "plot"
                        : strcmp(o->setup.streams, "none") != 0 ? "reversible"
                        : strstr(o->setup.offload, "=disk")     ? "offload optimizer=disk"
                        : o->setup.recipe                       ? "matmul-precision"
                                                                : NULL;
    return other ? tool_usage_error(command, "--%s does not go with --%s; use either", other,
                                    o->fits ? "fits" : "search")
                 : TOOL_OK;
}

static int plan_main(const struct tool_command *command, int argc, char **argv)
{
    struct plan_options o = {.params = 0};
    struct plan_rates rates = {0};
    const struct tool_option own[] = {
        {"params", TOOL_COUNT, &o.params, "N",
         "number of parameters (7.5e9) in place of a model, in layers of equal size"},
        {"ranks", TOOL_INT, &o.ranks, "N", "number of ranks (1)", .least = 1,
         .most = PLAN_MAX_RANKS},
        {"sync", TOOL_TEXT, &o.sync.rule, "RULE",
         "exchange of parameters among workers of a --mesh each, as in `ringforge train`: bytes "
         "and "
         "time beside data-parallel training"},
        {"clients", TOOL_INT, &o.sync.clients, "N",
         "number of clients of a coordinator, in place of workers", .most = PLAN_MAX_RANKS,
         .needs = "sync"},
        {"explain", TOOL_FLAG, &o.explain, NULL,
         "table of what rank 0 exchanges in a step, and from which declaration each exchange "
         "follows"},
        {"compare", TOOL_FLAG, &o.compare, NULL,
         "table of every --zero and --order, with what is refused and why"},
        {"fits", TOOL_FLAG, &o.fits, NULL,
         "largest batch and sequence of each technique within --device-bytes, and the cheapest "
         "change with which the batch fits"},
        {"plot", TOOL_TEXT, &o.plot_path, "FILE",
         "picture of the predicted step (.svg): what each lane of each rank does when",
         .path = TOOL_WRITES},
        {"json", TOOL_FILE, &o.json_path, "FILE", "the plan as JSON (no FILE: printed)",
         .path = TOOL_WRITES},
        {NULL}};
    enum { OTHERS = SETUP_ROWS + PLAN_RATES_ROWS + PLAN_SEARCH_ROWS };
    struct tool_option table[OTHERS + sizeof(own) / sizeof(own[0])];
    setup_init(&o.setup, table);
    plan_rates_options(&rates, table + SETUP_ROWS);
    plan_search_options(&o.search, table + SETUP_ROWS + PLAN_RATES_ROWS, table);
    memcpy(table + OTHERS, own, sizeof(own));
    int status = tool_options(command, table, argc, argv, NULL);
    if (status == TOOL_OK)
        status = o.search.wanted || o.fits ? check_several(command, &o) : TOOL_OK;
    if (status == TOOL_OK && !o.search.wanted)
        status = check(command, &o, &rates);
    if (status == TOOL_OK && o.fits && rates.known)
        status = tool_usage_error(command, "--fits compares no times; leave out the rates");
    if (status == TOOL_OK)
        status = tool_outputs_check(command, table);
    if (status == TOOL_OK && o.search.wanted)
        status = plan_search_run(command, &o.search, &o.setup, &rates, o.ranks, o.json_path);
    else if (status == TOOL_OK && o.fits)
        status = plan_fits(command, &o.setup, o.json_path);
    else if (status == TOOL_OK)
        status = print_plan(command, &o, &rates);
    setup_close(&o.setup);
    return status;
}

const struct tool_command tool_plan = {
    .name = "plan",
    .summary = "say what a training setup needs, sends and takes per rank, without running it",
    .usage = "[--params N | model options] [--mesh dp=N,tp=N,pp=N] "
             "[--peak TFLOPS --memory GB --link-gbps G] [--search --hosts HxR]",
    .main = plan_main,
};
