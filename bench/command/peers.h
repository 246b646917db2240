/* SPDX-License-Identifier: MIT
 *
 * ringforge bench all --peers: what is compared, for the files that measure and that print it.
 */
#ifndef RF_BENCH_PEERS_H
#define RF_BENCH_PEERS_H

#include "bench.h"
#include "state.h"

enum { PEERS_OPS = 8, PEERS_NETWORKS = 2, PEERS_SIDES = 5, PEERS_SIZES = 13, PEERS_TURNS = 40 };
enum { PEERS_MOST_RANKS = 4 };
/* The library, on its buffers and on memory of the caller; from PEERS_FIRST on others. */
enum { PEERS_LIBRARY, PEERS_OWN, PEERS_FIRST };

/* Which turns a median is of: all, or those during which the cores were in one state. */
enum { PEERS_ALL, PEERS_NEAR, PEERS_DISTANT, PEERS_STATES };

struct peers_turn {
    double us, began, ended; /* seconds of the monotonic clock; 0: not known */
};

/* One operation, network, number of ranks and side: microseconds. */
struct peers_cell {
    struct peers_turn turns[PEERS_SIZES][PEERS_TURNS];
    int turn_count[PEERS_SIZES];
    double median[PEERS_STATES][PEERS_SIZES]; /* 0: not measured */
    int count[PEERS_STATES][PEERS_SIZES];     /* of turns that it is of */
};

struct peers {
    const struct tool_command *command;
    const struct bench_options *options;
    char self[TOOL_PATH_BYTES], folder[TOOL_PATH_BYTES]; /* this program; programs of the peers */
    bool present[PEERS_SIDES];
    int sizes, factor, turns, samples;
    uint64_t bytes[PEERS_SIZES];
    struct bench_state *state; /* NULL: not known */
    double near_us[2]; /* 4 bytes between two ranks of the host, before and after; 0: unknown */
    double start_s, wrong;
    int runs, failed, planned;
    struct peers_cell cells[PEERS_OPS][PEERS_NETWORKS][PEERS_MOST_RANKS + 1][PEERS_SIDES];
};

extern const char *const peers_ops[PEERS_OPS], *const peers_networks[PEERS_NETWORKS],
                                                   *const peers_sides[PEERS_SIDES];

/* The quickest peer of this size, or -1. */
int peers_best(const struct peers_cell *sides, int state, int size);
/* Up to which state there are medians: PEERS_ALL or PEERS_DISTANT. */
int peers_last_state(const struct peers *p);
/* peers_print.c */
void peers_print(const struct peers *p);
int peers_json(const struct peers *p);
int peers_draw(const struct peers *p);

#endif
