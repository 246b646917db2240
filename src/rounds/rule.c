/* SPDX-License-Identifier: MIT
 *
 * What a rule may say.
 */
#include <math.h>
#include <ringforge/rounds.h>

#include "base/base.h"
#include "form.h"

static int check_numbers(const struct rf_rounds_rule *rule)
{
    const int64_t every = rule->every ? rule->every : 1;
    const float fraction = rf_option(rule->fraction, 1.0f / 64);
    if (every < 1 || rule->parts < 0 || rule->parts > every)
        return rf_fail(
            RF_EINVAL,
            "%lld local steps of a round in %d parts: a round has 1 step or more, and at "
            "most one part for each",
            (long long)every, rule->parts);
    if (rule->delay < 0 || rule->delay >= every)
        return rf_fail(RF_EINVAL,
                       "a delay of %lld steps: it may be 0 to %lld, less than the %lld of a round",
                       (long long)rule->delay, (long long)every - 1, (long long)every);
    if (!(fraction > 0) || fraction > 1)
        return rf_fail(RF_EINVAL, "a fraction of %g of the values: it is above 0, and at most 1",
                       (double)fraction);
    if (rule->fraction != 0 && rule->form != RF_FORM_TOP)
        return rf_fail(RF_EINVAL, "a fraction of the values belongs to the form \"top\" only");
    if (rule->form_rank < 0 || rule->form_rank > RF_FORM_MOST_RANK)
        return rf_fail(RF_EINVAL, "an approximation of rank %d: it is 1 to %d", rule->form_rank,
                       RF_FORM_MOST_RANK);
    if (rule->form_rank != 0 && rule->form != RF_FORM_POWERSGD)
        return rf_fail(RF_EINVAL, "the rank of an approximation belongs to the form \"powersgd\" "
                                  "only");
    if (rule->parts > 1 && rf_form_has_factors(rule->form))
        return rf_fail(RF_EINVAL, "%d parts would cut the matrices of the form \"%s\": use 1 part",
                       rule->parts, rf_form_name(rule->form));
    if (!isfinite(rule->proximal) || rf_option(rule->proximal, 0) < 0)
        return rf_fail(RF_EINVAL, "the proximal term %g is negative or no number",
                       (double)rule->proximal);
    if (rule->mixing.seed != 0 && rule->mixing.graph != RF_GRAPH_MATCHING)
        return rf_fail(RF_EINVAL,
                       "a seed has no effect on the graph \"%s\": it belongs to matching",
                       rf_graph_name(rule->mixing.graph));
    if (!isfinite(rule->outer_lr) || rf_option(rule->outer_lr, 1) < 0)
        return rf_fail(RF_EINVAL, "the outer rate %g is negative or no number",
                       (double)rule->outer_lr);
    return RF_OK;
}

static int check_pairs(const struct rf_rounds_rule *rule)
{
    const char *graph = rf_graph_name(rule->mixing.graph), *form = rf_form_name(rule->form);
    const bool all = rule->mixing.graph == RF_GRAPH_ALL;
    if (rule->difference && !all)
        return rf_fail(RF_EINVAL,
                       "differences have no common start among neighbours: with the graph \"%s\" "
                       "parameters are exchanged",
                       graph);
    if ((rule->outer || rule->outer_lr != 0) && !rule->difference)
        return rf_fail(RF_EINVAL, "an outer optimizer and its rate need \"difference\": the mean "
                                  "difference is its gradient");
    if (rule->gradients && (!all || rule->difference || rule->weighted || rule->every > 1))
        return rf_fail(RF_EINVAL, "gradients are added over all ranks in every step: omit the "
                                  "graph, \"difference\", shares and local steps");
    if (!rf_form_is_exact(rule->form) && !rule->difference && !rule->gradients &&
        (all || rule->form != RF_FORM_BF16))
        return rf_fail(RF_EINVAL,
                       "parameters in the form \"%s\" would lose what no later exchange brings "
                       "back: use \"difference\", or f32, or bf16 among neighbours",
                       form);
    if (rule->no_feedback && rf_form_is_exact(rule->form))
        return rf_fail(RF_EINVAL, "the form \"%s\" loses nothing: omit no_feedback", form);
    if (rule->mix_first && all)
        return rf_fail(RF_EINVAL, "mix_first is for graphs of neighbours; among all ranks, without "
                                  "an outer optimizer, both orders are one");
    if (rule->weighted && !all)
        return rf_fail(RF_EINVAL, "shares of the mean belong to the graph \"all\", not to \"%s\"",
                       graph);
    return RF_OK;
}

int rf_rounds_check(const struct rf_rounds_rule *rule, int ranks)
{
    if (!rule || !rf_graph_name(rule->mixing.graph) || !rf_form_name(rule->form))
        return rf_fail(RF_EINVAL, "a rule has a graph and a form of the lists in rounds.h");
    struct rf_mixing mixing = rule->mixing;
    mixing.ranks = ranks;
    RETURN_IF_ERROR(rf_mixing_check(&mixing));
    RETURN_IF_ERROR(check_numbers(rule));
    RETURN_IF_ERROR(check_pairs(rule));
    if (rule->outer && !rf_optimizer_get_info(rule->outer->kind))
        return rf_fail(RF_EINVAL, "there is no such outer optimizer");
    if (rule->outer && rule->outer->stochastic_rounding)
        return rf_fail(RF_EINVAL, "stochastic rounding has no effect on an outer optimizer, whose "
                                  "parameters are f32");
    return RF_OK;
}
