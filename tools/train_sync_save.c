/* SPDX-License-Identifier: MIT
 *
 * Checkpoints of `ringforge train --sync`. The first worker saves to DIR, and worker W to
 * DIR/worker-W, the same steps. DIR/latest follows last: it names a step that all workers have.
 * A line of the settings says how many workers there are, and how far their rounds. Without --sync
 * there is one worker.
 */
#include <string.h>
#include <unistd.h>

#include "train_sync.h"

enum { ARRAYS = 16 };

/* What the line of a checkpoint says. */
struct saved {
    int32_t workers; /* 1, and 0 in all others: there is no such line */
    int32_t keeps;   /* this run continues the rounds */
    int64_t step, round_step, exchanges;
    double tokens;  /* of this worker in the round */
    char token[40]; /* the same in what all workers have saved together */
    char mesh[80];
};

static bool is_first(const struct trainer *t)
{
    return t->rank == 0 && t->number == 0;
}

/* ---- saving ---------------------------------------------------------------------------------- */

/* How the rank's parameters are laid out. */
static void mesh_text(const struct trainer *t, char text[80])
{
    const struct rf_mesh *m = &t->mesh;
    snprintf(text, 80, "%d.%d.%d.%d.%d.%d", m->dp, m->tp, m->pp, m->shard, m->cp,
             (int)t->o->setup.policy.zero);
}

/* The settings, and the line of the rounds. To be freed; NULL: out of memory. */
static char *settings_of(const struct trainer *t, const char *token)
{
    char *options = train_settings_text(t->o, t->dataset, t->lr), *text = NULL, mesh[80];
    const size_t bytes = options ? strlen(options) + 300 : 0;
    int64_t step, exchanges;
    mesh_text(t, mesh);
    rf_rounds_get_counters(t->sync->rounds, &step, &exchanges);
    if (options && (text = malloc(bytes)) != NULL)
        snprintf(text, bytes, "%s" TRAIN_SYNC_LINE "=%d %s %lld %lld %lld %.0f %s\n", options,
                 t->sync->workers, token, (long long)t->progress.step, (long long)step,
                 (long long)exchanges, t->round_tokens, mesh);
    free(options);
    return text;
}

/* Waits for the save in progress, on all workers. A status of the library. */
static int wait_for_all(struct trainer *t)
{
    struct train_sync *sync = train_sync_rounds(t);
    int rc = sync && t->number > 0 ? rf_run_save_wait(t->run) : 0;
    if (rc == 0 && sync)
        rc = rf_barrier(sync->world, NULL);
    return rc == 0 && t->number == 0 ? rf_run_save_wait(t->run) : rc;
}

/* Exchanges in progress end without taking effect, and all workers save the same step. */
static int meet(struct trainer *t, char token[40])
{
    const int rc = wait_for_all(t);
    snprintf(token, 40, "%llx-%lx", (unsigned long long)rf_now_ns(), (long)getpid());
    if (rc < 0 || rf_rounds_settle(t->sync->rounds) < 0)
        return -1;
    return rf_broadcast(t->sync->world, token, 40, RF_U8, 0, NULL);
}

/* *settings NULL: a worker was lost meanwhile, and nobody saves this step. */
int train_sync_prepare(struct trainer *t, char **settings)
{
    struct train_sync *sync = t->sync;
    char token[40] = "";
    const int losses = sync->losses;
    const int status = train_sync_survive(t, meet(t, token));
    if (status != TOOL_OK || losses != sync->losses)
        return status;
    if (sync->begun)
        sync->settled = losses;
    sync->saving = sync->awaits_others = false;
    *settings = settings_of(t, token);
    return *settings ? TOOL_OK : tool_error(t->command, "out of memory");
}

