/* SPDX-License-Identifier: MIT
 *
 * The list of a call, by its algorithm: its windows, its staging memory, and its fallback if ranks
 * cannot reach each other's buffers. Called by comm and count.c.
 */
#include "../base/base.h"
#include "model.h"
#include "table.h"
#include "windows.h"

/* The same call for ranks that cannot reach each other's memory. */
static struct rf_coll_desc apart(const struct rf_coll_desc *desc)
{
    struct rf_coll_desc other = *desc;
    other.shared = false;
    return other;
}

/* Computes the shares of a call whose description does not give them: *counts, to be freed, or
 * NULL. */
static int add_counts(const struct rf_algorithm *algorithm, struct rf_coll_desc *desc,
                      size_t **counts)
{
    *counts = NULL;
    if (!algorithm->counts)
        return 0;
    *counts = rf_alloc((size_t)desc->ranks * sizeof(**counts));
    if (!*counts)
        return rf_fail(RF_ENOMEM, "no memory for the shares of %d ranks", desc->ranks);
    algorithm->counts(desc, *counts);
    desc->counts = *counts;
    return 0;
}

int rf_sched_staging_bytes(const struct rf_coll_desc *desc, const char *name, uint64_t *out)
{
    const struct rf_algorithm *algorithm;
    struct rf_windows windows;
    RETURN_IF_ERROR(rf_coll_find(desc, name, &algorithm));
    if (algorithm->fallback) {
        struct rf_coll_desc other;
        const char *other_name = algorithm->fallback(desc, &other);
        return rf_sched_staging_bytes(&other, other_name, out);
    }
    struct rf_coll_desc own = *desc;
    size_t *counts;
    RETURN_IF_ERROR(add_counts(algorithm, &own, &counts));
    int rc = rf_windows_init(&windows, &own, !algorithm->whole);
    if (rc == 0)
        *out = windows.in.staged || windows.out.staged
                   ? (uint64_t)windows.slots * windows.slot_bytes
                   : 0;
    rf_windows_fini(&windows);
    rf_free(counts);
    return rc;
}

/* For a list that publishes: sets the ranges that others may read, and the counted bytes. */
static int describe(struct rf_sched *sched, const struct rf_coll_desc *desc)
{
    const struct rf_coll_desc other = apart(desc);
    RETURN_IF_ERROR(rf_coll_count_sent(&other, NULL, &sched->counted_bytes));
    if (!(desc->staged & RF_STAGED_IN))
        sched->in_bytes = rf_coll_in_count(desc) * sched->element_bytes;
    if (!(desc->staged & RF_STAGED_OUT))
        sched->out_bytes = rf_coll_out_count(desc) * sched->element_bytes;
    return 0;
}

static struct rf_coll_desc segmented(const struct rf_coll_desc *desc,
                                     const struct rf_algorithm *algorithm)
{
    struct rf_coll_desc own = *desc;
    own.segment_bytes = rf_coll_segment(desc, algorithm);
    return own;
}

/* A list with a fallback stages nothing: if the host cannot reach a rank's tensors, the rank says
 * so, and all ranks use the fallback. */
static int create(const struct rf_coll_desc *desc, const struct rf_algorithm *algorithm,
                  struct rf_sched **out)
{
    struct rf_sched *sched = NULL, *fallback = NULL;
    struct rf_coll_desc own = segmented(desc, algorithm);
    if (algorithm->fallback) {
        struct rf_coll_desc other;
        const char *other_name = algorithm->fallback(desc, &other);
        own.staged = 0;
        RETURN_IF_ERROR(other_name ? rf_sched_build_as(&other, other_name, &fallback)
                                   : rf_sched_build(&other, &fallback));
    }
    size_t *counts;
    int rc = add_counts(algorithm, &own, &counts);
    if (rc == 0)
        rc = rf_sched_create(&own, algorithm->name, algorithm->build, !algorithm->whole, &sched);
    rf_free(counts);
    if (rc == 0 && algorithm->shares_memory && !fallback)
        rc = describe(sched, desc);
    if (rc < 0) {
        rf_sched_destroy(sched);
        rf_sched_destroy(fallback);
        return rc;
    }
    sched->fallback = fallback;
    if (!(desc->staged & RF_STAGED_OUT))
        sched->whole_bytes = rf_coll_out_count(desc) * sched->element_bytes;
    *out = sched;
    return 0;
}

/* The bytes of a call do not depend on the hosts of its ranks, even if its algorithm does. */
static int count_as_apart(const struct rf_coll_desc *desc, const struct rf_algorithm *algorithm,
                          struct rf_sched *sched)
{
    const struct rf_coll_desc other = apart(desc);
    const struct rf_algorithm *taken;
    if (!desc->shared || algorithm->shares_memory)
        return 0;
    RETURN_IF_ERROR(rf_coll_find(&other, NULL, &taken));
    return taken == algorithm ? 0 : rf_coll_count_sent(&other, taken->name, &sched->counted_bytes);
}

int rf_sched_build(const struct rf_coll_desc *desc, struct rf_sched **out)
{
    const struct rf_algorithm *algorithm;
    struct rf_sched *sched;
    RETURN_IF_ERROR(rf_coll_find(desc, NULL, &algorithm));
    RETURN_IF_ERROR(create(desc, algorithm, &sched));
    const int rc = count_as_apart(desc, algorithm, sched);
    if (rc < 0) {
        rf_sched_destroy(sched);
        return rc;
    }
    *out = sched;
    return 0;
}

int rf_sched_build_as(const struct rf_coll_desc *desc, const char *name, struct rf_sched **out)
{
    const struct rf_algorithm *algorithm;
    RETURN_IF_ERROR(rf_coll_find(desc, name, &algorithm));
    return create(desc, algorithm, out);
}

int rf_coll_count_sent(const struct rf_coll_desc *desc, const char *name, uint64_t *out)
{
    const struct rf_algorithm *algorithm;
    RETURN_IF_ERROR(rf_coll_find(desc, name, &algorithm));
    const bool pieces = desc->counts && !rf_coll_adds_leaves(desc->op);
    if (pieces ? algorithm->sent_counts : algorithm->sent) {
        const struct rf_coll_desc own = segmented(desc, algorithm);
        *out = pieces ? algorithm->sent_counts(&own) : algorithm->sent(&own);
        return 0;
    }
    struct rf_sched *sched;
    RETURN_IF_ERROR(create(desc, algorithm, &sched));
    *out = sched->sent_bytes;
    rf_sched_destroy(sched);
    return 0;
}
