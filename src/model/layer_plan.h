#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "device/device.h"
#include "drafthouse/status.h"
#include "formats/model_config.h"
#include "model/decoder_layer.h"

namespace drafthouse {

// What one layer of a target computes and where its state lies: a row of the table that a forward
// pass walks through.
struct LayerPlan {
  LayerKind kind = LayerKind::full_attention;
  LayerShape shape;
  std::uint32_t window = 0;  // positions that a row sees, its own included; 0: all
  std::uint32_t rotary = 0;  // index into StepTable::rotary
  bool own_kv = true;        // false: kv is an earlier layer's
  KvLayout kv;
  RecurrentLayout recurrent = {};  // of kinds that do not attend

  // Floats per row of the mixer: of its projections, and of what goes to its output matrix.
  std::uint32_t projected_width() const {
    return attends(kind) ? shape.qkv_width() : drafthouse::projected_width(recurrent);
  }
  std::uint32_t inner_width() const {
    return attends(kind) ? shape.q_width() : drafthouse::inner_width(recurrent);
  }
};

// Layers whose state shares pages: keys and values of one window and one shape of heads; the states
// of recurrent layers, and their ring.
struct KvGroup {
  enum class Kind : std::uint8_t { attention, recurrent, ring };

  Kind kind = Kind::attention;
  std::size_t page_bytes = 0;
  std::uint32_t reach = 0;  // positions that a row sees back, its own included; 0: all
  std::uint32_t kv_heads = 0;
  std::uint32_t head_dim = 0;
};

struct LayerPlans {
  std::vector<LayerPlan> layers;
  std::vector<KvGroup> groups;  // in order of their first layer; recurrent ones last
};

// `label` is the model, for messages. unsupported: a shape or a number of groups that nothing here
// takes; invalid_argument: a table that contradicts itself.
Result<LayerPlans> plan_layers(const ModelConfig& config, KvKind kv_kind, const std::string& label);

}  // namespace drafthouse
