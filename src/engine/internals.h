#pragma once

#include <memory>
#include <optional>

#include "base/memory.h"
#include "base/thread_pool.h"
#include "device/cpu_device.h"
#include "cache/cache_registry.h"
#include "drafthouse/engine.h"
#include "model/decoder.h"
#include "model/dflash_draft.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"
#include "turn/turn.h"
#include "turn/width_policy.h"

namespace drafthouse {

// The parts of a loaded pair, in the order they need each other.
struct Engine::Internals {
  MemoryLedger ledger;
  std::unique_ptr<ThreadPool> pool;
  std::unique_ptr<Decoder> target;
  std::unique_ptr<DFlashDraft> draft;  // null without one
  std::unique_ptr<CpuDevice> device;
  // What makes stored state of this pair valid, and the cache that it is stored in.
  StateSpec state;
  CacheLease cache;  // empty: none
  std::shared_ptr<PageStore> pages;
  std::unique_ptr<TurnRunner> runner;
  std::optional<CostTable> costs;      // measured at load when there is a draft
  std::shared_ptr<const Tokenizer> tokenizer;          // null without one
  std::shared_ptr<const ChatTemplate> chat_template;   // null without one
  EngineInfo info;
};

// Where a pair's weights and shapes come from.
struct PairSource {
  const ModelConfig* target_config = nullptr;
  const WeightSource* target = nullptr;
  const DraftConfig* draft_config = nullptr;  // null: no draft
  const WeightSource* draft = nullptr;
};

// Loads the weights and makes everything below the text: fills pool … costs and the numbers of info.
// `choices`: ids below this may be generated.
Status assemble(Engine::Internals& parts, const PairSource& source, const EngineOptions& options,
                std::uint32_t choices);

}  // namespace drafthouse