static int save(struct trainer *t)
{
    struct train_sync *sync = train_sync_rounds(t);
    char path[TOOL_PATH_BYTES], *settings = NULL;
    struct rf_progress progress = t->progress;
    int status = train_sync_folder(t, t->o->save, t->number, path);
    if (status == TOOL_OK && t->sync && t->sync->kind->prepare)
        status = t->sync->kind->prepare(t, &settings);
    else if (status == TOOL_OK && !(settings = train_settings_text(t->o, t->dataset, t->lr)))
        status = tool_error(t->command, "out of memory");
    if (status != TOOL_OK || !settings)
        return status;
    /* Until the first worker's checkpoint is complete, DIR/latest names the one before. */
    const int more = sync ? (t->number > 0) + sync->losses - sync->settled : 0;
    const struct rf_save_opts opts = {.keep = (int)t->o->keep + (t->o->keep ? more : 0)};
    progress.settings = settings;
    const int rc = rf_run_save_begin(t->run, path, &progress, &opts);
    free(settings);
    if (sync) {
        sync->saving = sync->begun = rc == 0;
        sync->saves++;
        sync->awaits_others = sync->workers > 1;
    }
    return rc < 0 ? trainer_failed(t) : TOOL_OK;
}

int train_sync_save(struct trainer *t)
{
    const struct train_sync *sync = train_sync_rounds(t);
    return sync && t->progress.step <= sync->left_out ? TOOL_OK : save(t);
}

/* After a loss the others save again. */
int train_sync_save_last(struct trainer *t)
{
    struct train_sync *sync = train_sync_rounds(t);
    int status, losses;
    do {
        losses = sync ? sync->losses : 0;
        status = save(t);
        if (status == TOOL_OK && !sync)
            return train_sync_save_wait(t);
        if (status == TOOL_OK && sync->begun)
            status = train_sync_survive(t, wait_for_all(t));
    } while (status == TOOL_OK && sync && sync->losses != losses);
    return status;
}

int train_sync_save_test(struct trainer *t, struct rf_save_progress *progress)
{
    struct train_sync *sync = train_sync_rounds(t);
    *progress = (struct rf_save_progress){.ended = false};
    if (sync && sync->saving && sync->awaits_others && t->number == 0)
        return TOOL_OK;
    if (rf_run_save_test(t->run, progress) < 0)
        return trainer_failed(t);
    if (sync)
        sync->saving = !progress->ended;
    return TOOL_OK;
}

int train_sync_save_wait(struct trainer *t)
{
    return wait_for_all(t) < 0 ? trainer_failed(t) : TOOL_OK;
}

/* ---- loading --------------------------------------------------------------------------------- */

/* Whether the settings have a line of rounds. */
static bool read_line(const char *settings, struct saved *out)
{
    long long step, round_step, exchanges;
    struct saved s = {.workers = 1};
    const char *line = settings ? strstr(settings, "\n" TRAIN_SYNC_LINE "=") : NULL;
    if (!line ||
        sscanf(line + strlen("\n" TRAIN_SYNC_LINE "="), "%d %39s %lld %lld %lld %lf %79s",
               &s.workers, s.token, &step, &round_step, &exchanges, &s.tokens, s.mesh) != 7)
        return false;
    s.step = step;
    s.round_step = round_step;
    s.exchanges = exchanges;
    if (s.workers < 1 || step < 0 || round_step < 0 || exchanges < 0 || !(s.tokens >= 0))
        return false;
    *out = s;
    return true;
}

/* Collective: what the first rank sees of the checkpoint. */
static int share_line(struct trainer *t, struct saved *out)
{
    const struct train_options *o = t->o;
    struct saved s = {.workers = 1};
    if (is_first(t)) {
        const bool changed = train_settings_changed(o, "sync");
        const bool known = read_line(o->settings, &s);
        s.keeps = known && !changed && train_sync_rounds(t);
        if (!known && train_sync_rounds(t) && !changed && o->settings &&
            strstr(o->settings, "\nsync=")) {
            tool_error(t->command,
                       "%s has nothing of its rounds, as an earlier version saved it: say by "
                       "--change sync that they begin anew",
                       o->resume);
            s.workers = 0;
        }
    }
    if (train_sync_rounds(t) ? rf_broadcast(t->sync->world, &s, sizeof(s), RF_U8, 0, NULL) < 0
                             : rf_run_share(t->run, &s, sizeof(s)) < 0)
        return trainer_failed(t);
    *out = s;
    return s.workers > 0 ? TOOL_OK : TOOL_ERROR;
}

