/* SPDX-License-Identifier: MIT
 *
 * Rank 0's reports of `ringforge train`: a live line on a terminal or plain lines in a pipe, the
 * log of JSON lines, and the plot of the loss.
 */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "plan_peak.h"
#include "train.h"

struct report {
    const struct tool_command *command;
    const struct train_options *o;
    FILE *log;
    bool log_begun;
    bool terminal;
    uint64_t last_line_ns;
    double seconds; /* of one step, smoothed */
    struct train_expected expected;
    int64_t steps;
    /* Sums; if possible without the first step (compiles kernels). disk: waiting for it, using it
     */
    double step_s, exposed_s, disk_exposed_s, disk_s;
    double held_out;
    bool evaluated;
    double *x[2], *y[2]; /* loss, held-out loss */
    int count[2], capacity[2];
};

/* An earlier log stays until there is a line to write: log_line truncates it. */
static FILE *open_log(const char *path, bool go_on)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_NOCTTY | O_CLOEXEC, 0666);
    FILE *file = fd >= 0 ? fdopen(fd, "w") : NULL;
    if (fd >= 0 && !file)
        close(fd);
    if (file && go_on)
        (void)lseek(fd, 0, SEEK_END); /* no effect unless it is a regular file */
    return file;
}

int report_open(const struct tool_command *command, const struct train_options *options,
                const struct train_expected *expected, bool go_on, struct report **out)
{
    struct report *r = calloc(1, sizeof(*r));
    if (!r)
        return tool_error(command, "out of memory");
    r->command = command;
    r->o = options;
    r->expected = *expected;
    r->terminal = isatty(STDOUT_FILENO);
    if (options->log_path) {
        r->log = open_log(options->log_path, go_on);
        r->log_begun = go_on;
        if (!r->log) {
            int error = errno;
            free(r);
            return tool_error(command, "cannot write %s: %s", options->log_path, strerror(error));
        }
    }
    *out = r;
    return TOOL_OK;
}

void report_destroy(struct report *r)
{
    if (!r)
        return;
    if (r->terminal && r->seconds > 0)
        printf("\n");
    if (r->log)
        fclose(r->log);
    for (int i = 0; i < 2; i++) {
        free(r->x[i]);
        free(r->y[i]);
    }
    free(r);
}

/* With as few digits as reproduce the same f32. */
static void rate_text(double lr, char text[32])
{
    for (int digits = 6; digits <= 9; digits++) {
        snprintf(text, 32, "%.*g", digits, lr);
        if (strtof(text, NULL) == (float)lr)
            return;
    }
}

static void say_documents(const struct rf_dataset *dataset, int64_t seq)
{
    const int64_t documents = rf_dataset_documents(dataset);
    if (documents == 0)
        return;
    printf("data: %lld documents in %lld rows of %lld tokens, %lld of them cut\n",
           (long long)documents, (long long)rf_dataset_rows(dataset), (long long)seq,
           (long long)rf_dataset_cut(dataset, seq));
    if (rf_dataset_left_out(dataset) > 0)
        printf("data: %lld more documents were left out, of which all that is to be learned lies "
               "behind the end of a row\n",
               (long long)rf_dataset_left_out(dataset));
    if (rf_dataset_chat(dataset))
        printf("data: conversations as %s writes them\n", rf_dataset_chat(dataset));
}

void report_begin(struct report *r, const struct rf_dataset *dataset,
                  const struct rf_progress *progress, double lr, int ranks)
{
    if (!r)
        return;
    const struct rf_policy *p = &r->o->setup.policy;
    say_documents(dataset, p->seq);
    const int64_t each = p->micro_batches / ranks;
    /* In tree order the parts may be uneven even if even ones exist; round-robin parts are not. */
    const bool even = each * ranks == p->micro_batches &&
                      (each == 1 || p->order == RF_ORDER_RING || p->zero >= 2);
    printf("effective batch: %lld tokens a step = %lld sequences of %lld tokens, from ",
           (long long)(p->batch * p->seq), (long long)p->batch, (long long)p->seq);
    if (even || ranks == 1)
        printf("%d ranks x %lld micro-batches x %lld sequences\n", ranks, (long long)each,
               (long long)(p->batch / p->micro_batches));
    else
        printf("%lld micro-batches x %lld sequences, shared out over %d ranks\n",
               (long long)p->micro_batches, (long long)(p->batch / p->micro_batches), ranks);
    if (p->pipeline == RF_PIPELINE_2BW)
        printf("pipeline 2bw: gradients of every step are those of the weights of 1 update before "
               "(version lag 1)\n");
    if (strcmp(r->o->scale_lr, "none") != 0) {
        char text[32];
        rate_text(lr, text);
        printf("learning rate: %g for the checkpoint's batch of %lld sequences of %lld tokens, "
               "%s for this one (%s), which later checkpoints keep\n",
               r->o->lr, (long long)progress->batch, (long long)progress->seq, text,
               r->o->scale_lr);
    }
    fflush(stdout);
}

