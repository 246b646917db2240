/* SPDX-License-Identifier: MIT
 *
 * The results of `ringforge plan --search`: a table of 100 columns, and as JSON.
 */
#include <string.h>

#include "plan_search.h"

enum { REJECTIONS = 10, WORD_BYTES = 48 };

/* ---- words ----------------------------------------------------------------------------------- */

const struct plan_axis plan_axes[PLAN_AXES] = {
    {"dp", offsetof(struct rf_mesh, dp)},
    {"shard", offsetof(struct rf_mesh, shard)},
    {"tp", offsetof(struct rf_mesh, tp)},
    {"pp", offsetof(struct rf_mesh, pp)},
};

static const char *const offload_words[] = {"optimizer", "params", "grads", "activations"};

/* "optimizer,params"; as initials: "op"; "-" for none. */
static const char *offload_text(int offload, bool initials, char text[WORD_BYTES])
{
    size_t at = 0;
    snprintf(text, WORD_BYTES, "%s", initials ? "-" : "none");
    for (int k = 0; k < 4; k++)
        if (offload & 1 << k)
            at += (size_t)snprintf(text + at, WORD_BYTES - at, initials ? "%s%.1s" : "%s%s",
                                   at && !initials ? "," : "", offload_words[k]);
    return text;
}

static const char *recompute_text(int recompute, char text[WORD_BYTES])
{
    if (recompute <= 1)
        return recompute ? "block" : "none";
    snprintf(text, WORD_BYTES, "every=%d", recompute);
    return text;
}

static const char *schedule_text(const struct rf_candidate *c, char text[WORD_BYTES])
{
    if (c->chunks)
        snprintf(text, WORD_BYTES, "%s:%d", rf_pipeline_name(c->pipeline), c->chunks);
    else
        snprintf(text, WORD_BYTES, "%s", rf_pipeline_name(c->pipeline));
    return text;
}

static const char *mesh_text(const struct rf_candidate *c, char text[WORD_BYTES])
{
    struct rf_mesh mesh = c->mesh;
    size_t at = 0;
    text[0] = 0;
    for (int k = 0; k < PLAN_AXES; k++) {
        const int value = *plan_axis_of(&mesh, k);
        const bool whole = strcmp(plan_axes[k].name, "shard") == 0 && value == mesh.dp;
        if (value > 1 && !whole)
            at += (size_t)snprintf(text + at, WORD_BYTES - at, "%s%s=%d", at ? "," : "",
                                   plan_axes[k].name, value);
    }
    if (!at)
        snprintf(text, WORD_BYTES, "dp=1");
    return text;
}

const char *plan_candidate_text(const struct rf_candidate *c, const char *dtype,
                                char text[PLAN_CANDIDATE_TEXT])
{
    char word[WORD_BYTES];
    size_t at = (size_t)snprintf(text, PLAN_CANDIDATE_TEXT, "--mesh %s --zero %d",
                                 mesh_text(c, word), c->zero);
    at += (size_t)snprintf(text + at, PLAN_CANDIDATE_TEXT - at, " --micro-batches %lld --dtype %s",
                           (long long)c->micro_batches, dtype);
    if (c->sequence_parallel)
        at += (size_t)snprintf(text + at, PLAN_CANDIDATE_TEXT - at, " --sequence-parallel");
    if (c->recompute)
        at += (size_t)snprintf(text + at, PLAN_CANDIDATE_TEXT - at, " --recompute %s",
                               recompute_text(c->recompute, word));
    if (c->offload)
        at += (size_t)snprintf(text + at, PLAN_CANDIDATE_TEXT - at, " --offload %s",
                               offload_text(c->offload, false, word));
    if (c->mesh.pp > 1)
        snprintf(text + at, PLAN_CANDIDATE_TEXT - at, " --schedule %s", schedule_text(c, word));
    return text;
}

/* ---- the table ------------------------------------------------------------------------------- */

/* "8s": with sequence parallelism. */
static const char *tensor_text(const struct rf_candidate *c, char text[WORD_BYTES])
{
    snprintf(text, WORD_BYTES, "%d%s", c->mesh.tp, c->sequence_parallel ? "s" : "");
    return text;
}

static void print_row(const struct plan_found *f, const struct rf_candidate *c)
{
    char step[24], words[4][WORD_BYTES], bytes[2][24];
    printf("%7s %5d %5d %4s %3d %4d %-8s %-4s %-13s %5lld %-4s %10s %10s %4.1f%s\n",
           plan_time_text(c->step_s, step, sizeof(step)), c->mesh.dp, c->mesh.shard,
           tensor_text(c, words[3]), c->mesh.pp, c->zero, recompute_text(c->recompute, words[0]),
           offload_text(c->offload, true, words[1]),
           c->mesh.pp > 1 ? schedule_text(c, words[2]) : "-", (long long)c->micro_batches,
           f->dtypes[c->model], tool_bytes_text(c->device_bytes, bytes[0], sizeof(bytes[0])),
           tool_bytes_text(c->bytes.sent, bytes[1], sizeof(bytes[1])), 100 * c->bubble,
           c->planned ? "" : "~");
}

