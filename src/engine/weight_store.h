#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "base/memory.h"
#include "formats/checkpoint.h"
#include "model/decoder.h"
#include "model/dflash_draft.h"

namespace drafthouse {

// Immutable weights of one checkpoint, with the ledger that counts them.
template <class Model>
struct LoadedWeights {
  explicit LoadedWeights(MemoryBudget* budget) : ledger(budget) {}

  MemoryLedger ledger;
  std::unique_ptr<Model> model;
};

using TargetWeights = LoadedWeights<Decoder>;
using DraftWeights = LoadedWeights<DFlashDraft>;

// What tells one checkpoint's weights from all others while they are on disk: its files by device,
// inode, size and times of change. `how`: whatever else changes what is loaded.
std::string weights_key(const Checkpoint& checkpoint, std::string_view how);

// The `how` of a compute mode.
std::string weights_how(bool compute_fp32);

// Weights that several engines may use at once: those of the same files are loaded once, and go
// with their last user. Thread-safe; loads of one key at the same time are the caller's to avoid
// (the pool loads one model at a time).
class WeightStore {
 public:
  std::shared_ptr<TargetWeights> target(const std::string& key) const;
  std::shared_ptr<DraftWeights> draft(const std::string& key) const;
  void keep(const std::string& key, const std::shared_ptr<TargetWeights>& weights);
  void keep(const std::string& key, const std::shared_ptr<DraftWeights>& weights);

 private:
  mutable std::mutex lock_;
  std::map<std::string, std::weak_ptr<TargetWeights>> targets_;
  std::map<std::string, std::weak_ptr<DraftWeights>> drafts_;
};

}  // namespace drafthouse
