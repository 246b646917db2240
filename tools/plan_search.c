/* SPDX-License-Identifier: MIT
 *
 * ringforge plan --search: the meshes and policies that fit, the fastest first. Given options are
 * kept, the rest is searched (ringforge/search.h).
 */
#include "plan_search.h"

#include <string.h>
#include <unistd.h>

void plan_search_options(struct plan_search *search, struct tool_option *rows,
                         struct tool_option *setup_rows)
{
    const struct {
        const char *name;
        bool *given;
    } open[] = {{"mesh", &search->mesh},           {"zero", &search->zero},
                {"recompute", &search->recompute}, {"offload", &search->offload},
                {"schedule", &search->schedule},   {"micro-batches", &search->micro_batches},
                {"dtype", &search->dtype},         {"sequence-parallel", &search->sequence}};
    const struct tool_option all[] = {
        {"search", TOOL_FLAG, &search->wanted, NULL,
         "search for meshes that fit, by time, and for what is not given of --zero, --recompute, "
         "--offload, --schedule, --micro-batches, --dtype, --sequence-parallel"},
        {"top", TOOL_INT, &search->top, "N", "number of rows of --search; 0 = all that fit (20)",
         .most = INT32_MAX, .needs = "search", .given = &search->top_given},
    };
    _Static_assert(sizeof(all) == PLAN_SEARCH_ROWS * sizeof(all[0]), "a row each");
    memcpy(rows, all, sizeof(all));
    for (int row = 0; row < SETUP_ROWS; row++)
        for (size_t k = 0; k < sizeof(open) / sizeof(open[0]); k++)
            if (strcmp(setup_rows[row].name, open[k].name) == 0)
                setup_rows[row].given = open[k].given;
}

/* ---- the mesh -------------------------------------------------------------------------------- */

/* The named axes; the others are open: 0. */
static int read_mesh(const struct tool_command *command, const char *text, struct rf_mesh *mesh)
{
    static const char *const names[] = {"dp", "tp", "pp", "shard", "cp", NULL};
    int64_t values[5] = {0};
    *mesh = (struct rf_mesh){0};
    const int status = setup_mesh_read(command, text, names, values);
    if (status != TOOL_OK)
        return status;
    if (values[4] > 0)
        return tool_usage_error(command,
                                "--mesh %s: cp is not searched in this version; plan such a "
                                "mesh without --search",
                                text);
    for (int axis = 0; axis < PLAN_AXES; axis++)
        for (int k = 0; names[k]; k++)
            if (strcmp(plan_axes[axis].name, names[k]) == 0)
                *plan_axis_of(mesh, axis) = (int)values[k];
    return TOOL_OK;
}

/* ---- the models, one for each precision ------------------------------------------------------ */

enum { MOST_MODELS = 2 };

struct forms {
    struct setup setups[MOST_MODELS];
    struct model models[MOST_MODELS];
    struct rf_search_model of[MOST_MODELS];
    int count;
};

static int open_form(const struct tool_command *command, const struct setup *setup,
                     const char *dtype, const struct plan_rates *rates, struct forms *forms)
{
    const int k = forms->count;
    struct setup *own = &forms->setups[k];
    struct plan_rates reached = *rates;
    *own = *setup;
    own->dtype = dtype;
    own->mesh_text = "tp=2,pp=2"; /* with it every option is allowed */
    int status = setup_check(command, own, 1);
    if (status == TOOL_OK)
        status = plan_rates_check(command, own, "--search", &reached);
    if (status == TOOL_OK)
        status = model_create(command, own, &forms->models[k]);
    if (status != TOOL_OK)
        return status;
    forms->of[k] =
        (struct rf_search_model){.blocks = forms->models[k].blocks,
                                 .block_count = forms->models[k].count,
                                 .heads = (int)(own->kv_heads ? own->kv_heads : own->heads),
                                 .block_flops_per_s = reached.rates.block_flops_per_s};
    forms->count++;
    return TOOL_OK;
}

/* If the type is open, bf16 stands for 16 bits. */
static int open_forms(const struct tool_command *command, const struct plan_search *search,
                      const struct setup *setup, const struct plan_rates *rates,
                      struct forms *forms)
{
    int status = open_form(command, setup, search->dtype ? setup->dtype : "bf16", rates, forms);
    if (status == TOOL_OK && !search->dtype && !setup->no_masters && !setup->stochastic)
        status = open_form(command, setup, "f32", rates, forms);
    return status;
}

/* ---- the search ------------------------------------------------------------------------------ */

static void show_progress(void *user, int meshes, int of)
{
    fprintf(stderr, meshes < of ? "\rsearching: %d of %d meshes" : "\r\033[K", meshes, of);
}

static unsigned open_of(const struct plan_search *search)
{
    return (search->zero ? 0 : RF_SEARCH_ZERO) | (search->recompute ? 0 : RF_SEARCH_RECOMPUTE) |
           (search->offload ? 0 : RF_SEARCH_OFFLOAD) | (search->schedule ? 0 : RF_SEARCH_SCHEDULE) |
           (search->micro_batches ? 0 : RF_SEARCH_MICRO_BATCHES) |
           (search->sequence ? 0 : RF_SEARCH_SEQUENCE);
}

