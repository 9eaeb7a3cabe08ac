#include "sampling/options_check.h"

#include <fmt/format.h>

#include <span>
#include <string_view>

namespace drafthouse {
namespace {

constexpr float kTemperatureMin = 1e-4f;
constexpr float kTemperatureMax = 100;
constexpr float kPenaltyMax = 100;
// A smaller divisor could make a logit infinite.
constexpr float kRepetitionPenaltyMin = 0.01f;
constexpr float kBiasMax = 10000;
constexpr std::uint32_t kDryLengthMax = 1u << 20;

struct Range {
  std::string_view name;
  float value;
  float lowest;
  float highest;
  bool above = false;  // more than `lowest`, not equal
};

Status out_of_range(const Range& range) {
  return Status(Code::invalid_argument,
                fmt::format("{} is {}; it must be {} {} and at most {}", range.name, range.value,
                            range.above ? "more than" : "at least", range.lowest, range.highest));
}

// NaN is in no range.
bool inside(const Range& range) {
  const bool enough = range.above ? range.value > range.lowest : range.value >= range.lowest;
  return enough && range.value <= range.highest;
}

Status check_ids(std::string_view name, std::span<const std::uint32_t> ids,
                 std::uint32_t vocabulary) {
  for (const std::uint32_t id : ids) {
    if (id < vocabulary) continue;
    return Status(Code::invalid_argument,
                  fmt::format("{} holds id {}, which is outside the vocabulary of {} ids", name, id,
                              vocabulary));
  }
  return {};
}

}  // namespace

Status check_sampling(const SamplingOptions& options, std::uint32_t vocabulary) {
  if (options.temperature != 0) {
    const Range range{"temperature", options.temperature, kTemperatureMin, kTemperatureMax};
    if (!inside(range)) {
      return Status(Code::invalid_argument,
                    fmt::format("temperature is {}; it must be 0 (always the most likely id) or {} "
                                "to {}",
                                options.temperature, kTemperatureMin, kTemperatureMax));
    }
  }
  const Range ranges[] = {
      {"top_p", options.top_p, 0, 1, true},
      {"min_p", options.min_p, 0, 1},
      {"typical_p", options.typical_p, 0, 1, true},
      {"xtc_probability", options.xtc_probability, 0, 1},
      {"xtc_threshold", options.xtc_threshold, 0, 1, true},
      {"repetition_penalty", options.repetition_penalty, kRepetitionPenaltyMin, kPenaltyMax},
      {"presence_penalty", options.presence_penalty, -kPenaltyMax, kPenaltyMax},
      {"frequency_penalty", options.frequency_penalty, -kPenaltyMax, kPenaltyMax},
      {"dry_multiplier", options.dry_multiplier, 0, kPenaltyMax},
      {"dry_base", options.dry_base, 1, kPenaltyMax},
  };
  for (const Range& range : ranges) {
    if (!inside(range)) return out_of_range(range);
  }
  if (options.dry_allowed_length == 0 || options.dry_allowed_length > kDryLengthMax) {
    return Status(Code::invalid_argument,
                  fmt::format("dry_allowed_length is {}; it must be 1 to {}",
                              options.dry_allowed_length, kDryLengthMax));
  }
  for (const LogitBias& bias : options.logit_bias) {
    if (Status s = check_ids("logit_bias", {&bias.id, 1}, vocabulary); !s.ok()) return s;
    const Range range{"logit_bias", bias.bias, -kBiasMax, kBiasMax};
    if (!inside(range)) return out_of_range(range);
  }
  if (Status s = check_ids("ban_ids", options.ban_ids, vocabulary); !s.ok()) return s;
  if (Status s = check_ids("allow_ids", options.allow_ids, vocabulary); !s.ok()) return s;
  return check_ids("dry_breaker_ids", options.dry_breaker_ids, vocabulary);
}

}  // namespace drafthouse
