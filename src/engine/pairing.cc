#include "engine/pairing.h"

#include <fmt/format.h>

#include <algorithm>

#include "text/tokenizer.h"
#include "turn/width_policy.h"

namespace drafthouse {
namespace {

Status check_shapes(const ModelConfig& target, const DraftConfig& draft, const std::string& label) {
  const auto differs = [&](const std::string& what) {
    return Status(Code::mismatch, fmt::format("{} does not fit this target: {}", label, what));
  };
  if (draft.hidden_size != target.hidden_size) {
    return differs(fmt::format("hidden_size is {}, the target's is {}", draft.hidden_size,
                               target.hidden_size));
  }
  if (draft.vocab_size != target.vocab_size) {
    return differs(fmt::format("vocab_size is {}, the target's is {}", draft.vocab_size,
                               target.vocab_size));
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
    return differs(fmt::format("block_size is {}, 2 to {} can be run", draft.block_size,
                               kBlockRowsMax));
  }
  return {};
}

// The first id whose text or kind differs decides; tokens that only one side has, past the other's
// end, do not matter: the other model never meets them.
Status check_tokenizers(const Tokenizer& target, const Tokenizer& draft, const std::string& label,
                        std::vector<std::string>& notes) {
  const std::uint32_t shared = std::min(target.size(), draft.size());
  for (TokenId id = 0; id < shared; ++id) {
    if (target.bytes_of(id) == draft.bytes_of(id) && target.is_special(id) == draft.is_special(id)) {
      continue;
    }
    return Status(Code::mismatch,
                  fmt::format("{} does not fit this target: token {} is \"{}\" in the draft's "
                              "tokenizer and \"{}\" in the target's",
                              label, id, draft.bytes_of(id), target.bytes_of(id)));
  }
  if (target.size() != draft.size()) {
    notes.push_back(fmt::format("the draft's tokenizer has {} tokens, the target's {}; the first {} "
                                "are the same",
                                draft.size(), target.size(), shared));
  }
  return {};
}

}  // namespace

PairingVerdict check_pairing(const ModelConfig& target_config, const DraftConfig& draft_config,
                             const Checkpoint& target, const Checkpoint& draft) {
  PairingVerdict verdict;
  verdict.status = check_shapes(target_config, draft_config, draft.path());
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
    verdict.status =
        check_tokenizers(*other.value(), *own.value(), draft.path(), verdict.notes);
  }
  return verdict;
}

}  // namespace drafthouse
