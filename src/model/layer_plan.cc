#include "model/layer_plan.h"

#include <fmt/format.h>

#include "tensor/head_dim.h"

namespace drafthouse {
namespace {

// The group that keys and values of this plan's shape and window go to; made when there is none.
std::uint32_t group_of(std::vector<KvGroup>& groups, const LayerPlan& plan) {
  const LayerShape& shape = plan.shape;
  for (std::uint32_t g = 0; g < groups.size(); ++g) {
    const KvGroup& group = groups[g];
    if (group.reach == plan.window && group.kv_heads == shape.kv_heads &&
        group.head_dim == shape.head_dim) {
      return g;
    }
  }
  groups.push_back({.kind = KvGroup::Kind::attention,
                    .page_bytes = 0,
                    .reach = plan.window,
                    .kv_heads = shape.kv_heads,
                    .head_dim = shape.head_dim});
  return static_cast<std::uint32_t>(groups.size() - 1);
}

Gating::Kind gating_of(Activation activation) {
  switch (activation) {
    case Activation::silu: break;
    case Activation::gelu_tanh: return Gating::Kind::gelu_tanh;
    case Activation::clamped_silu: return Gating::Kind::clamped_silu;
  }
  return Gating::Kind::silu;
}

Status check_source(const LayerPlans& plans, const LayerPlan& plan, std::uint32_t source,
                    const std::string& label) {
  const auto index = static_cast<std::uint32_t>(plans.layers.size());
  if (source < index) {
    const LayerPlan& from = plans.layers[source];
    if (from.own_kv && from.window == plan.window && from.shape.kv_heads == plan.shape.kv_heads &&
        from.shape.head_dim == plan.shape.head_dim) {
      return {};
    }
  }
  return Status(Code::invalid_argument,
                fmt::format("{}: layer {} cannot attend to the keys and values of layer {}, which "
                            "have another shape or window or do not come before it",
                            label, index, source));
}

// Places a recurrent layer behind those before it in pages of states and of rings. The groups'
// indices follow when all others are known.
Status place_recurrent(const ModelConfig& config, const std::string& label, LayerPlan& plan,
                       KvGroup& states, KvGroup& rings) {
  const RecurrentConfig& c = config.recurrent;
  RecurrentLayout& layout = plan.recurrent;
  layout.kernel = c.kernel;
  layout.channels = config.hidden_size;
  if (plan.kind == LayerKind::delta_rule) {
    layout.key_heads = c.key_heads;
    layout.value_heads = c.value_heads;
    layout.key_dim = c.key_dim;
    layout.value_dim = c.value_dim;
    layout.channels = 2 * c.key_heads * c.key_dim + c.value_heads * c.value_dim;
    for (const std::uint32_t dim : {c.key_dim, c.value_dim}) {
      if (dim != 0 && dim % kHeadDimStep == 0 && dim <= kHeadDimMax) continue;
      return Status(Code::unsupported,
                    fmt::format("{}: heads of {} values in recurrent layers are not supported; "
                                "multiples of {} up to {} are",
                                label, dim, kHeadDimStep, kHeadDimMax));
    }
    if (c.key_heads == 0 || c.value_heads % c.key_heads != 0) {
      return Status(Code::invalid_argument,
                    fmt::format("{}: {} value heads of recurrent layers over {} key heads", label,
                                c.value_heads, c.key_heads));
    }
  }
  if (c.kernel < 2 || c.kernel > kConvTapsMax) {
    return Status(Code::unsupported,
                  fmt::format("{}: a convolution of {} taps is not supported; 2 to {} are", label,
                              c.kernel, kConvTapsMax));
  }
  layout.state_offset = states.page_bytes;
  layout.ring_offset = rings.page_bytes;
  states.page_bytes += layout.state_bytes();
  rings.page_bytes += layout.ring_bytes();
  return {};
}

}  // namespace

Result<LayerPlans> plan_layers(const ModelConfig& config, KvKind kv_kind,
                               const std::string& label) {
  LayerPlans plans;
  KvGroup states{.kind = KvGroup::Kind::recurrent, .reach = kPagePositions + 1};
  KvGroup rings{.kind = KvGroup::Kind::ring, .reach = 1};
  const Gating gating{.kind = gating_of(config.activation),
                      .alpha = static_cast<float>(config.activation_alpha),
                      .limit = static_cast<float>(config.activation_limit)};
  for (std::uint32_t i = 0; i < config.layers; ++i) {
    const LayerConfig layer = config.layer(i);
    const bool sliding = layer.kind == LayerKind::sliding_attention;
    LayerPlan plan{
        .kind = layer.kind,
        .shape = {.hidden = config.hidden_size,
                  .heads = layer.heads,
                  .kv_heads = layer.kv_heads,
                  .head_dim = layer.head_dim,
                  .intermediate = layer.intermediate_size,
                  .eps = static_cast<float>(config.rms_eps),
                  .attention_scale = static_cast<float>(config.attention_scale.value_or(0.0)),
                  .gating = gating,
                  .layer_input = config.per_layer_input_size,
                  .layer_input_at = i * config.per_layer_input_size,
                  .layer_inputs = config.layers * config.per_layer_input_size},
        .window = sliding ? config.sliding_window : 0,
        .rotary = sliding && config.sliding_rope ? 1u : 0u,
        .own_kv = !layer.kv_source,
        .kv = {}};
    if (layer.experts) {
      plan.shape.experts = config.experts.count;
      plan.shape.experts_per_row = config.experts.per_row;
      plan.shape.expert_intermediate = config.experts.intermediate_size;
      plan.shape.normalise_experts = config.experts.normalise;
    }
    plan.shape.attention_gate = config.attention_gate;
    plan.shape.gain_offset = config.gain_from_one ? 1.0f : 0.0f;
    if (!attends(layer.kind)) {
      if (Status s = place_recurrent(config, label, plan, states, rings); !s.ok()) return s;
      plans.layers.push_back(plan);
      continue;
    }
    if (Status s = plan.shape.check(label); !s.ok()) return s;
    if (layer.kv_source) {
      if (Status s = check_source(plans, plan, *layer.kv_source, label); !s.ok()) return s;
      plan.kv = plans.layers[*layer.kv_source].kv;
    } else {
      plan.kv = {.kind = kv_kind,
                 .group = group_of(plans.groups, plan),
                 .kv_heads = layer.kv_heads,
                 .head_dim = layer.head_dim};
      KvGroup& group = plans.groups[plan.kv.group];
      plan.kv.layer_offset = group.page_bytes;
      group.page_bytes += plan.kv.layer_bytes();
    }
    plans.layers.push_back(plan);
  }
  if (states.page_bytes > 0) {
    for (LayerPlan& plan : plans.layers) {
      plan.recurrent.state_group = static_cast<std::uint32_t>(plans.groups.size());
      plan.recurrent.ring_group = static_cast<std::uint32_t>(plans.groups.size() + 1);
    }
    plans.groups.push_back(states);
    plans.groups.push_back(rings);
  }
  if (plans.groups.size() > kLayerGroupsMax) {
    return Status(Code::unsupported,
                  fmt::format("{}: {} kinds of attention state in one model; at most {} are built",
                              label, plans.groups.size(), kLayerGroupsMax));
  }
  return plans;
}

}  // namespace drafthouse
