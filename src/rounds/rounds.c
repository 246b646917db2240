/* SPDX-License-Identifier: MIT
 *
 * Rounds: opening and closing.
 */
#include "rounds.h"

#include "form.h"

/* ---- memory ---------------------------------------------------------------------------------- */

/* The arrays that a rule needs, in the order of the checkpoint's first ones. */
static int lay_out(struct rf_rounds *r)
{
    const struct rf_rounds_rule *rule = &r->rule;
    const bool loses = !rf_form_is_exact(rule->form) && !rule->no_feedback;
    float **arrays[10 + RF_STATE_COUNT] = {&r->local, &r->value, &r->mean, &r->scratch};
    int count = 4;
    if (rule->difference || rule->mix_first)
        arrays[count++] = &r->anchor;
    if (loses)
        arrays[count++] = &r->feedback;
    if (rf_form_has_factors(rule->form))
        arrays[count++] = &r->warm;
    else if (loses && (rule->difference || rule->gradients))
        arrays[count++] = &r->owned;
    for (int s = 0; rule->outer && s < RF_STATE_COUNT; s++)
        if (rf_optimizer_has(rule->outer, s))
            arrays[count++] = &r->state[s];
    r->memory = rf_alloc((size_t)count * (size_t)r->params.count * sizeof(float) + 1);
    if (!r->memory)
        return rf_fail(RF_ENOMEM, "out of memory for %d arrays of %lld parameters", count,
                       (long long)r->params.count);
    for (int k = 0; k < count; k++)
        *arrays[k] = r->memory + (int64_t)k * r->params.count;
    return RF_OK;
}

/* What depends on the number of ranks, and on the largest part. */
int rf_rounds_make_room(struct rf_rounds *r)
{
    const int ranks = rf_comm_size(r->comm);
    uint64_t most = 0;
    for (int p = 0; p < r->rule.parts; p++)
        for (int64_t round = 0; round < (r->rule.mixing.graph == RF_GRAPH_ALL ? 1 : 32); round++) {
            struct rf_round_list list;
            const struct rf_round_place place = {.rank = rf_comm_rank(r->comm),
                                                 .ranks = ranks,
                                                 .round = round,
                                                 .count = r->parts[p].count,
                                                 .shapes = r->shapes,
                                                 .shape_count = r->shape_count};
            RETURN_IF_ERROR(rf_round_list_make(&r->rule, &place, &list));
            most = list.message_bytes > most ? list.message_bytes : most;
            rf_round_list_free(&list);
        }
    rf_free(r->messages);
    rf_free(r->shares);
    r->messages = rf_alloc_aligned((size_t)most + 64, 64);
    r->shares = rf_alloc((size_t)ranks * sizeof *r->shares);
    if (!r->messages || !r->shares)
        return rf_fail(RF_ENOMEM, "out of memory for %llu bytes of messages",
                       (unsigned long long)most);
    r->message_bytes = most;
    return RF_OK;
}

static int make_parts(struct rf_rounds *r)
{
    const int parts = r->rule.parts;
    const int64_t each = rf_rounds_part_count(&r->rule, r->params.count, 0);
    r->parts = rf_alloc((size_t)parts * sizeof *r->parts);
    r->decay = rf_alloc((size_t)(each / 64 + 1) * sizeof *r->decay);
    if (!r->parts || !r->decay)
        return rf_fail(RF_ENOMEM, "out of memory for %d parts", parts);
    for (int64_t k = 0; k <= each / 64; k++)
        r->decay[k] = 1;
    for (int p = 0; p < parts; p++) {
        struct part *part = r->parts + p;
        part->first = p * each < r->params.count ? p * each : r->params.count;
        part->count = rf_rounds_part_count(&r->rule, r->params.count, p);
        part->due = (p + 1) * r->rule.every / parts % r->rule.every;
        part->number = -1;
    }
    return RF_OK;
}

/* ---- opening --------------------------------------------------------------------------------- */

static int copy_rule(struct rf_rounds *r, const struct rf_rounds_rule *rule, int ranks)
{
    static const struct rf_optimizer_opts sgd = {.kind = RF_SGD};
    const size_t entries = (size_t)ranks * (size_t)ranks;
    r->rule = *rule;
    r->rule.every = rule->every ? rule->every : 1;
    r->rule.parts = rule->parts ? rule->parts : 1;
    r->rule.mixing.ranks = ranks;
    r->outer = rule->outer ? *rule->outer : sgd;
    r->rule.outer = rule->outer ? &r->outer : NULL;
    if (!rule->mixing.weights)
        return RF_OK;
    r->weights = rf_alloc(entries * sizeof *r->weights);
    if (!r->weights)
        return rf_fail(RF_ENOMEM, "out of memory for the weights of %d ranks", ranks);
    memcpy(r->weights, rule->mixing.weights, entries * sizeof *r->weights);
    r->rule.mixing.weights = r->weights;
    return RF_OK;
}