/* The checkpoint of a worker beside that of the first, which is the one that --resume names. */
static int path_of(struct trainer *t, const struct saved *s, int worker, char path[TOOL_PATH_BYTES])
{
    char dir[TOOL_PATH_BYTES];
    const int status = train_sync_folder(t, t->o->resume, 0, dir);
    if (status != TOOL_OK || worker == 0)
        return status == TOOL_OK ? train_sync_folder(t, t->o->resume, 0, path) : status;
    size_t length = strlen(dir);
    while (length > 1 && dir[length - 1] == '/')
        dir[--length] = 0;
    char *name = strrchr(dir, '/') ? strrchr(dir, '/') + 1 : dir;
    if (strncmp(name, "step-", 5) == 0)
        snprintf(name, sizeof(dir) - (size_t)(name - dir), ".");
    if (snprintf(path, TOOL_PATH_BYTES, "%s/worker-%d/step-%lld", dir, worker, (long long)s->step) <
        TOOL_PATH_BYTES)
        return TOOL_OK;
    return tool_error(t->command, "the path %.60s... is too long", dir);
}

/* Loads what a worker has saved. *tokens: of the round. Collective over the worker's ranks. */
static int load(struct trainer *t, const struct saved *s, int worker, double *tokens)
{
    char path[TOOL_PATH_BYTES], *settings = NULL;
    struct saved theirs = *s;
    int status = path_of(t, s, worker, path);
    if (status != TOOL_OK)
        return status;
    if (worker > 0 && t->rank == 0) {
        theirs.workers = 0;
        if (rf_checkpoint_settings(path, &settings) < 0)
            trainer_failed(t);
        else if (!read_line(settings, &theirs) || strcmp(theirs.token, s->token) != 0) {
            tool_error(t->command,
                       "%s was not saved together with %s: continue from a step that all workers "
                       "have",
                       path, t->o->resume);
            theirs.workers = 0;
        }
        free(settings);
    }
    if (rf_run_share(t->run, &theirs, sizeof(theirs)) < 0)
        return trainer_failed(t);
    if (theirs.workers == 0)
        return TOOL_ERROR;
    *tokens = theirs.tokens;
    return rf_run_load(t->run, path, &t->progress) < 0 ? trainer_failed(t) : TOOL_OK;
}

/* ---- another number of workers --------------------------------------------------------------- */

/* Sums over the workers of a checkpoint. */
struct sums {
    int64_t count;
    struct rf_rounds_params params; /* of this rank */
    float *values;                  /* room for them */
    double *of_params;
    struct rf_rounds_array arrays[ARRAYS];
    double *of_array[ARRAYS];
    int array_count;
};

static void close_sums(struct sums *sums)
{
    rf_run_rounds_params_free(&sums->params);
    free(sums->values);
    free(sums->of_params);
    for (int k = 0; k < sums->array_count; k++)
        free(sums->of_array[k]);
}

static int open_sums(struct trainer *t, const struct saved *s, struct sums *sums)
{
    if (rf_run_rounds_params(t->run, &sums->params) < 0)
        return trainer_failed(t);
    sums->count = sums->params.count;
    sums->values = calloc((size_t)sums->count, sizeof(float));
    sums->of_params = calloc((size_t)sums->count, sizeof(double));
    bool whole = sums->values && sums->of_params;
    while (s->keeps && whole && sums->array_count < ARRAYS &&
           rf_rounds_get_array(t->sync->rounds, sums->array_count,
                               &sums->arrays[sums->array_count]) == RF_OK) {
        double *of_array = calloc((size_t)sums->count, sizeof(double));
        sums->of_array[sums->array_count++] = of_array;
        whole = of_array != NULL;
    }
    return whole ? TOOL_OK : tool_error(t->command, "out of memory");
}

