// SPDX-License-Identifier: MIT
//
// An independent GPT-2 in plain fp64: forward, backward and AdamW, written for clarity and compared
// with the library's training. It shares no code with the library.
#ifndef RF_TESTS_TRAIN_REFERENCE_MODEL_H
#define RF_TESTS_TRAIN_REFERENCE_MODEL_H

#include <cstdint>
#include <map>
#include <string>
#include <vector>

struct ReferenceConfig {
    int layers, channels, heads, seq, vocab;
    double eps = 1e-5; // of the norms
};

struct ReferenceAdamW {
    double lr, beta1, beta2, eps, weight_decay, clip; // clip 0 = none
};

class ReferenceModel
{
  public:
    using Tensors = std::map<std::string, std::vector<double>>;

    explicit ReferenceModel(ReferenceConfig config);
    // Names and element counts of all parameters; weights are (out, in), row-major.
    const std::map<std::string, size_t> &sizes() const
    {
        return sizes_;
    }
    Tensors params, grads;

    // Sum of the token losses of `sequences` sequences; grads are zeroed and hold the gradient of
    // that sum. A negative target is ignored. *tokens_counted: valid targets.
    double loss(const std::vector<int32_t> &tokens, const std::vector<int32_t> &targets,
                int sequences, int64_t *tokens_counted);
    // One AdamW step on grads / tokens; weight decay on matrices only (names that end in "weight"
    // and have two dimensions, norms excepted). Returns the gradient's norm before clipping.
    double step(const ReferenceAdamW &opts, int64_t tokens);

  private:
    struct Layer;
    void forward_layer(int layer, Layer &l, const std::vector<double> &x, std::vector<double> &out,
                       int sequences);
    void backward_layer(int layer, Layer &l, const std::vector<double> &dout,
                        std::vector<double> &dx, int sequences);
    ReferenceConfig config_;
    std::map<std::string, size_t> sizes_;
    std::map<std::string, bool> decays_;
    Tensors m_, v_;
    int64_t steps_ = 0;
};

#endif
