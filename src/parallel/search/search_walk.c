/* SPDX-License-Identifier: MIT
 *
 * Goes through all meshes and policies of a search and judges each by formulas. The pass that
 * checks policies decides which combinations are possible, so none is listed here. Values that many
 * candidates share are computed in outer loops. Called by search.c.
 */
#include "../../base/base.h"
#include "../passes/passes.h"
#include "search.h"

/* ---- open options ---------------------------------------------------------------------------- */

static const int offloads[] = {
    0,
    RF_OFFLOAD_ACTIVATIONS,
    RF_OFFLOAD_OPTIMIZER,
    RF_OFFLOAD_OPTIMIZER | RF_OFFLOAD_ACTIVATIONS,
    RF_OFFLOAD_OPTIMIZER | RF_OFFLOAD_PARAMS,
    RF_OFFLOAD_OPTIMIZER | RF_OFFLOAD_PARAMS | RF_OFFLOAD_ACTIVATIONS,
    RF_OFFLOAD_OPTIMIZER | RF_OFFLOAD_PARAMS | RF_OFFLOAD_GRADS | RF_OFFLOAD_ACTIVATIONS,
};
static const int recomputes[] = {0, 1, RF_RECOMPUTE_SQRT};
static const struct order {
    enum rf_pipeline_kind kind;
    int chunks;
} orders[] = {
    {RF_PIPELINE_1F1B, 0},        {RF_PIPELINE_ZBH1, 0},        {RF_PIPELINE_ZBV, 0},
    {RF_PIPELINE_INTERLEAVED, 2}, {RF_PIPELINE_INTERLEAVED, 4}, {RF_PIPELINE_INTERLEAVED, 8},
    {RF_PIPELINE_GPIPE, 0},       {RF_PIPELINE_NAIVE, 0},
};

enum {
    OFFLOADS = sizeof(offloads) / sizeof(offloads[0]),
    RECOMPUTES = sizeof(recomputes) / sizeof(recomputes[0]),
    ORDERS = sizeof(orders) / sizeof(orders[0]),
    STAGES = 4,
    FORMS = 2
};

struct divisors {
    int64_t *all; /* ascending */
    int count;
};

static int find_divisors(int64_t number, struct divisors *out)
{
    int small = 0;
    for (int64_t d = 1; d <= number / d; d++)
        small += number % d == 0;
    out->all = rf_alloc(2 * ((size_t)small + 1) * sizeof(*out->all));
    out->count = 0;
    if (!out->all)
        return rf_fail(RF_ENOMEM, "search: out of memory for the divisors of a number");
    for (int64_t d = 1; d <= number / d; d++)
        if (number % d == 0)
            out->all[out->count++] = d;
    for (int k = small - 1; k >= 0; k--)
        if (out->all[k] != number / out->all[k])
            out->all[out->count++] = number / out->all[k];
    return 0;
}

/* ---- one mesh -------------------------------------------------------------------------------- */

/* The candidates with this number of shards. */
struct slot {
    int shard;
    int64_t judged;
    struct rf_rejection rejection;         /* the fastest that does not fit */
    signed char allowed[STAGES][OFFLOADS]; /* by the policy's check: 1 allowed, -1 refused */
};

/* The model on this number of tensor ranks, with or without sequence parallelism. */
struct form {
    struct rf_policy policy;
    struct rf_search_view view;
    struct rf_search_rows *rows; /* for each number of micro-batches; rows 0: not yet */
};

struct walk {
    struct rf_search *s;
    const struct rf_search_opts *opts;
    const struct rf_search_model *model;
    int number; /* index of the model */
    struct divisors micro_batches;
    struct form forms[FORMS];
    int form_count;
    struct form *form; /* the current one */
    struct rf_mesh mesh;
    struct slot *slots;
    int slot_count;
    struct rf_search_ranks ranks;
    struct order order;
};

static void refuse(struct slot *slot, const char *reason)
{
    if (!slot->rejection.reason[0])
        snprintf(slot->rejection.reason, sizeof(slot->rejection.reason), "%s", reason);
}

static void refuse_all(struct walk *w, const char *reason)
{
    for (int k = 0; k < w->slot_count; k++)
        refuse(&w->slots[k], reason);
}

static const char *unit_text(uint64_t bytes, char text[24])
{
    const double mib = (double)bytes / (1 << 20);
    snprintf(text, 24, mib < 1024 ? "%.1f MiB" : "%.1f GiB", mib < 1024 ? mib : mib / 1024);
    return text;
}

