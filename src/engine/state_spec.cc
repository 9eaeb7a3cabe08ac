#include "engine/state_spec.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string>

#include "base/sha256.h"

namespace drafthouse {
namespace {

std::string hex(const Sha256Digest& digest) { return StateDigest{digest}.hex(); }

std::string text_of(const RopeConfig& rope) {
  std::string text = fmt::format(
      "theta {} scaling {} factor {} low {} high {} original {} fast {} slow {} attention {} "
      "divisors {}",
      rope.theta, static_cast<int>(rope.scaling), rope.factor, rope.low_freq_factor,
      rope.high_freq_factor, rope.original_max_positions, rope.beta_fast, rope.beta_slow,
      rope.attention_factor.value_or(-1.0), fmt::join(rope.divisors, " "));
  if (!rope.truncate) text += " not truncated";
  if (rope.rotated_part != 1.0) text += fmt::format(" part {}", rope.rotated_part);
  if (rope.rotary_dim != 0) text += fmt::format(" rotary {}", rope.rotary_dim);
  return text;
}

std::string layers_text(const ModelConfig& config) {
  std::string text = fmt::format("window {} sliding rope {}", config.sliding_window,
                                 config.sliding_rope ? text_of(*config.sliding_rope) : "same");
  for (const LayerConfig& layer : config.layer_table) {
    text += fmt::format("; {} {}/{} dim {} kv {}", static_cast<int>(layer.kind), layer.heads,
                        layer.kv_heads, layer.head_dim,
                        layer.kv_source ? std::to_string(*layer.kv_source) : "own");
  }
  return text;
}

std::string recurrent_text(const ModelConfig& config) {
  const RecurrentConfig& c = config.recurrent;
  return fmt::format("kernel {} heads {}/{} dims {}/{} gates {}", c.kernel, c.value_heads,
                     c.key_heads, c.key_dim, c.value_dim, config.attention_gate);
}

std::string parts_text(const ModelConfig& c) {
  return fmt::format(
      "activation {} {} {} experts {}/{} normalised {} embedding {} scale {} "
      "value is key {} layer inputs {}",
      static_cast<int>(c.activation), c.activation_alpha, c.activation_limit, c.experts.per_row,
      c.experts.count, c.experts.normalise, c.embedding_scale, c.attention_scale.value_or(0.0),
      c.value_is_key, c.per_layer_input_size);
}

StateDigest digest_of(const std::vector<std::pair<std::string, std::string>>& fields) {
  Sha256 sum;
  for (const auto& [name, value] : fields) {
    sum.add(fmt::format("{}:{}={}:{}\n", name.size(), name, value.size(), value));
  }
  return StateDigest{sum.finish()};
}

}  // namespace

StateSpec state_spec(const Decoder& target, const DFlashDraft* draft, const StateLayout& layout,
                     std::string_view isa, std::string_view hooks, MemoryBudget* budget) {
  StateSpec spec;
  spec.layout = layout;
  spec.budget = budget;
  const ModelConfig& c = target.config();
  auto& fields = spec.fields;
  fields.emplace_back("format", "1");
  fields.emplace_back("numerics", fmt::format("{} cpu {}", kNumericsVersion, isa));
  fields.emplace_back("hooks", hooks);
  fields.emplace_back("compute", target.compute_fp32() ? "fp32" : "auto");
  fields.emplace_back("target weights", hex(target.weights_digest()));
  fields.emplace_back("target shape",
                      fmt::format("{} hidden {} layers {} heads {}/{} dim {} eps {} interleaved {}",
                                  c.family, c.hidden_size, c.layers, c.heads, c.kv_heads,
                                  c.head_dim, c.rms_eps, c.interleaved_rope_rows));
  fields.emplace_back("target rope", text_of(c.rope));
  if (c.experts.count != 0 || c.activation != Activation::silu || c.embedding_scale != 1.0) {
    fields.emplace_back("target parts", parts_text(c));
  }
  if (!c.layer_table.empty()) fields.emplace_back("target layers", layers_text(c));
  if (c.recurrent.kernel != 0) fields.emplace_back("target recurrent", recurrent_text(c));
  std::string pages;
  for (const GroupLayout& group : layout.groups) {
    if (!group.draft) pages += fmt::format("{}x{} ", group.page_bytes, group.reach);
  }
  fields.emplace_back("target pages", pages);
  spec.target = digest_of(fields);
  if (draft == nullptr) return spec;

  const DraftConfig& d = draft->config();
  fields.emplace_back("draft weights", hex(draft->weights_digest()));
  fields.emplace_back("draft shape",
                      fmt::format("hidden {} layers {} heads {}/{} dim {} eps {} window {} taps {}",
                                  d.hidden_size, d.layers, d.heads, d.kv_heads, d.head_dim,
                                  d.rms_eps, d.sliding_window, fmt::join(d.target_layer_ids, " ")));
  fields.emplace_back("draft rope", text_of(d.rope));
  pages.clear();
  for (const GroupLayout& group : layout.groups) {
    if (!group.draft) continue;
    pages += fmt::format("{}x{} ", group.page_bytes, group.reach);
    if (group.sink != 0) pages += fmt::format("after {} ", group.sink);
  }
  fields.emplace_back("draft pages", pages);
  spec.draft = digest_of(fields);
  return spec;
}

}  // namespace drafthouse
