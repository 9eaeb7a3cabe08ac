#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <span>
#include <vector>

#include "drafthouse/sampling.h"

// What sampling options mean, in the plainest way: everything in double, everything sorted.

namespace drafthouse::test {

struct ReferenceText {
  std::vector<std::uint32_t> ids;
  std::uint32_t prompt_length = 0;
  std::vector<std::uint32_t> end_ids = {};
};

inline bool holds(std::span<const std::uint32_t> ids, std::uint32_t id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

// DRY by comparing the text's end with what stands before every earlier place.
inline std::map<std::uint32_t, std::uint32_t> reference_repetitions(
    const SamplingOptions& options, std::vector<std::uint32_t> ids) {
  if (options.dry_range > 0 && ids.size() > options.dry_range) {
    ids.erase(ids.begin(), ids.end() - options.dry_range);
  }
  std::map<std::uint32_t, std::uint32_t> longest;
  for (std::size_t place = 1; place < ids.size(); ++place) {
    std::uint32_t length = 0;
    while (length < place) {
      const std::uint32_t id = ids[place - 1 - length];
      if (id != ids[ids.size() - 1 - length] || holds(options.dry_breaker_ids, id)) break;
      ++length;
    }
    if (length < options.dry_allowed_length || holds(options.dry_breaker_ids, ids[place])) continue;
    longest[ids[place]] = std::max(longest[ids[place]], length);
  }
  return longest;
}

inline std::vector<double> reference_logits(const SamplingOptions& options,
                                            const ReferenceText& text,
                                            std::span<const float> logits) {
  constexpr double kOut = -std::numeric_limits<double>::infinity();
  std::vector<double> out(logits.begin(), logits.end());
  for (const LogitBias& bias : options.logit_bias) out[bias.id] += static_cast<double>(bias.bias);
  const std::size_t made = text.ids.size() - text.prompt_length;
  for (std::uint32_t id = 0; id < out.size(); ++id) {
    if (holds(options.ban_ids, id)) out[id] = kOut;
    if (!options.allow_ids.empty() && !holds(options.allow_ids, id)) out[id] = kOut;
    if (made < options.min_tokens && holds(text.end_ids, id)) out[id] = kOut;
    if (!holds(text.ids, id)) continue;
    const double repetition = static_cast<double>(options.repetition_penalty);
    out[id] = out[id] > 0 ? out[id] / repetition : out[id] * repetition;
    const auto count = std::count(text.ids.begin() + text.prompt_length, text.ids.end(), id);
    if (count == 0) continue;
    out[id] -= static_cast<double>(options.presence_penalty) +
               static_cast<double>(options.frequency_penalty) * static_cast<double>(count);
  }
  if (options.dry_multiplier > 0) {
    for (const auto& [id, length] : reference_repetitions(options, text.ids)) {
      out[id] -= static_cast<double>(options.dry_multiplier) *
                 std::pow(static_cast<double>(options.dry_base),
                          static_cast<double>(length - options.dry_allowed_length));
    }
  }
  return out;
}

struct ReferenceChoice {
  std::uint32_t id;
  double p;
};
using ReferenceChoices = std::vector<ReferenceChoice>;  // falling p, rising id

inline void normalize(ReferenceChoices& choices) {
  double total = 0;
  for (const ReferenceChoice& choice : choices) total += choice.p;
  for (ReferenceChoice& choice : choices) choice.p /= total;
}

inline void cut_at(ReferenceChoices& choices, double mass) {
  double sum = 0;
  for (std::size_t i = 0; i < choices.size(); ++i) {
    sum += choices[i].p;
    if (sum >= mass) choices.resize(i + 1);
  }
}

inline bool more_likely(const ReferenceChoice& a, const ReferenceChoice& b) {
  return a.p != b.p ? a.p > b.p : a.id < b.id;
}

inline void reference_typical(ReferenceChoices& choices, double p) {
  double entropy = 0;
  for (const ReferenceChoice& choice : choices) entropy -= choice.p * std::log(choice.p);
  std::stable_sort(choices.begin(), choices.end(),
                   [entropy](const ReferenceChoice& a, const ReferenceChoice& b) {
                     return std::fabs(-std::log(a.p) - entropy) <
                            std::fabs(-std::log(b.p) - entropy);
                   });
  cut_at(choices, p);
  std::sort(choices.begin(), choices.end(), more_likely);
  normalize(choices);
}

// With XTC acting.
inline ReferenceChoices reference_xtc(ReferenceChoices choices, double threshold) {
  std::size_t top = 0;
  while (top < choices.size() && choices[top].p >= threshold) ++top;
  if (top > 1)
    choices.erase(choices.begin(), choices.begin() + static_cast<std::ptrdiff_t>(top - 1));
  normalize(choices);
  return choices;
}

// The probability of every id.
inline std::vector<double> reference_distribution(const SamplingOptions& options,
                                                  const ReferenceText& text,
                                                  std::span<const float> logits) {
  const std::vector<double> processed = reference_logits(options, text, logits);
  const double largest = *std::max_element(processed.begin(), processed.end());
  std::vector<double> out(processed.size());
  if (options.temperature == 0) {
    out[static_cast<std::size_t>(std::max_element(processed.begin(), processed.end()) -
                                 processed.begin())] = 1;
    return out;
  }
  ReferenceChoices choices;
  for (std::uint32_t id = 0; id < processed.size(); ++id) {
    const double p = std::exp((processed[id] - largest) / static_cast<double>(options.temperature));
    if (p > 0) choices.push_back({id, p});
  }
  std::sort(choices.begin(), choices.end(), more_likely);
  if (options.top_k > 0 && choices.size() > options.top_k) choices.resize(options.top_k);
  normalize(choices);
  if (options.top_p < 1) cut_at(choices, static_cast<double>(options.top_p));
  normalize(choices);
  const double least = choices[0].p * static_cast<double>(options.min_p);
  std::erase_if(choices, [least](const ReferenceChoice& choice) { return choice.p < least; });
  normalize(choices);
  if (options.typical_p < 1) reference_typical(choices, static_cast<double>(options.typical_p));
  const double acts = static_cast<double>(options.xtc_probability);
  for (const ReferenceChoice& choice : choices) out[choice.id] += (1 - acts) * choice.p;
  if (acts == 0) return out;
  for (const ReferenceChoice& choice :
       reference_xtc(choices, static_cast<double>(options.xtc_threshold))) {
    out[choice.id] += acts * choice.p;
  }
  return out;
}

// The probability that a chi-square variable of so many degrees of freedom is at least `x`: the
// upper incomplete gamma function, by series or continued fraction.
inline double chi_square_p(double x, double degrees) {
  const double a = degrees / 2;
  const double z = x / 2;
  if (z <= 0) return 1;
  const double front = std::exp(a * std::log(z) - z - std::lgamma(a));
  if (z < a + 1) {
    double term = 1 / a;
    double sum = term;
    for (double n = a + 1; term > sum * 1e-15; ++n) sum += term *= z / n;
    return 1 - front * sum;
  }
  double b = z + 1 - a;
  double c = 1e300;
  double d = 1 / b;
  double h = d;
  for (int i = 1; i < 100000; ++i) {
    const double an = -i * (i - a);
    b += 2;
    d = 1 / (an * d + b);
    c = b + an / c;
    const double delta = c * d;
    h *= delta;
    if (std::fabs(delta - 1) < 1e-14) break;
  }
  return front * h;
}

// Of counts against probabilities; cells where fewer than five are expected are taken together.
inline double fit_p(std::span<const double> counts, std::span<const double> probabilities,
                    double draws) {
  double chi = 0;
  double cells = 0;
  double few_seen = 0;
  double few_expected = 0;
  const auto add = [&](double seen, double expected) {
    chi += (seen - expected) * (seen - expected) / expected;
    ++cells;
  };
  for (std::size_t i = 0; i < counts.size(); ++i) {
    const double expected = probabilities[i] * draws;
    if (expected == 0 && counts[i] > 0) return 0;
    if (expected >= 5) {
      add(counts[i], expected);
    } else {
      few_seen += counts[i];
      few_expected += expected;
    }
  }
  if (few_expected >= 5) add(few_seen, few_expected);
  return cells < 2 ? 1 : chi_square_p(chi, cells - 1);
}

}  // namespace drafthouse::test
