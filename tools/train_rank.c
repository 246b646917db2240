/* SPDX-License-Identifier: MIT
 *
 * One rank of `ringforge train`: opens the device and the run, makes the steps, evaluates, saves,
 * and leaves. Every collective call is made by all ranks in the same order.
 */
#include <math.h>
#include <string.h>

#include "trainer.h"

static int open_run(struct trainer *t, uint64_t seed)
{
    struct rf_run_opts opts = {.seed = seed,
                               .record_each_step = t->o->record_each_step,
                               .stop = train_stop_flag(),
                               .disk = t->o->disk,
                               .other_batch = strcmp(t->o->scale_lr, "none") != 0};
    if (rf_run_open(t->device, t->comm, t->plan, &opts, &t->run) < 0)
        return trainer_failed(t);
    return TOOL_OK;
}

static int open_first(struct trainer *t, uint64_t seed)
{
    t->progress = (struct rf_progress){.seed = seed};
    int status = open_run(t, seed);
    if (status == TOOL_OK && t->o->resume && (status = train_sync_load(t)) != TOOL_OK)
        return status;
    t->from.seed = seed;
    if (status == TOOL_OK && t->from.source && from_fill(&t->from, t->run) < 0)
        return trainer_failed(t);
    from_close(&t->from);
    return status == TOOL_OK ? adapter_fill(t->command, &t->o->setup, &t->model, t->run) : status;
}

/* --lr is that of the checkpoint's batch; tokens are what a step averages over. The next checkpoint
 * has the new batch: a repeated command would continue at the old rate. */
static int scale_rate(struct trainer *t)
{
    const struct train_options *o = t->o;
    const int64_t from = t->progress.batch * t->progress.seq, to = o->setup.batch * o->setup.seq;
    if (strcmp(o->scale_lr, "none") == 0)
        return TOOL_OK;
    if (t->progress.batch == o->setup.batch && t->progress.seq == o->setup.seq)
        return tool_error(t->command,
                          "%s has this batch already (%lld tokens a step), and its rate: omit "
                          "--scale-lr",
                          o->resume, (long long)to);
    t->lr = strcmp(o->scale_lr, "linear") == 0 ? rf_lr_scale_linear((float)o->lr, from, to)
                                               : rf_lr_scale_sqrt((float)o->lr, from, to);
    return TOOL_OK;
}

/* A checkpoint continues with its own seed, and not beyond --steps. */
static int check_resumed(struct trainer *t)
{
    const struct train_options *o = t->o;
    int status = TOOL_OK;
    if (t->progress.seed != (uint64_t)o->seed && o->seed_given)
        return tool_error(t->command,
                          "%s was trained with --seed %llu; omit --seed or give the same",
                          o->resume, (unsigned long long)t->progress.seed);
    if (t->progress.seed != (uint64_t)o->seed) {
        train_sync_shut(t);
        rf_run_close(t->run);
        t->run = NULL;
        status = open_first(t, t->progress.seed);
    }
    if (status == TOOL_OK && t->progress.step >= o->steps)
        return tool_error(t->command, "%s is at step %lld already; --steps %lld asks for no more",
                          o->resume, (long long)t->progress.step, (long long)o->steps);
    return status;
}

/* The held-out sequences in micro-batches of the run. The last one is filled up with tokens that
 * have no target, so the loss is that of all held-out tokens, whatever the micro-batches are. */
