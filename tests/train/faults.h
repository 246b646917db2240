// SPDX-License-Identifier: MIT
//
// Training steps in which a rank dies, stops or disagrees: the table of the kinds of steps, one
// rank's run of such a step, and the results that every survivor must see. A new kind of step is a
// row.
#ifndef RF_TESTS_TRAIN_FAULTS_H
#define RF_TESTS_TRAIN_FAULTS_H

#include <atomic>

#include "folder.h"
#include "stub_blocks.h"
#include "support/fair_clock.h"
#include "support/fault_transport.h"
#include "support/ranks.h"
#include "world.h"

// A kind of step, by its policy.
struct StepKind {
    const char *name;
    std::vector<rf_verb> transfers; // the verbs that transfer data in it, each once
    rf_order order;
    int zero;
    bool on_rank_0;
    bool rounded_copies; // the first parameter is bf16, rounded stochastically
    int shard = 0;       // ranks that share a copy; 0: all
    int offload = 0;
    int pp = 1;
    int tp = 1;         // with sequence parallelism
    bool groups() const // ranks exchange with some of the others
    {
        return shard || pp > 1 || tp > 1;
    }
};
extern const std::vector<StepKind> step_kinds;
// Tensor ranks in the stages of a pipeline, twice: eight ranks, as processes only.
extern const StepKind cube;
rf_policy policy_of(const StepKind &kind);
int ranks_of(const StepKind &kind);

// Transfers of a step's list, in order. `number`: of the collectives of its lane's communicator.
struct Transfer {
    rf_verb verb;
    int lane;
    uint64_t number;
};
std::vector<Transfer> transfers_of(const rf_plan *plan);
// Before the update, which needs all ranks: nobody has begun to update.
bool before_update(const StepKind &kind, rf_verb verb);

enum { FAULT_RANKS = 3, FAULT_RANKS_OF_GROUPS = 4, FAULT_RANKS_OF_CUBE = 8 };

// A fault transport for each communicator that a rank has.
struct FaultTransports {
    fault_transport lanes[RF_LANE_COUNT];
    // Under those of an open run, which use this timeout from now on.
    void insert(const rf_run *run, double timeout_s);
    // For a lane; messages use the job's communicator.
    fault_transport *of(const rf_run *run, int lane);
};

// One rank's run of a small model whose blocks only fill their outputs.
class Job
{
  public:
    // Builds the plan, which may be changed before open. ranks 0: the kind's number of ranks.
    Job(rf_comm *comm, int rank, const StepKind &kind, int ranks = 0);
    ~Job();
    Job(const Job &) = delete;
    Job &operator=(const Job &) = delete;

    int open(); // ends with `run`, or with an error
    int step();
    int evaluate();
    int forward();
    int hash();
    int save(const std::string &dir);
    int load(const std::string &dir);
    int reserve(const std::string &dir);
    // All bytes of parameters, their copies and the optimizer's states.
    std::string state() const;

    rf_plan *plan = nullptr;
    rf_run *run = nullptr;

  private:
    rf_comm *comm_;
    int rank_;
    StubBlocks stubs_;
    std::vector<rf_block> blocks_;
};

// Expected results of a survivor of a call that failed or was stopped by a timeout. status: the
// call's; before: the state before it; failed_rank: the rank that died or stopped.
void expect_failure_reported(Job &job, int status, const std::string &before, int failed_rank);
// Every call reports that the parameters may be from two steps, or the run is unchanged.
void expect_inconsistent_or_unchanged(Job &job, const std::string &before);

// After a death, or after the first deadline of a rank that waits: in time of a FairClock.
// Sanitizers are slower.
inline double promised_s()
{
    return 2.0 * ranks::patience();
}

// Blocks until all ranks have called it, without messages between them: a thread or a process may
// die as soon as it returns.
void all_have_come(std::atomic<int> *arrived, int ranks = FAULT_RANKS);

#endif
