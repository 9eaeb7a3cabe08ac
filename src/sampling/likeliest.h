#pragma once

#include <cstdint>
#include <span>

#include "device/device.h"
#include "sampling/candidates.h"

namespace drafthouse {

class SamplerScratch;

// Groups of kLogitGroup neighbouring ids.
std::uint32_t groups_of(std::size_t ids);

// Candidates with at least this logit, from the groups that have one. `out` has room for all ids.
std::span<Candidate> gather(std::span<const float> logits, std::span<const float> maxima,
                            float lowest, Candidate* out);

// The k-th largest of `maxima`: k groups have an id of at least this. −∞ where there are fewer.
// `work` has as many.
float kth_largest(std::span<const float> maxima, std::uint32_t k, std::span<float> work);

// The k likeliest ids of a row, likeliest first; ids of −∞ and NaN are left out. Lives in
// `scratch`.
std::span<Candidate> likeliest(Device& device, std::span<const float> logits, std::uint32_t k,
                               SamplerScratch& scratch);

// Chooses anew among a row's likeliest ids: for drafts whose proposals depend on the one before.
class CandidateScorer {
 public:
  virtual ~CandidateScorer() = default;
  virtual std::uint32_t top_k() const = 0;
  // Gives candidates, which come likeliest first, other logits.
  virtual void rescore(std::span<Candidate> candidates) = 0;
};

// The id that the scorer likes best in a row; nothing where the row has no finite logit.
std::uint32_t best_scored(Device& device, std::span<const float> logits, CandidateScorer& scorer,
                          SamplerScratch& scratch, std::uint32_t nothing);

}  // namespace drafthouse