static void remember(struct report *r, int series, double x, double y)
{
    if (!r->o->plot_path || !isfinite(y))
        return;
    if (r->count[series] == r->capacity[series]) {
        int capacity = r->capacity[series] ? 2 * r->capacity[series] : 256;
        double *xs = realloc(r->x[series], (size_t)capacity * sizeof(double));
        r->x[series] = xs ? xs : r->x[series];
        double *ys = realloc(r->y[series], (size_t)capacity * sizeof(double));
        r->y[series] = ys ? ys : r->y[series];
        if (!xs || !ys)
            return; /* a plot with fewer points */
        r->capacity[series] = capacity;
    }
    r->x[series][r->count[series]] = x;
    r->y[series][r->count[series]++] = y;
}

static void log_line(struct report *r, cJSON *json)
{
    char *text = cJSON_PrintUnformatted(json);
    if (!r->log_begun) /* no effect unless it is a regular file */
        r->log_begun = ftruncate(fileno(r->log), 0) == 0 || errno == EINVAL;
    if (text)
        fprintf(r->log, "%s\n", text);
    fflush(r->log); /* a run that is killed leaves its log; a failed write shows in ferror */
    cJSON_free(text);
    cJSON_Delete(json);
}

/* JSON has no infinity and no NaN. */
static void add_real(cJSON *json, const char *name, double value)
{
    if (isfinite(value))
        cJSON_AddNumberToObject(json, name, value);
    else
        cJSON_AddNullToObject(json, name);
}

/* Model FLOPs utilization: the part of a device's arithmetic that the model needs. */
static double utilization(const struct report *r, double seconds)
{
    const struct train_expected *e = &r->expected;
    return e->peak > 0 && seconds > 0 ? e->flops / seconds / e->peak : 0;
}

/* The times of a step, in seconds. */
struct step_times {
    double step, exposed, disk_exposed, disk;
};

/* What a step is bound by: the network or the disk, if the host waited longest for it. The rest of
 * the time is divided as predicted; without a prediction it is not divided. */
static const char *bound_of(const struct report *r, const struct step_times *t)
{
    const double *path_s = r->expected.path_s;
    const bool disk = t->disk_exposed > t->exposed;
    const double waited = t->exposed + t->disk_exposed;
    double all = 0, most = disk ? t->disk_exposed : t->exposed;
    enum rf_bound bound = disk ? RF_BOUND_DISK : RF_BOUND_NETWORK;
    for (int k = 0; k < RF_BOUND_COUNT; k++)
        all += k == RF_BOUND_NETWORK || k == RF_BOUND_DISK ? 0 : path_s[k];
    if (!(all > 0))
        return 2 * most > t->step ? rf_bound_name(bound) : "computing";
    for (int k = 0; k < RF_BOUND_COUNT; k++) {
        const double spent = (t->step - waited) * path_s[k] / all;
        if (k == RF_BOUND_NETWORK || k == RF_BOUND_DISK || spent <= most)
            continue;
        most = spent;
        bound = (enum rf_bound)k;
    }
    return rf_bound_name(bound);
}

static struct step_times times_of(const struct rf_step_stats *s)
{
    return (struct step_times){(double)s->step_ns * 1e-9, (double)s->exposed_comm_ns * 1e-9,
                               (double)s->exposed_disk_ns * 1e-9, (double)s->disk_ns * 1e-9};
}

/* Nothing without a disk. */
static void add_disk(cJSON *json, const struct report *r, const struct step_times *t)
{
    if (!r->o->disk)
        return;
    add_real(json, "exposed_disk_us", t->disk_exposed * 1e6);
    add_real(json, "disk_us", t->disk * 1e6);
}

