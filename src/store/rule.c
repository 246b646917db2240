/* SPDX-License-Identifier: MIT
 *
 * The table of rules, what options may say, and the text of a rule.
 */
#include "message.h"
#include "store.h"

static const struct {
    const char *name, *text; /* text: as --sync has it */
    bool has_servers;
} rows[RF_STORE_RULE_COUNT] = {
    [RF_STORE_SYNC] = {"sync", "server", true},
    [RF_STORE_ASYNC] = {"async", "server:async", true},
    [RF_STORE_STALE] = {"stale", "server:stale", true},
    [RF_STORE_HOGWILD] = {"hogwild", "hogwild", false},
    [RF_STORE_RACY] = {"racy", "hogwild:racy", false},
};

const char *rf_store_rule_name(enum rf_store_rule rule)
{
    return (unsigned)rule < RF_STORE_RULE_COUNT ? rows[rule].name : NULL;
}

bool rf_store_has_servers(enum rf_store_rule rule)
{
    return (unsigned)rule < RF_STORE_RULE_COUNT && rows[rule].has_servers;
}

/* ---- options --------------------------------------------------------------------------------- */

static int check_servers(const struct rf_store_opts *o, int ranks)
{
    const int servers = o->servers ? o->servers : 1;
    if (servers < 1 || servers >= ranks)
        return rf_fail(RF_EINVAL,
                       "a store of %d ranks with %d servers: there is at least one server and one "
                       "worker, and each is a rank",
                       ranks, servers);
    if (o->count < servers || o->count > RF_STORE_MOST)
        return rf_fail(RF_EINVAL,
                       "a store of %lld parameters on %d servers: it has at least one "
                       "for each, and less than 2^40",
                       (long long)o->count, servers);
    if (o->stale < 0 || (o->stale > 0 && o->rule != RF_STORE_STALE))
        return rf_fail(RF_EINVAL,
                       "a staleness of %lld: it is 0 or more, and belongs to the rule "
                       "\"stale\" only",
                       (long long)o->stale);
    if (o->restore && !o->folder)
        return rf_fail(RF_EINVAL, "restore needs the folder of the servers' state");
    if (o->state && (o->state->version < 0 || o->state->updates < 0 ||
                     o->state->updates > UINT32_MAX || o->restore || !o->initial))
        return rf_fail(RF_EINVAL,
                       "a state of version %lld with %lld updates: both are 0 or more, and it goes "
                       "with `initial`, and not with `restore`",
                       (long long)o->state->version, (long long)o->state->updates);
    return RF_OK;
}

static int check_optimizer(const struct rf_optimizer_opts *o)
{
    if (!o)
        return RF_OK;
    if (!rf_optimizer_get_info(o->kind))
        return rf_fail(RF_EINVAL, "there is no such optimizer for the servers of a store");
    if (o->stochastic_rounding)
        return rf_fail(RF_EINVAL, "stochastic rounding has no effect on a store, whose parameters "
                                  "are f32");
    return RF_OK;
}

/* end: that of the range before, which this one must not overlap; NULL: it may. */
static int check_range(const char *what, int index, const struct rf_store_keys *keys, int64_t count,
                       int64_t *end)
{
    RETURN_IF_ERROR(rf_store_check_keys(what, keys, count));
    if (keys->rows || (end && keys->first < *end))
        return rf_fail(RF_EINVAL, "range %d of \"%s\" begins at %lld: ranges have no rows%s", index,
                       what, (long long)keys->first, end ? ", ascend and do not overlap" : "");
    if (end)
        *end = keys->first + rf_store_values(keys);
    return RF_OK;
}

static int check_ranges(const struct rf_store_opts *o)
{
    int64_t end = 0;
    for (int k = 0; k < o->undecayed_count; k++)
        RETURN_IF_ERROR(check_range("undecayed", k, o->undecayed + k, o->count, &end));
    for (int k = 0; k < o->term_count; k++)
        RETURN_IF_ERROR(check_range("terms", k, o->terms + k, o->count, NULL));
    if (o->term_count && o->rule != RF_STORE_SYNC)
        return rf_fail(RF_EINVAL, "terms of gradients belong to the rule \"%s\" only",
                       rows[RF_STORE_SYNC].name);
    return RF_OK;
}