static void print_rows(const struct plan_found *f)
{
    const struct rf_candidate *c;
    bool by_formula = false, sequence = false;
    printf("%7s %5s %5s %4s %3s %4s %-8s %-4s %-13s %5s %-4s %10s %10s %4s\n", "step", "dp",
           "shard", "tp", "pp", "zero", "again", "off", "schedule", "micro", "type", "device",
           "sent/step", "idle");
    for (int64_t k = 0; k < f->top && (c = rf_search_get(f->search, k)); k++) {
        print_row(f, c);
        by_formula = by_formula || !c->planned;
        sequence = sequence || c->sequence_parallel;
    }
    if (sequence)
        printf("s after tp: with sequence parallelism\n");
    if (by_formula)
        printf("~ by formulas alone; the other rows are of plans that were simulated\n");
}

static void print_rejections(const struct plan_found *f)
{
    const struct rf_rejection *r, *next;
    char step[24], mesh[WORD_BYTES];
    if (!rf_search_rejection(f->search, 0))
        return;
    printf("\nRejected, of each mesh the quickest that does not fit:\n");
    int shown = 0;
    for (int64_t k = 0; shown < REJECTIONS && (r = rf_search_rejection(f->search, k)); k++) {
        const struct rf_candidate *c = &r->candidate;
        printf("%s", mesh_text(c, mesh));
        if (c->step_s > 0)
            printf("%s zero %d, %s, %s", c->sequence_parallel ? " sequence-parallel" : "", c->zero,
                   f->dtypes[c->model], plan_time_text(c->step_s, step, sizeof(step)));
        int others = 0;
        for (; (next = rf_search_rejection(f->search, k + 1)); k++, others++)
            if (strcmp(next->reason, r->reason) != 0)
                break;
        if (others > 0)
            printf(" (and %d other mesh%s)", others, others > 1 ? "es" : "");
        printf(": %s\n", r->reason);
        shown++;
    }
}

void plan_found_print(const struct plan_found *f)
{
    const struct rf_search_opts *o = f->opts;
    const struct rf_candidate *best = rf_search_get(f->search, 0);
    char text[PLAN_CANDIDATE_TEXT];
    printf("%d ranks, batch %lld of %lld tokens", o->ranks, (long long)o->policy.batch,
           (long long)o->policy.seq);
    if (o->policy.device_bytes)
        printf(", %s of each device", tool_bytes_text(o->policy.device_bytes, text, sizeof(text)));
    printf(": of %lld candidates %lld fit\n\n", (long long)rf_search_judged(f->search),
           (long long)rf_search_count(f->search));
    if (best) {
        print_rows(f);
        printf("\nThe quickest: %s\n", plan_candidate_text(best, f->dtypes[best->model], text));
    }
    print_rejections(f);
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static cJSON *row_json(const struct plan_found *f, const struct rf_candidate *c)
{
    const struct rf_bytes *b = &c->bytes;
    const struct {
        const char *name;
        double value;
    } values[] = {{"zero", c->zero},
                  {"recompute", c->recompute},
                  {"micro_batches", (double)c->micro_batches},
                  {"step_us", 1e6 * c->step_s},
                  {"bubble", c->bubble},
                  {"device_bytes", (double)c->device_bytes},
                  {"params", (double)b->params},
                  {"grads", (double)b->grads},
                  {"optimizer", (double)b->optimizer},
                  {"activations", (double)b->activations},
                  {"scratch", (double)b->scratch},
                  {"host", (double)b->host},
                  {"sent", (double)b->sent}};
    struct rf_mesh mesh = c->mesh;
    char word[WORD_BYTES];
    cJSON *json = cJSON_CreateObject();
    for (int k = 0; k < PLAN_AXES; k++)
        cJSON_AddNumberToObject(json, plan_axes[k].name, *plan_axis_of(&mesh, k));
    for (size_t k = 0; k < sizeof(values) / sizeof(values[0]); k++)
        cJSON_AddNumberToObject(json, values[k].name, values[k].value);
    tool_json_put(json, "offload=%s schedule=%s dtype=%s sequence_parallel=%hhd planned=%hhd",
                  offload_text(c->offload, false, word), schedule_text(c, word),
                  f->dtypes[c->model], c->sequence_parallel, c->planned);
    return json;
}

cJSON *plan_found_json(const struct plan_found *f)
{
    const struct rf_candidate *c;
    const struct rf_rejection *r;
    cJSON *json =
        tool_json_new("ranks=%d judged=%g fit=%g", f->opts->ranks,
                      (double)rf_search_judged(f->search), (double)rf_search_count(f->search));
    cJSON *found = cJSON_AddArrayToObject(json, "search");
    for (int64_t k = 0; k < f->top && (c = rf_search_get(f->search, k)); k++)
        cJSON_AddItemToArray(found, row_json(f, c));
    cJSON *rejected = cJSON_AddArrayToObject(json, "rejected");
    for (int64_t k = 0; k < REJECTIONS && (r = rf_search_rejection(f->search, k)); k++) {
        cJSON *row = row_json(f, &r->candidate);
        cJSON_AddStringToObject(row, "reason", r->reason);
        cJSON_AddItemToArray(rejected, row);
    }
    return json;
}