static void time_step(struct report *r, const struct rf_step_stats *stats)
{
    const struct step_times t = times_of(stats);
    if (r->steps++ == 1)
        r->step_s = r->exposed_s = r->disk_exposed_s = r->disk_s = 0;
    r->step_s += t.step;
    r->exposed_s += t.exposed;
    r->disk_exposed_s += t.disk_exposed;
    r->disk_s += t.disk;
}

/* The sign of a NaN is meaningless. */
static double shown(double value)
{
    return isnan(value) ? (double)NAN : value;
}

/* A step without a target has no loss: nan, and null in the log. */
static double loss_of(const struct rf_step_stats *stats)
{
    return stats->tokens > 0 ? stats->loss : (double)NAN;
}

static void print_line(struct report *r, const struct report_step *s)
{
    bool last = s->step == r->o->steps;
    uint64_t now = rf_now_ns();
    /* On a terminal ten lines a second; in a pipe about twenty in all, and one every ten seconds.
     */
    uint64_t pause = r->terminal ? 100000000ull : 10000000000ull;
    int64_t every = r->o->steps / 20 > 0 ? r->o->steps / 20 : 1;
    bool due = now - r->last_line_ns >= pause || (!r->terminal && s->step % every == 0);
    if (!last && !s->evaluated && !due && isfinite(s->stats.loss))
        return;
    r->last_line_ns = now;
    char left[24], held_out[32] = "", used[32] = "", saving[32] = "";
    if (utilization(r, r->seconds) > 0)
        snprintf(used, sizeof(used), "  %.1f %% of the peak", 100 * utilization(r, r->seconds));
    tool_seconds_text(r->seconds * (double)(r->o->steps - s->step), left, sizeof(left));
    if (r->evaluated)
        snprintf(held_out, sizeof(held_out), "  held-out %.4f", shown(r->held_out));
    if (!s->save.ended)
        snprintf(saving, sizeof(saving), "  saving %.0f%%",
                 s->save.bytes ? 100.0 * (double)s->save.written / (double)s->save.bytes : 0.0);
    printf("%sstep %lld/%lld  loss %.4f%s  %.0f tokens/s%s  %s left%s%s%s", r->terminal ? "\r" : "",
           (long long)s->step, (long long)r->o->steps, shown(loss_of(&s->stats)), held_out,
           (double)s->stats.tokens / r->seconds, used, left, s->stats.skipped ? "  (skipped)" : "",
           saving, r->terminal ? "\033[K" : "\n");
    fflush(stdout);
}

void report_step(struct report *r, const struct report_step *s)
{
    if (!r)
        return;
    /* The first step compiles kernels: it says nothing about the others. */
    r->seconds = r->seconds > 0 && s->seconds > 0.1 * r->seconds
                     ? 0.9 * r->seconds + 0.1 * s->seconds
                     : s->seconds;
    if (s->evaluated) {
        r->evaluated = true;
        r->held_out = s->held_out;
        remember(r, 1, (double)s->step, s->held_out);
    }
    remember(r, 0, (double)s->step, loss_of(&s->stats));
    time_step(r, &s->stats);
    print_line(r, s);
    if (!r->log)
        return;
    cJSON *json = tool_json_new("step=%g samples=%g", (double)s->step, (double)s->samples);
    add_real(json, "loss", loss_of(&s->stats));
    cJSON_AddNumberToObject(json, "tokens", (double)s->stats.tokens);
    add_real(json, "tokens_per_s", (double)s->stats.tokens / s->seconds);
    if (r->expected.flops > 0)
        add_real(json, "flops_per_s", r->expected.flops / s->seconds);
    if (utilization(r, s->seconds) > 0)
        add_real(json, "mfu", utilization(r, s->seconds));
    add_real(json, "grad_norm", s->stats.grad_norm);
    add_real(json, "lr", s->lr);
    cJSON_AddBoolToObject(json, "skipped", s->stats.skipped);
    if (s->stats.loss_scale > 0)
        add_real(json, "loss_scale", s->stats.loss_scale);
    if (s->stats.version_lag > 0)
        cJSON_AddNumberToObject(json, "version_lag", s->stats.version_lag);
    const struct step_times times = times_of(&s->stats);
    tool_json_put(json, "sent=%g step_us=%g exposed_comm_us=%g bound=%s",
                  (double)s->stats.sent_bytes, (double)s->stats.step_ns / 1e3,
                  (double)s->stats.exposed_comm_ns / 1e3, bound_of(r, &times));
    add_disk(json, r, &times);
    if (r->expected.bound) {
        add_real(json, "predicted_us", r->expected.step_s * 1e6);
        cJSON_AddStringToObject(json, "predicted_bound", r->expected.bound);
    }
    tool_json_put(json, "record_us=%g replayed=%d", (double)s->stats.record_ns / 1e3,
                  s->stats.replayed);
    if (s->evaluated)
        add_real(json, "held_out_loss", s->held_out);
    log_line(r, json);
}

