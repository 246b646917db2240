/* SPDX-License-Identifier: MIT
 *
 * Terms: the settings that must be equal on all ranks of a job, as text. Compared over the control
 * link, because the ranks' other calls may not match yet.
 */
#include <ringforge/ringforge.h>

#include "../communicator.h"
#include "../task.h"
#include "transport/transport.h"

/* Fails with a sentence on the first difference between rank `other` and rank 0. */
static int fail_terms(const char *first, const char *texts, int other)
{
    struct rf_terms_difference d;
    const char *theirs = texts + (size_t)other * RF_TERMS_BYTES;
    if (!rf_terms_differ(first, theirs, &d) && rf_terms_differ(theirs, first, &d))
        return rf_fail_rank(RF_EINVAL, other,
                            "rank 0 speaks of %s, which rank %d does not know; give every rank the "
                            "same version",
                            d.name, other);
    if (!d.known)
        return rf_fail_rank(RF_EINVAL, other,
                            "rank %d speaks of %s, which rank 0 does not know; give every rank the "
                            "same version",
                            other, d.name);
    if (strcmp(d.mine, d.theirs) == 0)
        return rf_fail_rank(RF_EINVAL, other,
                            "%s of rank %d is not that of rank 0, though both are %s; give every "
                            "rank the same",
                            d.name, other, d.mine);
    return rf_fail_rank(RF_EINVAL, other, "rank %d has %s %s, rank 0 %s; give every rank the same",
                        other, d.name, d.theirs, d.mine);
}

static int compare_texts(struct rf_comm *comm, const char *terms)
{
    struct rf_control *control = comm->links.control;
    char *mine = rf_alloc(RF_TERMS_BYTES), *all = rf_alloc((size_t)comm->size * RF_TERMS_BYTES);
    int rc = mine && all ? 0 : rf_fail(RF_ENOMEM, "no memory to compare %d ranks", comm->size);
    if (rc == 0) {
        memcpy(mine, terms, strlen(terms));
        rc = control->ops->all_gather(control, mine, RF_TERMS_BYTES, all, comm->settings.timeout_s);
    }
    for (int r = 1; rc == 0 && r < comm->size; r++) {
        all[(size_t)(r + 1) * RF_TERMS_BYTES - 1] = 0;
        if (strcmp(all, all + (size_t)r * RF_TERMS_BYTES) != 0)
            rc = fail_terms(all, all, r);
    }
    rf_free(mine);
    rf_free(all);
    return rc;
}

int rf_comm_check_terms(struct rf_comm *comm, const char *terms)
{
    struct summary {
        uint64_t bytes;
        uint32_t hashes[2];
    } mine, *all;
    if (!comm || !terms)
        return rf_fail(RF_EINVAL, "check_terms: the communicator or the terms are NULL");
    if (strlen(terms) >= RF_TERMS_BYTES)
        return rf_fail(RF_EINVAL, "check_terms: terms have at most %d bytes", RF_TERMS_BYTES - 1);
    RETURN_IF_ERROR(rf_group_refuse(comm, "check_terms"));
    RETURN_IF_ERROR(rf_comm_enter(comm));
    struct rf_control *control = comm->links.control;
    all = rf_alloc((size_t)comm->size * sizeof(mine));
    if (!all)
        return rf_fail(RF_ENOMEM, "no memory to compare %d ranks", comm->size);
    mine.bytes = strlen(terms);
    for (uint32_t seed = 0; seed < 2; seed++)
        mine.hashes[seed] = rf_hash32(terms, mine.bytes, seed);
    int rc = control->ops->all_gather(control, &mine, sizeof(mine), all, comm->settings.timeout_s);
    bool equal = true;
    for (int r = 1; rc == 0 && r < comm->size; r++)
        equal = equal && memcmp(all, all + r, sizeof(mine)) == 0;
    rf_free(all);
    return rc == 0 && !equal ? compare_texts(comm, terms) : rc;
}
