#include <fmt/format.h>

#include <cmath>

#include "formats/hf_config.h"
#include "formats/limits.h"
#include "formats/printable.h"

namespace drafthouse {
namespace {

// yarn fields of other model families, which would change the frequencies silently.
void refuse_other_yarn(ConfigFields& scaling) {
  for (const char* key : {"mscale", "mscale_all_dim"}) {
    if (scaling.has(key)) scaling.refuse(Code::unsupported, key, "is not supported");
  }
}

// Leading values of a head, in whole pairs.
std::uint32_t rotary_dim(ConfigFields& fields, ConfigFields& scaling, std::uint32_t head_dim) {
  auto part = scaling.maybe_positive("partial_rotary_factor");
  if (!part) part = fields.maybe_positive("partial_rotary_factor");
  if (!part || *part == 1.0) return 0;
  const double rotated = *part * head_dim;
  if (rotated < 2.0 || rotated > head_dim || rotated != 2.0 * std::floor(rotated / 2.0)) {
    scaling.refuse(Code::invalid_argument, "partial_rotary_factor",
                   fmt::format("of a head of {} is no even number of values", head_dim));
    return 0;
  }
  return static_cast<std::uint32_t>(rotated);
}

void read_scaling(ConfigFields& fields, ConfigFields& scaling, std::uint32_t head_dim,
                  RopeConfig& rope) {
  auto type = scaling.text("rope_type");
  if (!type) type = scaling.text("type");
  const auto part = scaling.maybe_positive("partial_rotary_factor");
  if (type == "proportional") {
    rope.scaling = RopeScaling::proportional;
    rope.factor = scaling.positive("factor", 1.0);
    rope.rotated_part = part.value_or(1.0);
    if (rope.rotated_part > 1.0) {
      scaling.refuse(Code::invalid_argument, "partial_rotary_factor", "is above 1");
    }
    return;
  }
  if (head_dim != 0) {
    rope.rotary_dim = rotary_dim(fields, scaling, head_dim);
  } else if (part && *part != 1.0) {
    scaling.refuse(Code::unsupported, "partial_rotary_factor", "other than 1 is not supported");
  }
  if (!type || *type == "default") return;
  if (*type == "linear") {
    rope.scaling = RopeScaling::linear;
    rope.factor = scaling.positive("factor");
  } else if (*type == "llama3") {
    rope.scaling = RopeScaling::llama3;
    rope.factor = scaling.positive("factor");
    rope.low_freq_factor = scaling.positive("low_freq_factor");
    rope.high_freq_factor = scaling.positive("high_freq_factor");
    rope.original_max_positions = scaling.positive("original_max_position_embeddings");
    if (rope.high_freq_factor <= rope.low_freq_factor) {
      scaling.refuse(Code::invalid_argument, "high_freq_factor", "is not above low_freq_factor");
    }
  } else if (*type == "yarn") {
    rope.scaling = RopeScaling::yarn;
    rope.factor = scaling.positive("factor");
    rope.beta_fast = scaling.positive("beta_fast", 32.0);
    rope.beta_slow = scaling.positive("beta_slow", 1.0);
    rope.attention_factor = scaling.maybe_positive("attention_factor");
    rope.truncate = scaling.flag("truncate", true);
    // transformers falls back to max_position_embeddings.
    rope.original_max_positions = scaling.has("original_max_position_embeddings")
                                      ? scaling.positive("original_max_position_embeddings")
                                      : fields.positive("max_position_embeddings");
    refuse_other_yarn(scaling);
  } else {
    scaling.refuse(Code::unsupported, "rope_type",
                   fmt::format("\"{}\" is not supported; default, linear, llama3, yarn and "
                               "proportional are",
                               printable(*type)));
  }
}

}  // namespace

RopeConfig read_hf_rope(ConfigFields& fields, const std::string& file,
                        const std::string& layer_type, std::uint32_t head_dim) {
  RopeConfig rope;
  const JsonView parameters = fields.json("rope_parameters");
  const std::string key = parameters ? "rope_parameters" : "rope_scaling";
  if (parameters && fields.json("rope_scaling")) {
    fields.refuse(Code::invalid_argument, "rope_scaling",
                  "stands beside rope_parameters, and only one of them can hold; remove one");
  }
  JsonView scope = parameters ? parameters : fields.json("rope_scaling");
  if (!layer_type.empty()) {
    scope = parameters[layer_type];
    if (!scope.is_object()) {
      fields.refuse(Code::invalid_argument, key, fmt::format("has no set for \"{}\"", layer_type));
    }
  }
  if (scope && !scope.is_object()) fields.refuse(Code::invalid_argument, key, "is not an object");
  for (const std::string& name : scope.keys()) {
    if (scope[name].is_object()) {
      fields.refuse(Code::unsupported, key,
                    fmt::format("holds one set per layer type (\"{}\"), which is not supported",
                                printable(name)));
    }
  }
  ConfigFields scaling(fmt::format("{}: {}", file, key), {scope});
  // Files of transformers 4 keep theta beside rope_scaling, those of 5 inside rope_parameters.
  rope.theta = scaling.has("rope_theta") ? scaling.positive("rope_theta")
                                         : fields.positive("rope_theta", 10000.0);
  read_scaling(fields, scaling, head_dim, rope);
  fields.absorb(scaling);
  return rope;
}

}  // namespace drafthouse
