/* SPDX-License-Identifier: MIT
 *
 * What a round costs a rank, before it runs.
 */
#include "form.h"
#include "rounds.h"

int64_t rf_rounds_part_count(const struct rf_rounds_rule *rule, int64_t count, int part)
{
    const int64_t parts = rule->parts ? rule->parts : 1;
    const int64_t each = ((count + parts - 1) / parts + 63) / 64 * 64;
    const int64_t left = count - part * each;
    return left < 0 ? 0 : left < each ? left : each;
}

/* local, value, mean, scratch; anchor; feedback; warm or owned; states */
static int arrays(const struct rf_rounds_rule *rule)
{
    int count = 4;
    count += rule->difference || rule->mix_first;
    const bool loses = !rf_form_is_exact(rule->form) && !rule->no_feedback;
    count += loses;
    count += rf_form_has_factors(rule->form) || (loses && (rule->difference || rule->gradients));
    for (int s = 0; rule->outer && s < RF_STATE_COUNT; s++)
        count += rf_optimizer_has(rule->outer, s);
    return count;
}

static int add_collective(const struct rf_round_place *place, enum rf_coll_op op,
                          enum rf_dtype dtype, int64_t count, struct rf_rounds_usage *out)
{
    const struct rf_coll_desc desc = {.op = op,
                                      .rank = place->rank,
                                      .ranks = place->ranks,
                                      .count = (size_t)count,
                                      .dtype = dtype};
    struct rf_coll_usage usage;
    RETURN_IF_ERROR(rf_coll_usage(&desc, NULL, RF_USES_SENT | RF_USES_ROUNDS, &usage));
    out->sent_bytes += usage.sent_bytes;
    out->messages += usage.rounds;
    return RF_OK;
}

static int add_list(const struct rf_round_place *place, const struct rf_round_list *list,
                    struct rf_rounds_usage *out)
{
    bool travelled = false;
    for (int64_t k = 0; k < list->count; k++) {
        const struct rf_round_op *op = list->ops + k;
        const bool travels = op->verb == RF_ROUND_SEND || op->verb == RF_ROUND_RECV;
        out->messages += travels && !travelled;
        travelled = travels;
        if (op->verb == RF_ROUND_SHARE)
            RETURN_IF_ERROR(add_collective(place, RF_COLL_ALL_GATHER, RF_F64, 1, out));
        if (op->verb == RF_ROUND_SUM)
            RETURN_IF_ERROR(add_collective(place, RF_COLL_ALL_REDUCE, RF_F32, op->count, out));
        if (op->verb == RF_ROUND_AVERAGE)
            RETURN_IF_ERROR(add_collective(place, RF_COLL_ALL_REDUCE, RF_F32,
                                           (int64_t)(op->bytes / sizeof(float)), out));
        if (op->verb == RF_ROUND_COMMIT)
            RETURN_IF_ERROR(
                add_collective(place, RF_COLL_ALL_REDUCE, RF_I32, RF_ROUNDS_WORDS, out));
    }
    out->sent_bytes += list->sent_bytes;
    return RF_OK;
}

int rf_rounds_usage(const struct rf_rounds_rule *rule, const struct rf_round_place *place,
                    struct rf_rounds_usage *out)
{
    if (!out)
        return rf_fail(RF_EINVAL, "the usage of a round needs room for the result");
    *out = (struct rf_rounds_usage){0};
    struct rf_rounds_usage all = {0};
    const int parts = rule && rule->parts ? rule->parts : 1;
    uint64_t messages = 0;
    for (int p = 0; p < parts; p++) {
        struct rf_round_place part = place ? *place : (struct rf_round_place){0};
        struct rf_round_list list;
        part.count = rule ? rf_rounds_part_count(rule, part.count, p) : 0;
        part.round += p;
        if (p > 0 && part.count == 0)
            break;
        RETURN_IF_ERROR(rf_round_list_make(rule, &part, &list));
        messages = list.message_bytes > messages ? list.message_bytes : messages;
        const int status = add_list(&part, &list, &all);
        rf_round_list_free(&list);
        RETURN_IF_ERROR(status);
    }
    all.memory_bytes = messages + 4 * (uint64_t)arrays(rule) * (uint64_t)place->count;
    *out = all;
    return RF_OK;
}
