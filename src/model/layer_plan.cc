#include "model/layer_plan.h"

#include <fmt/format.h>

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
  groups.push_back({.reach = plan.window, .kv_heads = shape.kv_heads, .head_dim = shape.head_dim});
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

}  // namespace

Result<LayerPlans> plan_layers(const ModelConfig& config, KvKind kv_kind, const std::string& label) {
  LayerPlans plans;
  const Gating gating{.kind = gating_of(config.activation),
                      .alpha = static_cast<float>(config.activation_alpha),
                      .limit = static_cast<float>(config.activation_limit)};
  for (std::uint32_t i = 0; i < config.layers; ++i) {
    const LayerConfig layer = config.layer(i);
    const bool sliding = layer.kind == LayerKind::sliding_attention;
    LayerPlan plan{.kind = layer.kind,
                   .shape = {.hidden = config.hidden_size,
                             .heads = layer.heads,
                             .kv_heads = layer.kv_heads,
                             .head_dim = layer.head_dim,
                             .intermediate = layer.intermediate_size,
                             .eps = static_cast<float>(config.rms_eps),
                             .attention_scale =
                                 static_cast<float>(config.attention_scale.value_or(0.0)),
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
  if (plans.groups.size() > kLayerGroupsMax) {
    return Status(Code::unsupported,
                  fmt::format("{}: {} kinds of attention state in one model; at most {} are built",
                              label, plans.groups.size(), kLayerGroupsMax));
  }
  return plans;
}

}  // namespace drafthouse
