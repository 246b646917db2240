/* SPDX-License-Identifier: MIT
 *
 * Trains the model of examples/trainer.c under every policy, on groups of 1, 2 and 3 of the three
 * ranks that it is started on: one device and one job, since opening them takes longest. Prints
 * every difference; exit status 0: there is none.
 */
#define main trainer_main
#include "../../examples/trainer.c" /* for its static train() */
#undef main

static const int stages[] = {0, 1, 2, 3}, recomputes[] = {0, 1, 2, RF_RECOMPUTE_SQRT};
#define STEPS 3

struct group {
    struct rf_device *device;
    struct rf_comm *comm;
    int differences;
};

/* One training; compares its hash with *expected, or sets that if it is empty. */
static int check(struct group *g, struct rf_policy policy, char expected[65])
{
    struct outcome o;
    const int rank = rf_comm_rank(g->comm), size = rf_comm_size(g->comm);
    int rc = train(g->device, g->comm, &policy, STEPS, false, &o);
    if (rc < 0)
        return rc;
    if (!*expected)
        memcpy(expected, o.sha256, sizeof(o.sha256));
    const bool same = !strcmp(o.sha256, expected);
    const bool planned = memcmp(&o.planned, &o.measured, sizeof(o.planned)) == 0;
    if (same && planned)
        return 0;
    g->differences++;
    printf("rank %d of %d: %s order, zero=%d recompute=%d offload=%d: %s%s\n", rank, size,
           rf_order_name(policy.order), policy.zero, policy.recompute, policy.offload,
           same ? "" : "other parameters; ", planned ? "" : "bytes measured are not those planned");
    return 0;
}

/* In tree order: the same parameters for any stage, recomputation and place of the parameters and
 * activations. */
static int check_tree(struct group *g, char expected[65])
{
    int rc = 0;
    for (int stage = 0; rc == 0 && stage < 4; stage++) {
        struct rf_policy policy = usual;
        policy.zero = stages[stage];
        for (int i = 0; rc == 0 && i < 4; i++) {
            policy.recompute = recomputes[i];
            rc = check(g, policy, expected);
        }
        policy.recompute = 0;
        policy.offload = RF_OFFLOAD_ACTIVATIONS;
        if (policy.zero != 1) /* not supported with it */
            policy.offload |= RF_OFFLOAD_PARAMS;
        if (rc == 0)
            rc = check(g, policy, expected);
    }
    return rc;
}

/* In ring order: the same parameters on all ranks of a group, and with recomputation. */
static int check_ring(struct group *g)
{
    int rc = 0;
    for (int stage = 0; rc == 0 && stage < 4; stage++) {
        struct rf_policy policy = usual;
        char expected[65] = "";
        policy.order = RF_ORDER_RING;
        policy.zero = stages[stage];
        rc = check(g, policy, expected);
        if (rc == 0)
            rc = rf_broadcast(g->comm, expected, sizeof(expected), RF_U8, 0, NULL);
        policy.recompute = 1;
        if (rc == 0)
            rc = check(g, policy, expected);
    }
    return rc;
}

static int check_all(struct rf_comm *world, struct rf_device *device, int *differences)
{
    char expected[65] = ""; /* rank 0's on its own, for all */
    const int rank = rf_comm_rank(world);
    int rc = 0;
    for (int size = 1; rc == 0 && size <= rf_comm_size(world); size++) {
        struct group group = {.device = device};
        rc = rf_comm_split(world, rank < size ? 0 : -1, rank, &group.comm);
        if (rc == 0 && group.comm)
            rc = check_tree(&group, expected);
        if (rc == 0 && group.comm)
            rc = check_ring(&group);
        const int closed = rf_comm_close(group.comm);
        rc = rc < 0 ? rc : closed;
        if (rc == 0)
            rc = rf_broadcast(world, expected, sizeof(expected), RF_U8, 0, NULL);
        *differences += group.differences;
    }
    return rc;
}

int main(void)
{
    struct rf_comm *world = NULL;
    struct rf_device *device = NULL;
    int differences = 0;
    int rc = rf_comm_open("env:", NULL, &world);
    if (rc == 0)
        rc = rf_device_open(NULL, NULL, &device);
    if (rc == 0)
        rc = check_all(world, device, &differences);
    if (rc < 0)
        fprintf(stderr, "%s\n", rf_last_error()->message);
    rf_device_close(device);
    const int closed = rf_comm_close(world);
    return rc < 0 || closed < 0 || differences > 0;
}