void report_resized(struct report *r, const struct train_expected *expected,
                    const struct rf_progress *progress, const struct rf_mesh *mesh, int joined,
                    const char *source)
{
    if (!r)
        return;
    char shape[64];
    const int ranks = mesh->dp * mesh->tp * mesh->cp * mesh->pp;
    r->expected = *expected;
    snprintf(shape, sizeof(shape), "dp=%d,tp=%d,pp=%d", mesh->dp, mesh->tp, mesh->pp);
    if (mesh->cp > 1)
        snprintf(shape + strlen(shape), sizeof(shape) - strlen(shape), ",cp=%d", mesh->cp);
    if (mesh->shard)
        snprintf(shape + strlen(shape), sizeof(shape) - strlen(shape), ",shard=%d", mesh->shard);
    char newly[40] = "";
    if (joined > 0)
        snprintf(newly, sizeof(newly), ", %d of them new", joined);
    printf("%sgoing on from step %lld on %d rank%s (%s)%s, from %s\n",
           r->terminal && r->seconds > 0 ? "\n" : "", (long long)progress->step, ranks,
           ranks == 1 ? "" : "s", shape, newly, source);
    fflush(stdout);
    r->seconds = 0;
    if (!r->log)
        return;
    cJSON *json =
        tool_json_new("elastic=%hhd from_step=%g ranks=%d", true, (double)progress->step, ranks);
    if (joined > 0)
        cJSON_AddNumberToObject(json, "joined", joined);
    tool_json_put(json, "mesh=%s source=%s", shape, source);
    log_line(r, json);
}

void report_workers(struct report *r, int64_t step, int lost, int joined, int now)
{
    const int count = lost ? lost : joined;
    printf("%s%d worker%s %s behind step %lld; %d continue%s\n",
           r->terminal && r->seconds > 0 ? "\n" : "", count, count == 1 ? "" : "s",
           !lost        ? "joined"
           : count == 1 ? "was lost"
                        : "were lost",
           (long long)step, now, now == 1 ? "s" : "");
    fflush(stdout);
    if (r->log)
        log_line(r, tool_json_new("elastic=%hhd from_step=%g workers=%d lost=%d joined=%d", true,
                                  (double)step, now, lost, joined));
}

static void add_bytes(cJSON *json, const char *name, const struct rf_bytes *b)
{
    cJSON *object = cJSON_AddObjectToObject(json, name);
    tool_json_put(
        object, "params=%g grads=%g optimizer=%g activations=%g comm=%g scratch=%g host=%g sent=%g",
        (double)b->params, (double)b->grads, (double)b->optimizer, (double)b->activations,
        (double)b->comm, (double)b->scratch, (double)b->host, (double)b->sent);
    if (b->disk)
        tool_json_put(object, "disk=%g disk_moved=%g", (double)b->disk, (double)b->disk_moved);
}

/* The mean of the measured steps, and what was predicted. */
static struct step_times mean_step(const struct report *r)
{
    const double count = (double)(r->steps > 1 ? r->steps - 1 : 1);
    return (struct step_times){r->step_s / count, r->exposed_s / count, r->disk_exposed_s / count,
                               r->disk_s / count};
}

static void add_step(cJSON *json, const struct report *r)
{
    const struct step_times mean = mean_step(r);
    cJSON *step = cJSON_AddObjectToObject(json, "step");
    add_real(step, "step_us", mean.step * 1e6);
    add_real(step, "exposed_comm_us", mean.exposed * 1e6);
    add_disk(step, r, &mean);
    cJSON_AddStringToObject(step, "bound", bound_of(r, &mean));
    if (utilization(r, mean.step) > 0)
        add_real(step, "mfu", utilization(r, mean.step));
    if (r->expected.bound) {
        add_real(step, "predicted_us", r->expected.step_s * 1e6);
        cJSON_AddStringToObject(step, "predicted_bound", r->expected.bound);
    }
}

