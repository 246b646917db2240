// SPDX-License-Identifier: MIT
//
// See simulator.h.
#include "simulator.h"

#include <algorithm>
#include <cstring>

namespace sim
{

enum { MARGIN = 64, POISON = 0xAB };

// ---- the network
// ---------------------------------------------------------------------------------

Network::Network(int ranks, uint32_t seed, bool refuse) : random_(seed), refuse_(refuse)
{
    static struct rf_transport_ops ops = {};
    ops.post_send = post_send;
    ops.post_recv = post_recv;
    ops.poll = poll;
    ops.cancel_all = cancel_all;
    ops.locate = locate;
    for (int rank = 0; rank < ranks; rank++) {
        ends_.push_back(std::make_unique<End>());
        End &end = *ends_.back();
        end.base = {};
        end.base.ops = &ops;
        end.base.name = "simulator";
        end.base.rank = rank;
        end.base.size = ranks;
        end.network = this;
        end.reachable = random_() % 2;
    }
}

struct rf_transport *Network::transport(int rank)
{
    return &ends_[rank]->base;
}

uint64_t Network::sent_bytes(int rank) const
{
    return ends_[rank]->sent;
}

bool Network::has_events() const
{
    return std::any_of(ends_.begin(), ends_.end(), [](auto &end) { return !end->events.empty(); });
}

bool Network::is_empty() const
{
    return !has_events() && sends_.empty() && recvs_.empty();
}

void Network::next_run()
{
    used_.clear();
}

const std::string &Network::fault() const
{
    return fault_;
}

std::mt19937 &Network::random()
{
    return random_;
}

void Network::fail(const std::string &text)
{
    if (fault_.empty())
        fault_ = text;
}

bool Network::refused()
{
    return refuse_ && random_() % 8 == 0;
}

int Network::post_send(struct rf_transport *t, int peer, uint64_t tag, uint32_t contract,
                       const void *buffer, size_t bytes, void *context)
{
    End *end = reinterpret_cast<End *>(t);
    Network *network = end->network;
    if (network->refused())
        return RF_EAGAIN;
    if (bytes == 0) // its address is meaningless
        buffer = "";
    const unsigned char *data = static_cast<const unsigned char *>(buffer);
    Key key{t->rank, peer, tag};
    if (network->used_[key]++)
        network->fail("tag " + std::to_string(tag) + " used twice from " + std::to_string(t->rank) +
                      " to " + std::to_string(peer));
    network->sends_[key] = Post{const_cast<void *>(buffer), bytes, contract, context,
                                std::vector<unsigned char>(data, data + bytes)};
    end->sent += bytes;
    memset(context, 0x5A, 64); // now owned by the provider
    network->match(key);
    return 0;
}

int Network::post_recv(struct rf_transport *t, int peer, uint64_t tag, void *buffer, size_t bytes,
                       void *context)
{
    Network *network = reinterpret_cast<End *>(t)->network;
    if (network->refused())
        return RF_EAGAIN;
    Key key{peer, t->rank, tag};
    if (network->recvs_.count(key))
        network->fail("a receive for a tag that is posted already");
    if (bytes > 0)
        memset(buffer, POISON, bytes);
    network->recvs_[key] =
        Post{buffer, bytes, 0, context, std::vector<unsigned char>(bytes, POISON)};
    memset(context, 0x5A, 64);
    network->match(key);
    return 0;
}

void Network::match(const Key &key)
{
    auto send = sends_.find(key), recv = recvs_.find(key);
    if (send == sends_.end() || recv == recvs_.end())
        return;
    int from = std::get<0>(key), to = std::get<1>(key);
    const size_t bytes = send->second.bytes;
    ends_[to]->events.push_back(Event{true, from, std::move(recv->second), bytes,
                                      send->second.contract, send->second.image});
    ends_[from]->events.push_back(Event{false, to, std::move(send->second), 0, 0, {}});
    sends_.erase(send);
    recvs_.erase(recv);
}

int Network::finish(End &end, size_t index, struct rf_completion *out)
{
    Event event = std::move(end.events[index]);
    if (index + 1 < end.events.size()) // events have no order
        end.events[index] = std::move(end.events.back());
    end.events.pop_back();
    if (event.post.bytes > 0 &&
        memcmp(event.post.buffer, event.post.image.data(), event.post.bytes) != 0)
        fail(std::string("rank ") + std::to_string(end.base.rank) + " changed a buffer while a " +
             (event.is_recv ? "receive" : "send") + " was using it");
    *out = {};
    out->context = event.post.context;
    out->peer = event.peer;
    out->is_recv = event.is_recv;
    out->bytes = event.bytes;
    out->contract = event.contract;
    if (event.is_recv && event.bytes > event.post.bytes)
        out->status = RF_EMISMATCH;
    else if (event.is_recv && event.bytes > 0)
        memcpy(event.post.buffer, event.data.data(), event.bytes);
    if (meddle)
        meddle(*out);
    return 1;
}

int Network::poll(struct rf_transport *t, struct rf_completion *out, int max)
{
    End *end = reinterpret_cast<End *>(t);
    Network *network = end->network;
    if (max < 1 || end->events.empty() || network->random_() % 4 == 0)
        return 0;
    return network->finish(*end, network->random_() % end->events.size(), out);
}

void Network::cancel_all(struct rf_transport *t)
{
    Network *network = reinterpret_cast<End *>(t)->network;
    for (auto i = network->recvs_.begin(); i != network->recvs_.end();)
        i = std::get<1>(i->first) == t->rank ? network->recvs_.erase(i) : std::next(i);
    for (auto i = network->sends_.begin(); i != network->sends_.end();)
        i = std::get<0>(i->first) == t->rank ? network->sends_.erase(i) : std::next(i);
    reinterpret_cast<End *>(t)->events.clear();
}

bool Network::locate(struct rf_transport *t, const void *, size_t, uint64_t *offset)
{
    *offset = 0;
    return reinterpret_cast<End *>(t)->reachable;
}

// ---- memory -----------------------------------------------------------------------------------

Memory::Memory(size_t bytes, unsigned char fill) : bytes_(bytes + 2 * MARGIN, fill)
{
    std::fill_n(bytes_.begin(), MARGIN, 0xC3);
    std::fill_n(bytes_.end() - MARGIN, MARGIN, 0xC3);
}

unsigned char *Memory::data()
{
    return bytes_.data() + MARGIN;
}

bool Memory::margins_are_intact() const
{
    auto untouched = [](unsigned char byte) { return byte == 0xC3; };
    return std::all_of(bytes_.begin(), bytes_.begin() + MARGIN, untouched) &&
           std::all_of(bytes_.end() - MARGIN, bytes_.end(), untouched);
}

Layout layout_of(const struct rf_coll_desc &desc, bool in_place)
{
    size_t element = rf_dtype_bytes(desc.dtype), bytes = desc.count * element;
    struct rf_byte_range share = rf_share(&desc, desc.counts, desc.rank, element);
    struct rf_byte_range last = rf_share(&desc, desc.counts, desc.ranks - 1, element);
    size_t own = share.offset, piece = share.bytes, whole = last.offset + last.bytes;
    bool is_root = desc.rank == desc.root;
    switch (desc.op) {
    case RF_COLL_BARRIER:
        return {0, 0, in_place, 0, 0};
    case RF_COLL_REDUCE_SCATTER:
        return {whole, piece, in_place, 0, own};
    case RF_COLL_ALL_GATHER:
        return {piece, whole, in_place, own, 0};
    case RF_COLL_REDUCE:
        return {bytes, is_root ? bytes : 0, in_place && is_root, 0, 0};
    case RF_COLL_GATHER:
        return {piece, is_root ? whole : 0, in_place && is_root, own, 0};
    case RF_COLL_SCATTER:
        return {is_root ? whole : 0, piece, in_place && is_root, 0, own};
    case RF_COLL_ALL_TO_ALL: {
        struct rf_byte_range end = rf_share(&desc, desc.recv_counts, desc.ranks - 1, element);
        return {whole, desc.counts ? end.offset + end.bytes : whole, false, 0, 0};
    }
    case RF_COLL_FOREST_ALL_REDUCE: {
        size_t parts = static_cast<size_t>(rf_forest_nodes(desc.forest, desc.rank, nullptr));
        size_t in_bytes = parts * desc.stride * rf_dtype_bytes(desc.dtype);
        return {in_bytes, bytes, in_place && parts > 0, 0, 0};
    }
    case RF_COLL_FOREST_REDUCE_SCATTER: {
        size_t parts = static_cast<size_t>(rf_forest_nodes(desc.forest, desc.rank, nullptr));
        return {parts * desc.stride * element, piece, in_place && parts > 0, 0, own};
    }
    case RF_COLL_PREFIX_REDUCE_SCATTER: {
        size_t slots = static_cast<size_t>(rf_prefix_slots(desc.leaves, desc.ranks));
        bool has_leaf = desc.rank < rf_prefix_round(&desc).leaves;
        return {has_leaf ? whole : 0, slots * piece, false, 0, 0};
    }
    default:
        return {bytes, bytes, in_place, 0, 0};
    }
}

Rank::Rank(const struct rf_coll_desc &desc, bool in_place, size_t staging_bytes)
    : layout(layout_of(desc, in_place)), staged(desc.staged),
      first_(layout.in_place ? std::max(layout.in_bytes, layout.out_bytes) : layout.in_bytes),
      second_(layout.in_place ? 0 : layout.out_bytes), staging_(staging_bytes)
{
}

unsigned char *Rank::work(bool out)
{
    if (staged & (out ? RF_STAGED_OUT : RF_STAGED_IN))
        return staging_.data();
    return out ? this->out() : in();
}

void Rank::move(const struct rf_sched &sched, const struct rf_step &step)
{
    unsigned char *tensor = step.dst.space == RF_SPACE_OUT ? out() : in();
    for (uint32_t i = 0; i < step.list_count; i++) {
        const struct rf_move &move = sched.moves[step.list + i];
        if (step.verb == RF_STEP_FETCH)
            memcpy(staging_.data() + move.slot, tensor + move.tensor, move.bytes);
        else
            memcpy(tensor + move.tensor, staging_.data() + move.slot, move.bytes);
    }
}

Mover::Mover(const struct rf_sched *sched, Rank &memory, Network &network)
    : sched_(sched), memory_(memory), network_(network)
{
    rf_mover::start = start;
    rf_mover::ended = ended;
}

int Mover::start(struct rf_mover *mover, bool store, bool out, const struct rf_move *moves,
                 uint32_t count, uint64_t *ticket)
{
    Mover *self = static_cast<Mover *>(mover);
    struct rf_step step = {};
    step.verb = store ? RF_STEP_STORE : RF_STEP_FETCH;
    step.dst = out ? rf_out(0) : rf_in(0);
    step.list = static_cast<uint32_t>(moves - self->sched_->moves);
    step.list_count = count;
    self->started_[store].push_back(step);
    *ticket = self->started_[store].size();
    return 0;
}

int Mover::ended(struct rf_mover *mover, bool store, uint64_t ticket)
{
    Mover *self = static_cast<Mover *>(mover);
    while (self->ended_[store] < self->started_[store].size() && self->network_.random()() % 3 == 0)
        self->memory_.move(*self->sched_, self->started_[store][self->ended_[store]++]);
    return self->ended_[store] >= ticket;
}

unsigned char *Rank::in()
{
    return first_.data() + (layout.in_place ? layout.in_offset : 0);
}

unsigned char *Rank::out()
{
    return layout.in_place ? first_.data() + layout.out_offset : second_.data();
}

bool Rank::margins_are_intact() const
{
    return first_.margins_are_intact() && second_.margins_are_intact() &&
           staging_.margins_are_intact();
}

// ---- any order ----------------------------------------------------------------------------------

AnyOrder::AnyOrder(const struct rf_sched *sched, Network &network, Rank &memory, Combine combine,
                   Divide divide)
    : sched_(sched), network_(network), transport_(network.transport(sched->rank)), memory_(memory),
      temp_(sched->temp_bytes, 0xDD), combine_(combine), divide_(divide), contexts_(sched->count),
      left_(sched->count)
{
    base_[RF_SPACE_IN] = memory.work(false);
    base_[RF_SPACE_OUT] = memory.work(true);
    base_[RF_SPACE_TMP] = temp_.data();
    reachable_[RF_SPACE_IN] = network.random()() % 2;
    reachable_[RF_SPACE_OUT] =
        memory.layout.in_place ? reachable_[RF_SPACE_IN] : network.random()() % 2;
    for (uint32_t i = 0; i < sched->count; i++) {
        need_.push_back(sched->steps[i].need);
        if (need_.back() == 0)
            ready_.push_back(i);
    }
}

bool AnyOrder::done() const
{
    return left_ == 0 && temp_.margins_are_intact();
}

bool AnyOrder::turn()
{
    if (!ready_.empty() && network_.random()() % 2) {
        size_t index = network_.random()() % ready_.size();
        uint32_t step = ready_[index];
        if (start(step)) {
            auto place = std::find(ready_.begin(), ready_.end(), step);
            *place = ready_.back(); // start may have added to it
            ready_.pop_back();
        }
        return true;
    }
    struct rf_completion completion;
    if (transport_->ops->poll(transport_, &completion, 1) == 1) {
        finish(static_cast<Context *>(completion.context)->step);
        return true;
    }
    return !ready_.empty();
}

bool AnyOrder::start(uint32_t index)
{
    const struct rf_step &step = sched_->steps[index];
    Context *context = &contexts_[index];
    context->step = index;
    if (step.verb == RF_STEP_SEND)
        return transport_->ops->post_send(
                   transport_, step.peer, step.tag, 1,
                   at(step.published && !reachable_[step.a.space] ? step.b : step.a), step.bytes,
                   context) == 0;
    if (step.verb == RF_STEP_RECV)
        return transport_->ops->post_recv(transport_, step.peer, step.tag, at(step.dst), step.bytes,
                                          context) == 0;
    work(step);
    finish(index);
    return true;
}

void AnyOrder::finish(uint32_t index)
{
    const struct rf_step &step = sched_->steps[index];
    for (uint32_t i = 0; i < step.next_count; i++) {
        uint32_t next = sched_->successors[step.next + i];
        if (--need_[next] == 0)
            ready_.push_back(next);
    }
    left_--;
}

int64_t *AnyOrder::at(struct rf_operand operand)
{
    return reinterpret_cast<int64_t *>(base_[operand.space] + operand.offset);
}

int64_t AnyOrder::fold(const struct rf_step &step, size_t element)
{
    std::vector<std::pair<int, int64_t>> waiting; // level, value
    for (uint32_t i = 0; i < step.list_count; i++) {
        struct rf_operand operand = sched_->operands[step.list + i];
        int64_t value = at(operand)[element];
        if (!step.tree) {
            value = i == 0 ? value : combine_(waiting.back().second, value);
            waiting.assign(1, {0, value});
            continue;
        }
        waiting.push_back({static_cast<int>(operand.level), value});
        while (waiting.size() > 1 && waiting.back().first == waiting.end()[-2].first) {
            int64_t right = waiting.back().second;
            waiting.pop_back();
            waiting.back() = {waiting.back().first + 1, combine_(waiting.back().second, right)};
        }
    }
    int64_t sum = waiting.back().second;
    for (size_t i = waiting.size() - 1; i > 0; i--)
        sum = combine_(waiting[i - 1].second, sum);
    return step.divide ? divide_(sum) : sum;
}

void AnyOrder::work(const struct rf_step &step)
{
    size_t count = step.bytes / sizeof(int64_t);
    if (step.verb == RF_STEP_FETCH || step.verb == RF_STEP_STORE)
        memory_.move(*sched_, step);
    if (step.verb == RF_STEP_COPY && at(step.dst) != at(step.a) &&
        !(step.published && reachable_[step.a.space]))
        memcpy(at(step.dst), at(step.a), step.bytes);
    for (size_t i = 0; step.verb == RF_STEP_REDUCE && i < count; i++)
        at(step.dst)[i] = step.list_count ? fold(step, i) : combine_(at(step.a)[i], at(step.b)[i]);
    if (step.verb == RF_STEP_REDUCE && step.published && !reachable_[step.dst.space])
        memcpy(at(step.a), at(step.dst), step.bytes);
}

// ---- worlds
// ---------------------------------------------------------------------------------------

World::World(struct rf_coll_desc desc, const std::string &algorithm, bool in_place, uint64_t staged)
{
    const unsigned sides = desc.staged ? desc.staged : RF_STAGED_IN | RF_STAGED_OUT;
    for (desc.rank = 0; desc.rank < desc.ranks; desc.rank++) {
        struct rf_sched *sched = nullptr;
        uint64_t staging = 0;
        desc.staged = staged >> desc.rank & 1 ? sides : 0;
        int status = rf_sched_staging_bytes(&desc, algorithm.empty() ? nullptr : algorithm.c_str(),
                                            &staging);
        if (status == 0)
            status = algorithm.empty() ? rf_sched_build(&desc, &sched)
                                       : rf_sched_build_as(&desc, algorithm.c_str(), &sched);
        if (status < 0) {
            error = rf_last_error()->message;
            return;
        }
        scheds.push_back(sched);
        ranks.push_back(std::make_unique<Rank>(desc, in_place, staging));
    }
}

World::~World()
{
    for (struct rf_sched *sched : scheds)
        rf_sched_destroy(sched);
}

static std::string outcome(const World &world, const Network &network, bool finished)
{
    if (!network.fault().empty())
        return network.fault();
    if (!finished)
        return "no rank can go on";
    if (!network.is_empty())
        return "a message was never matched";
    for (auto &rank : world.ranks)
        if (!rank->margins_are_intact())
            return "memory outside the buffers was written";
    return check_sent(world, network);
}

std::string check_sent(const World &world, const Network &network)
{
    for (size_t r = 0; r < world.scheds.size(); r++)
        if (network.sent_bytes(static_cast<int>(r)) != rf_sched_sent_bytes(world.scheds[r]))
            return "rank " + std::to_string(r) + " sent " +
                   std::to_string(network.sent_bytes(static_cast<int>(r))) + " bytes, not " +
                   std::to_string(rf_sched_sent_bytes(world.scheds[r]));
    return "";
}

std::string run_any_order(World &world, uint32_t seed, AnyOrder::Combine combine,
                          AnyOrder::Divide divide)
{
    int ranks = static_cast<int>(world.scheds.size());
    Network network(ranks, seed);
    std::vector<std::unique_ptr<AnyOrder>> runners;
    for (int r = 0; r < ranks; r++)
        runners.push_back(
            std::make_unique<AnyOrder>(world.scheds[r], network, *world.ranks[r], combine, divide));
    // Ranks run in bursts of random length, so that some are far ahead of others.
    int idle = 0, running = 0;
    for (auto &runner : runners)
        running += !runner->done(); // a list may be empty
    while (running > 0 && network.fault().empty()) {
        AnyOrder &runner = *runners[network.random()() % static_cast<unsigned>(ranks)];
        bool was_done = runner.done(), moved = false;
        for (unsigned burst = network.random()() % 16; burst > 0; burst--)
            moved = runner.turn() || moved;
        running -= !was_done && runner.done();
        idle = moved || network.has_events() ? 0 : idle + 1;
        if (idle > 1000 * ranks)
            break;
    }
    return outcome(world, network, running == 0);
}

std::string run_executor(World &world, uint32_t seed)
{
    int ranks = static_cast<int>(world.scheds.size());
    Network network(ranks, seed);
    std::vector<struct rf_exec *> execs(static_cast<size_t>(ranks), nullptr);
    std::vector<std::unique_ptr<Mover>> movers;
    std::string error;
    int running = ranks, idle = 0;
    for (int r = 0; r < ranks && error.empty(); r++) {
        movers.push_back(std::make_unique<Mover>(world.scheds[r], *world.ranks[r], network));
        struct rf_exec_args args = {
            world.ranks[r]->work(false), world.ranks[r]->work(true), 5, seed, 77,
            movers.back().get()};
        if (rf_exec_create(network.transport(r), &execs[r]) < 0 ||
            rf_exec_start(execs[r], world.scheds[r], &args) < 0)
            error = rf_last_error()->message;
    }
    std::vector<bool> done(static_cast<size_t>(ranks));
    while (running > 0 && error.empty() && network.fault().empty() && idle < 10000 * ranks) {
        int r = static_cast<int>(network.random()() % static_cast<unsigned>(ranks));
        if (done[r])
            continue;
        uint64_t before = rf_exec_activity(execs[r]);
        int status = rf_exec_progress(execs[r]);
        if (status < 0)
            error = rf_last_error()->message;
        done[r] = status == 1;
        running -= status == 1;
        idle = status == 1 || network.has_events() || before != rf_exec_activity(execs[r])
                   ? 0
                   : idle + 1;
    }
    for (struct rf_exec *exec : execs)
        rf_exec_destroy(exec);
    return error.empty() ? outcome(world, network, running == 0) : error;
}

} // namespace sim
