/* SPDX-License-Identifier: MIT
 *
 * Saves and loads a run. Rank 0 alone touches files; what it met, good or bad, is told to all, so
 * that every rank returns alike. A load is staged in host memory and changes the run only when
 * everything was found right.
 */
#include "../base/base.h"
#include "run.h"

static const char *const suffixes[RF_STATE_COUNT] = {".m", ".v", ".a"};

/* ---- saving ---------------------------------------------------------------------------------- */

/* The logical parameters, and the optimizer's state of them: what a file's tensors are. */
struct listing {
    struct rf_run *run;
    struct rf_file_tensor *tensors;
    char (*names)[192];
    struct rf_tensor *sources;
    int count;
};

static void list_add(struct listing *list, int param, const char *suffix, struct rf_tensor source)
{
    const struct rf_param_desc *desc = list->run->plan->params[param].desc;
    snprintf(list->names[list->count], sizeof(*list->names), "%s%s", desc->name, suffix);
    list->tensors[list->count] = (struct rf_file_tensor){
        .name = list->names[list->count], .dtype = RF_F32, .shape = desc->shape};
    list->sources[list->count++] = source;
}

static struct rf_tensor state_of(const struct rf_run *run, int region, int param)
{
    struct rf_tensor t = run->regions[region];
    t.offset += run->plan->params[param].first * sizeof(float);
    t.shape = run->plan->params[param].desc->shape;
    t.dtype = RF_F32;
    return t;
}

static int list_open(struct listing *list, struct rf_run *run, bool optimizer)
{
    const struct rf_plan *plan = run->plan;
    size_t room = RF_STATE_COUNT * (size_t)plan->param_count + 1;
    *list = (struct listing){.run = run};
    list->tensors = rf_alloc(room * sizeof(*list->tensors));
    list->names = rf_alloc(room * sizeof(*list->names));
    list->sources = rf_alloc(room * sizeof(*list->sources));
    if (!list->tensors || !list->names || !list->sources)
        return rf_fail(RF_ENOMEM, "checkpoint: out of host memory");
    for (int i = 0; i < plan->param_count; i++) {
        if (plan->params[i].owner != i)
            continue;
        if (strlen(plan->params[i].desc->name) > sizeof(*list->names) - 4)
            return rf_fail(RF_ENOTSUP, "checkpoint: the name %.60s... is too long",
                           plan->params[i].desc->name);
        if (!optimizer)
            list_add(list, i, "", run->params[i]);
        for (int k = 0; optimizer && k < RF_STATE_COUNT; k++)
            if (plan->params[i].grad_first != RF_NO_GRAD &&
                run->regions[RF_REGION_STATE + k].buffer)
                list_add(list, i, suffixes[k], state_of(run, RF_REGION_STATE + k, i));
    }
    return 0;
}

static void list_close(struct listing *list)
{
    rf_free(list->tensors);
    rf_free(list->names);
    rf_free(list->sources);
}

static int read_source(void *user, int index, void *dst, uint64_t bytes)
{
    return rf_tensor_read(((struct listing *)user)->sources[index], dst, bytes);
}

static int save_here(struct rf_run *run, const char *dir, const struct rf_progress *progress)
{
    struct listing model = {0}, optimizer = {0};
    const struct rf_policy *policy = &run->plan->policy;
    const char *kind = rf_optimizer_get_info(policy->optimizer.kind)->name;
    const struct rf_step_scalars *scalars =
        policy->forward_only ? NULL : rf_tensor_map(run->regions[RF_REGION_SCALARS]);
    char updates[24], scale[24], good[24];
    snprintf(scale, sizeof(scale), "%.9g", scalars ? (double)scalars->loss_scale : 0.0);
    snprintf(good, sizeof(good), "%u", scalars ? scalars->good_steps : 0);
    snprintf(updates, sizeof(updates), "%lld", (long long)run->updates);
    const struct rf_file_note notes[] = {{"format", "ringforge"},
                                         {"updates", updates},
                                         {"optimizer", kind},
                                         {"loss_scale", scale},
                                         {"good_steps", good}};
    int rc = list_open(&model, run, false);
    if (rc == 0)
        rc = list_open(&optimizer, run, true);
    if (rc == 0)
        rc = rf_checkpoint_write(dir,
                                 &(struct rf_checkpoint_state){.step = progress->step,
                                                               .samples = progress->samples,
                                                               .updates = run->updates,
                                                               .batch = policy->batch,
                                                               .seq = policy->seq,
                                                               .seed = progress->seed},
                                 run->config,
                                 &(struct rf_file_content){.tensors = model.tensors,
                                                           .tensor_count = model.count,
                                                           .notes = notes,
                                                           .note_count = 1,
                                                           .read = read_source,
                                                           .user = &model},
                                 &(struct rf_file_content){.tensors = optimizer.tensors,
                                                           .tensor_count = optimizer.count,
                                                           .notes = notes,
                                                           .note_count = 5,
                                                           .read = read_source,
                                                           .user = &optimizer},
                                 &run->save_hook);
    list_close(&model);
    list_close(&optimizer);
    return rc;
}

