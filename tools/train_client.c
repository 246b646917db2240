/* SPDX-License-Identifier: MIT
 *
 * `ringforge train --coordinator`: the ranks of this job are a client of a coordinator, with data
 * of their own (ringforge/federated.h). The first of them speaks to it for all.
 */
#include <string.h>

#include "client_list.h"
#include "train_sync.h"

/* What shapes the model: the options of this group of the help, and the files that they name. */
static int model_terms(const struct tool_command *command, const struct train_options *o,
                       char **terms)
{
    char text[2048];
    int status = TOOL_OK;
    for (const struct tool_option *row = o->table; row->name && status == TOOL_OK; row++) {
        const char *group = tool_option_group(row->name);
        if (!group || strcmp(group, "Model") != 0)
            continue;
        tool_option_text(row, text, sizeof(text));
        if (row->ranks == TOOL_CONTENT)
            status = tool_terms_add_content(command, terms, row);
        else if (row->ranks == TOOL_ALIKE)
            status = tool_terms_add(command, terms, row->name, text, 0);
    }
    return status;
}

/* ---- a rank ---------------------------------------------------------------------------------- */

static int place(struct trainer *t)
{
    return rf_rounds_text_read(t->o->sync, 1, &t->sync->rule) < 0 ? trainer_failed(t) : TOOL_OK;
}

/* What the first rank tells the others. */
struct word {
    int32_t status, ended, exchanged;
};

/* Behind what it has done for all. */
static int agree(struct trainer *t, struct word *word)
{
    const int32_t own = word->status;
    if (rf_run_group_attend(t->sync->group, word, sizeof(*word)) < 0 && own == TOOL_OK)
        return trainer_failed(t);
    return own == TOOL_OK ? word->status : own;
}

static int open_first(struct trainer *t)
{
    struct train_sync *sync = t->sync;
    char host[256] = "", *terms = NULL;
    struct tool_client_list peers = {0};
    const struct rf_rounds_params params = rf_run_group_params(sync->group);
    struct rf_client_opts opts = {.host = host,
                                  .name = t->o->client,
                                  .rule = &sync->rule.rule,
                                  .clip = (float)t->o->update_clip,
                                  .noise = (float)t->o->update_noise,
                                  .secure = (int)t->o->secure,
                                  .timeout_s = t->o->ranks.timeout_s};
    int status = model_terms(t->command, t->o, &terms);
    opts.terms = terms;
    if (status == TOOL_OK && t->o->peers)
        status = tool_client_list_read(t->command, t->o->peers, false, &peers);
    opts.peers = peers.all;
    opts.peer_count = peers.count;
    if (status == TOOL_OK && !train_client_address(t->o->coordinator, host, &opts.port))
        status = TOOL_USAGE; /* it has been checked */
    if (status == TOOL_OK && rf_client_open(&opts, &params, &sync->client) < 0)
        status = trainer_failed(t);
    free(terms);
    tool_client_list_free(&peers);
    if (status == TOOL_OK)
        printf("client %s: begins with the parameters of round %lld\n", t->o->client,
               (long long)rf_client_round(sync->client));
    return status;
}

static int open_client(struct trainer *t)
{
    struct word word = {0};
    if (t->sync->group)
        return TOOL_OK;
    if (rf_run_group_open(t->run, &t->sync->group) < 0)
        return trainer_failed(t);
    word.status = t->rank == 0 ? open_first(t) : TOOL_OK;
    return agree(t, &word);
}

static void shut(struct trainer *t)
{
    rf_client_close(t->sync->client);
    t->sync->client = NULL;
    rf_run_group_close(t->sync->group);
    t->sync->group = NULL;
}

static int step_first(struct trainer *t, double lr, struct rf_step_stats *stats, struct word *word)
{
    struct rf_client *client = t->sync->client;
    const struct rf_rounds_rule *rule = &t->sync->rule.rule;
    struct rf_client_stats now;
    const uint64_t from = rf_now_ns(), within = rf_run_group_sent_bytes(t->sync->group);
    if (rf_option(rule->proximal, 0) != 0 &&
        rf_client_pull(client, stats->skipped ? 0 : (float)lr) < 0)
        return trainer_failed(t);
    if (rf_client_step(client, rule->weighted ? t->round_tokens : 0, &now) < 0)
        return trainer_failed(t);
    stats->sent_bytes += now.sent_bytes - t->round_bytes;
    stats->sent_bytes += rf_run_group_sent_bytes(t->sync->group) - within;
    stats->exposed_comm_ns += now.wait_ns;
    stats->step_ns += rf_now_ns() - from;
    t->round_bytes = now.sent_bytes;
    word->ended = now.ended;
    word->exchanged = now.exchanged;
    return TOOL_OK;
}

static int step(struct trainer *t, double lr, struct rf_step_stats *stats)
{
    struct word word = {0};
    t->round_tokens += (double)stats->tokens;
    if (t->rank == 0)
        word.status = step_first(t, lr, stats, &word);
    const int status = agree(t, &word);
    t->ended = word.ended;
    if (word.exchanged) {
        t->round_tokens = 0;
        t->rounds_sent++;
    }
    return status;
}

/* What this client has disclosed, if it adds noise. */
static int leave(struct trainer *t)
{
    const struct rf_privacy privacy = {1, t->o->update_noise, t->rounds_sent, 1e-5};
    double epsilon = 0;
    if (t->o->update_noise == 0 || t->rank > 0)
        return TOOL_OK;
    if (rf_privacy_epsilon(&privacy, &epsilon) < 0)
        return tool_library_error(t->command, -1);
    printf("privacy: epsilon %.4g for delta 1e-5, after %lld rounds of this process\n", epsilon,
           (long long)t->rounds_sent);
    return TOOL_OK;
}

const struct train_sync_kind train_sync_by_coordinator = {
    .place = place, .open = open_client, .shut = shut, .step = step, .leave = leave};
