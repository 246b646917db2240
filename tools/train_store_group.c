/* SPDX-License-Identifier: MIT
 *
 * The ranks of a worker of `ringforge train --sync server` and `hogwild` as one.
 */
#include "train_store.h"

int train_store_group(struct trainer *t)
{
    struct train_store *s = t->sync->store;
    if (s->group)
        return TOOL_OK;
    if (rf_run_group_open(t->run, &s->group) < 0)
        return trainer_failed(t);
    s->params = rf_run_group_params(s->group);
    return TOOL_OK;
}

int train_store_agree(struct trainer *t, struct train_store_word *word)
{
    const int32_t own = word->status;
    if (rf_run_group_attend(t->sync->store->group, word, sizeof(*word)) < 0 && own == TOOL_OK)
        return trainer_failed(t);
    return own == TOOL_OK ? word->status : own;
}

int train_store_pull_first(struct trainer *t)
{
    struct train_store *s = t->sync->store;
    const struct rf_store_keys all = rf_store_range(0, s->params.count);
    if (rf_store_pull(s->store, &all, 0, s->values) < 0 ||
        s->params.write(s->params.user, 0, s->params.count, s->values) < 0)
        return trainer_failed(t);
    return TOOL_OK;
}

int train_store_pull(struct trainer *t)
{
    struct train_store_word word = {.status = t->rank == 0 ? train_store_pull_first(t) : TOOL_OK};
    return train_store_agree(t, &word);
}
