#include "sampling/likeliest.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "kernels/kernels.h"
#include "sampling/sampler.h"

namespace drafthouse {
namespace {

constexpr float kOut = -std::numeric_limits<float>::infinity();

}  // namespace

std::uint32_t groups_of(std::size_t ids) {
  return static_cast<std::uint32_t>((ids + kLogitGroup - 1) / kLogitGroup);
}

std::span<Candidate> gather(std::span<const float> logits, std::span<const float> maxima,
                            float lowest, Candidate* out) {
  std::size_t count = 0;
  for (std::uint32_t g = 0; g < maxima.size(); ++g) {
    if (!(maxima[g] >= lowest)) continue;
    const std::uint32_t end =
        std::min(static_cast<std::uint32_t>(logits.size()), (g + 1) * kLogitGroup);
    for (std::uint32_t id = g * kLogitGroup; id < end; ++id) {
      if (logits[id] >= lowest && logits[id] > kOut) {
        out[count++] = {.logit = logits[id], .weight = 0, .id = id, .distance = 0};
      }
    }
  }
  return {out, count};
}

float kth_largest(std::span<const float> maxima, std::uint32_t k, std::span<float> work) {
  if (k > maxima.size()) return kOut;
  work = work.first(maxima.size());
  std::copy(maxima.begin(), maxima.end(), work.begin());
  std::nth_element(work.begin(), work.begin() + (k - 1), work.end(), std::greater<>());
  return work[k - 1];
}

std::span<Candidate> likeliest(Device& device, std::span<const float> logits, std::uint32_t k,
                               SamplerScratch& scratch) {
  const std::span<float> maxima = scratch.groups().first(groups_of(logits.size()));
  device.group_maxima(logits.data(), static_cast<std::uint32_t>(logits.size()), maxima.data());
  const float lowest = kth_largest(maxima, k, scratch.more_groups());
  std::span<Candidate> top = gather(logits, maxima, lowest, scratch.candidates());
  top = keep_top_k(top, k);
  std::sort(top.begin(), top.end(), likelier);
  return top;
}

std::uint32_t best_scored(Device& device, std::span<const float> logits, CandidateScorer& scorer,
                          SamplerScratch& scratch, std::uint32_t nothing) {
  const std::span<Candidate> top = likeliest(device, logits, scorer.top_k(), scratch);
  if (top.empty()) return nothing;
  scorer.rescore(top);
  const auto best =
      std::max_element(top.begin(), top.end(),
                       [](const Candidate& a, const Candidate& b) { return a.logit < b.logit; });
  return std::isfinite(best->logit) ? best->id : nothing;
}

}  // namespace drafthouse
