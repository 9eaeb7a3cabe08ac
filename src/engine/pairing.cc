#include "engine/pairing.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "model/decoder.h"
#include "model/dflash_draft.h"
#include "model/draft_vocabulary.h"
#include "text/tokenizer.h"
#include "turn/width_policy.h"

namespace drafthouse {
namespace {

Status check_shapes(const ModelConfig& target, const DraftConfig& draft, const std::string& label) {
  const auto differs = [&](const std::string& what) {
    return Status(Code::mismatch, fmt::format("{} does not fit this target: {}", label, what));
  };
  if (draft.tap_size() != target.hidden_size) {
    return differs(fmt::format("{} is {}, the target's hidden_size is {}",
                               draft.target_hidden_size != 0 ? "target_hidden_size" : "hidden_size",
                               draft.tap_size(), target.hidden_size));
  }
  if (draft.vocab_size != target.vocab_size) {
    return differs(
        fmt::format("vocab_size is {}, the target's is {}", draft.vocab_size, target.vocab_size));
  }
  if (draft.num_target_layers.has_value() && *draft.num_target_layers != target.layers) {
    return differs(fmt::format("num_target_layers is {}, the target has {} layers",
                               *draft.num_target_layers, target.layers));
  }
  for (const std::uint32_t id : draft.target_layer_ids) {
    if (id >= target.layers) {
      return differs(fmt::format("target_layer_ids names layer {}, the target has {} layers", id,
                                 target.layers));
    }
  }
  if (draft.mask_id >= target.vocab_size) {
    return differs(fmt::format("mask_token_id is {}, the target's vocabulary has {} rows",
                               draft.mask_id, target.vocab_size));
  }
  if (draft.block_size < 2 || draft.block_size > kBlockRowsMax) {
    return differs(
        fmt::format("block_size is {}, 2 to {} can be run", draft.block_size, kBlockRowsMax));
  }
  return {};
}

// A checkpoint that notes which of its tensors somebody has asked for.
class NotingSource final : public WeightSource {
 public:
  explicit NotingSource(const Checkpoint& checkpoint) : checkpoint_(checkpoint) {}
  const TensorInfo* find(std::string_view name) const override {
    const TensorInfo* tensor = checkpoint_.find(name);
    if (tensor != nullptr) asked_.insert(tensor->name);
    return tensor;
  }
  Status read(const TensorInfo& tensor, std::uint64_t offset,
              std::span<std::byte> out) const override {
    return checkpoint_.read(tensor, offset, out);
  }
  const std::string& label() const override { return checkpoint_.path(); }
  std::vector<std::string> unused() const {
    std::vector<std::string> names;
    for (const TensorInfo& tensor : checkpoint_.tensors()) {
      if (!asked_.contains(tensor.name)) names.push_back(tensor.file_name);
    }
    return names;
  }

 private:
  const Checkpoint& checkpoint_;
  mutable std::set<std::string> asked_;
};

// Every tensor that a load would need, by shape, and the map of ids.
Status check_tensors(const ModelConfig& target_config, const DraftConfig& draft_config,
                     const Checkpoint& draft, std::vector<std::string>& notes) {
  const NotingSource source(draft);
  const Result<std::uint64_t> bytes =
      DFlashDraft::bytes_to_pack(draft_config, target_config.hidden_size, source, false);
  if (!bytes.ok()) return bytes.status();
  const Result<std::vector<std::uint32_t>> ids = read_draft_ids(draft_config, source);
  if (!ids.ok()) return ids.status();
  const std::vector<std::string> unused = source.unused();
  if (!unused.empty()) {
    notes.push_back(fmt::format("{} tensors of the draft are not used: {}{}", unused.size(),
                                unused.front(), unused.size() > 1 ? ", …" : ""));
  }
  return {};
}

// The first id whose text or kind differs decides; tokens that only one side has, past the other's
// end, do not matter: the other model never meets them.
Status check_tokenizers(const Tokenizer& target, const Tokenizer& draft, const std::string& label,
                        std::vector<std::string>& notes) {
  const std::uint32_t shared = std::min(target.size(), draft.size());
  for (TokenId id = 0; id < shared; ++id) {
    if (target.bytes_of(id) == draft.bytes_of(id) &&
        target.is_special(id) == draft.is_special(id)) {
      continue;
    }
    return Status(Code::mismatch,
                  fmt::format("{} does not fit this target: token {} is \"{}\" in the draft's "
                              "tokenizer and \"{}\" in the target's",
                              label, id, draft.bytes_of(id), target.bytes_of(id)));
  }
  if (target.size() != draft.size()) {
    notes.push_back(
        fmt::format("the draft's tokenizer has {} tokens, the target's {}; the first {} "
                    "are the same",
                    draft.size(), target.size(), shared));
  }
  return {};
}

// Whether the two are a target and a draft at all; their configurations.
Result<ModelConfig> read_configs(const Checkpoint& target, const Checkpoint& draft,
                                 std::optional<DraftConfig>& draft_config) {
  if (target.is_draft()) {
    return Status(
        Code::invalid_argument,
        fmt::format("{} is a DFlash draft and cannot answer alone; name its target as the "
                    "model and this as its draft",
                    target.path()));
  }
  Result<ModelConfig> config = target.model_config();
  if (!config.ok()) return config;
  if (!draft.is_draft()) {
    return Status(Code::mismatch,
                  fmt::format("{} is not a DFlash draft (its configuration has no dflash_config)",
                              draft.path()));
  }
  Result<DraftConfig> read = draft.draft_config();
  if (!read.ok()) return read.status();
  draft_config = std::move(read).value();
  return config;
}

}  // namespace

PairingVerdict check_pairing(const Checkpoint& target, const Checkpoint& draft) {
  PairingVerdict verdict;
  const Result<ModelConfig> config = read_configs(target, draft, verdict.config);
  if (!config.ok()) {
    verdict.status = config.status();
    return verdict;
  }
  const DraftConfig& draft_config = *verdict.config;
  verdict.status = check_shapes(config.value(), draft_config, draft.path());
  if (verdict.status.ok()) {
    verdict.status = check_tensors(config.value(), draft_config, draft, verdict.notes);
  }
  if (!verdict.status.ok() || !draft.tokenizer().has_tokenizer() ||
      !target.tokenizer().has_tokenizer()) {
    return verdict;
  }
  Result<std::shared_ptr<const Tokenizer>> own = Tokenizer::create(draft.tokenizer());
  Result<std::shared_ptr<const Tokenizer>> other = Tokenizer::create(target.tokenizer());
  if (!own.ok()) {
    verdict.status = own.status();
  } else if (!other.ok()) {
    verdict.status = other.status();
  } else {
    verdict.status = check_tokenizers(*other.value(), *own.value(), draft.path(), verdict.notes);
  }
  return verdict;
}

Status check_target(const Checkpoint& target) {
  const Result<ModelConfig> config = target.model_config();
  if (!config.ok()) return config.status();
  const Result<std::uint64_t> bytes =
      Decoder::bytes_to_pack(config.value(), CheckpointSource(target), false);
  return bytes.ok() ? Status() : bytes.status();
}

}  // namespace drafthouse