/* A folder that was not reserved is taken for the length of the save. */
static int save_locked(struct rf_run *run, const char *dir, const struct rf_progress *progress)
{
    struct rf_folder_lock lock = {0};
    if (!rf_folder_locked(dir, &run->lock))
        RETURN_IF_ERROR(rf_folder_lock(dir, &lock));
    int rc = save_here(run, dir, progress);
    rf_folder_unlock(&lock);
    return rc;
}

int rf_run_save(struct rf_run *run, const char *dir, const struct rf_progress *progress)
{
    if (!run || !dir || !progress)
        return rf_fail(RF_EINVAL, "save: a run, a folder and the progress are needed");
    int rc = run->plan->rank == 0 ? save_locked(run, dir, progress) : 0;
    return rf_run_broadcast_status(run, rc, "save");
}

/* ---- loading --------------------------------------------------------------------------------- */

struct staged {
    struct rf_checkpoint_state state;
    float *params, *optimizer[RF_STATE_COUNT]; /* flat, as in the run's memory */
};

static int stage_tensor(struct rf_safetensors *file, const char *path, const char *name,
                        const struct rf_plan_param *param, float *flat)
{
    int at = rf_safetensors_find(file, name);
    if (at < 0)
        return rf_fail(RF_EINVAL,
                       "the checkpoint %s has no %s: it was made by another model; use the options "
                       "it was trained with",
                       path, name);
    const struct rf_file_tensor *found = rf_safetensors_tensor(file, at);
    if (found->dtype != RF_F32 || !rf_shape_equal(found->shape, param->desc->shape)) {
        char theirs[96], ours[96];
        struct rf_tensor a = {.shape = found->shape, .dtype = found->dtype};
        struct rf_tensor b = {.shape = param->desc->shape, .dtype = RF_F32};
        return rf_fail(RF_EINVAL,
                       "the checkpoint %s has %s as %s, the model as %s: use the options it was "
                       "trained with",
                       path, name, rf_tensor_text(a, theirs, sizeof(theirs)),
                       rf_tensor_text(b, ours, sizeof(ours)));
    }
    return rf_safetensors_read(file, at, flat + param->first,
                               (uint64_t)param->count * sizeof(float));
}

static int stage_all(const struct rf_run *run, const struct rf_checkpoint *c, struct staged *out)
{
    const struct rf_plan *plan = run->plan;
    int models = 0, states = 0;
    for (int i = 0; i < plan->param_count; i++) {
        const struct rf_plan_param *param = &plan->params[i];
        char name[256];
        if (param->owner != i)
            continue;
        models++;
        RETURN_IF_ERROR(stage_tensor(c->model, c->path, param->desc->name, param, out->params));
        for (int k = 0; k < RF_STATE_COUNT; k++) {
            if (!out->optimizer[k] || param->grad_first == RF_NO_GRAD)
                continue;
            states++;
            snprintf(name, sizeof(name), "%.240s%s", param->desc->name, suffixes[k]);
            RETURN_IF_ERROR(stage_tensor(c->optimizer, c->path, name, param, out->optimizer[k]));
        }
    }
    if (rf_safetensors_count(c->model) != models ||
        (!plan->policy.forward_only && rf_safetensors_count(c->optimizer) != states))
        return rf_fail(RF_EINVAL,
                       "the checkpoint %s has %d parameters and %d optimizer states, the model %d "
                       "and %d: use the options it was trained with",
                       c->path, rf_safetensors_count(c->model), rf_safetensors_count(c->optimizer),
                       models, states);
    return 0;
}

/* The states of two rules may have the same names and another meaning. */
static int check_rule(const struct rf_policy *policy, const struct rf_checkpoint *c)
{
    const char *ours = rf_optimizer_get_info(policy->optimizer.kind)->name;
    const char *theirs = rf_safetensors_note(c->optimizer, "optimizer");
    if (policy->forward_only || (theirs && strcmp(theirs, ours) == 0))
        return 0;
    return rf_fail(RF_EINVAL,
                   "the checkpoint %s was trained with the optimizer %.20s, this run has %s: use "
                   "the options it was trained with",
                   c->path, theirs ? theirs : "(not named)", ours);
}

static void take_loss_scale(const struct rf_checkpoint *c, struct rf_checkpoint_state *out)
{
    const char *scale = rf_safetensors_note(c->optimizer, "loss_scale");
    const char *good = rf_safetensors_note(c->optimizer, "good_steps");
    out->loss_scale = scale ? strtof(scale, NULL) : 0;
    out->good_steps = good ? (uint32_t)strtoul(good, NULL, 10) : 0;
}

