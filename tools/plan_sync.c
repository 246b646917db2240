/* SPDX-License-Identifier: MIT
 *
 * ringforge plan --sync: workers that exchange parameters now and then, beside the same ranks that
 * train data-parallel.
 */
#include <ringforge/rounds.h>
#include <string.h>

#include "plan.h"

/* Of one rank of a worker, and of one rank of the data-parallel job. */
struct sides {
    struct rf_rounds_usage round;
    int64_t every, delay, exchanged;
    double exchange_s, step_s; /* with the exchange, averaged over a round */
    struct plan_beside beside;
};

int plan_sync_check(const struct tool_command *command, const struct setup *setup, int64_t ranks,
                    struct plan_sync *sync)
{
    const int size = setup_ranks(setup);
    struct rf_rounds_text text;
    sync->workers = (int)(ranks / size);
    if (sync->workers < 1 || ranks % size != 0)
        return tool_usage_error(command,
                                "--sync needs --ranks, a multiple of the %d rank%s of a worker's "
                                "--mesh",
                                size, size == 1 ? "" : "s");
    if (rf_rounds_text_read(sync->rule, sync->workers, &text) < 0)
        return tool_usage_error(command, "--sync %s: %s", sync->rule, rf_last_error()->message);
    rf_rounds_text_free(&text);
    return TOOL_OK;
}

/* The rank that sends most: a graph may give ranks different numbers of neighbours. */
static int most(const struct rf_plan *plan, const struct rf_rounds_rule *rule, int workers,
                struct sides *s)
{
    enum { MOST_ASKED = 64 };
    struct rf_round_place place = {.ranks = workers, .count = s->exchanged};
    struct rf_round_shape *shapes = NULL;
    int status = 0;
    if (rule->form == RF_FORM_POWERSGD)
        status = rf_plan_trained_shapes(plan, &shapes, &place.shape_count);
    place.shapes = shapes;
    for (int w = 0; w < workers && w < MOST_ASKED && status == 0; w++) {
        struct rf_rounds_usage usage;
        place.rank = w;
        status = rf_rounds_usage(rule, &place, &usage);
        if (status == 0 && (w == 0 || usage.sent_bytes > s->round.sent_bytes))
            s->round = usage;
    }
    free(shapes);
    return status;
}

/* Ranks in the same place of other workers are on other hosts, unless one host has all. */
static double exchange_s(const struct rf_rounds_usage *u, const struct rf_sim_rates *r, int ranks)
{
    const bool within = r->host_ranks > 0 && ranks <= r->host_ranks;
    const double rate = within ? r->intra_host_bytes_per_s : r->link_bytes_per_s;
    const double latency = within ? r->intra_host_latency_s : r->link_latency_s;
    return (double)u->messages * latency + (double)u->sent_bytes / rate;
}

/* What an exchange adds to the steps of a round, if it runs beside `delay` of them. */
static void take_times(const struct plan_view *view, int ranks, struct sides *s)
{
    const double step = view->prediction->result.step_s;
    s->exchange_s = exchange_s(&s->round, &view->rates->rates, ranks);
    const double hidden = step * (double)s->delay;
    const double seen = s->exchange_s > hidden ? s->exchange_s - hidden : 0;
    s->step_s = step + seen / (double)s->every;
}

static void print_bytes(const struct sides *s, double own)
{
    const double a_step = own + (double)s->round.sent_bytes / (double)s->every;
    char text[2][24];
    printf("A rank exchanges %lld parameters every %lld step%s, keeps %s in host memory for it, "
           "and sends %s in a round\n",
           (long long)s->exchanged, (long long)s->every, s->every == 1 ? "" : "s",
           tool_bytes_text(s->round.memory_bytes, text[0], sizeof(text[0])),
           tool_bytes_text(s->round.sent_bytes, text[1], sizeof(text[1])));
    printf("Sent a step: %s", tool_bytes_text((uint64_t)a_step, text[0], sizeof(text[0])));
    plan_beside_print(&s->beside, "ranks", a_step);
}

static void print_times(const struct sides *s, double tokens)
{
    char text[4][24];
    printf("Predicted step with exchanges: %s, %.0f tokens/s of all workers (an exchange takes %s",
           plan_time_text(s->step_s, text[0], sizeof(text[0])), tokens / s->step_s,
           plan_time_text(s->exchange_s, text[1], sizeof(text[1])));
    if (s->delay)
        printf(", beside %lld step%s", (long long)s->delay, s->delay == 1 ? "" : "s");
    printf(")");
    plan_beside_print_time(&s->beside);
}

static void to_json(const struct sides *s, bool timed, int workers, double tokens, cJSON *json)
{
    cJSON *object = cJSON_AddObjectToObject(json, "sync");
    tool_json_put(
        object, "workers=%d every=%g delay=%g params=%g host=%g sent_round=%g messages=%g", workers,
        (double)s->every, (double)s->delay, (double)s->exchanged, (double)s->round.memory_bytes,
        (double)s->round.sent_bytes, (double)s->round.messages);
    if (timed)
        tool_json_put(object, "exchange_us=%g step_us=%g tokens_per_s=%g", 1e6 * s->exchange_s,
                      1e6 * s->step_s, tokens / s->step_s);
    plan_beside_to_json(&s->beside, object);
}

int plan_sync(const struct tool_command *command, const struct plan_sync *sync,
              const struct setup *setup, const struct model *model, const struct plan_view *view,
              bool print, cJSON *json)
{
    struct rf_rounds_text text;
    struct rf_bytes own;
    struct sides s = {.exchanged = rf_plan_trained_count(view->plan)};
    const bool timed = view->prediction->sim != NULL;
    const double tokens = (double)setup->policy.batch * (double)setup->policy.seq * sync->workers;
    if (rf_rounds_text_read(sync->rule, sync->workers, &text) < 0)
        return tool_library_error(command, -1);
    s.every = text.rule.every ? text.rule.every : 1;
    s.delay = text.rule.delay;
    int status = most(view->plan, &text.rule, sync->workers, &s) < 0
                     ? tool_library_error(command, -1)
                     : TOOL_OK;
    rf_rounds_text_free(&text);
    if (status == TOOL_OK)
        status = plan_beside(command, sync, setup, model, view, &s.beside);
    if (status == TOOL_OK && timed)
        take_times(view, sync->workers * setup_ranks(setup), &s);
    rf_plan_bytes(view->plan, &own);
    if (status == TOOL_OK && print) {
        printf("\n%d workers of this mesh and batch, --sync %s\n", sync->workers, sync->rule);
        print_bytes(&s, (double)own.sent);
    }
    if (status == TOOL_OK && print && timed)
        print_times(&s, tokens);
    if (status == TOOL_OK && json)
        to_json(&s, timed, sync->workers, tokens, json);
    prediction_free(&s.beside.prediction);
    return status;
}
