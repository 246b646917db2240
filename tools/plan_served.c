/* SPDX-License-Identifier: MIT
 *
 * ringforge plan --sync: workers of a store, and clients of a coordinator. They meet those only: a
 * server, or the coordinator, has a link for all of them.
 */
#include <ringforge/federated.h>
#include <ringforge/store.h>
#include <string.h>

#include "plan.h"

/* Of a step of a worker, or of a round of a client. */
struct served {
    const char *what; /* "step", or "round" */
    int servers;      /* 0: memory that the workers share, or a coordinator */
    bool coordinator, waits;
    int64_t steps, params;
    double sent, received;               /* by one of them */
    double server_sent, server_received; /* by the busiest server, for all of them */
    double memory;                       /* of it */
    double own, within; /* by the first rank of a worker: in its step, and to its other ranks */
    double messages, step_s;
    struct plan_beside beside;
};

bool plan_is_served(const struct plan_sync *sync)
{
    struct rf_store_opts store = {0};
    return sync->clients > 0 || (sync->rule && rf_store_text_read(sync->rule, &store) == 0);
}

static int check_rule(const struct tool_command *command, const struct plan_sync *sync)
{
    struct rf_rounds_text text;
    struct rf_federated_usage usage;
    int rc = rf_rounds_text_read(sync->rule, 1, &text);
    if (rc == 0) {
        rc = rf_federated_usage(&text.rule, 1, sync->workers, &usage);
        rf_rounds_text_free(&text);
    }
    return rc < 0 ? tool_usage_error(command, "--sync %s: %s", sync->rule, rf_last_error()->message)
                  : TOOL_OK;
}

int plan_served_check(const struct tool_command *command, struct setup *setup, int64_t ranks,
                      struct plan_sync *sync)
{
    struct rf_store_opts store = {0};
    const bool clients = sync->clients > 0;
    if (!clients && rf_store_text_read(sync->rule, &store) < 0)
        return tool_usage_error(command, "--sync %s: %s", sync->rule, rf_last_error()->message);
    const bool has_servers = !clients && rf_store_has_servers(store.rule);
    const int servers = !has_servers ? 0 : store.servers ? store.servers : 1;
    const int size = setup_ranks(setup);
    if (clients && ranks)
        return tool_usage_error(command, "--clients N has no --ranks: each client has its --mesh");
    sync->workers = (int)(clients ? sync->clients : (ranks - servers) / size);
    if (sync->workers < 1 || (!clients && (ranks - servers) % size != 0))
        return tool_usage_error(command,
                                "--sync %s needs --ranks, of which %d %s the store, and a multiple "
                                "of %d, the ranks of a worker's --mesh: at least %d",
                                sync->rule, servers, servers == 1 ? "serves" : "serve", size,
                                servers + size);
    if (clients)
        return check_rule(command, sync);
    if (setup_check_store(command, setup, sync->rule, &store) != TOOL_OK)
        return TOOL_USAGE;
    setup_store_policy(&store, &setup->policy);
    return TOOL_OK;
}

static int store_bytes(const struct plan_sync *sync, const struct rf_plan *plan, struct served *s)
{
    struct rf_store_opts opts = {.count = s->params};
    struct rf_store_usage u;
    struct rf_store_keys *terms = NULL;
    if (rf_store_text_read(sync->rule, &opts) < 0)
        return -1;
    const bool has_servers = rf_store_has_servers(opts.rule);
    opts.optimizer = has_servers ? &sync->optimizer : NULL;
    opts.term_count = setup_store_ranges(plan, rf_plan_trained_use, NULL);
    opts.terms = terms = calloc((size_t)opts.term_count + 1, sizeof(*terms));
    if (!terms)
        return -1;
    setup_store_ranges(plan, rf_plan_trained_use, terms);
    const int rc = rf_store_usage(&opts, sync->workers, &u);
    free(terms);
    if (rc < 0)
        return -1;
    s->what = "step";
    s->steps = 1;
    s->servers = !has_servers ? 0 : opts.servers ? opts.servers : 1;
    s->waits = opts.rule == RF_STORE_SYNC;
    s->sent = (double)u.sent_bytes;
    s->received = (double)u.received_bytes;
    s->server_sent = (double)u.server_sent_bytes;
    s->server_received = (double)u.server_received_bytes;
    s->memory = (double)u.memory_bytes;
    s->messages = u.messages;
    return 0;
}

static int client_bytes(const struct plan_sync *sync, struct served *s)
{
    struct rf_rounds_text text;
    struct rf_federated_usage u;
    if (rf_rounds_text_read(sync->rule, 1, &text) < 0)
        return -1;
    const int rc = rf_federated_usage(&text.rule, s->params, sync->workers, &u);
    s->what = "round";
    s->steps = text.rule.every ? text.rule.every : 1;
    rf_rounds_text_free(&text);
    if (rc < 0)
        return rc;
    s->coordinator = s->waits = true;
    s->sent = (double)u.sent_bytes;
    s->received = (double)u.received_bytes;
    s->server_sent = sync->workers * s->received;
    s->server_received = sync->workers * s->sent;
    s->memory = (double)u.memory_bytes;
    s->messages = 2;
    return 0;
}

