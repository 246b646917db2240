/* SPDX-License-Identifier: MIT
 *
 * One rank of `ringforge train`: opens the device and the run, makes the steps, evaluates, saves,
 * and leaves. Every collective call is made by all ranks in the same order.
 */
#include <math.h>
#include <string.h>

#include "train.h"

#define GPU_WORKSPACE (32u << 20)

struct trainer {
    const struct tool_command *command;
    const struct train_options *o;
    const struct rf_dataset *dataset;
    struct rf_comm *comm;
    int rank, ranks;
    struct rf_mesh mesh;
    struct model model;
    struct rf_plan *plan;
    struct rf_device *device;
    struct rf_run *run;
    struct report *report;
    struct rf_progress progress;
    bool placed;                         /* the run has the parameters of progress.step */
    struct rf_snapshot *snapshot;        /* what this rank had of the run before; NULL: nothing */
    bool again;                          /* there was a run before */
    bool lost;                           /* the last failure is that of a rank that is lost */
    double lr;                           /* for this batch */
    int32_t *tokens, *targets;           /* one global batch */
    int32_t *eval_tokens, *eval_targets; /* all held-out sequences that are used */
    int64_t eval_micro_batches;
    int64_t tokens_local;
    double loss, held_out;
    bool evaluated, diverged;
    int stop; /* why all ranks end before the last step; 0 = they do not */
};

/* Before there are parameters that are worth it nobody goes on without others. */
static int failed(struct trainer *t)
{
    t->lost = t->o->elastic && t->ranks > 1 && (t->placed || t->snapshot) && train_lost_a_rank();
    return tool_library_error(t->command, t->ranks > 1 ? t->rank : -1);
}

static int open_run(struct trainer *t, uint64_t seed)
{
    struct rf_run_opts opts = {.seed = seed,
                               .record_each_step = t->o->record_each_step,
                               .stop = train_stop_flag(),
                               .other_batch = strcmp(t->o->scale_lr, "none") != 0};
    if (rf_run_open(t->device, t->comm, t->plan, &opts, &t->run) < 0)
        return failed(t);
    return TOOL_OK;
}

static int open_first(struct trainer *t, uint64_t seed)
{
    t->progress = (struct rf_progress){.seed = seed};
    const int status = open_run(t, seed);
    if (status == TOOL_OK && t->o->resume && rf_run_load(t->run, t->o->resume, &t->progress) < 0)
        return failed(t);
    return status;
}

/* --lr is that of the checkpoint's batch; tokens are what a step averages over. The next checkpoint
 * has the new batch: whoever repeats the command would go on at the old rate. */
static int scale_rate(struct trainer *t)
{
    const struct train_options *o = t->o;
    const int64_t from = t->progress.batch * t->progress.seq, to = o->setup.batch * o->setup.seq;
    if (strcmp(o->scale_lr, "none") == 0)
        return TOOL_OK;
    if (t->progress.batch == o->setup.batch && t->progress.seq == o->setup.seq)
        return tool_error(t->command,
                          "%s has this batch already (%lld tokens a step): leave --scale-lr away, "
                          "and give the --lr to go on with",
                          o->resume, (long long)to);
    t->lr = strcmp(o->scale_lr, "linear") == 0 ? rf_lr_scale_linear((float)o->lr, from, to)
                                               : rf_lr_scale_sqrt((float)o->lr, from, to);
    return TOOL_OK;
}

/* A checkpoint goes on with its own seed, and not beyond --steps. */
static int check_resumed(struct trainer *t)
{
    const struct train_options *o = t->o;
    int status = TOOL_OK;
    if (t->progress.seed != (uint64_t)o->seed && o->seed_given)
        return tool_error(t->command,
                          "%s was trained with --seed %llu; leave --seed away or give "
                          "the same",
                          o->resume, (unsigned long long)t->progress.seed);
    if (t->progress.seed != (uint64_t)o->seed) {
        rf_run_close(t->run);
        t->run = NULL;
        status = open_first(t, t->progress.seed);
    }
    if (status == TOOL_OK && t->progress.step >= o->steps)
        return tool_error(t->command, "%s is at step %lld already; --steps %lld asks for no more",
                          o->resume, (long long)t->progress.step, (long long)o->steps);
    return status;
}

