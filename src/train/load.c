/* SPDX-License-Identifier: MIT
 *
 * Loads a run. Rank 0 chooses the checkpoint. The ranks that see it share the work of verifying it.
 * Then each reads the data it needs. The run is changed only after all ranks have verified
 * everything.
 */
#include "load.h"

#include "../base/base.h"
#include "../optim/scalars.h"
#include "compress.h"
#include "states.h"

/* ---- does the checkpoint fit the run? (rank 0) ----------------------------------------------- */

static int check_config(const struct rf_run *run, const struct rf_checkpoint *c)
{
    const struct rf_policy *policy = &run->plan->policy;
    char text[384];
    if (rf_config_differs(c->config, run->config, text, sizeof(text)))
        return rf_fail(RF_EINVAL,
                       "the checkpoint %s was made by another model (%s): use the options it was "
                       "trained with",
                       c->path, text);
    if (policy->forward_only || run->other_batch ||
        (c->state.batch == policy->batch && c->state.seq == policy->seq))
        return 0;
    return rf_fail(RF_EINVAL,
                   "the checkpoint %s was trained with a batch of %lld sequences of %lld tokens, "
                   "this run has %lld of %lld: keep that batch, divided into more or fewer "
                   "micro-batches, or allow another one and scale the learning rate for it "
                   "(train --scale-lr; rf_run_opts.other_batch)",
                   c->path, (long long)c->state.batch, (long long)c->state.seq,
                   (long long)policy->batch, (long long)policy->seq);
}

/* The states of two optimizers may have the same names and different meanings. */
static int check_rule(const struct rf_policy *policy, const struct rf_checkpoint *c)
{
    const char *ours = rf_optimizer_get_info(policy->optimizer.kind)->name;
    const char *theirs = rf_safetensors_note(c->parts[RF_PART_OPTIMIZER].tensors, "optimizer");
    if (policy->forward_only || (theirs && strcmp(theirs, ours) == 0))
        return 0;
    return rf_fail(RF_EINVAL,
                   "the checkpoint %s was trained with the optimizer %.20s, this run has %s: use "
                   "the options it was trained with",
                   c->path, theirs ? theirs : "(not named)", ours);
}

/* any: it may have another type. */
static int check_tensor(const struct rf_checkpoint *c, struct rf_safetensors *file,
                        const struct rf_file_tensor *wanted, bool any)
{
    int at = rf_safetensors_find(file, wanted->name);
    if (at < 0)
        return rf_fail(RF_EINVAL,
                       "the checkpoint %s has no %s: it was made by another model; use the options "
                       "it was trained with",
                       c->path, wanted->name);
    const struct rf_file_tensor *found = rf_safetensors_tensor(file, at);
    if (any)
        return 0;
    if (found->dtype == wanted->dtype && rf_shape_equal(found->shape, wanted->shape))
        return 0;
    char theirs[96], ours[96];
    const struct rf_tensor a = {.shape = found->shape, .dtype = found->dtype};
    const struct rf_tensor b = {.shape = wanted->shape, .dtype = wanted->dtype};
    return rf_fail(RF_EINVAL,
                   "the checkpoint %s has %s as %s, the model as %s: use the options it was "
                   "trained with",
                   c->path, wanted->name, rf_tensor_text(a, theirs, sizeof(theirs)),
                   rf_tensor_text(b, ours, sizeof(ours)));
}

/* The number of parameters for which the checkpoint also has the version before the last update. */
static int count_before(const struct rf_load *load)
{
    const struct rf_listing *model = &load->listings[RF_PART_MODEL];
    char name[sizeof(model->listed->name)];
    int count = 0;
    for (int i = 0; i < model->count; i++) {
        snprintf(name, sizeof(name), "%s.b", model->tensors[i].name);
        count += rf_safetensors_find(load->checkpoint.parts[RF_PART_OPTIMIZER].tensors, name) >= 0;
    }
    return count;
}

/* Arrays that the run which saved has kept beside the parameters, and this one does not. */
static int count_kept(const struct rf_run *run, const struct rf_load *load)
{
    struct rf_safetensors *file = load->checkpoint.parts[RF_PART_OPTIMIZER].tensors;
    int count = run->kept_count > 0 ? 0 : rf_kept_count(&load->listings[RF_PART_MODEL], file);
    for (int i = 0; (!run->compressed || load->forgets) && i < rf_safetensors_count(file); i++)
        count += rf_compress_names(rf_safetensors_tensor(file, i)->name);
    return count;
}

/* What each rank has lost of its gradients can be continued by the same ranks with the same pieces
 * and form only. */