/* The first rank of a worker exchanges for the others, and gives each what it has. */
static int group_bytes(const struct setup *setup, const struct model *model,
                       const struct rf_plan *first, struct served *s)
{
    struct rf_bytes bytes;
    rf_plan_bytes(first, &bytes);
    s->own = (double)bytes.sent * (double)s->steps;
    for (int r = 1; r < setup_ranks(setup); r++) {
        struct rf_plan *plan = NULL;
        if (rf_plan_build((struct rf_blocks){model->blocks, model->count}, &setup->mesh,
                          &setup->policy, r, &plan) < 0)
            return -1;
        s->within += 4 * (double)rf_plan_trained_count(plan);
        rf_plan_destroy(plan);
    }
    return 0;
}

static double larger(double a, double b)
{
    return a > b ? a : b;
}

/* If all wait for each other, so do their messages for the link of the server. Otherwise they share
 * it, and are slower once it is busy all the time. */
static void take_times(const struct plan_view *view, struct served *s)
{
    const struct rf_sim_rates *r = &view->rates->rates;
    const double near = r->host_ranks > 0 ? r->intra_host_bytes_per_s : r->link_bytes_per_s;
    const double group_s = s->within > 0 ? (s->within + 4 * (double)s->params) / near : 0;
    const double computing = view->prediction->result.step_s * (double)s->steps + group_s;
    const bool sends = s->messages > 0;
    const double rate = sends ? r->link_bytes_per_s : 1, wait = s->messages * r->link_latency_s;
    const double own = sends ? (s->sent + s->received) / rate : 0;
    const double busy = sends ? larger(s->server_sent, s->server_received) / rate : 0;
    const double all = larger(s->sent, s->server_received) + larger(s->received, s->server_sent);
    const double seen =
        s->waits ? computing + wait + all / rate : larger(computing + wait + own, busy);
    s->step_s = seen / (double)s->steps;
}

static double step_bytes(const struct served *s)
{
    return (s->sent + s->within + s->own) / (double)s->steps;
}

static void print(const struct plan_sync *sync, const struct served *s, bool timed, double tokens)
{
    char text[4][24];
    printf("\n%d %s of this batch, --sync %s\n", sync->workers,
           s->coordinator ? "clients" : "workers", sync->rule);
    if (!s->coordinator && !s->servers)
        printf("They share %lld parameters, %s; nothing is sent to them", (long long)s->params,
               tool_bytes_text((uint64_t)s->memory, text[0], sizeof(text[0])));
    else
        printf("Each sends %s in a %s, and receives %s. %s sends %s for all, receives %s, and "
               "keeps %s\nSent a step: %s",
               tool_bytes_text((uint64_t)s->sent, text[0], sizeof(text[0])), s->what,
               tool_bytes_text((uint64_t)s->received, text[1], sizeof(text[1])),
               s->coordinator    ? "The coordinator"
               : s->servers == 1 ? "The server"
                                 : "The busiest server",
               tool_bytes_text((uint64_t)s->server_sent, text[2], sizeof(text[2])),
               tool_bytes_text((uint64_t)s->server_received, text[3], sizeof(text[3])),
               tool_bytes_text((uint64_t)s->memory, (char[24]){0}, 24),
               tool_bytes_text((uint64_t)step_bytes(s), (char[24]){0}, 24));
    plan_beside_print(&s->beside, s->coordinator ? "clients" : "workers", step_bytes(s));
    if (s->within > 0)
        printf("The first rank of a %s sends its others %s in a %s; the steps of its mesh send "
               "%s\n",
               s->coordinator ? "client" : "worker",
               tool_bytes_text((uint64_t)s->within, text[0], sizeof(text[0])), s->what,
               tool_bytes_text((uint64_t)s->own, text[1], sizeof(text[1])));
    if (!timed)
        return;
    printf("Predicted step: %s, %.0f tokens/s of all",
           plan_time_text(s->step_s, text[0], sizeof(text[0])), tokens / s->step_s);
    plan_beside_print_time(&s->beside);
}

int plan_served(const struct tool_command *command, const struct plan_sync *sync,
                const struct setup *setup, const struct model *model, const struct plan_view *view,
                bool prints, cJSON *json)
{
    struct served s = {.params = rf_plan_trained_all(view->plan)};
    const bool timed = view->prediction->sim != NULL;
    const double tokens = (double)setup->policy.batch * (double)setup->policy.seq * sync->workers;
    if ((sync->clients ? client_bytes(sync, &s) : store_bytes(sync, view->plan, &s)) < 0 ||
        group_bytes(setup, model, view->plan, &s) < 0)
        return tool_library_error(command, -1);
    if (!s.servers && !s.coordinator && view->rates->hosts > 1)
        return tool_error(command, "--sync %s is planned within a host: leave out --hosts",
                          sync->rule);
    const int status = plan_beside(command, sync, setup, model, view, &s.beside);
    if (status == TOOL_OK && timed)
        take_times(view, &s);
    if (status == TOOL_OK && prints)
        print(sync, &s, timed, tokens);
    cJSON *object = status == TOOL_OK && json ? cJSON_AddObjectToObject(json, "sync") : NULL;
    if (object) {
        tool_json_put(object,
                      "workers=%d servers=%d every=%g params=%g sent_round=%g received_round=%g "
                      "server_sent=%g server_received=%g server_memory=%g own=%g within=%g",
                      sync->workers, s.servers, (double)s.steps, (double)s.params, s.sent,
                      s.received, s.server_sent, s.server_received, s.memory, s.own, s.within);
        if (timed)
            tool_json_put(object, "step_us=%g tokens_per_s=%g", 1e6 * s.step_s, tokens / s.step_s);
        plan_beside_to_json(&s.beside, object);
    }
    prediction_free(&s.beside.prediction);
    return status;
}