static int prepare_evaluation(struct trainer *t)
{
    const struct rf_policy *p = &t->o->setup.policy;
    int64_t rows = p->batch / p->micro_batches;
    int64_t sequences = rf_dataset_held_out_sequences(t->dataset, p->seq);
    if (sequences > t->o->eval_sequences)
        sequences = t->o->eval_sequences;
    t->eval_micro_batches = sequences / rows;
    if (t->eval_micro_batches == 0)
        return TOOL_OK; /* too little text is held out: no held-out loss */
    size_t count = (size_t)(t->eval_micro_batches * rows * p->seq);
    t->eval_tokens = calloc(count, sizeof(int32_t));
    t->eval_targets = calloc(count, sizeof(int32_t));
    if (!t->eval_tokens || !t->eval_targets)
        return tool_error(t->command, "out of memory for the held-out text");
    if (rf_dataset_held_out(t->dataset, 0, t->eval_micro_batches * rows, p->seq, t->eval_tokens,
                            t->eval_targets) < 0)
        return failed(t);
    return TOOL_OK;
}

/* What does not depend on who the ranks are. */
static int open_machine(struct trainer *t)
{
    const struct train_options *o = t->o;
    const struct rf_policy *p = &o->setup.policy;
    char select[16];
    struct rf_device_opts device_opts = {.profile = o->trace_path != NULL,
                                         .profile_launches = o->trace_kernels};
    int status = model_create(t->command, &o->setup, &t->model);
    if (status != TOOL_OK)
        return status;
    if (rf_device_open(tool_rank_device(o->device, select), &device_opts, &t->device) < 0)
        return failed(t);
    t->tokens = calloc((size_t)(p->batch * p->seq), sizeof(int32_t));
    t->targets = calloc((size_t)(p->batch * p->seq), sizeof(int32_t));
    if (!t->tokens || !t->targets)
        return tool_error(t->command, "out of memory for a batch");
    return prepare_evaluation(t);
}

static int open_plan(struct trainer *t)
{
    const struct train_options *o = t->o;
    struct rf_policy policy = o->setup.policy;
    if (o->setup.workspace < 0 && rf_device_get_info(t->device)->kind != RF_DEVICE_CPU)
        policy.workspace_bytes = GPU_WORKSPACE;
    train_policy_left(&o->setup.mesh, &t->mesh, &policy);
    if (rf_plan_build(t->model.blocks, t->model.count, &t->mesh, &policy, t->rank, &t->plan) < 0) {
        failed(t);
        return TOOL_USAGE;
    }
    return TOOL_OK;
}

static int open_anew(struct trainer *t, const struct train_expected *expected)
{
    const struct train_options *o = t->o;
    int status = TOOL_OK;
    if (t->rank == 0)
        status = report_open(t->command, o, expected, false, &t->report);
    if (status == TOOL_OK)
        status = open_first(t, (uint64_t)o->seed);
    if (status == TOOL_OK && o->resume)
        status = check_resumed(t);
    if (status == TOOL_OK && o->resume)
        status = scale_rate(t);
    return status;
}

/* The state of the run before: from the ranks that are left, or, where something was lost with a
 * rank, from a checkpoint. Collective: all ranks take it from the same source. */
static int take_state(struct trainer *t, const char **source)
{
    const char *const folders[] = {t->o->save, t->o->resume};
    *source = "memory";
    if (rf_run_restore(t->run, t->snapshot, &t->progress) == 0)
        return TOOL_OK;
    if (rf_last_error()->status != RF_ECORRUPT)
        return failed(t);
    for (int k = 0; k < 2; k++) {
        if (!folders[k])
            continue;
        tool_library_error(t->command, t->rank);
        *source = folders[k];
        if (rf_run_load(t->run, folders[k], &t->progress) == 0)
            return TOOL_OK;
        if (train_lost_a_rank())
            return failed(t);
    }
    failed(t);
    return tool_error(t->command, "the ranks that are left have no state to go on from; next time "
                                  "use --save DIR --save-every N");
}

static int open_again(struct trainer *t, const struct train_expected *expected)
{
    const char *source = NULL;
    int status = TOOL_OK;
    if (t->rank == 0 && !t->report)
        status = report_open(t->command, t->o, expected, true, &t->report);
    if (status == TOOL_OK)
        status = open_run(t, t->progress.seed);
    if (status == TOOL_OK)
        status = take_state(t, &source);
    if (status == TOOL_OK)
        report_shrunk(t->report, expected, &t->progress, &t->mesh, source);
    return status;
}

static int open_session(struct trainer *t)
{
    struct train_expected expected = {0};
    int status = open_plan(t);
    if (status == TOOL_OK && t->rank == 0)
        train_expect(t->o, t->device, t->comm, t->plan, t->model.count, &expected);
    if (status == TOOL_OK)
        status = t->again ? open_again(t, &expected) : open_anew(t, &expected);
    t->placed = status == TOOL_OK;
    if (t->placed) {
        rf_snapshot_destroy(t->snapshot);
        t->snapshot = NULL;
    }
    if (status == TOOL_OK && t->o->save && rf_run_reserve(t->run, t->o->save) < 0)
        status = failed(t);
    return status;
}