static int add_worker(struct trainer *t, struct sums *sums)
{
    if (sums->params.read(sums->params.user, 0, sums->count, sums->values) < 0)
        return trainer_failed(t);
    for (int64_t i = 0; i < sums->count; i++)
        sums->of_params[i] += (double)sums->values[i];
    for (int k = 0; k < sums->array_count; k++)
        for (int64_t i = 0; i < sums->count; i++)
            sums->of_array[k][i] += (double)sums->arrays[k].values[i];
    return TOOL_OK;
}

/* Means of equal numbers are these numbers: sums of f32 in f64 are exact for up to 2^29. */
static int take_sums(struct trainer *t, const struct saved *s, struct sums *sums, bool mean)
{
    for (int k = 0; k < sums->array_count; k++)
        for (int64_t i = 0; i < sums->count && (mean || sums->arrays[k].is_sum); i++)
            sums->arrays[k].values[i] =
                (float)(sums->of_array[k][i] / (sums->arrays[k].is_sum ? 1 : s->workers));
    for (int64_t i = 0; i < sums->count; i++)
        sums->values[i] = (float)(sums->of_params[i] / s->workers);
    if (mean && sums->params.write(sums->params.user, 0, sums->count, sums->values) < 0)
        return trainer_failed(t);
    return TOOL_OK;
}

/* Each worker continues with the state of one of the checkpoint's, and, if their number differs,
 * with the mean of all parameters and of what was lost on the way. */
static int load_all(struct trainer *t, const struct saved *s, bool mean)
{
    struct sums sums = {0};
    double tokens = 0, all = 0;
    int status = open_sums(t, s, &sums);
    for (int worker = 0; worker < s->workers && status == TOOL_OK; worker++) {
        status = load(t, s, worker, &tokens);
        all += tokens;
        if (status == TOOL_OK)
            status = add_worker(t, &sums);
    }
    if (status == TOOL_OK)
        status = load(t, s, t->worker % s->workers, &tokens);
    if (status == TOOL_OK)
        status = take_sums(t, s, &sums, mean);
    t->round_tokens = mean ? all / s->workers : tokens;
    close_sums(&sums);
    return status;
}

/* ---- the whole ------------------------------------------------------------------------------- */

int train_sync_keep(struct trainer *t)
{
    struct rf_run_kept kept[ARRAYS];
    struct rf_rounds_array array;
    int count = 0;
    for (; count < ARRAYS && rf_rounds_get_array(t->sync->rounds, count, &array) == RF_OK; count++)
        kept[count] = (struct rf_run_kept){array.name, array.values};
    return rf_run_keep(t->run, kept, count) < 0 ? trainer_failed(t) : TOOL_OK;
}

int train_sync_load(struct trainer *t)
{
    struct saved s;
    char mesh[80];
    if (t->sync && t->sync->kind->load)
        return t->sync->kind->load(t);
    int status = share_line(t, &s);
    if (status == TOOL_OK && s.keeps)
        status = t->sync->kind->open(t);
    if (status != TOOL_OK)
        return status;
    mesh_text(t, mesh);
    const int workers = train_sync_rounds(t) ? t->sync->workers : 1;
    const bool other = s.workers != workers && s.workers > 1;
    const bool mean = other || (s.workers > 1 && !s.keeps);
    if (mean || (s.workers > 1 && s.keeps && strcmp(mesh, s.mesh) != 0))
        status = load_all(t, &s, mean);
    else
        status = load(t, &s, t->worker % s.workers, &t->round_tokens);
    if (status == TOOL_OK && s.keeps &&
        rf_rounds_set_counters(t->sync->rounds, s.round_step, s.exchanges) < 0)
        status = trainer_failed(t);
    if (!s.keeps)
        t->round_tokens = 0;
    if (status == TOOL_OK && mean && is_first(t))
        printf("%s has %d workers, and this job %d: each continues with the mean of their "
               "parameters%s\n",
               t->o->resume, s.workers, workers,
               s.keeps ? ", and of what its form has not sent yet" : "; rounds begin anew");
    return status;
}