static int check_config(const struct rf_run *run, const struct rf_checkpoint *c)
{
    char text[384];
    if (!rf_config_differs(c->config, run->config, text, sizeof(text)))
        return 0;
    return rf_fail(RF_EINVAL,
                   "the checkpoint %s was made by another model (%s): use the options it was "
                   "trained with",
                   c->path, text);
}

static int load_here(const struct rf_run *run, const char *dir, struct staged *out)
{
    const struct rf_policy *policy = &run->plan->policy;
    struct rf_checkpoint c = {0};
    RETURN_IF_ERROR(rf_checkpoint_open(dir, &c));
    int rc = check_config(run, &c);
    if (rc == 0 && !policy->forward_only &&
        (c.state.batch != policy->batch || c.state.seq != policy->seq))
        rc = rf_fail(RF_EINVAL,
                     "the checkpoint %s was trained with a batch of %lld sequences of %lld tokens, "
                     "this run has %lld of %lld: the effective batch must not change; divide it "
                     "into more or fewer micro-batches instead",
                     c.path, (long long)c.state.batch, (long long)c.state.seq,
                     (long long)policy->batch, (long long)policy->seq);
    if (rc == 0)
        rc = check_rule(policy, &c);
    if (rc == 0)
        rc = stage_all(run, &c, out);
    out->state = c.state;
    if (rc == 0)
        take_loss_scale(&c, &out->state);
    rf_checkpoint_close(&c);
    return rc;
}

static int apply(struct rf_run *run, struct staged *s)
{
    const struct rf_plan *plan = run->plan;
    const struct {
        int region;
        float *flat;
        uint64_t count;
    } parts[] = {{RF_REGION_PARAMS, s->params, plan->param_elements},
                 {RF_REGION_STATE, s->optimizer[0], plan->train_elements},
                 {RF_REGION_STATE + 1, s->optimizer[1], plan->train_elements},
                 {RF_REGION_STATE + 2, s->optimizer[2], plan->train_elements}};
    for (int i = 0; i < 1 + RF_STATE_COUNT; i++)
        if (parts[i].flat)
            RETURN_IF_ERROR(
                rf_run_broadcast(run, parts[i].flat, parts[i].count, RF_F32, "load parameters"));
    for (int i = 0; i < 1 + RF_STATE_COUNT; i++) {
        struct rf_tensor to = run->regions[parts[i].region];
        if (parts[i].flat && to.buffer)
            RETURN_IF_ERROR(rf_buffer_write(to.buffer, to.offset, parts[i].flat,
                                            parts[i].count * sizeof(float)));
    }
    RETURN_IF_ERROR(rf_run_refresh_copy(run));
    run->step = s->state.step;
    run->updates = s->state.updates;
    if (!plan->policy.forward_only) {
        struct rf_step_scalars *scalars = rf_tensor_map(run->regions[RF_REGION_SCALARS]);
        scalars->updates = (uint32_t)s->state.updates;
        if (plan->policy.loss_scale != 0 && s->state.loss_scale != 0) {
            scalars->loss_scale = s->state.loss_scale;
            scalars->good_steps = s->state.good_steps;
        }
    }
    run->seed = s->state.seed;
    return 0;
}

static int staged_open(const struct rf_run *run, struct staged *s)
{
    const struct rf_plan *plan = run->plan;
    *s = (struct staged){0};
    s->params = rf_alloc((plan->param_elements + 1) * sizeof(float));
    bool ok = s->params;
    for (int k = 0; k < RF_STATE_COUNT; k++) {
        /* Also where rank 0 alone keeps them: a load is collective. */
        if (plan->train_elements == 0 ||
            !rf_optimizer_has(&plan->policy.optimizer, (enum rf_optimizer_state)k))
            continue;
        s->optimizer[k] = rf_alloc((plan->train_elements + 1) * sizeof(float));
        ok = ok && s->optimizer[k];
    }
    if (!ok)
        return rf_fail(RF_ENOMEM, "load: out of host memory for %llu parameters",
                       (unsigned long long)plan->param_elements);
    return 0;
}

int rf_run_load(struct rf_run *run, const char *dir, struct rf_progress *progress)
{
    struct staged s;
    if (!run || !dir)
        return rf_fail(RF_EINVAL, "load: a run and a folder are needed");
    int rc = rf_run_agree_status(run, staged_open(run, &s), "load");
    if (rc == 0 && run->plan->rank == 0)
        rc = load_here(run, dir, &s);
    if (rc == 0 || run->plan->rank == 0)
        rc = rf_run_broadcast_status(run, rc, "load");
    if (rc == 0)
        rc = rf_run_broadcast(run, &s.state, sizeof(s.state), RF_U8, "load state");
    if (rc == 0)
        rc = apply(run, &s);
    if (rc == 0 && progress)
        *progress = (struct rf_progress){
            .step = s.state.step, .seed = s.state.seed, .samples = s.state.samples};
    rf_free(s.params);
    for (int k = 0; k < RF_STATE_COUNT; k++)
        rf_free(s.optimizer[k]);
    return rc;
}
