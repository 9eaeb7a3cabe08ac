#pragma once

#include <cstdint>
#include <vector>

#include "device/step_table.h"
#include "drafthouse/status.h"
#include "formats/model_config.h"

namespace drafthouse {

// Rotary position embedding over a head or its first values, with the scaling its configuration
// asks for (formulas: Hugging Face modeling_rope_utils). Immutable.
class Rope {
 public:
  // unsupported names the scaling that is not built.
  static Result<Rope> create(const RopeConfig& config, std::uint32_t head_dim);

  std::uint32_t half() const { return static_cast<std::uint32_t>(inv_freq_.size()); }
  // Writes cos and sin of every row's position into rotary table `table` of the step.
  void fill(StepTable& step, std::uint32_t table = 0) const;

 private:
  std::vector<double> inv_freq_;
  float magnitude_ = 1.0f;  // yarn's attention factor, on cos and sin
};

}  // namespace drafthouse