void rf_search_say_too_large(const struct rf_candidate *c, uint64_t limit,
                             char reason[RF_REJECTION_BYTES])
{
    const struct {
        const char *name;
        uint64_t bytes;
    } parts[] = {{"parameters", c->bytes.params},
                 {"gradients", c->bytes.grads},
                 {"optimizer", c->bytes.optimizer},
                 {"activations", c->bytes.activations},
                 {"scratch", c->bytes.scratch}};
    char text[3][24];
    int most = 0;
    for (int k = 1; k < 5; k++)
        most = parts[k].bytes > parts[most].bytes ? k : most;
    const int said = snprintf(reason, RF_REJECTION_BYTES, "needs %s of %s",
                              unit_text(c->device_bytes, text[0]), unit_text(limit, text[1]));
    if (c->offload == 0)
        snprintf(reason + said, (size_t)(RF_REJECTION_BYTES - said), ": %s of them %s",
                 unit_text(parts[most].bytes, text[2]), parts[most].name);
    else
        snprintf(reason + said, (size_t)(RF_REJECTION_BYTES - said),
                 " in addition to %s in host memory", unit_text(c->bytes.host, text[2]));
}

static int keep(struct walk *w, struct slot *slot, const struct rf_candidate *c)
{
    struct rf_search *s = w->s;
    const uint64_t limit = w->opts->policy.device_bytes;
    slot->judged++;
    s->judged++;
    if (limit == 0 || c->device_bytes <= limit)
        return rf_search_add(s, c);
    if (s->nearest.step_s == 0 || c->device_bytes < s->nearest.device_bytes)
        s->nearest = *c;
    struct rf_rejection *r = &slot->rejection;
    if (r->candidate.step_s > 0 && r->candidate.step_s <= c->step_s)
        return 0;
    r->candidate = *c;
    return 0;
}

/* Whether a plan can have this policy. */
static bool is_allowed(struct slot *slot, struct rf_plan *probe, int offload)
{
    signed char *allowed = &slot->allowed[probe->policy.zero][offload];
    if (*allowed < 0)
        return false;
    if (rf_pass_policy(probe) < 0) {
        *allowed = -1;
        refuse(slot, rf_last_error()->message);
        return false;
    }
    *allowed = 1;
    return true;
}

static int evaluate(struct walk *w, struct slot *slot, struct rf_candidate *c, int offload)
{
    struct rf_search_case one = {
        .view = &w->form->view, .ranks = &w->ranks, .rates = &w->opts->rates};
    struct rf_plan *probe = &one.probe;
    probe->blocks = w->model->blocks;
    probe->block_count = w->model->block_count;
    probe->mesh = c->mesh;
    probe->policy = rf_search_policy(w->opts, c);
    if (!is_allowed(slot, probe, offload))
        return 0;
    probe->local_micro_batches = rf_plan_rounds(probe);
    probe->copy_type = w->form->view.copy_type;
    rf_plan_decide_units(probe);
    rf_search_bytes(&one, c);
    c->step_s = rf_search_step_s(&one);
    return keep(w, slot, c);
}

/* Everything is given except the stage of sharding and the offload. Later ones are not faster, so
 * if they are open, the first that fits is enough. */
static int evaluate_all(struct walk *w, int64_t micro_batches, int recompute)
{
    const struct rf_policy *policy = &w->opts->policy;
    const bool open = (w->opts->open & RF_SEARCH_OFFLOAD) != 0;
    const int count = open ? OFFLOADS : 1;
    for (int k = 0; k < w->slot_count; k++)
        for (int zero = 0; zero < STAGES; zero++) {
            const int64_t before = w->s->count;
            /* With one shard nothing is shared. */
            const bool shares = zero > 0 && (w->opts->open & RF_SEARCH_ZERO || w->mesh.dp > 1);
            const bool taken = w->opts->open & RF_SEARCH_ZERO || zero == policy->zero;
            if (!taken || shares != (w->slots[k].shard > 1))
                continue;
            for (int offload = 0; offload < count && w->s->count == before; offload++) {
                struct rf_candidate c = {.model = w->number,
                                         .mesh = w->mesh,
                                         .zero = zero,
                                         .recompute = recompute,
                                         .offload = open ? offloads[offload] : policy->offload,
                                         .sequence_parallel = w->form->policy.sequence_parallel,
                                         .pipeline = w->order.kind,
                                         .chunks = w->order.chunks,
                                         .micro_batches = micro_batches};
                c.mesh.shard = w->slots[k].shard;
                RETURN_IF_ERROR(evaluate(w, &w->slots[k], &c, offload));
            }
        }
    return 0;
}

static int recompute_of(const struct walk *w, int k)
{
    const int blocks = w->model->block_count;
    int root = 1;
    while ((root + 1) * (root + 1) <= blocks)
        root++;
    return recomputes[k] == RF_RECOMPUTE_SQRT ? root : recomputes[k];
}

