/* SPDX-License-Identifier: MIT
 *
 * The table of rules, what options may say, and the text of a rule.
 */
#include "store.h"

static const struct rf_store_row rows[RF_STORE_RULE_COUNT] = {
    [RF_STORE_HOGWILD] = {"hogwild", "hogwild", &rf_store_in_memory},
    [RF_STORE_RACY] = {"racy", "hogwild:racy", &rf_store_in_memory},
};

const struct rf_store_row *rf_store_find_rule(enum rf_store_rule rule)
{
    return (unsigned)rule < RF_STORE_RULE_COUNT ? rows + rule : NULL;
}

const char *rf_store_rule_name(enum rf_store_rule rule)
{
    return rf_store_find_rule(rule) ? rows[rule].name : NULL;
}

int rf_store_check(const struct rf_store_opts *opts, int ranks)
{
    if (!rf_store_find_rule(opts->rule))
        return rf_fail(RF_EINVAL, "a store has a rule of the list in store.h");
    if (opts->count < 1)
        return rf_fail(RF_EINVAL, "a store of %lld parameters: it has 1 or more",
                       (long long)opts->count);
    if (ranks < 1)
        return rf_fail(RF_EINVAL, "a store has 1 rank or more");
    return RF_OK;
}

int rf_store_text_read(const char *text, struct rf_store_opts *out)
{
    if (!text || !out)
        return rf_fail(RF_EINVAL, "the rule of a store is read from a text");
    for (int rule = 0; rule < RF_STORE_RULE_COUNT; rule++)
        if (strcmp(text, rows[rule].text) == 0) {
            out->rule = (enum rf_store_rule)rule;
            return RF_OK;
        }
    return rf_fail(RF_EINVAL, "there is no rule \"%.60s\" of a store; use hogwild or hogwild:racy",
                   text);
}