static int get_shapes(struct rf_rounds *r)
{
    struct rf_round_shape shape;
    int count = 0;
    if (!rf_form_has_factors(r->rule.form))
        return RF_OK;
    while (r->params.shape && r->params.shape(r->params.user, count, &shape) == RF_OK)
        count++;
    r->shapes = rf_alloc((size_t)count * sizeof *r->shapes + 1);
    if (!r->shapes)
        return rf_fail(RF_ENOMEM, "out of memory for the shapes of %d tensors", count);
    for (r->shape_count = 0; r->shape_count < count; r->shape_count++)
        RETURN_IF_ERROR(
            r->params.shape(r->params.user, r->shape_count, r->shapes + r->shape_count));
    return RF_OK;
}

/* Every number of the rule, which all ranks must share. */
int rf_rounds_compare_rules(const struct rf_rounds *r)
{
    const struct rf_rounds_rule *rule = &r->rule;
    const struct rf_optimizer_opts *o = &r->outer;
    const size_t bytes = r->weights ? (size_t)(rule->mixing.ranks * rule->mixing.ranks) * 8 : 0;
    char text[1024];
    snprintf(text, sizeof text,
             "rounds: parameters=%lld\nrounds: local steps=%lld\nrounds: graph=%s\nrounds: "
             "gradients=%d\nrounds: seed=%llu\nrounds: weights=given\t%08x\nrounds: "
             "difference=%d\nrounds: outer "
             "optimizer=%s, rate %a\t%a %a %a %a %a %a %a %a %d%d%d\nrounds: form=%s, fraction "
             "%g, rank %d, feedback %d, shapes\t%08x\nrounds: order=%s\nrounds: "
             "weighted=%d\nrounds: parts=%d\nrounds: "
             "delay=%lld\n",
             (long long)r->params.count, (long long)rule->every, rf_graph_name(rule->mixing.graph),
             rule->gradients, (unsigned long long)rule->mixing.seed,
             rf_hash32(r->weights, bytes, 0), rule->difference,
             rule->outer ? rf_optimizer_get_info(o->kind)->name : "none", (double)rule->outer_lr,
             (double)o->beta1, (double)o->beta2, (double)o->eps, (double)o->weight_decay,
             (double)o->momentum, (double)o->dampening, (double)o->extra[0], (double)o->extra[1],
             o->eps_inside, o->no_bias_correction, o->centered, rf_form_name(rule->form),
             (double)rule->fraction, rule->form_rank, !rule->no_feedback,
             rf_hash32(r->shapes, (size_t)r->shape_count * sizeof *r->shapes, 0),
             rule->mix_first ? "mix, then step" : "step, then mix", rule->weighted, rule->parts,
             (long long)rule->delay);
    return rf_comm_check_terms(r->comm, text);
}

static int open_all(struct rf_rounds *r, const struct rf_rounds_rule *rule)
{
    RETURN_IF_ERROR(rf_rounds_check(rule, rf_comm_size(r->comm)));
    RETURN_IF_ERROR(copy_rule(r, rule, rf_comm_size(r->comm)));
    RETURN_IF_ERROR(get_shapes(r));
    RETURN_IF_ERROR(rf_rounds_compare_rules(r));
    RETURN_IF_ERROR(make_parts(r));
    RETURN_IF_ERROR(lay_out(r));
    RETURN_IF_ERROR(rf_rounds_make_room(r));
    if (r->anchor)
        RETURN_IF_ERROR(r->params.read(r->params.user, 0, r->params.count, r->anchor));
    return rf_rounds_thread_start(r);
}

int rf_rounds_open(struct rf_comm *comm, const struct rf_rounds_params *params,
                   const struct rf_rounds_rule *rule, struct rf_rounds **out)
{
    if (!comm || !params || !rule || !out || params->count < 1 || !params->read || !params->write)
        return rf_fail(RF_EINVAL, "rounds need a communicator, parameters that can be read and "
                                  "written, and a rule");
    if (rf_option(rule->proximal, 0) != 0)
        return rf_fail(RF_EINVAL, "a proximal term (mu) belongs to clients of a coordinator, and "
                                  "workers without one have none");
    struct rf_rounds *r = rf_alloc(sizeof *r);
    if (!r)
        return rf_fail(RF_ENOMEM, "out of memory for rounds");
    r->comm = comm;
    r->sent_at_start = rf_comm_sent_bytes(comm);
    r->params = *params;
    pthread_mutex_init(&r->lock, NULL);
    pthread_cond_init(&r->changed, NULL);
    const int status = open_all(r, rule);
    if (status < 0)
        rf_rounds_close(r);
    else
        *out = r;
    return status;
}

void rf_rounds_close(struct rf_rounds *r)
{
    if (!r)
        return;
    rf_rounds_thread_end(r);
    pthread_mutex_destroy(&r->lock);
    pthread_cond_destroy(&r->changed);
    rf_free(r->memory);
    rf_free(r->messages);
    rf_free(r->shares);
    rf_free(r->shapes);
    rf_free(r->parts);
    rf_free(r->decay);
    rf_free(r->weights);
    rf_free(r);
}