static int take_micro_batches(struct walk *w, int k)
{
    const int64_t count = w->micro_batches.all[k];
    struct rf_search_rows *rows = &w->form->rows[k];
    const bool open = (w->opts->open & RF_SEARCH_RECOMPUTE) != 0;
    if (!rows->rows)
        RETURN_IF_ERROR(rf_search_rows_open(&w->form->view, &w->form->policy, &w->opts->rates,
                                            w->opts->policy.batch / count, rows));
    if (rows->status < 0) {
        refuse_all(w, rows->reason);
        return 0;
    }
    for (int choice = 0; choice < (open ? RECOMPUTES : 1); choice++) {
        const int recompute = open ? recompute_of(w, choice) : rows->recompute;
        RETURN_IF_ERROR(rf_search_load(&w->form->view, rows->blocks,
                                       (int)((count - 1) / w->mesh.dp) + 1, recompute, &w->ranks));
        RETURN_IF_ERROR(evaluate_all(w, count, recompute));
    }
    return 0;
}

/* There must be at least as many micro-batches as ranks. */
static int take_order(struct walk *w)
{
    const struct rf_pipeline pipeline = {
        .kind = w->order.kind, .ranks = w->mesh.pp, .micro_batches = 1, .chunks = w->order.chunks};
    int rc = rf_search_ranks_open(&w->form->view, &pipeline, &w->ranks);
    if (rc == RF_EINVAL) {
        refuse_all(w, rf_last_error()->message);
        rc = 0;
    } else if (rc == 0) {
        for (int k = 0; k < w->slot_count; k++)
            memset(w->slots[k].allowed, 0, sizeof(w->slots[k].allowed));
        int taken = 0;
        /* The smallest size comes first: if it is refused, all are. */
        for (int k = w->micro_batches.count - 1; rc == 0 && k >= 0; k--)
            if (w->micro_batches.all[k] >= w->mesh.dp) {
                rc = take_micro_batches(w, k);
                taken++;
            }
        if (taken == 0)
            refuse_all(w, "fewer micro-batches than data-parallel ranks: some would have nothing "
                          "to do; use a larger batch or more micro-batches");
    }
    rf_search_ranks_close(&w->ranks);
    return rc;
}

static int take_orders(struct walk *w)
{
    const struct rf_policy *policy = &w->opts->policy;
    const bool open = (w->opts->open & RF_SEARCH_SCHEDULE) != 0 && w->mesh.pp > 1;
    for (int k = 0; k < (open ? ORDERS : 1); k++) {
        w->order = open ? orders[k] : (struct order){policy->pipeline, policy->chunks};
        if (w->mesh.pp == 1)
            w->order = (struct order){RF_PIPELINE_1F1B, 0};
        /* Chunks of a rank are only tried if there are enough blocks. */
        if (k > 0 && w->mesh.pp * (w->order.chunks ? w->order.chunks : 2) > w->model->block_count)
            continue;
        RETURN_IF_ERROR(take_order(w));
    }
    return 0;
}

/* One result for all stages and offloads: the fastest or, if none could be judged, the reason. */
static int end_mesh(struct walk *w)
{
    struct rf_rejection *quickest = NULL;
    int64_t judged = 0;
    for (int k = 0; k < w->slot_count; k++) {
        struct rf_rejection *r = &w->slots[k].rejection;
        judged += w->slots[k].judged;
        if (r->candidate.step_s > 0 &&
            (!quickest || r->candidate.step_s < quickest->candidate.step_s))
            quickest = r;
    }
    if (quickest) {
        rf_search_say_too_large(&quickest->candidate, w->opts->policy.device_bytes,
                                quickest->reason);
        return rf_search_reject(w->s, quickest);
    }
    for (int k = 0; judged == 0 && k < w->slot_count; k++)
        if (w->slots[k].rejection.reason[0]) {
            w->slots[k].rejection.candidate =
                (struct rf_candidate){.model = w->number, .mesh = w->mesh};
            return rf_search_reject(w->s, &w->slots[k].rejection);
        }
    return 0;
}

static int take_mesh(struct walk *w)
{
    struct divisors shards = {0};
    const int given = w->opts->mesh.shard;
    RETURN_IF_ERROR(find_divisors(w->mesh.dp, &shards));
    w->slots = rf_alloc(((size_t)shards.count + 1) * sizeof(*w->slots));
    w->slot_count = 0;
    int rc = w->slots ? 0 : rf_fail(RF_ENOMEM, "search: out of memory for a mesh");
    for (int k = 0; rc == 0 && k < shards.count; k++)
        if (given == 0 || shards.all[k] == given)
            w->slots[w->slot_count++].shard = (int)shards.all[k];
    for (int k = 0; rc == 0 && k < w->form_count; k++) {
        w->form = &w->forms[k];
        rc = take_orders(w);
    }
    if (rc == 0)
        rc = end_mesh(w);
    rf_free(w->slots);
    rf_free(shards.all);
    return rc;
}

