#include "model/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "device/device.h"

namespace drafthouse {
namespace {

double llama3(double inv, const RopeConfig& c) {
  const double wavelength = 2.0 * std::numbers::pi / inv;
  if (wavelength > c.original_max_positions / c.low_freq_factor) return inv / c.factor;
  if (wavelength < c.original_max_positions / c.high_freq_factor) return inv;
  const double smooth = (c.original_max_positions / wavelength - c.low_freq_factor) /
                        (c.high_freq_factor - c.low_freq_factor);
  return (1.0 - smooth) * inv / c.factor + smooth * inv;
}

// Where, in pairs, `rotations` turns fit into the original context.
double yarn_boundary(const RopeConfig& c, double rotations, double dims) {
  return dims * std::log(c.original_max_positions / (2.0 * std::numbers::pi * rotations)) /
         (2.0 * std::log(c.theta));
}

}  // namespace

Result<Rope> Rope::create(const RopeConfig& config, std::uint32_t head_dim) {
  Rope rope;
  const std::uint32_t rotated = config.rotary_dim != 0 ? config.rotary_dim : head_dim;
  const double dims = rotated;
  const std::uint32_t half = rotated / 2;
  const double fast = yarn_boundary(config, config.beta_fast, dims);
  const double slow = yarn_boundary(config, config.beta_slow, dims);
  const double low = std::max(config.truncate ? std::floor(fast) : fast, 0.0);
  const double high = std::min(config.truncate ? std::ceil(slow) : slow, dims - 1);
  for (std::uint32_t i = 0; i < half; ++i) {
    // Angles follow the reference's float32 inverse frequencies.
    double inv = static_cast<float>(std::pow(config.theta, -2.0 * i / dims));
    switch (config.scaling) {
      case RopeScaling::none: break;
      case RopeScaling::linear: inv /= config.factor; break;
      case RopeScaling::llama3: inv = llama3(inv, config); break;
      case RopeScaling::yarn: {
        const double ramp = std::clamp((i - low) / std::max(high - low, 0.001), 0.0, 1.0);
        inv = inv / config.factor * ramp + inv * (1.0 - ramp);
        break;
      }
      case RopeScaling::proportional:
        inv = i < static_cast<std::uint32_t>(config.rotated_part * dims / 2.0) ? inv / config.factor
                                                                               : 0.0;
        break;
    }
    if (i < config.divisors.size()) inv /= static_cast<double>(config.divisors[i]);
    rope.inv_freq_.push_back(static_cast<float>(inv));
  }
  if (config.scaling == RopeScaling::yarn) {
    rope.magnitude_ =
        static_cast<float>(config.attention_factor.value_or(0.1 * std::log(config.factor) + 1.0));
  }
  return rope;
}

void Rope::fill(StepTable& step, std::uint32_t table) const {
  const std::size_t pairs = half();
  RotaryTable& out = step.rotary[table];
  out.pairs = half();
  out.cos.resize(step.rows * pairs);
  out.sin.resize(step.rows * pairs);
  for (std::uint32_t row = 0; row < step.rows; ++row) {
    float* cos = out.cos.data() + row * pairs;
    float* sin = out.sin.data() + row * pairs;
    rope_angles(step.positions[row], inv_freq_.data(), half(), cos, sin);
    if (magnitude_ == 1.0f) continue;
    for (std::size_t i = 0; i < pairs; ++i) {
      cos[i] *= magnitude_;
      sin[i] *= magnitude_;
    }
  }
}

}  // namespace drafthouse
