/* SPDX-License-Identifier: MIT
 *
 * The graphs of a round: the weights that each rank gives the others. A graph is a row of the table
 * at the end.
 */
#include <ringforge/rounds.h>

#include "base/base.h"

struct graph {
    const char *name;
    /* Undirected: whether two different ranks are neighbours. */
    bool (*linked)(int ranks, int a, int b);
    /* Otherwise: adds the weights of a row that is all zero. */
    int (*row)(const struct rf_mixing *mixing, int64_t round, int rank, double *row);
};

static bool in_ring(int ranks, int a, int b)
{
    const int distance = abs(a - b);
    return distance == 1 || distance == ranks - 1;
}

static bool in_torus(int ranks, int a, int b)
{
    int rows = 1;
    for (int divisor = 1; divisor <= ranks / divisor; divisor++)
        if (ranks % divisor == 0)
            rows = divisor;
    const int columns = ranks / rows;
    if (a / columns == b / columns)
        return in_ring(columns, a % columns, b % columns);
    return a % columns == b % columns && in_ring(rows, a / columns, b / columns);
}

static int all_row(const struct rf_mixing *mixing, int64_t round, int rank, double *row)
{
    for (int peer = 0; peer < mixing->ranks; peer++)
        row[peer] = 1.0 / mixing->ranks;
    return RF_OK;
}

/* The number of distances 1, 2, 4, ... below the number of ranks. */
static int distances(int ranks)
{
    int count = 0;
    while (count < 31 && 1 << count < ranks)
        count++;
    return count;
}

static int exponential_row(const struct rf_mixing *mixing, int64_t round, int rank, double *row)
{
    const int count = distances(mixing->ranks);
    row[rank] = 1.0 / (count + 1);
    for (int k = 0; k < count; k++)
        row[(rank + ((int64_t)1 << k)) % mixing->ranks] += 1.0 / (count + 1);
    return RF_OK;
}

static int one_peer_row(const struct rf_mixing *mixing, int64_t round, int rank, double *row)
{
    const int count = distances(mixing->ranks);
    row[rank] = 1;
    if (count > 0) {
        row[rank] = 0.5;
        row[(rank + ((int64_t)1 << round % count)) % mixing->ranks] += 0.5;
    }
    return RF_OK;
}

/* A random permutation, equal on all ranks: its 1st and 2nd rank are a pair, its 3rd and 4th, ...
 * Of an odd number of ranks the last one keeps its own. */
static int matching_row(const struct rf_mixing *mixing, int64_t round, int rank, double *row)
{
    int *order = rf_alloc((size_t)mixing->ranks * sizeof *order);
    if (!order)
        return rf_fail(RF_ENOMEM, "out of memory for the pairs of %d ranks", mixing->ranks);
    for (int i = 0; i < mixing->ranks; i++)
        order[i] = i;
    for (int i = mixing->ranks - 1; i > 0; i--) {
        const int other =
            (int)rf_philox_below(mixing->seed, (uint64_t)round, (uint64_t)i, (uint64_t)i + 1);
        const int kept = order[i];
        order[i] = order[other];
        order[other] = kept;
    }
    row[rank] = 1;
    for (int i = 0; i + 1 < mixing->ranks; i += 2)
        if (order[i] == rank || order[i + 1] == rank) {
            row[rank] = 0.5;
            row[order[i] == rank ? order[i + 1] : order[i]] = 0.5;
        }
    rf_free(order);
    return RF_OK;
}

static int weights_row(const struct rf_mixing *mixing, int64_t round, int rank, double *row)
{
    memcpy(row, mixing->weights + (size_t)rank * (size_t)mixing->ranks,
           (size_t)mixing->ranks * sizeof *row);
    return RF_OK;
}

static const struct graph graphs[RF_GRAPH_COUNT] = {
    [RF_GRAPH_ALL] = {"all", .row = all_row},
    [RF_GRAPH_RING] = {"ring", .linked = in_ring},
    [RF_GRAPH_TORUS] = {"torus", .linked = in_torus},
    [RF_GRAPH_EXPONENTIAL] = {"exponential", .row = exponential_row},
    [RF_GRAPH_ONE_PEER] = {"one-peer", .row = one_peer_row},
    [RF_GRAPH_MATCHING] = {"matching", .row = matching_row},
    [RF_GRAPH_WEIGHTS] = {"weights", .row = weights_row},
};

const char *rf_graph_name(enum rf_graph graph)
{
    return (unsigned)graph < RF_GRAPH_COUNT ? graphs[graph].name : NULL;
}

int rf_graph_find(const char *name)
{
    for (int graph = 0; name && graph < RF_GRAPH_COUNT; graph++)
        if (strcmp(graphs[graph].name, name) == 0)
            return graph;
    return -1;
}

static int degree(const struct rf_mixing *mixing, int rank)
{
    int count = 0;
    for (int peer = 0; peer < mixing->ranks; peer++)
        count += peer != rank && graphs[mixing->graph].linked(mixing->ranks, rank, peer);
    return count;
}

static void linked_row(const struct rf_mixing *mixing, int rank, double *row)
{
    const int mine = degree(mixing, rank);
    row[rank] = 1;
    for (int peer = 0; peer < mixing->ranks; peer++)
        if (peer != rank && graphs[mixing->graph].linked(mixing->ranks, rank, peer)) {
            const int theirs = degree(mixing, peer);
            row[peer] = 1.0 / (1 + (mine > theirs ? mine : theirs));
            row[rank] -= row[peer];
        }
}

int rf_mixing_row(const struct rf_mixing *mixing, int64_t round, int rank, double *row)
{
    if (!mixing || !row || (unsigned)mixing->graph >= RF_GRAPH_COUNT || mixing->ranks < 1)
        return rf_fail(RF_EINVAL, "a row of weights needs a graph of 1 rank or more, and room");
    if (rank < 0 || rank >= mixing->ranks || round < 0)
        return rf_fail(RF_EINVAL, "rank %d, round %lld: there are ranks 0 to %d, and rounds from 0",
                       rank, (long long)round, mixing->ranks - 1);
    if ((mixing->graph == RF_GRAPH_WEIGHTS) != (mixing->weights != NULL))
        return rf_fail(RF_EINVAL, "weights belong to the graph \"weights\", and only to it");
    memset(row, 0, (size_t)mixing->ranks * sizeof *row);
    if (graphs[mixing->graph].row)
        return graphs[mixing->graph].row(mixing, round, rank, row);
    linked_row(mixing, rank, row);
    return RF_OK;
}