static void close_session(struct trainer *t)
{
    rf_run_close(t->run);
    rf_plan_destroy(t->plan);
    t->run = NULL;
    t->plan = NULL;
}

static void trainer_close(struct trainer *t)
{
    report_destroy(t->report);
    close_session(t);
    rf_snapshot_destroy(t->snapshot);
    rf_device_close(t->device);
    model_destroy(&t->model);
    free(t->tokens);
    free(t->targets);
    free(t->eval_tokens);
    free(t->eval_targets);
}

static float rate(const struct trainer *t, int64_t step)
{
    const struct train_options *o = t->o;
    if (strcmp(o->decay, "cosine") == 0)
        return rf_lr_cosine(step, o->warmup, o->steps, (float)t->lr, (float)(t->lr / 10));
    /* The peak of a cosine that never comes down. */
    return rf_lr_cosine(step < o->warmup ? step : o->warmup, o->warmup, INT64_MAX, (float)t->lr, 0);
}

static int evaluate(struct trainer *t)
{
    if (t->eval_micro_batches == 0)
        return TOOL_OK;
    if (rf_run_evaluate(t->run, t->eval_tokens, t->eval_targets, t->eval_micro_batches,
                        &t->held_out) < 0)
        return failed(t);
    t->evaluated = true;
    return TOOL_OK;
}

/* Begins; what was begun before is waited for. */
static int save(struct trainer *t)
{
    const struct rf_save_opts opts = {.keep = (int)t->o->keep};
    if (rf_run_save_begin(t->run, t->o->save, &t->progress, &opts) < 0)
        return failed(t);
    return TOOL_OK;
}

/* Every rank sees the same losses, so all end here. The last checkpoint stays as it was. */
static int check_loss(struct trainer *t, const struct report_step *line)
{
    const bool held_out = isfinite(line->stats.loss);
    if (held_out && (!line->evaluated || isfinite(line->held_out)))
        return TOOL_OK;
    t->diverged = true;
    /* What was begun before this step is sound. */
    if (rf_run_save_wait(t->run) < 0 || rf_barrier(t->comm, NULL) < 0)
        return failed(t);
    if (t->rank != 0)
        return TOOL_ERROR;
    return tool_error(t->command,
                      "the %sloss of step %lld is not a finite number: training has diverged, and "
                      "nothing is saved any more; try a smaller --lr, --warmup, or --clip",
                      held_out ? "held-out " : "", (long long)line->step);
}

static int one_step(struct trainer *t)
{
    const struct train_options *o = t->o;
    const struct rf_policy *p = &o->setup.policy;
    struct report_step line = {.step = t->progress.step + 1};
    uint64_t start = rf_now_ns();
    float lr = rate(t, t->progress.step);
    int status = TOOL_OK;
    if (rf_dataset_samples(t->dataset, t->progress.seed, t->progress.samples, p->batch, p->seq,
                           t->tokens, t->targets) < 0 ||
        rf_run_step(t->run, t->tokens, t->targets, lr, &line.stats) < 0)
        return failed(t);
    t->progress.step++;
    t->progress.samples += p->batch;
    line.samples = t->progress.samples;
    t->loss = line.stats.loss;
    t->tokens_local += line.stats.local_tokens;
    line.lr = lr;
    line.seconds = (double)(rf_now_ns() - start) / 1e9;
    bool last = t->progress.step == o->steps;
    t->stop = last ? 0 : line.stats.stop;
    if (last || (!t->stop && o->eval_every && t->progress.step % o->eval_every == 0)) {
        status = evaluate(t);
        if (status != TOOL_OK)
            return status;
        line.evaluated = t->evaluated;
        line.held_out = t->held_out;
    }
    if (rf_run_save_test(t->run, &line.save) < 0)
        return failed(t);
    report_step(t->report, &line);
    status = check_loss(t, &line);
    if (status == TOOL_OK && o->audit && t->progress.step % o->audit == 0 &&
        rf_run_audit(t->run, &t->progress) < 0)
        status = failed(t);
    if (status == TOOL_OK && !last && !t->stop && o->save_every &&
        t->progress.step % o->save_every == 0)
        return save(t);
    return status;
}

/* Collective; rank 0 writes. */
static int write_trace(struct trainer *t)
{
    char name[TOOL_PATH_BYTES];
    if (t->rank != 0)
        return rf_trace_write(t->o->trace_path, t->comm) < 0 ? failed(t) : TOOL_OK;
    tool_file_begin(t->o->trace_path, name);
    int status = rf_trace_write(name, t->comm) < 0 ? failed(t) : TOOL_OK;
    int ended = tool_file_end(t->command, t->o->trace_path, name, status == TOOL_OK);
    return status == TOOL_OK ? ended : status;
}