static int prepare_evaluation(struct trainer *t)
{
    const struct rf_policy *p = &t->o->setup.policy;
    const int64_t rows = p->batch / p->micro_batches;
    int64_t sequences = rf_dataset_held_out_sequences(t->dataset, p->seq);
    if (sequences > t->o->eval_sequences)
        sequences = t->o->eval_sequences;
    t->eval_micro_batches = (sequences + rows - 1) / rows;
    if (t->eval_micro_batches == 0)
        return TOOL_OK; /* nothing is held out: no held-out loss */
    const size_t count = (size_t)(t->eval_micro_batches * rows * p->seq);
    const size_t used = (size_t)(sequences * p->seq);
    t->eval_tokens = calloc(count, sizeof(int32_t));
    t->eval_targets = calloc(count, sizeof(int32_t));
    if (!t->eval_tokens || !t->eval_targets)
        return tool_error(t->command, "out of memory for the held-out text");
    if (rf_dataset_held_out(t->dataset, (struct rf_sample_range){0, sequences, p->seq},
                            t->eval_tokens, t->eval_targets) < 0)
        return trainer_failed(t);
    bool any = false;
    for (size_t i = 0; i < used; i++)
        any = any || t->eval_targets[i] >= 0;
    for (size_t i = used; i < count; i++)
        t->eval_targets[i] = RF_TARGET_NONE;
    t->eval_micro_batches = any ? t->eval_micro_batches : 0;
    return TOOL_OK;
}

/* Resources that do not depend on the ranks. */
static int open_machine(struct trainer *t)
{
    const struct train_options *o = t->o;
    char select[16];
    struct rf_device_opts device_opts = {.profile = o->trace_path != NULL,
                                         .profile_launches = o->trace_kernels};
    int status = model_create(t->command, &o->setup, &t->model);
    if (status == TOOL_OK && o->setup.from && !o->resume && !o->join)
        status = from_check(t->command, &o->setup, &t->model, &t->from);
    if (status == TOOL_OK)
        status = adapter_check(t->command, &o->setup, &t->model);
    if (status == TOOL_OK && o->export.dir && setup_adapter(&o->setup))
        status = adapter_check_export(t->command, &o->setup, &t->model, true);
    if (status == TOOL_OK && o->export_adapter)
        status = adapter_check_export(t->command, &o->setup, &t->model, false);
    if (status != TOOL_OK)
        return status;
    return rf_device_open(tool_rank_device(o->device, select), &device_opts, &t->device) < 0
               ? trainer_failed(t)
               : TOOL_OK;
}

static int open_batch(struct trainer *t)
{
    const struct rf_policy *p = &t->o->setup.policy;
    t->tokens = calloc((size_t)(p->batch * p->seq), sizeof(int32_t));
    t->targets = calloc((size_t)(p->batch * p->seq), sizeof(int32_t));
    if (!t->tokens || !t->targets)
        return tool_error(t->command, "out of memory for a batch");
    return prepare_evaluation(t);
}

/* At the start all ranks build theirs, or none continues: what is wrong with it is mostly the same.
 */
static int open_plan(struct trainer *t)
{
    int status = TOOL_OK;
    if (!t->again)
        tool_errors_hold();
    if (trainer_build_plan(t, &t->mesh, &t->plan) < 0) {
        trainer_failed(t);
        status = TOOL_USAGE;
    }
    return t->again ? status : tool_ranks_settle(t->command, t->comm, status);
}

static int open_anew(struct trainer *t, const struct train_expected *expected)
{
    const struct train_options *o = t->o;
    int status = TOOL_OK;
    if (t->rank == 0 && t->number == 0)
        status = report_open(t->command, o, expected, false, &t->report);
    if (status != TOOL_OK)
        return status;
    /* A failure here is the same on all ranks. */
    tool_errors_hold();
    status = open_first(t, (uint64_t)o->seed);
    if (status == TOOL_OK && o->resume)
        status = check_resumed(t);
    if (status == TOOL_OK && o->resume)
        status = scale_rate(t);
    if (status != TOOL_OK && !t->lost)
        return tool_ranks_settle(t->command, t->comm, status);
    tool_errors_release(t->command);
    return status == TOOL_OK ? train_sync_open(t) : status;
}

static int no_state(const struct trainer *t)
{
    static const char none[] = "the ranks that are left have no state to continue from";
    const struct train_options *o = t->o;
    if (!o->save)
        return tool_error(t->command, "%s; next time use --save DIR --save-every N", none);
    return tool_error(t->command, "%s: %s has no complete checkpoint yet; next time use %s", none,
                      o->save, o->save_every ? "a smaller --save-every" : "--save-every N, too");
}