int rf_store_check(const struct rf_store_opts *o, int ranks)
{
    if (!rf_store_rule_name(o->rule))
        return rf_fail(RF_EINVAL, "a store has a rule of the list in store.h");
    if (o->count < 1)
        return rf_fail(RF_EINVAL, "a store of %lld parameters: it has 1 or more",
                       (long long)o->count);
    RETURN_IF_ERROR(rf_check_seconds("a store", o->timeout_s));
    if (rows[o->rule].has_servers) {
        RETURN_IF_ERROR(check_servers(o, ranks));
        RETURN_IF_ERROR(check_ranges(o));
        return check_optimizer(o->optimizer);
    }
    if (o->servers || o->stale || o->optimizer || o->undecayed_count || o->term_count ||
        o->folder || o->restore || o->state || o->timeout_s != 0)
        return rf_fail(RF_EINVAL,
                       "the rule \"%s\" is without servers: it has no number of them, no "
                       "staleness, optimizer, decay, terms, folder, state or timeout",
                       rows[o->rule].name);
    return RF_OK;
}

/* ---- text ------------------------------------------------------------------------------------ */

static bool whole(const char *text, int64_t least, int64_t *out)
{
    const size_t digits = strspn(text, "0123456789");
    const long long number = digits > 0 && digits <= 10 ? strtoll(text, NULL, 10) : -1;
    if (text[digits] || number < least || number > 1000000000)
        return false;
    *out = number;
    return true;
}

/* "NAME=N" of the rule stale. */
static int take_rule(const char *word, struct rf_store_opts *out)
{
    const char *equals = strchr(word, '=');
    const size_t bytes = equals ? (size_t)(equals - word) : strlen(word);
    for (int rule = 0; rule < RF_STORE_RULE_COUNT; rule++) {
        if (strlen(rows[rule].text) != bytes || strncmp(rows[rule].text, word, bytes) != 0)
            continue;
        if ((rule == RF_STORE_STALE) != (equals != NULL) ||
            (equals && !whole(equals + 1, 0, &out->stale)))
            break;
        out->rule = (enum rf_store_rule)rule;
        return RF_OK;
    }
    return rf_fail(RF_EINVAL,
                   "there is no rule \"%.60s\" of a store; use server, server:async, "
                   "server:stale=S with S from 0 to 10^9, hogwild or hogwild:racy",
                   word);
}

static int take_key(const char *word, struct rf_store_opts *out)
{
    int64_t servers;
    if (strncmp(word, "servers=", 8) != 0)
        return rf_fail(RF_EINVAL, "a store has no key \"%.60s\"; there is servers=N", word);
    if (!rows[out->rule].has_servers)
        return rf_fail(RF_EINVAL, "%.60s: the rule %s is without servers", word,
                       rows[out->rule].text);
    if (out->servers)
        return rf_fail(RF_EINVAL, "servers is given twice");
    if (!whole(word + 8, 1, &servers) || servers > 4096)
        return rf_fail(RF_EINVAL, "servers=%.60s: a whole number from 1 to 4096", word + 8);
    out->servers = (int)servers;
    return RF_OK;
}

int rf_store_text_read(const char *text, struct rf_store_opts *out)
{
    struct rf_store_opts read = {0};
    char word[80];
    if (!text || !out)
        return rf_fail(RF_EINVAL, "the rule of a store is read from a text");
    for (bool first = true; first || *text; first = false) {
        const size_t bytes = strcspn(text, ",");
        snprintf(word, sizeof word, "%.*s", (int)(bytes < 70 ? bytes : 70), text);
        RETURN_IF_ERROR(first ? take_rule(word, &read) : take_key(word, &read));
        text += bytes;
        if (*text == ',' && !*++text)
            return rf_fail(RF_EINVAL, "the rule of a store ends in a comma");
    }
    out->rule = read.rule;
    out->stale = read.stale;
    out->servers = read.servers ? read.servers : out->servers;
    return RF_OK;
}