static bool lacks_compressed(const struct rf_load *load)
{
    struct rf_safetensors *file = load->checkpoint.parts[RF_PART_OPTIMIZER].tensors;
    const struct rf_listing *list = &load->listings[RF_PART_OPTIMIZER];
    int theirs = 0, ours = 0;
    for (int i = 0; i < rf_safetensors_count(file); i++)
        theirs += rf_compress_names(rf_safetensors_tensor(file, i)->name);
    for (int i = 0; i < list->count; i++) {
        const int at = rf_safetensors_find(file, list->listed[i].name);
        if (list->listed[i].param >= 0)
            continue;
        ours++;
        if (at < 0 ||
            !rf_shape_equal(rf_safetensors_tensor(file, at)->shape, list->tensors[i].shape))
            return true;
    }
    return theirs != ours;
}

/* Removes what this run cannot continue. */
static void forget(struct rf_run *run, struct rf_load *load)
{
    struct rf_listing *list = &load->listings[RF_PART_OPTIMIZER];
    struct rf_spans *spans = &load->spans[RF_PART_OPTIMIZER];
    size_t kept = 0;
    for (size_t k = 0; k < spans->count; k++)
        if (list->listed[spans->list[k].tensor].param >= 0)
            spans->list[kept++] = spans->list[k];
    spans->count = kept;
    while (list->count > 0 && list->listed[list->count - 1].param < 0)
        list->count--;
    rf_compress_forget(run);
    if (run->plan->rank == 0)
        rf_log("train", 0,
               "the checkpoint was saved by other ranks, or with gradients in another form: what "
               "that has lost of them is dropped");
}

/* Collective: whether all forget. */
static int agree_compressed(struct rf_run *run, struct rf_load *load)
{
    int32_t forgets = run->plan->rank == 0 && run->compressed && lacks_compressed(load);
    if (!run->compressed)
        return 0;
    RETURN_IF_ERROR(rf_run_broadcast(run, &forgets, sizeof(forgets), 0, "load state"));
    load->forgets = forgets != 0;
    if (load->forgets)
        forget(run, load);
    return 0;
}

/* States of parameters that were trained when the checkpoint was saved, and are frozen now: they
 * are not read. */
static int count_frozen(const struct rf_run *run, const struct rf_load *load)
{
    const struct rf_plan *plan = run->plan;
    char name[sizeof(load->listings->listed->name)];
    int count = 0;
    for (int i = 0; i < plan->param_count; i++)
        for (int k = 0; k < RF_PLAN_STATES; k++) {
            const bool before = k == RF_STATE_BEFORE;
            if (plan->params[i].logical != i || rf_plan_trains(plan, i) ||
                (before && !rf_plan_lags(plan)))
                continue;
            snprintf(name, sizeof(name), "%s.%s", plan->params[i].desc->name,
                     before ? "b" : rf_optimizer_state_name((enum rf_optimizer_state)k));
            count +=
                rf_safetensors_find(load->checkpoint.parts[RF_PART_OPTIMIZER].tensors, name) >= 0;
        }
    return count;
}

static int check_tensors(const struct rf_run *run, const struct rf_load *load)
{
    const struct rf_checkpoint *c = &load->checkpoint;
    const struct rf_listing *lists = load->listings;
    const int before = count_before(load);
    bool converts = false;
    RETURN_IF_ERROR(check_rule(&run->plan->policy, c));
    if (rf_plan_lags(run->plan) && before == 0)
        return rf_fail(RF_EINVAL,
                       "the checkpoint %s has one version of the weights, and a pipeline without a "
                       "flush (2bw) continues from two: use the schedule it was trained with",
                       c->path);
    for (int part = 0; part < RF_PART_COUNT; part++)
        for (int i = 0; i < lists[part].count; i++) {
            const bool state = part == RF_PART_OPTIMIZER && rf_states_are(&lists[part].listed[i]);
            RETURN_IF_ERROR(
                check_tensor(c, c->parts[part].tensors, &lists[part].tensors[i], state));
            if (state)
                RETURN_IF_ERROR(rf_states_check(run, load, i, &converts));
        }
    if (converts)
        rf_log("train", 0,
               "the checkpoint %s has states of the optimizer in another type or division than "
               "this run: they are converted",
               c->path);
    const int models = rf_safetensors_count(c->parts[RF_PART_MODEL].tensors);
    /* Other schedules continue from the newest version alone. */
    const int states = rf_safetensors_count(c->parts[RF_PART_OPTIMIZER].tensors) -
                       (rf_plan_lags(run->plan) ? 0 : before) - count_frozen(run, load) -
                       count_kept(run, load);
    if (models == lists[RF_PART_MODEL].count &&
        (run->plan->policy.forward_only || states == lists[RF_PART_OPTIMIZER].count))
        return 0;
    return rf_fail(RF_EINVAL,
                   "the checkpoint %s has %d parameters and %d optimizer states, the model %d and "
                   "%d: use the options it was trained with",
                   c->path, models, states, lists[RF_PART_MODEL].count,
                   lists[RF_PART_OPTIMIZER].count);
}

