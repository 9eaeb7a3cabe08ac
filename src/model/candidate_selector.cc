#include "model/candidate_selector.h"

#include <cassert>

namespace drafthouse {

void CandidateSelector::declare(WeightLoader& loader, const Dflash2Config& config,
                                std::uint32_t vocabulary, std::uint32_t hidden) {
  rank_ = config.selector_rank;
  top_k_ = config.selector_top_k;
  const std::string prefix = "candidate_selector.";
  loader.matrix(&projection_, prefix + "hidden_projection.weight", rank_, hidden);
  // Published files name the codebooks without an ending; quantised and GGUF files with one.
  const auto codebook = [&](PackedMatrix& out, const char* name) {
    const std::string bare = prefix + name;
    loader.matrix(&out, loader.has(bare + ".weight") ? bare + ".weight" : bare, vocabulary, rank_);
  };
  codebook(predecessor_, "predecessor_codebook");
  codebook(successor_, "successor_codebook");
}

Result<CandidateSelector::Workspace> CandidateSelector::make_workspace(std::uint32_t rows,
                                                                       MemoryLedger& ledger) const {
  Workspace work;
  const auto reserve = [&](Buffer& buffer, std::size_t count) {
    Result<Buffer> made =
        Buffer::allocate(count * rank_ * sizeof(float), MemoryTag::activations, ledger);
    if (!made.ok()) return made.status();
    buffer = std::move(made).value();
    return Status();
  };
  Status status = reserve(work.hidden, rows);
  if (status.ok()) status = reserve(work.codes, std::size_t{1} + top_k_);
  if (!status.ok()) return status;
  work.lookups.ids.reserve(top_k_);
  return work;
}

void CandidateSelector::project(Device& device, bool compute_fp32, const float* normed,
                                std::uint32_t rows, Workspace& work) const {
  const LinearSegment segment[] = {{projection_, 0}};
  device.linear(segment, compute_fp32, normed, projection_.inputs, rows, work.hidden.as<float>(),
                rank_, false);
}

void CandidateSelector::score(Device& device, Workspace& work, std::uint32_t row,
                              std::uint32_t previous, std::span<const std::uint32_t> ids,
                              std::span<float> out) const {
  assert(ids.size() <= top_k_ && out.size() >= ids.size());
  float* before = work.codes.as<float>();
  float* after = before + rank_;
  work.lookups.ids.assign(1, previous);
  work.lookups.rows = 1;
  device.embed(work.lookups, predecessor_, 1.0f, before);
  work.lookups.ids.assign(ids.begin(), ids.end());
  work.lookups.rows = static_cast<std::uint32_t>(ids.size());
  device.embed(work.lookups, successor_, 1.0f, after);
  const float* hidden = work.hidden.as<float>() + std::size_t{row} * rank_;
  for (std::uint32_t r = 0; r < rank_; ++r) before[r] *= hidden[r];
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const float* code = after + i * rank_;
    float sum = 0;
    for (std::uint32_t r = 0; r < rank_; ++r) sum += before[r] * code[r];
    out[i] = sum;
  }
}

}  // namespace drafthouse
