#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/kernels.h"

namespace drafthouse {

// Where one recurrent layer lies inside the pages of its two groups, and its shape. All values are
// floats. A page of states holds, per layer, what the row after it needs:
//   [kernel − 1][channels]                    inputs of the convolution at the last positions
//   [value_heads][key_dim][value_dim]         S of the delta rule
// A page of the ring holds, per layer, what happened since the state before it:
//   [64][channels]                            inputs of the convolution
//   [key_heads][64][key_dim]                  normed keys
//   [value_heads][64][value_dim]              updates u
//   [value_heads][64]                         sums of log decays G
// A layer that is a convolution only has no heads.
struct RecurrentLayout {
  std::uint32_t state_group = 0;  // indices into StepSpan::pages
  std::uint32_t ring_group = 0;
  std::size_t state_offset = 0;  // bytes from the page's start to this layer
  std::size_t ring_offset = 0;
  std::uint32_t channels = 0;
  std::uint32_t kernel = 0;  // taps of the convolution, the row's own included
  std::uint32_t key_heads = 0;
  std::uint32_t value_heads = 0;  // value head h goes with key head h / (value_heads / key_heads)
  std::uint32_t key_dim = 0;
  std::uint32_t value_dim = 0;

  std::size_t tail_floats() const { return std::size_t{kernel - 1} * channels; }
  std::size_t head_state_floats() const { return std::size_t{key_dim} * value_dim; }
  // Bytes of the layer in a page.
  std::size_t state_bytes() const {
    return (tail_floats() + value_heads * head_state_floats()) * sizeof(float);
  }
  std::size_t ring_bytes() const {
    const std::size_t row =
        channels + std::size_t{key_heads} * key_dim + std::size_t{value_heads} * (value_dim + 1);
    return kPagePositions * row * sizeof(float);
  }

  float* tail(std::byte* state_page) const { return floats(state_page, state_offset); }
  float* head_state(std::byte* state_page, std::uint32_t head) const {
    return tail(state_page) + tail_floats() + head * head_state_floats();
  }
  float* ring_inputs(std::byte* ring_page) const { return floats(ring_page, ring_offset); }
  float* ring_keys(std::byte* ring_page, std::uint32_t key_head) const {
    return ring_inputs(ring_page) + kPagePositions * (channels + std::size_t{key_head} * key_dim);
  }
  float* ring_updates(std::byte* ring_page, std::uint32_t head) const {
    return ring_keys(ring_page, key_heads) + kPagePositions * std::size_t{head} * value_dim;
  }
  float* ring_decays(std::byte* ring_page, std::uint32_t head) const {
    return ring_updates(ring_page, value_heads) + kPagePositions * std::size_t{head};
  }

 private:
  static float* floats(std::byte* page, std::size_t offset) {
    return reinterpret_cast<float*>(page + offset);
  }
};

// A depthwise causal convolution of every row with the positions before it in its sequence; zeros
// before position 0. Keeps the inputs for rows that come later.
struct ConvolutionJob {
  RecurrentLayout layout;
  const float* const* weights = nullptr;  // [kernel] rows of channels
  bool silu = false;
  const float* x = nullptr;  // [rows][channels]
  std::size_t x_stride = 0;  // floats between rows, as below
  float* out = nullptr;      // not x
  std::size_t out_stride = 0;
};

// The gated delta rule (DeltaRowsJob) of every row and value head, with q and k L2-normed and q
// scaled by key_dim^−½ before it, and decay = −e^{a_log} softplus(a + dt_bias), beta = sigmoid(b).
struct DeltaRuleJob {
  RecurrentLayout layout;
  float* qkv = nullptr;  // [rows][key_heads·key_dim | key_heads·key_dim | value_heads·value_dim]; q
                         // and k are normed in place
  std::size_t qkv_stride = 0;
  float* a = nullptr;  // [rows][value_heads], in place
  float* b = nullptr;
  std::size_t gate_stride = 0;
  const float* a_log = nullptr;    // [value_heads]
  const float* dt_bias = nullptr;  // [value_heads]
  float* out = nullptr;            // [rows][value_heads · value_dim]
  std::size_t out_stride = 0;
};

}  // namespace drafthouse