static void print_step(const struct report *r, const struct rf_bytes *measured)
{
    const struct step_times mean = mean_step(r);
    char used[48] = "", text[2][24];
    if (r->steps == 0)
        return;
    if (utilization(r, mean.step) > 0)
        snprintf(used, sizeof(used), ", model FLOPs utilization %.1f %%",
                 100 * utilization(r, mean.step));
    printf("a step: %.4g ms, of it exposed communication %.4g ms%s; bound by %s\n", 1e3 * mean.step,
           1e3 * mean.exposed, used, bound_of(r, &mean));
    if (!r->o->disk)
        return;
    const uint64_t moved = measured->disk_moved / (uint64_t)r->steps;
    printf("the disk: %s a step in %.4g ms (%s/s), of which the host waited for %.4g ms\n",
           tool_bytes_text(moved, text[0], sizeof(text[0])), 1e3 * mean.disk,
           tool_bytes_text(mean.disk > 0 ? (uint64_t)((double)moved / mean.disk) : 0, text[1],
                           sizeof(text[1])),
           1e3 * mean.disk_exposed);
}

static void log_summary(struct report *r, const struct report_end *end)
{
    cJSON *json = tool_json_new("summary=%hhd params_sha256=%s steps=%g batch=%g seq=%g", true,
                                end->sha256, (double)end->step, (double)r->o->setup.policy.batch,
                                (double)r->o->setup.policy.seq);
    add_real(json, "loss", end->loss);
    if (end->evaluated)
        add_real(json, "held_out_loss", end->held_out);
    if (end->signal)
        cJSON_AddNumberToObject(json, "signal", end->signal);
    add_bytes(json, "planned", &end->planned);
    add_bytes(json, "measured", &end->measured);
    plan_peak_json(end->held, &r->o->setup, json);
    add_step(json, r);
    cJSON *shares = cJSON_AddArrayToObject(json, "tokens_local");
    for (int i = 0; i < end->ranks; i++)
        cJSON_AddItemToArray(shares, cJSON_CreateNumber((double)end->tokens_local[i]));
    log_line(r, json);
}

static int draw(struct report *r)
{
    struct tool_series series[2] = {
        {.title = "training", .x = r->x[0], .y = r->y[0], .count = r->count[0]},
        {.title = "held out", .x = r->x[1], .y = r->y[1], .count = r->count[1]},
    };
    struct tool_plot plot = {.title = "Loss",
                             .x_label = "step",
                             .y_label = "nats per byte",
                             .series = series,
                             .series_count = r->count[1] ? 2 : 1};
    return r->count[0] ? tool_plot_write(r->command, r->o->plot_path, &plot) : TOOL_OK;
}

static void print_stop(const struct report *r, const struct report_end *end)
{
    printf("stopped by %s after step %lld of %lld, ", end->signal == SIGINT ? "SIGINT" : "SIGTERM",
           (long long)end->step, (long long)r->o->steps);
    if (r->o->save)
        printf("saved in %s", r->o->save);
    else
        printf("not saved, as there is no --save");
}

int report_end(struct report *r, const struct report_end *end)
{
    if (r->terminal)
        printf("\n");
    r->seconds = 0; /* the line is closed */
    if (end->signal)
        print_stop(r, end);
    else
        printf("done: %lld steps", (long long)end->step);
    printf(", loss %.4f", shown(end->loss));
    if (end->evaluated)
        printf(", held-out loss %.4f", shown(end->held_out));
    printf("\n");
    print_step(r, &end->measured);
    if (end->store.rule)
        report_store_print(&end->store);
    printf("parameters: sha256 %s\n", end->sha256);
    if (memcmp(&end->planned, &end->measured, sizeof(end->planned)) == 0)
        printf("memory and traffic: measured as planned, to the byte\n");
    if (r->log) {
        if (end->store.rule)
            log_line(r, report_store_json(&end->store));
        log_summary(r, end);
        bool bad = ferror(r->log) != 0;
        int error = errno;
        if (fclose(r->log) != 0) {
            bad = true;
            error = errno;
        }
        r->log = NULL;
        if (bad)
            return tool_error(r->command, "cannot write %s: %s", r->o->log_path, strerror(error));
    }
    const int status = r->o->plot_path ? draw(r) : TOOL_OK;
    return status == TOOL_OK && r->o->plot_staleness
               ? report_store_draw(r->command, r->o->plot_staleness, &end->store.server)
               : status;
}
