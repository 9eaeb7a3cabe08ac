#pragma once

#include <memory>
#include <optional>

#include "base/memory.h"
#include "base/thread_pool.h"
#include "cache/cache_registry.h"
#include "device/cpu_device.h"
#include "drafthouse/engine.h"
#include "engine/engine_hooks.h"
#include "engine/scheduler.h"
#include "engine/weight_store.h"
#include "formats/checkpoint.h"
#include "model/decoder.h"
#include "model/dflash_draft.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"
#include "turn/turn.h"
#include "turn/width_policy.h"

namespace drafthouse {

// What several engines of one process have in common; all of it may be missing. Outlives them.
struct SharedParts {
  MemoryBudget* budget = nullptr;
  std::shared_ptr<ThreadPool> threads = {};
  WeightStore* weights = nullptr;
  // The registry that gives the pair its prefix cache, and how that is set up.
  CacheRegistry* caches = nullptr;
  CacheConfig cache = {};
  std::string label = {};
};

// The prefix cache of an engine that stands alone.
struct OwnCache {
  explicit OwnCache(DiskLogFn log) : disks(std::move(log)), caches(&disks) {}

  DiskDirectories disks;
  CacheRegistry caches;
};

// The parts of a loaded pair, in the order they need each other.
struct Engine::Internals {
  explicit Internals(MemoryBudget* budget = nullptr) : ledger(budget) {}

  std::unique_ptr<OwnCache> own_cache;  // null in a host, and without a cache
  // Of everything but weights and pages.
  MemoryLedger ledger;
  std::shared_ptr<ThreadPool> pool;
  std::shared_ptr<TargetWeights> target_weights;
  std::shared_ptr<DraftWeights> draft_weights;  // null without a draft
  const Decoder* target = nullptr;
  const DFlashDraft* draft = nullptr;  // null without one
  EngineHooks hooks;                   // outlives the device, which calls them
  std::unique_ptr<CpuDevice> device;
  // Which models, what makes their stored state valid, and the cache that it is stored in.
  CacheIdentity identity;
  StateSpec state;
  CacheLease cache;  // empty: none
  std::shared_ptr<PageStore> pages;
  std::unique_ptr<TurnRunner> runner;
  std::optional<CostTable> costs;                     // measured at load when there is a draft
  std::shared_ptr<const Tokenizer> tokenizer;         // null without one
  std::shared_ptr<const ChatTemplate> chat_template;  // null without one
  std::shared_ptr<const GrammarCompiler> grammars;
  EngineInfo info;
  // The last text that generate() stored: whole pages.
  std::vector<std::uint32_t> stored_text;

  SchedulerParts scheduler_parts() const;
  // See Engine.
  Result<std::vector<std::uint32_t>> encode(std::string_view text, bool add_special) const;
  Result<std::vector<std::uint32_t>> encode_chat(std::span<const ChatTurn> messages,
                                                 const ChatOptions& options) const;
  // Bytes with this tag, pages and weights included.
  std::size_t bytes(MemoryTag tag) const;
};

// What stands before a target's weights: headers, configuration, tokenizer and template, checked.
// Immutable. Its files stay open.
struct OpenedTarget {
  Checkpoint checkpoint;
  ModelConfig config;
  std::shared_ptr<const Tokenizer> tokenizer;         // null without one
  std::shared_ptr<const ChatTemplate> chat_template;  // null without one
  ReplyFormat reply_format = ReplyFormat::plain;
  double seconds = 0;  // that opening took
};
// `path`: as in EngineOptions. A draft is invalid_argument.
Result<OpenedTarget> open_target(const std::string& path);

// Loads a pair from its files. See Engine::load.
Result<std::unique_ptr<Engine::Internals>> load_pair(const EngineOptions& options,
                                                     const SharedParts& shared);
// Engine::load for those who have asked the target something before; it must be the one that
// `options` names.
Result<std::unique_ptr<Engine>> load_opened(OpenedTarget target, const EngineOptions& options);

// Where a pair's weights and shapes come from.
struct PairSource {
  const ModelConfig* target_config = nullptr;
  const WeightSource* target = nullptr;
  const DraftConfig* draft_config = nullptr;  // null: no draft
  const WeightSource* draft = nullptr;
  // What the weights are known by in a WeightStore; empty: not shared.
  std::string target_key = {};
  std::string draft_key = {};
};

// Loads the weights and makes everything below the text: fills pool … costs and the numbers of
// info. `choices`: ids below this may be generated. The paths in `parts.info` are known already.
Status assemble(Engine::Internals& parts, const PairSource& source, const EngineOptions& options,
                const SharedParts& shared, std::uint32_t choices);

}  // namespace drafthouse
