#include "drafthouse/engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "engine/internals.h"
#include "engine/pairing.h"
#include "formats/checkpoint.h"
#include "text/allocated.h"
#include "text/reply_parser.h"

namespace drafthouse {
namespace {

using Stopwatch = std::chrono::steady_clock;

double seconds_since(Stopwatch::time_point start) {
  return std::chrono::duration<double>(Stopwatch::now() - start).count();
}

Status open_text(OpenedTarget& target) {
  const TokenizerSource& source = target.checkpoint.tokenizer();
  if (!source.has_tokenizer()) return {};
  Result<std::shared_ptr<const Tokenizer>> tokenizer = Tokenizer::create(source);
  if (!tokenizer.ok()) return tokenizer.status();
  target.tokenizer = std::move(tokenizer).value();
  target.reply_format = reply_format_of(
      source.chat_template.value_or(""),
      [&target](std::string_view token) { return target.tokenizer->id_of(token) >= 0; });
  if (!source.chat_template.has_value()) return {};
  Result<std::shared_ptr<const ChatTemplate>> chat = ChatTemplate::create(source);
  if (!chat.ok()) return chat.status();
  target.chat_template = std::move(chat).value();
  return {};
}

// The ids that end a text: what the files say, and the token that the template puts after an
// answer.
std::vector<std::uint32_t> end_ids(const ModelConfig& config, const Engine::Internals& parts) {
  std::vector<std::uint32_t> ids = config.eos_ids;
  if (parts.chat_template != nullptr && !parts.chat_template->end_of_turn().empty()) {
    const std::int64_t id = parts.tokenizer->id_of(parts.chat_template->end_of_turn());
    if (id >= 0 && id < std::int64_t{config.vocab_size})
      ids.push_back(static_cast<std::uint32_t>(id));
  }
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

// Bytes that a normaliser may make one of: a Hangul syllable of three letters is the worst, 9 to 3.
constexpr std::uint64_t kComposedMax = 3;

// Refuses a text that cannot fit before turning it into tokens costs seconds and gigabytes.
Status check_size(const Engine::Internals& parts, std::string_view text) {
  const std::uint64_t positions = parts.info.context;
  const std::uint64_t most = positions * parts.tokenizer->longest_token() * kComposedMax;
  if (text.size() <= most) return {};
  return Status(Code::context_overflow,
                fmt::format("the text has {} bytes, but a sequence has {} positions, which hold at "
                            "most {} bytes with this tokenizer; shorten the text",
                            text.size(), positions, most));
}

Result<std::unique_ptr<Engine::Internals>> load_weights(const OpenedTarget& target,
                                                        const EngineOptions& options,
                                                        const SharedParts& shared) {
  const auto start = Stopwatch::now();
  auto parts = std::make_unique<Engine::Internals>(shared.budget);
  EngineInfo& info = parts->info;
  parts->tokenizer = target.tokenizer;
  parts->chat_template = target.chat_template;
  info.reply_format = target.reply_format;

  std::unique_ptr<PackedCopies> copies;
  if (!options.packed_directory.empty()) {
    auto opened = PackedCopies::open(options.packed_directory, options.log);
    if (!opened.ok()) return opened.status();
    copies = std::move(opened).value();
  }
  const CheckpointSource target_source(target.checkpoint, copies.get());
  PairSource source{.target_config = &target.config, .target = &target_source};
  source.target_key = weights_key(target.checkpoint, weights_how(options.compute_fp32));
  info.target = target.checkpoint.path();
  std::optional<Result<Checkpoint>> draft;
  std::optional<DraftConfig> draft_config;
  std::optional<CheckpointSource> draft_source;
  if (!options.draft.empty()) {
    draft.emplace(Checkpoint::open(options.draft));
    if (!draft->ok()) return draft->status();
    const Checkpoint& checkpoint = draft->value();
    PairingVerdict verdict = check_pairing(target.checkpoint, checkpoint);
    if (!verdict.status.ok()) return verdict.status;
    draft_config = std::move(verdict.config);
    draft_source.emplace(checkpoint, copies.get());
    source.draft_config = &*draft_config;
    source.draft = &*draft_source;
    source.draft_key = weights_key(checkpoint, weights_how(options.compute_fp32));
    info.draft = checkpoint.path();
  }

  const std::uint32_t choices =
      parts->tokenizer != nullptr ? parts->tokenizer->size() : target.config.vocab_size;
  if (Status s = assemble(*parts, source, options, shared, choices); !s.ok()) return s;
  info.eos_ids = end_ids(target.config, *parts);
  parts->grammars = std::make_shared<GrammarCompiler>(parts->tokenizer, info.eos_ids);
  info.has_tokenizer = parts->tokenizer != nullptr;
  info.has_chat_template = parts->chat_template != nullptr;
  info.load_s = target.seconds + seconds_since(start);
  return parts;
}

}  // namespace

Engine::Engine(std::unique_ptr<Internals> internals) : internals_(std::move(internals)) {}
Engine::~Engine() = default;

Result<OpenedTarget> open_target(const std::string& path) {
  const auto start = Stopwatch::now();
  Result<Checkpoint> checkpoint = Checkpoint::open(path);
  if (!checkpoint.ok()) return checkpoint.status();
  if (checkpoint.value().is_draft()) {
    return Status(
        Code::invalid_argument,
        fmt::format("{} is a DFlash draft and cannot answer alone; name its target as the "
                    "model and this as its draft",
                    checkpoint.value().path()));
  }
  Result<ModelConfig> config = checkpoint.value().model_config();
  if (!config.ok()) return config.status();
  OpenedTarget target{.checkpoint = std::move(checkpoint).value(),
                      .config = std::move(config).value(),
                      .tokenizer = nullptr,
                      .chat_template = nullptr};
  if (Status s = open_text(target); !s.ok()) return s;
  target.seconds = seconds_since(start);
  return target;
}

Result<std::unique_ptr<Engine>> Engine::load(const EngineOptions& options) {
  Result<OpenedTarget> target = open_target(options.target);
  if (!target.ok()) return target.status();
  return load_opened(std::move(target).value(), options);
}

Result<std::unique_ptr<Engine>> load_opened(OpenedTarget target, const EngineOptions& options) {
  std::unique_ptr<OwnCache> own_cache;
  SharedParts shared;
  if (options.cache.has_value()) {
    own_cache = std::make_unique<OwnCache>(options.log);
    shared.caches = &own_cache->caches;
    shared.cache = *options.cache;
  }
  Result<std::unique_ptr<Engine::Internals>> parts = load_weights(target, options, shared);
  if (!parts.ok()) return parts.status();
  parts.value()->own_cache = std::move(own_cache);
  return Engine::wrap(std::move(parts).value());
}

Result<std::unique_ptr<Engine::Internals>> load_pair(const EngineOptions& options,
                                                     const SharedParts& shared) {
  const Result<OpenedTarget> target = open_target(options.target);
  if (!target.ok()) return target.status();
  return load_weights(target.value(), options, shared);
}

const EngineInfo& Engine::info() const { return internals_->info; }

Engine::Internals& Engine::internals() { return *internals_; }

std::unique_ptr<Engine> Engine::wrap(std::unique_ptr<Internals> internals) {
  return std::unique_ptr<Engine>(new Engine(std::move(internals)));
}

Result<std::vector<std::uint32_t>> Engine::encode(std::string_view text, bool add_special) const {
  return internals_->encode(text, add_special);
}

Result<std::vector<std::uint32_t>> Engine::Internals::encode(std::string_view text,
                                                             bool add_special) const {
  if (tokenizer == nullptr) {
    return Status(Code::not_found,
                  fmt::format("{} has no tokenizer; give ids instead of text", info.target));
  }
  if (Status s = check_size(*this, text); !s.ok()) return s;
  return tokenizer->encode(text, add_special);
}

Result<std::string> Engine::decode(std::span<const std::uint32_t> ids, bool skip_special) const {
  if (internals_->tokenizer == nullptr) {
    return Status(Code::not_found, fmt::format("{} has no tokenizer", info().target));
  }
  return internals_->tokenizer->decode(ids, skip_special);
}

Result<std::vector<std::uint32_t>> Engine::encode_chat(std::span<const ChatTurn> messages,
                                                       const ChatOptions& options) const {
  return internals_->encode_chat(messages, options);
}

Result<std::vector<std::uint32_t>> Engine::Internals::encode_chat(
    std::span<const ChatTurn> messages, const ChatOptions& options) const {
  if (chat_template == nullptr) {
    return Status(Code::not_found,
                  fmt::format("{} has no chat template; prompt it with raw text", info.target));
  }
  std::vector<ChatMessage> chat;
  for (const ChatTurn& turn : messages) {
    chat.push_back({turn.role, turn.content, turn.reasoning, turn.calls, turn.call_id, turn.name});
  }
  Result<std::string> text = chat_template->render(chat, true, options);
  if (!text.ok()) return text.status();
  return encode(text.value(), false);
}

std::vector<std::pair<std::string, std::size_t>> Engine::memory() const {
  std::vector<std::pair<std::string, std::size_t>> rows;
  std::size_t total = 0;
  for (std::size_t i = 0; i < kMemoryTags; ++i) {
    const auto tag = static_cast<MemoryTag>(i);
    // Tokenizers and templates live in the Rust library's heap, which counts for itself.
    const std::size_t bytes =
        tag == MemoryTag::text ? text_allocated_bytes() : internals_->bytes(tag);
    rows.emplace_back(name_of(tag), bytes);
    total += bytes;
  }
  rows.emplace_back("total", total);
  return rows;
}

}  // namespace drafthouse