/* The collective end: what was measured is read first, because the rest communicates as well. */
static int finish(struct trainer *t)
{
    const struct train_options *o = t->o;
    char sha256[65];
    int status = TOOL_OK;
    struct report_end end = {.step = t->progress.step,
                             .loss = t->loss,
                             .held_out = t->held_out,
                             .evaluated = t->evaluated,
                             .signal = t->stop ? train_stop_signal(t->stop) : 0,
                             .sha256 = sha256,
                             .ranks = t->ranks};
    rf_run_measured(t->run, &end.measured);
    rf_run_planned(t->run, &end.planned);
    if (rf_run_params_sha256(t->run, sha256) < 0)
        return failed(t);
    if (o->save)
        status = save(t);
    if (status == TOOL_OK && rf_run_save_wait(t->run) < 0)
        status = failed(t);
    int64_t *shares = calloc((size_t)t->ranks, sizeof(*shares));
    if (status == TOOL_OK && !shares)
        status = tool_error(t->command, "out of memory");
    if (status == TOOL_OK && rf_all_gather(t->comm, &t->tokens_local, shares, 1, RF_I64, NULL) < 0)
        status = failed(t);
    end.tokens_local = shares;
    if (status == TOOL_OK && o->trace_path)
        status = write_trace(t);
    if (status == TOOL_OK && t->rank == 0)
        status = report_end(t->report, &end);
    /* Where parameters are sharded a forward pass is a collective. */
    const bool together = rf_plan_params_sharded(t->plan);
    if (status == TOOL_OK && (t->rank == 0 || together) && o->sample && !t->stop)
        status = train_sample(t->command, o, t->run, t->rank == 0);
    free(shares);
    /* Rank 0 may still be writing: the others stay until it is done. */
    if (status == TOOL_OK && rf_barrier(t->comm, NULL) < 0)
        status = failed(t);
    return status;
}

/* A failure counts more than being told to end, except where it may come of that: a rank that had
 * not begun to train ends by the signal at once, and the others lose it. */
static int end_status(const struct trainer *t, int status)
{
    const int reason = t->stop ? t->stop : __atomic_load_n(train_stop_flag(), __ATOMIC_RELAXED);
    if (!reason || t->diverged || (t->stop && status != TOOL_OK))
        return status;
    return TOOL_BY_SIGNAL + train_stop_signal(reason);
}

/* From opening a run to its end, unless something fails. */
static int train(struct trainer *t)
{
    int status = open_session(t);
    if (status == TOOL_OK) {
        report_begin(t->report, &t->progress, t->lr, t->ranks);
        train_stop_listen();
    }
    while (status == TOOL_OK && t->progress.step < t->o->steps && !t->stop)
        status = one_step(t);
    return status == TOOL_OK ? finish(t) : status;
}

/* Leaves the run that a rank was lost of, with what this rank had of it, and meets the others. */
static int shrink(struct trainer *t, struct rf_comm *first)
{
    struct rf_comm *left = NULL;
    t->lost = false;
    t->again = true;
    if (t->placed && rf_run_snapshot(t->run, &t->progress, &t->snapshot) < 0)
        tool_library_error(t->command, t->rank); /* others may have what is needed */
    t->placed = false;
    close_session(t);
    const int status = train_shrink(t->command, t->comm, &left);
    if (status != TOOL_OK)
        return status;
    if (t->comm != first)
        (void)rf_comm_close(t->comm); /* says why it failed */
    t->comm = left;
    t->rank = rf_comm_rank(left);
    t->ranks = rf_comm_size(left);
    return train_mesh_left(t->command, &t->mesh, t->o->setup.policy.micro_batches, t->ranks,
                           &t->mesh);
}

int train_rank(struct rf_comm *comm, void *user)
{
    const struct train_job *job = user;
    struct trainer t = {.command = job->command,
                        .o = job->options,
                        .dataset = job->dataset,
                        .lr = job->options->lr,
                        .comm = comm,
                        .rank = rf_comm_rank(comm),
                        .ranks = rf_comm_size(comm),
                        .mesh = job->options->setup.mesh};
    if (t.o->trace_path)
        rf_trace_start();
    int status = open_machine(&t);
    if (status == TOOL_OK)
        status = train(&t);
    while (status != TOOL_OK && t.lost) {
        status = shrink(&t, comm);
        if (status == TOOL_OK)
            status = train(&t);
    }
    if (status != TOOL_OK && t.ranks > 1 && !t.diverged)
        rf_comm_abort(t.comm, "a rank failed"); /* so that nobody waits for this one */
    trainer_close(&t);
    if (t.comm != comm && rf_comm_close(t.comm) < 0 && status == TOOL_OK)
        status = tool_library_error(t.command, t.rank);
    return end_status(&t, status);
}
