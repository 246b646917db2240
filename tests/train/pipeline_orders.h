// SPDX-License-Identifier: MIT
//
// Shared by the tests of pipelines: the orders of all ranks, and all pipelines that are tried.
// Durations are small integers, so times are exact.
#ifndef RF_TESTS_TRAIN_PIPELINE_ORDERS_H
#define RF_TESTS_TRAIN_PIPELINE_ORDERS_H

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

extern "C" {
#include "base/base.h"
#include "parallel/pipeline/pipeline.h"
}

constexpr rf_pipeline_kind pipeline_kinds[] = {
    RF_PIPELINE_NAIVE, RF_PIPELINE_GPIPE, RF_PIPELINE_1F1B, RF_PIPELINE_INTERLEAVED,
    RF_PIPELINE_ZBH1,  RF_PIPELINE_ZBV,   RF_PIPELINE_2BW,
};

struct Pipeline : rf_pipeline {
    std::vector<std::vector<rf_pipeline_call>> calls;

    Pipeline(rf_pipeline_kind kind, int ranks, int micro_batches, int chunks = 0, int steps = 0)
        : rf_pipeline{kind, ranks, micro_batches, chunks, steps}
    {
        EXPECT_EQ(rf_pipeline_check(this), 0) << rf_last_error()->message;
        calls.resize((size_t)ranks);
        for (int r = 0; r < ranks; r++) {
            calls[r].resize((size_t)rf_pipeline_call_count(this));
            rf_pipeline_order(this, r, calls[r].data());
        }
    }

    int total() const
    {
        return micro_batches * steps;
    }

    std::string text() const
    {
        return std::string(rf_pipeline_name(kind)) + " ranks=" + std::to_string(ranks) +
               " micro_batches=" + std::to_string(micro_batches) +
               " chunks=" + std::to_string(chunks) + " steps=" + std::to_string(steps);
    }

    int peak(int rank) const
    {
        return rf_pipeline_in_flight(this, calls[rank].data());
    }

    int run(const rf_pipeline_run_opts &opts, double *makespan_s,
            std::vector<rf_pipeline_span> *spans = nullptr) const
    {
        std::vector<const rf_pipeline_call *> of_ranks;
        for (const auto &mine : calls)
            of_ranks.push_back(mine.data());
        if (spans)
            spans->resize((size_t)ranks);
        return rf_pipeline_run(this, of_ranks.data(), &opts, spans ? spans->data() : nullptr,
                               makespan_s);
    }

    double makespan(double forward_s, double input_s, double weight_s,
                    std::vector<rf_pipeline_span> *spans = nullptr) const
    {
        rf_pipeline_run_opts opts = {};
        opts.forward_s = forward_s;
        opts.backward_input_s = input_s;
        opts.backward_weight_s = weight_s;
        double makespan_s = -1;
        EXPECT_EQ(run(opts, &makespan_s, spans), 0) << text() << ": " << rf_last_error()->message;
        return makespan_s;
    }
};

// Every kind, 1 to 8 ranks, any number of micro-batches, 1 to 3 chunks, 1 to 4 steps.
inline void for_each_pipeline(const std::function<void(const Pipeline &)> &claim)
{
    for (rf_pipeline_kind kind : pipeline_kinds)
        for (int p = 1; p <= 8; p++)
            for (int m = 1; m <= 3 * p + 3; m++)
                for (int v = 1; v <= (kind == RF_PIPELINE_INTERLEAVED ? 3 : 1); v++)
                    for (int steps = 1; steps <= (kind == RF_PIPELINE_2BW ? 4 : 1); steps++) {
                        claim(Pipeline(kind, p, m, kind == RF_PIPELINE_INTERLEAVED ? v : 0, steps));
                        if (::testing::Test::HasFatalFailure())
                            return;
                    }
}

inline std::string refused_message(int rc)
{
    EXPECT_EQ(rc, RF_EINVAL);
    return rf_last_error()->message;
}

inline void expect_enomem_at_each_allocation(const std::function<int()> &call)
{
    rf_alloc_fail_at(0);
    ASSERT_EQ(call(), 0);
    const uint64_t allocations = rf_alloc_fail_at(0);
    ASSERT_GT(allocations, 0u);
    for (uint64_t nth = 1; nth <= allocations; nth++) {
        rf_alloc_fail_at(nth);
        EXPECT_EQ(call(), RF_ENOMEM) << nth;
    }
    rf_alloc_fail_at(0);
}

#endif
