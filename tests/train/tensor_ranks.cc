// SPDX-License-Identifier: MIT
//
// Tensor ranks in one process; see tensor_ranks.h. Unused memory is filled with NaN, so that a
// result that depends on it shows.
#include "tensor_ranks.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "support/half.h"

extern "C" {
#include "base/base.h"
}

namespace
{

using Floats = std::vector<float>;
const float nothing = std::numeric_limits<float>::quiet_NaN();

// Device tensors that live as long as this.
class Memory
{
  public:
    ~Memory()
    {
        for (rf_buffer *buffer : buffers)
            rf_buffer_destroy(buffer);
    }
    rf_tensor make(rf_shape shape, rf_dtype dtype)
    {
        rf_tensor t = {};
        EXPECT_RF(rf_tensor_create(rank_device(0), shape, dtype, &t));
        buffers.push_back(t.buffer);
        return t;
    }
    rf_tensor bytes(uint64_t count)
    {
        rf_tensor t = make(rf_shape1((int64_t)std::max<uint64_t>(count, 1)), RF_U8);
        t.shape = rf_shape1((int64_t)count);
        blank(t);
        return t;
    }
    static void blank(rf_tensor t)
    {
        const std::vector<uint8_t> ones(rf_tensor_bytes(t), 0xff);
        if (!ones.empty()) {
            EXPECT_RF(rf_tensor_write(t, ones.data(), ones.size()));
        }
    }