static void take_loss_scale(struct rf_load *load)
{
    struct rf_safetensors *file = load->checkpoint.parts[RF_PART_OPTIMIZER].tensors;
    const char *scale = rf_safetensors_note(file, "loss_scale");
    const char *good = rf_safetensors_note(file, "good_steps");
    load->state.loss_scale = scale ? strtof(scale, NULL) : 0;
    load->state.good_steps = good ? (uint32_t)strtoul(good, NULL, 10) : 0;
}

/* ---- the checkpoint, and the ranks that see it ------------------------------------------------
 */

static int prepare(const struct rf_run *run, struct rf_load *load)
{
    for (int p = 0; p < RF_PART_COUNT; p++) {
        const enum rf_checkpoint_part part = (enum rf_checkpoint_part)p;
        RETURN_IF_ERROR(rf_listing_open(run, part, &load->listings[p]));
        RETURN_IF_ERROR(rf_spans_to_load(run, part, &load->listings[p], &load->spans[p]));
        if (part == RF_PART_OPTIMIZER) {
            RETURN_IF_ERROR(rf_kept_list(run, &load->listings[p]));
            RETURN_IF_ERROR(rf_kept_spans(run, &load->listings[p], false, &load->spans[p]));
            RETURN_IF_ERROR(rf_compress_list(run, &load->listings[p]));
            RETURN_IF_ERROR(rf_compress_spans(run, &load->listings[p], &load->spans[p]));
        }
    }
    load->all_see = rf_alloc((size_t)rf_run_ranks(run));
    load->buffer = rf_alloc(run->files.piece_bytes);
    if (!load->all_see || !load->buffer)
        return rf_fail(RF_ENOMEM, "load: out of host memory");
    return 0;
}

struct which { /* the checkpoint to load; from rank 0 */
    char name[64], hash[65];
};

static int open_first(const struct rf_run *run, const char *dir, struct rf_load *load,
                      struct which *out)
{
    RETURN_IF_ERROR(rf_checkpoint_find(dir, out->name));
    RETURN_IF_ERROR(rf_checkpoint_open(dir, out->name, &load->checkpoint));
    load->sees = true;
    memcpy(out->hash, load->checkpoint.hash, sizeof(out->hash));
    return check_config(run, &load->checkpoint);
}

static int open_other(const struct rf_run *run, const char *dir, const struct which *which,
                      struct rf_load *load)
{
    if (!run->files.has(dir, which->name, which->hash))
        return 0;
    RETURN_IF_ERROR(rf_checkpoint_open(dir, which->name, &load->checkpoint));
    load->sees = true;
    return 0;
}

static int open_all(struct rf_run *run, const char *dir, struct rf_load *load)
{
    struct which which = {{0}, {0}};
    const bool first = run->plan->rank == 0;
    int rc = rf_run_agree_status(run, prepare(run, load), "load");
    if (rc < 0)
        return rc;
    rc = first ? open_first(run, dir, load, &which) : 0;
    RETURN_IF_ERROR(rf_run_status_of(run, rc, 0, "load"));
    RETURN_IF_ERROR(rf_run_broadcast(run, &which, sizeof(which), 0, "load which"));
    rc = first ? 0 : open_other(run, dir, &which, load);
    if (rc == 0)
        rc = rf_states_open(run, load);
    return rf_run_agree_status(run, rc, "load");
}

/* ---- verification ---------------------------------------------------------------------------- */

/* Ranks that see the same files share the work. A rank with its own copy verifies that copy. */
static int find_verifiers(struct rf_run *run, struct rf_load *load)
{
    struct view {
        uint8_t sees, files[32];
    } mine = {load->sees, {0}}, *all;
    const int ranks = rf_run_ranks(run);
    int rc = load->sees ? rf_checkpoint_identity(&load->checkpoint, mine.files) : 0;
    all = rf_alloc((size_t)ranks * sizeof(*all));
    if (rc == 0 && !all)
        rc = rf_fail(RF_ENOMEM, "load: out of host memory");
    rc = rf_run_agree_status(run, rc, "load");
    if (rc == 0)
        rc = rf_run_all_gather(run, &mine, all, sizeof(mine), "load files");
    for (int r = 0; rc == 0 && r < ranks; r++) {
        load->all_see[r] = all[r].sees;
        if (!mine.sees || memcmp(&all[r], &mine, sizeof(mine)) != 0)
            continue;
        load->verifier += r < run->plan->rank;
        load->verifiers++;
    }
    rf_free(all);
    return rc;
}

