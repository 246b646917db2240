/* SPDX-License-Identifier: MIT
 *
 * Graphs of rounds: weights keep the mean, and bring ranks together as fast as theory says.
 */
#include <gtest/gtest.h>
#include <ringforge/ringforge.h>
#include <ringforge/rounds.h>

#include <cmath>

namespace
{

using Matrix = std::vector<std::vector<double>>;

Matrix matrix(const rf_mixing &mixing, int64_t round)
{
    Matrix w(mixing.ranks, std::vector<double>(mixing.ranks));
    for (int i = 0; i < mixing.ranks; i++)
        EXPECT_EQ(rf_mixing_row(&mixing, round, i, w[i].data()), RF_OK) << rf_last_error()->message;
    return w;
}

rf_mixing mixing_of(int graph, int ranks)
{
    return {static_cast<rf_graph>(graph), ranks, 7, nullptr};
}

double contraction(int graph, int ranks)
{
    const rf_mixing mixing = mixing_of(graph, ranks);
    double out = -1;
    EXPECT_EQ(rf_mixing_contraction(&mixing, 0, &out), RF_OK) << rf_last_error()->message;
    return out;
}

TEST(Graph, EveryRowAndColumnHasTheSumOneForEveryRankCount)
{
    for (int graph = 0; graph < RF_GRAPH_WEIGHTS; graph++)
        for (int ranks = 1; ranks <= 17; ranks++)
            for (int64_t round = 0; round < 4; round++) {
                const Matrix w = matrix(mixing_of(graph, ranks), round);
                for (int i = 0; i < ranks; i++) {
                    double row = 0, column = 0;
                    for (int j = 0; j < ranks; j++) {
                        row += w[i][j];
                        column += w[j][i];
                        EXPECT_GE(w[i][j], 0);
                    }
                    EXPECT_NEAR(row, 1, 1e-12) << rf_graph_name(rf_graph(graph)) << ranks;
                    EXPECT_NEAR(column, 1, 1e-12) << rf_graph_name(rf_graph(graph)) << ranks;
                }
            }
}

/* Ring: (1 + 2 cos(2 pi / N)) / 3. Torus of r x c: (1 + 2 cos(2 pi / r) + 2 cos(2 pi / c)) / 5 with
 * one of the angles 0. Exponential: |1 + sum of w^(2^k)| / (L + 1) for a root of unity w. */
TEST(Graph, ContractsAsTheEigenvaluesSay)
{
    EXPECT_NEAR(contraction(RF_GRAPH_ALL, 8), 0, 1e-9);
    EXPECT_NEAR(contraction(RF_GRAPH_RING, 2), 0, 1e-9);
    EXPECT_NEAR(contraction(RF_GRAPH_RING, 3), 0, 1e-9);
    EXPECT_NEAR(contraction(RF_GRAPH_RING, 4), 1.0 / 3, 1e-9);
    EXPECT_NEAR(contraction(RF_GRAPH_RING, 8), 0.8047, 5e-5);
    EXPECT_NEAR(contraction(RF_GRAPH_TORUS, 16), 3.0 / 5, 1e-9);
    EXPECT_NEAR(contraction(RF_GRAPH_TORUS, 25), (3 + 2 * cos(2 * M_PI / 5)) / 5, 1e-9);
    EXPECT_NEAR(contraction(RF_GRAPH_EXPONENTIAL, 8), 0.5, 1e-9);
    EXPECT_NEAR(contraction(RF_GRAPH_EXPONENTIAL, 16), 0.6, 1e-9);
    EXPECT_NEAR(contraction(RF_GRAPH_ONE_PEER, 8), cos(M_PI / 8), 1e-9);
    EXPECT_NEAR(contraction(RF_GRAPH_MATCHING, 8), 1, 1e-9);
}

/* Distance from the mean after each round, of a vector on each rank. */
TEST(Graph, RoundsShrinkTheDistanceByTheContraction)
{
    for (const int graph : {RF_GRAPH_RING, RF_GRAPH_TORUS, RF_GRAPH_EXPONENTIAL})
        for (const int ranks : {4, 8, 16}) {
            const double want = contraction(graph, ranks);
            const Matrix w = matrix(mixing_of(graph, ranks), 0);
            std::vector<double> x(ranks), next(ranks);
            double mean = 0, ratio = 0, before = 0;
            for (int i = 0; i < ranks; i++)
                mean += (x[i] = i * i + 1.5) / ranks;
            for (int round = 0; round < 200; round++) {
                double distance = 0, sum = 0;
                for (int i = 0; i < ranks; i++) {
                    next[i] = 0;
                    for (int j = 0; j < ranks; j++)
                        next[i] += w[i][j] * x[j];
                    distance += (next[i] - mean) * (next[i] - mean);
                    sum += next[i] / ranks;
                }
                x = next;
                EXPECT_NEAR(sum, mean, 1e-9);
                if (distance < 1e-18)
                    break;
                ratio = before > 0 ? sqrt(distance / before) : 0;
                before = distance;
            }
            EXPECT_NEAR(ratio, want, 0.01 * want) << rf_graph_name(rf_graph(graph)) << ranks;
        }
}

TEST(Graph, OnePeerGivesTheMeanAfterLogTwoRounds)
{
    const rf_mixing mixing = mixing_of(RF_GRAPH_ONE_PEER, 8);
    std::vector<double> x = {1, 0, 0, 0, 0, 0, 0, 0}, next(8);
    for (int64_t round = 0; round < 3; round++) {
        const Matrix w = matrix(mixing, round);
        for (int i = 0; i < 8; i++) {
            next[i] = 0;
            for (int j = 0; j < 8; j++)
                next[i] += w[i][j] * x[j];
        }
        x = next;
    }
    for (int i = 0; i < 8; i++)
        EXPECT_EQ(x[i], 0.125);
}

TEST(Graph, MatchingsAreNewPairsInEachRound)
{
    const Matrix a = matrix(mixing_of(RF_GRAPH_MATCHING, 8), 0);
    const Matrix b = matrix(mixing_of(RF_GRAPH_MATCHING, 8), 1);
    EXPECT_NE(a, b);
    for (int i = 0; i < 8; i++)
        for (int j = 0; j < 8; j++)
            EXPECT_EQ(a[i][j], a[j][i]);
}

struct Refused {
    std::vector<double> weights;
    const char *message;
};

TEST(Graph, WeightsThatKeepNoMeanAreRefusedByRowAndSum)
{
    const Refused all[] = {
        {{0.5, 0.5, 0, 0.5, 0.5, 0, 0, 0.1, 0.9}, "column 1 of the weights has the sum 1.1"},
        {{0.5, 0.4, 0, 0.5, 0.5, 0, 0, 0.1, 0.9}, "row 0 of the weights has the sum 0.9"},
        {{1.5, -0.5, 0, -0.5, 1.5, 0, 0, 0, 1}, "row 0 of the weights: that of rank 1 is -0.5"},
        {{NAN, 1, 0, 0, 0, 1, 1, 0, 0}, "row 0 of the weights: that of rank 0 is nan"},
        {{1, 0, 0, 0, 0.5, 0.5, 0, 0.5, 0.5}, "no path leads from rank 0 to rank 1"},
    };
    for (const Refused &row : all) {
        const rf_mixing mixing = {RF_GRAPH_WEIGHTS, 3, 0, row.weights.data()};
        EXPECT_EQ(rf_mixing_check(&mixing), RF_EINVAL);
        EXPECT_NE(std::string(rf_last_error()->message).find(row.message), std::string::npos)
            << rf_last_error()->message;
    }
    const std::vector<double> directed = {0, 1, 0, 0, 0, 1, 1, 0, 0};
    const rf_mixing ring = {RF_GRAPH_WEIGHTS, 3, 0, directed.data()};
    EXPECT_EQ(rf_mixing_check(&ring), RF_OK) << rf_last_error()->message;
    const rf_mixing none = {RF_GRAPH_WEIGHTS, 3, 0, nullptr};
    EXPECT_EQ(rf_mixing_check(&none), RF_EINVAL);
    const rf_mixing both = {RF_GRAPH_RING, 3, 0, directed.data()};
    EXPECT_EQ(rf_mixing_check(&both), RF_EINVAL);
}

TEST(Graph, NamesFindTheirGraphs)
{
    for (int graph = 0; graph < RF_GRAPH_COUNT; graph++)
        EXPECT_EQ(rf_graph_find(rf_graph_name(rf_graph(graph))), graph);
    EXPECT_EQ(rf_graph_find("star"), -1);
    EXPECT_EQ(rf_graph_name(RF_GRAPH_COUNT), nullptr);
}

} // namespace