  private:
    std::vector<rf_buffer *> buffers;
};

void put(rf_tensor t, const Floats &data)
{
    ASSERT_EQ((int64_t)data.size(), rf_tensor_count(t));
    const std::vector<uint16_t> halves = oracle::to_half(data, t.dtype == RF_BF16);
    const void *bytes = t.dtype == RF_F32 ? (const void *)data.data() : halves.data();
    ASSERT_RF(rf_tensor_write(t, bytes, rf_tensor_bytes(t)));
}

Floats get(rf_tensor t)
{
    Floats data((size_t)rf_tensor_count(t));
    if (t.dtype == RF_F32) {
        EXPECT_RF(rf_tensor_read(t, data.data(), rf_tensor_bytes(t)));
        return data;
    }
    std::vector<uint16_t> halves(data.size());
    EXPECT_RF(rf_tensor_read(t, halves.data(), rf_tensor_bytes(t)));
    for (size_t i = 0; i < data.size(); i++)
        data[i] = oracle::from_half(halves[i], t.dtype == RF_BF16);
    return data;
}

bool same_bits(const Floats &a, const Floats &b)
{
    return a.size() == b.size() && memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// ---- parameters -------------------------------------------------------------------------------

struct Extent { // of a parameter: `rows` lines of `columns`
    int64_t rows, columns;
};
Extent extent(const rf_shape &shape)
{
    const int64_t last = shape.ndim > 1 ? shape.dim[shape.ndim - 1] : 1;
    return {rf_shape_count(shape) / last, last};
}

// Element k of a rank's part is element indices[k] of the whole.
std::vector<size_t> indices(const rf_param_desc &desc, int ranks, int rank)
{
    const Extent e = extent(desc.shape);
    std::vector<TensorRange> rows = {{0, e.rows}}, columns = {{0, e.columns}};
    if (desc.split.kind == RF_SPLIT_ROWS)
        rows = tensor_ranges(desc.split, e.rows, ranks, rank);
    if (desc.split.kind == RF_SPLIT_COLUMNS)
        columns = tensor_ranges(desc.split, e.columns, ranks, rank);
    std::vector<size_t> all;
    for (TensorRange r : rows)
        for (int64_t i = r.first; i < r.first + r.count; i++)
            for (TensorRange c : columns)
                for (int64_t j = c.first; j < c.first + c.count; j++)
                    all.push_back((size_t)(i * e.columns + j));
    return all;
}

rf_shape part_shape(const rf_param_desc &desc, size_t count)
{
    rf_shape shape = desc.shape;
    const Extent e = extent(shape);
    if (desc.split.kind == RF_SPLIT_ROWS)
        shape.dim[0] = (int64_t)count / (rf_shape_count(shape) / shape.dim[0]);
    if (desc.split.kind == RF_SPLIT_COLUMNS)
        shape.dim[shape.ndim - 1] = (int64_t)count / e.rows;
    return shape;
}

// ---- ranks ------------------------------------------------------------------------------------

struct Rank {
    rf_ctx ctx = {};
    rf_block_sizes sizes = {};
    std::vector<rf_tensor> params, grads;
    rf_tensor in = {}, out = {}, dout = {}, din = {};
};

class World
{
  public:
    World(const TensorCase &c) : c(c)
    {
        for (int i = 0; i < c.block->param_count; i++) {
            descs.push_back(c.block->params[i]);
            if (c.edit_split)
                c.edit_split(descs.back());
        }
        ranks.resize((size_t)c.ranks);
    }
    ~World()
    {
        rf_stream_destroy(stream);
    }
    void run(TensorSeen &seen);

  private:
    enum Call { FORWARD, INPUT, WEIGHT };

    int get_sizes(TensorSeen &seen);
    void make(Rank &r, int rank);
    void make_params(Rank &r, int rank);
    int phase(Call call, Rank &r);
    void step(Call call, std::vector<rf_exchange> &exchanges, TensorSeen &seen);
    void exchange(Call call, int index, const rf_exchange &e);
    void collect(TensorSeen &seen);
    void collect_grad(size_t param, TensorSeen &seen);
    Floats joined(rf_tensor Rank::*tensor, const char *name, TensorSeen &seen);
    Floats own_rows(const Floats &whole, int rank) const
    {
        const size_t part = c.sequence ? whole.size() / (size_t)c.ranks : whole.size();
        const auto first = whole.begin() + (ptrdiff_t)(c.sequence ? part * (size_t)rank : 0);
        return Floats(first, first + (ptrdiff_t)part);
    }

    const TensorCase &c;
    std::vector<rf_param_desc> descs;
    std::vector<uint8_t> overwrite_grad;
    std::vector<Rank> ranks;
    Memory memory;
    rf_stream *stream = nullptr;
};

int World::get_sizes(TensorSeen &seen)
{
    const rf_block_ops *ops = c.block->ops;
    for (int rank = 0; rank < c.ranks; rank++) {
        Rank &r = ranks[(size_t)rank];
        r.ctx.tensor = {c.ranks, rank, c.sequence};
        const int rc = ops->tensor_sizes ? ops->tensor_sizes(c.block->self, &r.ctx.tensor, c.rows,
                                                             c.seq, &r.sizes)
                                         : ops->sizes(c.block->self, c.rows, c.seq, &r.sizes);
        seen.sizes.push_back(r.sizes);
        seen.status = rc;
        seen.fault = rc < 0 ? rf_last_error()->message : "";
        if (rc < 0)
            return rc;
    }
    return 0;
}

void World::make_params(Rank &r, int rank)
{
    for (size_t i = 0; i < descs.size(); i++) {
        Floats part;
        for (size_t k : indices(descs[i], c.ranks, rank))
            part.push_back(c.params[i][k]);
        const rf_shape shape = part_shape(descs[i], part.size());
        r.params.push_back(memory.make(shape, descs[i].dtype));
        put(r.params.back(), part);
        r.grads.push_back(memory.make(shape, RF_F32));
        const float before = c.later && descs[i].split.kind != RF_SPLIT_NONE ? 1 : 0;
        put(r.grads.back(), Floats(part.size(), overwrite_grad[i] ? nothing : before));
    }
}

void World::make(Rank &r, int rank)
{
    make_params(r, rank);
    rf_ctx &x = r.ctx;
    x.stream = stream;
    x.rows = c.rows;
    x.seq = c.seq;
    x.evaluate = c.evaluate;
    x.param_count = (int)descs.size();
    x.params = r.params.data();
    x.grads = r.grads.data();
    x.overwrite_grad = (const bool *)overwrite_grad.data();
    x.saved = memory.bytes(r.sizes.saved);
    x.saved_for_weight = memory.bytes(r.sizes.saved_for_weight);
    x.scratch = memory.bytes(r.sizes.scratch);
    x.losses = memory.make(rf_shape1(c.rows), RF_F32);
    Memory::blank(x.losses);
    if (!c.targets.empty()) {
        x.targets = memory.make(rf_shape1(c.rows), RF_I32);
        ASSERT_RF(rf_tensor_write(x.targets, c.targets.data(), c.targets.size() * 4));
    }
    if (!c.tokens.empty()) {
        r.in = memory.make(rf_shape1(c.rows), RF_I32);
        ASSERT_RF(rf_tensor_write(r.in, c.tokens.data(), c.tokens.size() * 4));
    } else {
        const Floats own = own_rows(c.in, rank);
        const rf_shape shape = rf_shape2((int64_t)own.size() / c.columns, c.columns);
        r.in = memory.make(shape, c.in_dtype);
        put(r.in, own);
        r.din = memory.make(shape, c.in_dtype);
        Memory::blank(r.din);
    }
    r.out = memory.make(r.sizes.out, r.sizes.dtype);
    Memory::blank(r.out);
    r.dout = r.out;
    if (c.targets.empty() && !c.dout.empty()) {
        r.dout = memory.make(r.sizes.out, r.sizes.dtype);
        put(r.dout, own_rows(c.dout, rank));
    }
}

int World::phase(Call call, Rank &r)
{
    const rf_block_ops *ops = c.block->ops;
    Memory::blank(r.ctx.scratch);
    int rc = call == FORWARD ? ops->forward(&r.ctx, c.block->self, r.in, r.out)
             : call == INPUT ? ops->backward_input(&r.ctx, c.block->self, r.in, r.dout, r.din)
                             : ops->backward_weight(&r.ctx, c.block->self, r.in, r.dout);
    return rc < 0 ? rc : rf_stream_wait(stream);
}

// As in train.h: sums in f32 in the order of the ranks, rounded once.
void World::exchange(Call call, int index, const rf_exchange &e)
{
    static const char *const names[] = {"forward", "backward_input", "backward_weight"};
    std::vector<Floats> given;
    for (size_t k = 0; k < ranks.size(); k++) {
        given.push_back(get(ranks[k].ctx.exchange));
        if (c.edit_given)
            c.edit_given(names[call], index, (int)k, given.back());
    }
    const size_t count = given[0].size(), part = count / ranks.size();
    if (e.kind == RF_EXCHANGE_GATHER || e.kind == RF_EXCHANGE_SCATTER) {
        ASSERT_EQ(e.shape.dim[0] % c.ranks, 0) << "parts are of equal size";
    }
    Floats all(count);
    for (size_t i = 0; i < count; i++) {
        all[i] = e.kind == RF_EXCHANGE_GATHER ? given[i / part][i] : given[0][i];
        for (size_t k = 1; k < given.size() && e.kind != RF_EXCHANGE_GATHER; k++)
            all[i] =
                e.kind == RF_EXCHANGE_MAX ? std::max(all[i], given[k][i]) : all[i] + given[k][i];
    }
    for (size_t k = 0; k < ranks.size(); k++) {
        Floats mine = all;
        for (size_t i = 0; i < count; i++)
            if (e.kind == RF_EXCHANGE_SCATTER && i / part != k)
                mine[i] = nothing;
        ranks[k].ctx.exchanged = ranks[k].ctx.exchange;
        put(ranks[k].ctx.exchanged, mine);
    }
}

void World::step(Call call, std::vector<rf_exchange> &exchanges, TensorSeen &seen)
{
    const rf_block_sizes &s = ranks[0].sizes;
    const rf_exchange *all = call == FORWARD ? s.forward
                             : call == INPUT ? s.backward_input
                                             : s.backward_weight;
    for (int i = 0; i < RF_MAX_EXCHANGES && all[i].kind != RF_EXCHANGE_NONE; i++)
        exchanges.push_back(all[i]);
    for (Rank &r : ranks)
        r.ctx.exchanged = {};
    for (int i = 0; i <= (int)exchanges.size(); i++) {
        const bool last = i == (int)exchanges.size();
        for (Rank &r : ranks) {
            r.ctx.phase = i;
            r.ctx.exchange = {};
            if (!last) {
                r.ctx.exchange =
                    memory.make(exchanges[(size_t)i].shape, exchanges[(size_t)i].dtype);
                Memory::blank(r.ctx.exchange);
            }
            seen.status = phase(call, r);
            ASSERT_RF(seen.status);
        }
        if (!last) {
            ASSERT_NO_FATAL_FAILURE(exchange(call, i, exchanges[(size_t)i]));
        }
    }
}

// The rows of all ranks; or a value that is replicated, and must be equal on all.
Floats World::joined(rf_tensor Rank::*tensor, const char *name, TensorSeen &seen)
{
    Floats all;
    for (Rank &r : ranks) {
        if (!(r.*tensor).buffer)
            return {};
        const Floats own = get(r.*tensor);
        if (c.sequence || all.empty())
            all.insert(all.end(), own.begin(), own.end());
        else if (!same_bits(all, own))
            seen.unequal.push_back(name);
    }
    return all;
}

void World::collect_grad(size_t param, TensorSeen &seen)
{
    const rf_param_desc &desc = descs[param];
    Floats whole(c.params[param].size(), nothing);
    const bool split = desc.split.kind != RF_SPLIT_NONE;
    for (int rank = 0; rank < c.ranks; rank++) {
        const Floats part = get(ranks[(size_t)rank].grads[param]);
        const std::vector<size_t> at = indices(desc, c.ranks, rank);
        bool equal = true;
        for (size_t k = 0; k < part.size(); k++) {
            float &element = whole[at[k]];
            if (!split && c.sequence && !c.skip_sums && rank > 0)
                element += part[k];
            else if (std::isnan(element))
                element = part[k];
            else if (split || !c.sequence) /* a copy, or the same on all */
                equal = equal && memcmp(&element, &part[k], sizeof(float)) == 0;
        }
        if (!equal)
            seen.unequal.push_back(desc.name);
    }
    seen.grads.push_back(whole);
}

void World::collect(TensorSeen &seen)
{
    seen.out = joined(&Rank::out, "out", seen);
    if (c.evaluate)
        return;
    seen.din = joined(&Rank::din, "din", seen);
    for (size_t i = 0; i < descs.size(); i++)
        collect_grad(i, seen);
}

void World::run(TensorSeen &seen)
{
    ASSERT_RF(rf_stream_create(rank_device(0), "tensor ranks", &stream));
    ASSERT_EQ(c.params.size(), descs.size());
    if (get_sizes(seen) < 0)
        return;
    for (const rf_param_desc &desc : descs)
        overwrite_grad.push_back((desc.flags & RF_PARAM_OVERWRITE_GRAD) != 0 && !c.later);
    for (int rank = 0; rank < c.ranks; rank++)
        ASSERT_NO_FATAL_FAILURE(make(ranks[(size_t)rank], rank));
    ASSERT_NO_FATAL_FAILURE(step(FORWARD, seen.forward, seen));
    const Floats out = joined(&Rank::out, "out", seen);
    if (!c.evaluate) {
        ASSERT_NO_FATAL_FAILURE(step(INPUT, seen.backward_input, seen));
        ASSERT_NO_FATAL_FAILURE(step(WEIGHT, seen.backward_weight, seen));
    }
    if (!c.targets.empty()) {
        seen.losses = get(ranks[0].ctx.losses);
        for (Rank &r : ranks)
            if (!same_bits(get(r.ctx.losses), seen.losses))
                seen.unequal.push_back("losses");
    }
    collect(seen);
    seen.out = out;
}

} // namespace

std::vector<TensorRange> tensor_ranges(const rf_split &split, int64_t extent, int ranks, int rank)
{
    const int segments = std::max(split.segments, 1);
    const int64_t unit = std::max(split.unit, 1);
    bool sized = false;
    for (int s = 0; s < segments; s++)
        sized = sized || split.sizes[s] != 0;
    std::vector<TensorRange> all;
    int64_t at = 0;
    for (int s = 0; s < segments; s++) {
        const int64_t size = sized ? split.sizes[s] : extent / segments, units = size / unit;
        EXPECT_EQ(size % unit, 0) << "a segment is whole units";
        const int64_t from = rank * units / ranks;
        const bool copied = split.kind == RF_SPLIT_ROWS && units < ranks;
        const int64_t to = copied ? from + 1 : (rank + 1) * units / ranks;
        if (copied) {
            EXPECT_EQ(ranks % units, 0) << "copies: units divide ranks";
        }
        all.push_back({at + from * unit, (to - from) * unit});
        at += size;
    }
    EXPECT_EQ(at, extent) << "segments fill the dimension";
    return all;
}

TensorSeen run_tensor_ranks(const TensorCase &c)
{
    TensorSeen seen;
    World(c).run(seen);
    return seen;
}

std::vector<float> tensor_numbers(int64_t count, float size, uint64_t site)
{
    Floats data((size_t)count);
    for (size_t i = 0; i < data.size(); i++)
        data[i] = size * rf_philox_normal(7, site, i);
    return data;
}

std::vector<std::vector<float>> tensor_params(const rf_block &block)
{
    std::vector<Floats> all;
    for (int i = 0; i < block.param_count; i++) {
        const rf_param_desc &desc = block.params[i];
        const bool vector = desc.shape.ndim == 1;
        const float inputs = vector ? 4 : (float)desc.shape.dim[1];
        Floats data =
            tensor_numbers(rf_shape_count(desc.shape), 1 / std::sqrt(inputs), 100 + (uint64_t)i);
        for (float &x : data)
            x += vector ? desc.init_value : 0;
        all.push_back(data);
    }
    return all;
}

double tensor_difference(const Floats &a, const Floats &b)
{
    double worst = 0, most = 0;
    if (a.size() != b.size())
        return INFINITY;
    for (size_t i = 0; i < a.size(); i++) {
        if (!std::isfinite(a[i]) || !std::isfinite(b[i]))
            return INFINITY;
        worst = std::max(worst, std::fabs((double)a[i] - (double)b[i]));
        most = std::max(most, std::fabs((double)a[i]));
    }
    return most > 0 ? worst / most : worst > 0 ? INFINITY : 0;
}

double tensor_difference(const rf_block &block, const TensorSeen &a, const TensorSeen &b,
                         std::string *where)
{
    double worst = -1;
    auto take = [&](const std::string &name, const Floats &x, const Floats &y) {
        const double difference = tensor_difference(x, y);
        if (difference > worst) {
            worst = difference;
            *where = name;
        }
    };
    take("out", a.out, b.out);
    take("din", a.din, b.din);
    take("losses", a.losses, b.losses);
    if (a.grads.size() != b.grads.size())
        return INFINITY;
    for (size_t i = 0; i < a.grads.size(); i++)
        take(block.params[i].name, a.grads[i], b.grads[i]);
    return worst;
}