static int verify(struct rf_run *run, struct rf_load *load)
{
    RETURN_IF_ERROR(find_verifiers(run, load));
    int rc = load->sees ? rf_checkpoint_verify(&load->checkpoint, (size_t)load->verifier,
                                               (size_t)load->verifiers)
                        : 0;
    RETURN_IF_ERROR(rf_run_agree_status(run, rc, "load"));
    RETURN_IF_ERROR(agree_compressed(run, load));
    if (run->plan->rank == 0) {
        rc = check_tensors(run, load);
        load->state = load->checkpoint.state;
        take_loss_scale(load);
    }
    RETURN_IF_ERROR(rf_run_status_of(run, rc, 0, "load"));
    return rf_run_broadcast(run, &load->state, sizeof(load->state), 0, "load state");
}

/* ---- the call -------------------------------------------------------------------------------- */

int rf_run_apply_state(struct rf_run *run, const struct rf_checkpoint_state *state)
{
    const struct rf_policy *policy = &run->plan->policy;
    run->ahead = run->under_way = false;
    run->step = state->step;
    run->updates = state->updates;
    run->seed = state->seed;
    if (!policy->forward_only) {
        struct rf_step_scalars *scalars = rf_tensor_map(run->regions[RF_REGION_SCALARS]);
        scalars->updates = (uint32_t)state->updates;
        rf_step_scalars_seed(scalars, run->seed);
        if (policy->loss_scale != 0 && state->loss_scale != 0) {
            scalars->loss_scale = state->loss_scale;
            scalars->good_steps = state->good_steps;
        }
    }
    /* Stochastic rounding is a function of seed and update. */
    RETURN_IF_ERROR(rf_run_refresh_copy(run));
    RETURN_IF_ERROR(rf_compress_set_step(run, state->step));
    return rf_run_refresh_before(run, false);
}

static int read_all(struct rf_run *run, struct rf_load *load)
{
    RETURN_IF_ERROR(rf_load_read(run, load));
    return rf_run_apply_state(run, &load->state);
}

static void close_load(struct rf_load *load)
{
    rf_checkpoint_close(&load->checkpoint);
    for (int part = 0; part < RF_PART_COUNT; part++) {
        rf_listing_close(&load->listings[part]);
        rf_spans_free(&load->spans[part]);
    }
    rf_free(load->all_see);
    rf_free(load->codes);
    rf_free(load->buffer);
    rf_span_reader_free(&load->reader);
}

int rf_run_load(struct rf_run *run, const char *dir, struct rf_progress *progress)
{
    struct rf_load load = {0};
    if (!run || !dir)
        return rf_fail(RF_EINVAL, "load: a run and a folder are needed");
    RETURN_IF_ERROR(rf_run_begin_call(run, "load"));
    int rc = open_all(run, dir, &load);
    if (rc == 0)
        rc = verify(run, &load);
    if (rc == 0) {
        rc = read_all(run, &load);
        if (rc < 0)
            rf_run_mark_inconsistent(run, "load");
        else
            run->inconsistent.status = 0;
    }
    if (rc == 0 && progress)
        *progress = (struct rf_progress){.step = load.state.step,
                                         .seed = load.state.seed,
                                         .samples = load.state.samples,
                                         .batch = load.state.batch,
                                         .seq = load.state.seq};
    const struct rf_error error = *rf_last_error();
    close_load(&load);
    return rc < 0 ? rf_fail_error(&error) : 0;
}

/* ---- other content of a checkpoint -------------------------------------------------------------
 */

int rf_checkpoint_settings(const char *dir, char **out)
{
    struct rf_state_file file;
    char name[64];
    if (!dir || !out)
        return rf_fail(RF_EINVAL, "a folder and a pointer for its settings are needed");
    RETURN_IF_ERROR(rf_checkpoint_find(dir, name));
    RETURN_IF_ERROR(rf_checkpoint_read_state(dir, name, &file));
    *out = file.settings && *file.settings ? strdup(file.settings) : NULL;
    const bool lost = file.settings && *file.settings && !*out;
    rf_free(file.config);
    rf_free(file.settings);
    return lost ? rf_fail(RF_ENOMEM, "out of memory for the settings of %s", dir) : 0;
}
