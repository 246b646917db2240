/* SPDX-License-Identifier: MIT
 *
 * A host that holds a part of a model, its states and its gradients, between guard bytes.
 */
#pragma once

#include "optimizer_fixture.h"

#include <cmath>
#include <limits>
#include <memory>

#include <ringforge/host_step.h>

extern "C" {
#include "base/base.h"
#include "optim/codes.h"
}

namespace
{
const uint64_t seed = 0x123456789abcdef0;

/* `count` elements of a type, `shift` elements behind a multiple of 64 bytes, between guard bytes.
 */
class Array
{
  public:
    Array() = default;
    Array(const Floats &data, rf_dtype type, int shift) : type_(type), count_(data.size())
    {
        const size_t size = rf_dtype_bytes(type);
        bytes_.assign(size * count_ + 256, 0x7f);
        const size_t past = (uintptr_t)bytes_.data() % 64;
        first_ = (past ? 64 - past : 0) + 64 + size * shift;
        const std::vector<uint16_t> half = oracle::to_half(data, type == RF_BF16);
        if (count_)
            std::memcpy(this->data(), type == RF_F32 ? (const void *)data.data() : half.data(),
                        size * count_);
    }
    void *data()
    {
        return bytes_.data() + first_;
    }
    Floats values()
    {
        Floats whole(count_);
        std::vector<uint16_t> half(count_);
        if (type_ == RF_F32)
            std::memcpy(whole.data(), data(), 4 * count_);
        else
            std::memcpy(half.data(), data(), 2 * count_);
        return type_ == RF_F32 ? whole : oracle::from_half(half, type_ == RF_BF16);
    }
    void expect_nothing_written_beside() const
    {
        for (size_t i = 0; i < bytes_.size(); i++) {
            const bool inside = i >= first_ && i < first_ + rf_dtype_bytes(type_) * count_;
            ASSERT_TRUE(inside || bytes_[i] == 0x7f) << "byte " << i;
        }
    }

  private:
    rf_dtype type_ = RF_F32;
    size_t count_ = 0, first_ = 0;
    std::vector<unsigned char> bytes_;
};

struct Types {
    rf_dtype param, grad, copy; /* copy: f32 means none */
};
const Types plain = {RF_F32, RF_F32, RF_F32};

/* A flat buffer in host memory, with its states and block of scalars. */
class Host
{
  public:
    Host(const rf_optimizer_opts &o, const Floats &p, const Ints &decay, Types types = plain,
         int shift = 0)
        : o_(o), types_(types), shift_(shift), decay_(decay), param_(p, types.param, shift)
    {
        part.count = (int64_t)p.size();
        part.param = param_.data();
        part.param_type = types.param;
        part.grad_type = types.grad;
        part.decay = decay_.data();
        for (int k = 0; k < RF_STATE_COUNT; k++)
            if (rf_optimizer_has(&o, (rf_optimizer_state)k)) {
                state_[k] = Array(Floats(p.size()), RF_F32, shift);
                part.state[k] = (float *)state_[k].data();
            }
        if (types.copy != RF_F32) {
            copy_ = Array(Floats(p.size()), types.copy, shift);
            part.copy = copy_.data();
            part.copy_type = types.copy;
        }
        scalars.lr = 1e-3f;
        scalars.inv_tokens = 1;
        scalars.seed[0] = (uint32_t)seed;
        scalars.seed[1] = (uint32_t)(seed >> 32);
    }
    Host(const Host &) = delete;

    void give(const Floats &g)
    {
        grad_ = Array(g, types_.grad, shift_);
        part.grad = grad_.data();
    }
    int step(const Floats &g, float sum_squares = 1)
    {
        give(g);
        const int rc = rf_host_step_begin(&o_, &scalars, sum_squares);
        return rc < 0 ? rc : rf_host_step(&o_, &part, 0, part.count, &scalars);
    }
    Floats state(int k)
    {
        return state_[k].values();
    }
    Floats copy()
    {
        return copy_.values();
    }
    Floats param()
    {
        return param_.values();
    }
    /* Everything that a step may change, concatenated. */
    Floats contents()
    {
        Floats all = param();
        for (int k = 0; k < RF_STATE_COUNT; k++)
            if (part.state[k])
                for (float x : state(k))
                    all.push_back(x);
        if (part.copy)
            for (float x : copy())
                all.push_back(x);
        param_.expect_nothing_written_beside();
        for (const Array &a : state_)
            a.expect_nothing_written_beside();
        copy_.expect_nothing_written_beside();
        return all;
    }

    rf_host_part part = {};
    rf_step_scalars scalars = {};

  private:
    rf_optimizer_opts o_;
    Types types_;
    int shift_;
    Ints decay_;
    Array param_, grad_, state_[RF_STATE_COUNT], copy_;
};

class HostStep : public ::testing::Test
{
  protected:
    Floats normal(size_t count, float scale = 1)
    {
        std::normal_distribution<float> distribution(0, scale);
        Floats data(count);
        for (float &x : data)
            x = distribution(engine);
        return data;
    }
    static Ints alternating(int64_t n)
    {
        Ints decay;
        for (int64_t i = 0; i < (n + 63) / 64; i++)
            decay.push_back(i % 2 == 0);
        return decay;
    }
    std::mt19937 engine{1};
};

} // namespace