/* The state of the previous run: from the surviving ranks, or, if state was lost with a rank, from
 * a checkpoint. Collective: all ranks take it from the same source. */
static int take_state(struct trainer *t, const char **source)
{
    const char *const folders[] = {t->o->save, t->o->resume};
    *source = "memory";
    if (rf_run_restore(t->run, t->snapshot, &t->progress) == 0)
        return TOOL_OK;
    if (rf_last_error()->status != RF_ECORRUPT)
        return trainer_failed(t);
    for (int k = 0; k < 2; k++) {
        if (!folders[k])
            continue;
        tool_library_error(t->command, t->rank);
        *source = folders[k];
        if (rf_run_load(t->run, folders[k], &t->progress) == 0)
            return TOOL_OK;
        if (train_lost_a_rank())
            return trainer_failed(t);
    }
    trainer_failed(t);
    return no_state(t);
}

static int open_again(struct trainer *t, const struct train_expected *expected)
{
    const char *source = NULL;
    int status = TOOL_OK;
    if (t->rank == 0 && !t->report && !t->sync)
        status = report_open(t->command, t->o, expected, true, &t->report);
    if (status == TOOL_OK)
        status = open_run(t, t->progress.seed);
    if (status == TOOL_OK && t->sync) {
        status = train_sync_open(t);
        return status == TOOL_OK ? train_sync_arrive(t) : status;
    }
    if (status == TOOL_OK)
        status = take_state(t, &source);
    if (status == TOOL_OK)
        report_resized(t->report, expected, &t->progress, &t->mesh, t->joined, source);
    return status;
}

/* A running job continues without newcomers rather than not at all. */
static int open_join_listener(struct trainer *t)
{
    int status = TOOL_OK;
    if (!t->o->accept || t->rank != 0 || t->number != 0)
        return TOOL_OK;
    if (!t->join_listener)
        status = train_join_listener_open(t->command, t->o, t->comm, &t->join_listener);
    train_join_listener_set_status(t->join_listener, t->o);
    return t->again ? TOOL_OK : status;
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
    if (status == TOOL_OK && t->o->save)
        status = train_sync_reserve(t);
    if (status == TOOL_OK)
        t->newcomer = false; /* for the next ones it is one of those that have the state */
    return status == TOOL_OK ? open_join_listener(t) : status;
}

static void trainer_close(struct trainer *t)
{
    rf_join_listener_close(t->join_listener, "the job has ended");
    report_destroy(t->report);
    train_sync_close(t);
    trainer_close_session(t);
    rf_snapshot_destroy(t->snapshot);
    from_close(&t->from);
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
        return rf_lr_cosine(step, o->warmup, o->rate_end, (float)t->lr, (float)(t->lr / 10));
    /* The peak of a cosine that never comes down. */
    return rf_lr_cosine(step < o->warmup ? step : o->warmup, o->warmup, INT64_MAX, (float)t->lr, 0);
}

static int evaluate(struct trainer *t)
{
    if (t->eval_micro_batches == 0)
        return TOOL_OK;
    if (rf_run_evaluate(t->run, t->eval_tokens, t->eval_targets, t->eval_micro_batches,
                        &t->held_out) < 0)
        return trainer_failed(t);
    t->evaluated = true;
    return TOOL_OK;
}

/* Every rank reaches this, because all see the same numbers. The last checkpoint stays unchanged.
 */
static int end_diverged(struct trainer *t)
{
    t->diverged = true;
    /* The save begun before is valid; of workers only if the others have it, too. */
    if (!t->sync && rf_run_save_wait(t->run) < 0)
        return trainer_failed(t);
    return rf_barrier(t->comm, NULL) < 0 ? trainer_failed(t) : TOOL_OK;
}