/* ---- all meshes ------------------------------------------------------------------------------ */

static bool fits_given(int value, int given)
{
    return given == 0 || value == given;
}

/* Tensor ranks must divide or fill hosts, so that all their groups have the same links. */
static int check_hosts(const struct walk *w, int tp)
{
    const int host = w->opts->rates.host_ranks;
    if (host == 0 || host % tp == 0 || tp % host == 0)
        return 0;
    return rf_fail(RF_EINVAL, "%d tensor ranks neither divide nor fill hosts of %d", tp, host);
}

static int add_form(struct walk *w, int tp, bool sequence)
{
    struct form *form = &w->forms[w->form_count];
    const size_t sizes = (size_t)w->micro_batches.count;
    form->policy = w->opts->policy;
    form->policy.sequence_parallel = sequence;
    RETURN_IF_ERROR(rf_search_view_open(w->model, &form->policy, tp, &form->view));
    w->form_count++;
    form->rows = rf_alloc((sizes + 1) * sizeof(*form->rows));
    return form->rows ? 0
                      : rf_fail(RF_ENOMEM, "search: out of memory for numbers of micro-batches");
}

/* With and without sequence parallelism if that is open. For a model that refuses it, only without.
 */
static int open_forms(struct walk *w, int tp)
{
    const bool open = tp > 1 && w->opts->open & RF_SEARCH_SEQUENCE;
    RETURN_IF_ERROR(check_hosts(w, tp));
    RETURN_IF_ERROR(add_form(w, tp, !open && tp > 1 && w->opts->policy.sequence_parallel));
    const int rc = open ? add_form(w, tp, true) : 0;
    return rc == RF_EINVAL || rc == RF_ENOTSUP ? 0 : rc;
}

static void close_forms(struct walk *w)
{
    for (; w->form_count > 0; w->form_count--) {
        struct form *form = &w->forms[w->form_count - 1];
        for (int k = 0; form->rows && k < w->micro_batches.count; k++)
            rf_search_rows_close(&form->rows[k]);
        rf_free(form->rows);
        rf_search_view_close(&form->view);
    }
}

static int take_tensor_ranks(struct walk *w, int tp, int64_t rest)
{
    const struct rf_search_opts *o = w->opts;
    struct divisors stages = {0};
    int rc = open_forms(w, tp);
    if (rc == RF_EINVAL || rc == RF_ENOTSUP) {
        struct rf_rejection r = {.candidate = {.model = w->number, .mesh = {.tp = tp}}};
        snprintf(r.reason, sizeof(r.reason), "%s", rf_last_error()->message);
        rc = rf_search_reject(w->s, &r);
    } else if (rc == 0) {
        rc = find_divisors(rest, &stages);
    }
    for (int k = 0; rc == 0 && k < stages.count; k++) {
        w->mesh =
            (struct rf_mesh){.dp = (int)(rest / stages.all[k]), .tp = tp, .pp = (int)stages.all[k]};
        if (fits_given(w->mesh.pp, o->mesh.pp) && fits_given(w->mesh.dp, o->mesh.dp))
            rc = take_mesh(w);
        if (o->progress)
            o->progress(o->user, ++w->s->meshes, w->s->mesh_count);
    }
    rf_free(stages.all);
    close_forms(w);
    return rc;
}

static int take_all(struct walk *w)
{
    struct divisors tensor = {0};
    int rc = find_divisors(w->opts->ranks, &tensor);
    for (int k = 0; rc == 0 && k < tensor.count; k++)
        if (fits_given((int)tensor.all[k], w->opts->mesh.tp))
            rc = take_tensor_ranks(w, (int)tensor.all[k], w->opts->ranks / tensor.all[k]);
    rf_free(tensor.all);
    return rc;
}

/* Divisors of the batch, or the given number. 0, which means one for each data-parallel rank, is
 * not among them. */
static int choose_micro_batches(struct walk *w)
{
    const struct rf_policy *policy = &w->opts->policy;
    RETURN_IF_ERROR(find_divisors(policy->batch, &w->micro_batches));
    if (w->opts->open & RF_SEARCH_MICRO_BATCHES)
        return 0;
    w->micro_batches.all[0] = policy->micro_batches;
    w->micro_batches.count = 1;
    return 0;
}

int rf_search_walk(struct rf_search *s, const struct rf_search_model *model, int number,
                   const struct rf_search_opts *opts)
{
    struct walk w = {.s = s, .opts = opts, .model = model, .number = number};
    int rc = choose_micro_batches(&w);
    if (rc == 0)
        rc = take_all(&w);
    rf_free(w.micro_batches.all);
    return rc;
}
