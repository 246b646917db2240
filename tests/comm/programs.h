/* SPDX-License-Identifier: MIT
 *
 * Random programs of mixed collectives: how they are made, run and checked, with or without a
 * fault. programs_test.cc has the expected outcomes.
 */
#ifndef RF_TESTS_COMM_PROGRAMS_H
#define RF_TESTS_COMM_PROGRAMS_H

#include <ringforge/ringforge.h>

#include <string>
#include <vector>

#include "support/ranks.h"

namespace programs
{

struct Call {
    rf_coll_op op;
    size_t count;
    rf_redop redop;
    rf_order order;
    int root;
    std::vector<size_t> counts; /* a v form, if not empty */
};

std::string text(const Call &call);
/* The contract of the call as other ranks see it. */
rf_contract contract(const Call &call, size_t sequence);

enum Fault { NONE, DEVIATION, DEATH, LOSS, DELAY, DAMAGE };

struct Program {
    uint32_t seed;
    std::vector<Call> calls;
    ranks::World world;
    int deviating_rank = -1; /* makes `deviation` of call `at` */
    size_t at = 0;
    Call deviation = {};
};

/* For deaths, losses, delays and damage it names the rank or the message; `messages` is the number
 * of messages that the program sends in all. */
Program make(uint32_t seed, Fault fault, uint64_t messages = 1);

/* The outcome on one rank. */
struct Outcome {
    rf_error error = {};  /* RF_OK: the program completed */
    size_t failed_at = 0; /* the call that failed; calls.size() is the barrier at the end */
    rf_error afterwards;  /* of a call on the failed communicator */
    std::vector<uint64_t> messages; /* sent so far after each call, that barrier included */
};

/* Runs it on all its ranks; every result that differs from the prediction is a failure. */
std::vector<Outcome> run(const Program &program);

} // namespace programs

#endif