static int check_loss(struct trainer *t, const struct report_step *line)
{
    const bool held_out = isfinite(line->stats.loss);
    if (held_out && (!line->evaluated || isfinite(line->held_out)))
        return TOOL_OK;
    const int status = end_diverged(t);
    if (status != TOOL_OK || t->rank != 0)
        return status == TOOL_OK ? TOOL_ERROR : status;
    return tool_error(t->command,
                      "the %sloss of step %lld is not a finite number: training has diverged, and "
                      "nothing is saved any more; try a smaller --lr, --warmup, or --clip",
                      held_out ? "held-out " : "", (long long)line->step);
}

/* A training without a single update has failed, unless it was told to end early. */
static int check_updates(struct trainer *t)
{
    const bool learned = t->learned > 0;
    if (t->stop || t->made == 0 || (learned && t->skipped < t->made))
        return TOOL_OK;
    const int status = end_diverged(t);
    if (status != TOOL_OK || t->rank != 0)
        return status == TOOL_OK ? TOOL_ERROR : status;
    if (!learned)
        return tool_error(t->command,
                          "none of the %lld steps had a token to learn, so there is no loss, and "
                          "nothing is saved; use a larger --seq, or data of which more than "
                          "prompts is learned",
                          (long long)t->made);
    return tool_error(t->command,
                      "none of the %lld steps has updated the model, because the gradients of each "
                      "were not finite, and nothing is saved; use --dtype bf16 or f32, a smaller "
                      "--loss-scale, or f32 for --reduce-dtype",
                      (long long)t->made);
}

static bool every(int64_t steps, int64_t step)
{
    return steps && step % steps == 0;
}

/* A step has ended, and its parameters are the run's newest; if they are needed now, no other step
 * is in progress. */
static int end_step(struct trainer *t, struct report_step *line)
{
    const struct train_options *o = t->o;
    int status = TOOL_OK;
    line->lr = rate(t, t->progress.step);
    line->step = ++t->progress.step;
    line->samples = t->progress.samples += o->setup.policy.batch * t->parts;
    t->loss = line->stats.tokens > 0 ? line->stats.loss : t->loss;
    t->learned += line->stats.tokens;
    t->tokens_local += line->stats.local_tokens;
    t->made++;
    t->skipped += line->stats.skipped;
    bool last = t->progress.step == o->steps || t->ended;
    t->stop = last ? 0 : line->stats.stop > t->stop ? line->stats.stop : t->stop;
    if (t->sync && last)
        status = train_sync_end(t);
    if (status == TOOL_OK && (last || (!t->stop && every(o->eval_every, t->progress.step))))
        status = evaluate(t);
    if (status != TOOL_OK)
        return status;
    if (last || (!t->stop && every(o->eval_every, t->progress.step))) {
        line->evaluated = t->evaluated;
        line->held_out = t->held_out;
    }
    status = train_sync_save_test(t, &line->save);
    if (status != TOOL_OK)
        return status;
    report_step(t->report, line);
    status = check_loss(t, line);
    if (status == TOOL_OK)
        status = train_disk_step(t, &line->stats);
    if (status == TOOL_OK && every(o->audit, t->progress.step) &&
        rf_run_audit(t->run, &t->progress) < 0)
        status = trainer_failed(t);
    if (last || t->stop)
        return status;
    const bool saves = every(o->save_every, t->progress.step);
    if (status == TOOL_OK && saves)
        status = train_sync_save(t);
    if (status == TOOL_OK && saves && o->accept && !t->sync)
        status = trainer_take_newcomers(t);
    return status == TOOL_OK && t->sync ? train_sync_grow(t) : status;
}

/* Whether the step in progress must end before another begins. */
static bool is_awaited(const struct trainer *t)
{
    const struct train_options *o = t->o;
    const int64_t step = t->progress.step + 1;
    return t->under_way && (t->stop || step == o->steps || every(o->eval_every, step) ||
                            every(o->save_every, step) || every(o->audit, step));
}

