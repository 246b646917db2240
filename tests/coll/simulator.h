// SPDX-License-Identifier: MIT
//
// Many ranks in one thread, over a transport as unkind as base/transport_interface.h allows: a send
// finishes only when it is matched, completions come in any order, posting may be refused, and the
// buffer of a posted receive is overwritten at once. It checks that nobody changes a buffer while
// it is posted. Used by the tests of this folder.
#ifndef RF_TESTS_COLL_SIMULATOR_H
#define RF_TESTS_COLL_SIMULATOR_H

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <tuple>
#include <vector>

extern "C" {
#include "base/base.h"
#include "coll/sched.h"
}

namespace sim
{

class Network
{
  public:
    Network(int ranks, uint32_t seed, bool refuse = true);
    struct rf_transport *transport(int rank);
    uint64_t sent_bytes(int rank) const;
    // Matched messages whose completions nobody has taken yet.
    bool has_events() const;
    // Nothing posted or matched is left.
    bool is_empty() const;
    // Every message of a run finished: tags may be used again.
    void next_run();
    // The first rule that was broken; empty if none.
    const std::string &fault() const;
    std::mt19937 &random();
    // Tests: changes the next message on its way.
    std::function<void(struct rf_completion &)> meddle;

  private:
    struct Post {
        void *buffer;
        size_t bytes;
        uint32_t contract;
        void *context;
        std::vector<unsigned char> image; // expected content at completion
    };
    struct Event {
        bool is_recv;
        int peer;
        Post post;
        size_t bytes;
        uint32_t contract;
        std::vector<unsigned char> data; // receives: the data that arrive
    };
    struct End {
        struct rf_transport base;
        Network *network;
        std::vector<Event> events;
        uint64_t sent = 0;
        bool reachable = false; // other ranks can read its buffers
    };
    using Key = std::tuple<int, int, uint64_t>; // from, to, tag

    static int post_send(struct rf_transport *t, int peer, uint64_t tag, uint32_t contract,
                         const void *buffer, size_t bytes, void *context);
    static int post_recv(struct rf_transport *t, int peer, uint64_t tag, void *buffer, size_t bytes,
                         void *context);
    static int poll(struct rf_transport *t, struct rf_completion *out, int max);
    static void cancel_all(struct rf_transport *t);
    static bool locate(struct rf_transport *t, const void *memory, size_t bytes, uint64_t *offset);

    bool refused();
    void match(const Key &key);
    void fail(const std::string &text);
    int finish(End &end, size_t index, struct rf_completion *out);

    std::vector<std::unique_ptr<End>> ends_;
    std::map<Key, Post> sends_, recvs_;
    std::map<Key, int> used_;
    std::mt19937 random_;
    std::string fault_;
    bool refuse_;
};

// Memory of one rank, with margins that must not change.
class Memory
{
  public:
    explicit Memory(size_t bytes, unsigned char fill = 0xEE);
    unsigned char *data();
    bool margins_are_intact() const;

  private:
    std::vector<unsigned char> bytes_;
};

// Where a rank's IN and OUT lie in one piece of memory.
struct Layout {
    size_t in_bytes, out_bytes;
    bool in_place;
    size_t in_offset, out_offset; // in place: the smaller lies within the larger
};
Layout layout_of(const struct rf_coll_desc &desc, bool in_place);

class Rank
{
  public:
    Rank(const struct rf_coll_desc &desc, bool in_place, size_t staging_bytes = 0);
    unsigned char *in();
    unsigned char *out();
    // The memory that the schedule uses: the same, or staging memory.
    unsigned char *work(bool out);
    void move(const struct rf_sched &sched, const struct rf_step &step);
    Layout layout;
    unsigned staged;

    bool margins_are_intact() const;

  private:
    Memory first_, second_, staging_;
};

// Makes a schedule's moves some time later, in the order in which they were started.
class Mover : public rf_mover
{
  public:
    Mover(const struct rf_sched *sched, Rank &memory, Network &network);

  private:
    static int start(struct rf_mover *mover, bool store, bool out, const struct rf_move *moves,
                     uint32_t count, uint64_t *ticket);
    static int ended(struct rf_mover *mover, bool store, uint64_t ticket);
    const struct rf_sched *sched_;
    Rank &memory_;
    Network &network_;
    std::vector<struct rf_step> started_[2];
    uint64_t ended_[2] = {};
};

// Runs a schedule in a random order that its dependencies allow, on 64-bit elements. For published
// memory, peers read IN and OUT or copies of them, at random. `combine` is the reduction (a sum, or
// the building of an expression), `divide` the end of an average.
class AnyOrder
{
  public:
    using Combine = std::function<int64_t(int64_t, int64_t)>;
    using Divide = std::function<int64_t(int64_t)>;
    AnyOrder(const struct rf_sched *sched, Network &network, Rank &memory, Combine combine,
             Divide divide);
    bool done() const;
    // One random action; false if none is possible.
    bool turn();

  private:
    struct Context {
        unsigned char provider[64];
        uint32_t step;
    };
    bool start(uint32_t step);
    void finish(uint32_t step);
    void work(const struct rf_step &step);
    int64_t *at(struct rf_operand operand);
    int64_t fold(const struct rf_step &step, size_t element);

    const struct rf_sched *sched_;
    Network &network_;
    struct rf_transport *transport_;
    unsigned char *base_[3];
    bool reachable_[3] = {};
    Rank &memory_;
    Memory temp_;
    Combine combine_;
    Divide divide_;
    std::vector<uint32_t> need_, ready_;
    std::vector<Context> contexts_;
    uint32_t left_;
};

// A world of schedules; empty algorithm = the table's choice.
struct World {
    // staged: a bit for each rank that works in staging memory; desc.staged: which of its sides,
    // both if none.
    World(struct rf_coll_desc desc, const std::string &algorithm, bool in_place,
          uint64_t staged = 0);
    ~World();
    World(const World &) = delete;
    std::string error; // building failed
    std::vector<struct rf_sched *> scheds;
    std::vector<std::unique_ptr<Rank>> ranks;
};

// Both return what went wrong; empty if nothing did. 64-bit elements in any order; or the real
// executor.
std::string run_any_order(World &world, uint32_t seed, AnyOrder::Combine combine,
                          AnyOrder::Divide divide);
std::string run_executor(World &world, uint32_t seed);
// The bytes that each rank sent in the last run equal those of its schedule.
std::string check_sent(const World &world, const Network &network);

} // namespace sim

#endif