/* The nearest candidate, and those that would fit if only the model were given. */
static int nothing_fits(const struct tool_command *command, const struct forms *forms,
                        const struct rf_search_opts *opts, const struct rf_search *search)
{
    const struct rf_candidate *nearest = rf_search_nearest(search);
    const struct rf_rejection *first = rf_search_rejection(search, 0);
    struct rf_search_opts all = *opts;
    struct rf_search *other = NULL;
    char text[3][PLAN_CANDIDATE_TEXT];
    if (!nearest)
        return tool_error(command, "no mesh of %d ranks can be: %s", opts->ranks,
                          first ? first->reason : "none has the given axes");
    plan_candidate_text(nearest, forms->setups[nearest->model].dtype, text[0]);
    tool_bytes_text(nearest->device_bytes, text[1], sizeof(text[1]));
    all.open = RF_SEARCH_ALL;
    all.mesh = (struct rf_mesh){0};
    all.top = -1;
    all.progress = NULL;
    if (rf_plan_search(forms->of, forms->count, &all, &other) < 0)
        return tool_library_error(command, -1);
    const struct rf_candidate *best = rf_search_get(other, 0);
    if (best)
        plan_candidate_text(best, forms->setups[best->model].dtype, text[2]);
    const int status =
        best ? tool_error(command,
                          "nothing that is searched fits; the nearest, %s, needs %s of the device; "
                          "%s would fit",
                          text[0], text[1], text[2])
             : tool_error(command,
                          "nothing fits; the nearest, %s, needs %s of the device: use "
                          "--device-bytes %lluM, more ranks, shorter sequences or a smaller model",
                          text[0], text[1], (unsigned long long)(nearest->device_bytes >> 20) + 1);
    rf_search_destroy(other);
    return status;
}

static int answer(const struct tool_command *command, const struct forms *forms,
                  const struct rf_search_opts *opts, const struct plan_search *search,
                  const struct rf_search *found, const char *json_path)
{
    const char *dtypes[MOST_MODELS];
    for (int k = 0; k < forms->count; k++)
        dtypes[k] = forms->setups[k].dtype;
    const struct plan_found what = {.search = found,
                                    .opts = opts,
                                    .dtypes = dtypes,
                                    .top = search->top_given && search->top == 0 ? INT64_MAX
                                                                                 : opts->top};
    int status = TOOL_OK;
    if (!(json_path && strcmp(json_path, "-") == 0))
        plan_found_print(&what);
    if (json_path)
        status = tool_json_write(command, json_path, plan_found_json(&what));
    if (status == TOOL_OK && rf_search_count(found) == 0)
        status = nothing_fits(command, forms, opts, found);
    return status;
}

static int search_forms(const struct tool_command *command, const struct plan_search *search,
                        const struct forms *forms, const struct plan_rates *rates,
                        struct rf_search_opts *opts, const char *json_path)
{
    struct rf_search *found = NULL;
    opts->policy = forms->setups[0].policy;
    opts->open = open_of(search);
    opts->rates = rates->rates;
    opts->top = search->top > 0 ? (int)search->top : 20;
    opts->progress = isatty(STDERR_FILENO) ? show_progress : NULL;
    const int rc = rf_plan_search(forms->of, forms->count, opts, &found);
    if (rc < 0)
        tool_library_error(command, -1);
    if (rc < 0)
        return rc == RF_EINVAL ? TOOL_USAGE : TOOL_ERROR;
    const int status = answer(command, forms, opts, search, found, json_path);
    rf_search_destroy(found);
    return status;
}

int plan_search_run(const struct tool_command *command, const struct plan_search *search,
                    struct setup *setup, struct plan_rates *rates, int64_t ranks,
                    const char *json_path)
{
    struct rf_search_opts opts = {0};
    struct forms forms = {.count = 0};
    int status = setup->mesh_text ? read_mesh(command, setup->mesh_text, &opts.mesh) : TOOL_OK;
    if (status == TOOL_OK)
        status = plan_hosts_check(command, rates);
    const int64_t of_hosts = (int64_t)rates->hosts * rates->host_ranks;
    if (status == TOOL_OK && ranks && of_hosts && ranks != of_hosts)
        status = tool_usage_error(command, "--ranks %lld contradicts --hosts %s", (long long)ranks,
                                  rates->hosts_text);
    ranks = ranks ? ranks : of_hosts;
    if (status == TOOL_OK && (ranks < 1 || ranks > PLAN_MAX_RANKS))
        status = tool_usage_error(command,
                                  "--search needs --hosts HxR or --ranks N: 1 to %d ranks in all",
                                  PLAN_MAX_RANKS);
    opts.ranks = (int)ranks;
    if (status == TOOL_OK && !setup->batch)
        setup->batch = (15 + ranks) / ranks * ranks;
    if (status == TOOL_OK)
        status = open_forms(command, search, setup, rates, &forms);
    if (status == TOOL_OK)
        status = plan_rates_check(command, &forms.setups[0], "--search", rates);
    if (status == TOOL_OK)
        status = search_forms(command, search, &forms, rates, &opts, json_path);
    for (int k = 0; k < forms.count; k++)
        model_destroy(&forms.models[k]);
    return status;
}