static int drain(struct trainer *t)
{
    struct report_step line = {0};
    uint64_t start = rf_now_ns();
    if (rf_run_drain(t->run, &line.stats) < 0)
        return trainer_failed(t);
    t->under_way = false;
    line.seconds = (double)(rf_now_ns() - start) / 1e9;
    return end_step(t, &line);
}

static int one_step(struct trainer *t)
{
    const struct rf_policy *p = &t->o->setup.policy;
    struct report_step line = {0};
    const int64_t under_way = t->under_way;
    uint64_t start = rf_now_ns();
    float lr = rate(t, t->progress.step + under_way);
    int status = TOOL_OK;
    const struct rf_sample_range range = {t->progress.samples + (under_way + t->worker) * p->batch,
                                          p->batch, p->seq};
    if (rf_dataset_samples(t->dataset, t->progress.seed, range, t->tokens, t->targets) < 0 ||
        rf_run_step(t->run, t->tokens, t->targets, train_store_on(t->o) ? 0 : lr, &line.stats) < 0)
        return trainer_failed(t);
    t->under_way = line.stats.version_lag > 0;
    if (t->sync)
        status = train_sync_step(t, lr, &line.stats);
    line.seconds = (double)(rf_now_ns() - start) / 1e9;
    if (status == TOOL_OK && line.stats.of_step >= 0)
        status = end_step(t, &line);
    return status == TOOL_OK && is_awaited(t) ? drain(t) : status;
}

/* Collective; rank 0 writes. */
static int write_trace(struct trainer *t)
{
    char name[TOOL_PATH_BYTES];
    if (t->rank != 0)
        return rf_trace_write(t->o->trace_path, t->comm) < 0 ? trainer_failed(t) : TOOL_OK;
    tool_file_begin(t->o->trace_path, name);
    int status = rf_trace_write(name, t->comm) < 0 ? trainer_failed(t) : TOOL_OK;
    int ended = tool_file_end(t->command, t->o->trace_path, name, status == TOOL_OK);
    return status == TOOL_OK ? ended : status;
}

/* The collective end: measurements are read first, because the rest communicates as well. */
static int finish(struct trainer *t)
{
    const struct train_options *o = t->o;
    char sha256[65];
    int status = check_updates(t);
    if (status != TOOL_OK)
        return status;
    struct report_end end = {.step = t->progress.step,
                             .loss = t->loss,
                             .held_out = t->held_out,
                             .evaluated = t->evaluated,
                             .signal = t->stop ? train_stop_signal(t->stop) : 0,
                             .sha256 = sha256,
                             .ranks = t->ranks};
    rf_run_measured(t->run, &end.measured);
    rf_run_planned(t->run, &end.planned);
    if (rf_plan_peak(t->plan, end.held) < 0)
        return trainer_failed(t);
    if (rf_run_params_sha256(t->run, sha256) < 0)
        return trainer_failed(t);
    if (o->save)
        status = train_sync_save_last(t);
    if (status == TOOL_OK && o->export.dir && !t->stop && t->number == 0)
        status = setup_adapter(&o->setup)
                     ? adapter_export_merged(t->command, &o->setup, &o->export, &t->model, t->run,
                                             t->rank)
                     : export_run(t->command, &o->setup, &o->export, &t->model, t->run, t->rank,
                                  rf_plan_params_sharded(t->plan));
    if (status == TOOL_OK && o->export_adapter && !t->stop && t->number == 0)
        status =
            adapter_export(t->command, &o->setup, o->export_adapter, &t->model, t->run, t->rank);
    if (status == TOOL_OK && t->sync && t->number == 0)
        status = train_sync_report(t, &end.store);
    int64_t *shares = calloc((size_t)t->ranks, sizeof(*shares));
    if (status == TOOL_OK && !shares)
        status = tool_error(t->command, "out of memory");
    if (status == TOOL_OK && rf_all_gather(t->comm, &t->tokens_local, shares, 1, RF_I64, NULL) < 0)
        status = trainer_failed(t);
    end.tokens_local = shares;
    if (status == TOOL_OK && o->trace_path && t->number == 0)
        status = write_trace(t);
    if (status == TOOL_OK && t->rank == 0 && t->number == 0)
        status = report_end(t->report, &end);
    /* If parameters are sharded a forward pass is a collective. */
    const bool together = rf_plan_params_sharded(t->plan);
    if (status == TOOL_OK && (t->rank == 0 || together) && o->sample && !t->stop && t->number == 0)
        status = train_sample(t->command, o, t->run, t->rank == 0);
    free(shares);
    /* Rank 0 may still be writing: the others stay until it is done. */
    if (status == TOOL_OK && rf_barrier(t->comm, NULL) < 0)
        status = trainer_failed(t);
    return status == TOOL_OK && t->sync ? train_sync_leave(t) : status;
}

/* A failure takes precedence over a request to end, unless it may be a consequence of it: a rank
 * that had not begun to train ends by the signal at once, and the others lose it. */
static int end_status(const struct trainer *t, int status)
{
    const int reason = t->stop ? t->stop : __atomic_load_n(train_stop_flag(), __ATOMIC_RELAXED);
    if (!reason || t->diverged || (t->stop && status != TOOL_OK))
        return status;
    return TOOL_BY_SIGNAL + train_stop_signal(reason);
}

/* From opening a run to its end, unless an error occurs. */
static int train(struct trainer *t)
{
    int status = open_session(t);
    if (status == TOOL_OK) {
        if (t->rank == 0 && t->number == 0 && !t->again)
            train_settings_print(t->o);
        report_begin(t->report, t->dataset, &t->progress, t->lr, t->ranks);
        train_stop_listen();
    }
    while (status == TOOL_OK && t->progress.step < t->o->steps && !t->stop && !t->grown &&
           !t->ended)
        status = one_step(t);
    return status == TOOL_OK && !t->grown ? finish(t) : status;
}

int train_rank(struct rf_comm *comm, void *user)
{
    struct train_job *job = user;
    struct trainer t = {.command = job->command,
                        .job = job,
                        .o = job->options,
                        .dataset = job->dataset,
                        .lr = job->options->lr,
                        .first = comm,
                        .mesh = job->options->setup.mesh};
    if (comm)
        trainer_be_in(&t, comm);
    if (t.o->trace_path)
        rf_trace_start();
    int status = comm && t.ranks > 1 && t.o->resume ? trainer_share_settings(&t) : TOOL_OK;
    t.mesh = t.o->setup.mesh;
    t.lr = t.o->lr;
    if (comm && status == TOOL_OK)
        tool_errors_hold();
    if (status == TOOL_OK)
        status = open_machine(&t);
    if (comm)
        status = tool_ranks_settle(t.command, comm, status);
    if (status == TOOL_OK && !comm)
        status = trainer_join(&t, job->options);
    if (status == TOOL_OK)
        status = open_batch(&t);
    if (status == TOOL_OK)
        status = train_sync_place(&t);
    t.parts = t.parts ? t.parts : t.o->workers;
    if (status == TOOL_OK && !train_sync_serves(&t))
        status = trainer_place(&t);
    if (status == TOOL_OK)
        status = train_sync_serves(&t) ? train_sync_serve(&t) : train(&t);
    while ((status == TOOL_OK && t.grown) || (status != TOOL_OK && t.lost)) {
        status = status == TOOL_OK ? trainer_move(&t) : trainer_shrink(&t);
        if (status == TOOL_OK)
            status = train(&t);
    }
    if (status != TOOL_OK && t.ranks > 1 && !t.diverged)
        rf_comm_abort(t.comm, "a rank failed"); /* so that nobody waits for this one */
    if (status != TOOL_OK && t.sync)
        train_sync_abort(&t, "a worker failed");
    trainer_close(&t);
    status = trainer_close_comms(&t, end_status(&t, status));
    rf_device_close(t.device); /* communicators hold the movers of its tensors */
    return status;
}
