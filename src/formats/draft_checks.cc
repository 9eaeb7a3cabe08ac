#include "formats/draft_checks.h"

#include <fmt/format.h>

#include <array>
#include <cstddef>

#include "formats/printable.h"

namespace drafthouse {
namespace {

struct TensorMark {
  std::string_view part;
  std::string_view kind;
};

constexpr std::array kOtherTensors = {
    TensorMark{"markov_", "a DSpark draft (anchor-first)"},
    TensorMark{"confidence_head", "a DSpark draft (anchor-first)"},
    TensorMark{"conf_proj", "a DSpark draft (anchor-first)"},
    TensorMark{"mask_embedding", "a draft with a mask embedding of its own"},
    TensorMark{"input_hidden_norm", "a Laguna draft"},
};

}  // namespace

Result<DraftTensors> read_draft_tensors(const std::string& where,
                                        const std::vector<std::string_view>& tensors) {
  DraftTensors found;
  const auto has = [](std::string_view tensor, std::string_view part) {
    return tensor.find(part) != std::string_view::npos;
  };
  for (const std::string_view tensor : tensors) {
    for (const TensorMark& mark : kOtherTensors) {
      if (!has(tensor, mark.part)) continue;
      return Status(Code::unsupported,
                    fmt::format("{}: tensor '{}' makes this {}, which is not supported", where,
                                printable(tensor), mark.kind));
    }
    if (has(tensor, "candidate_selector.") || has(tensor, "selector_")) found.selector = tensor;
    if (has(tensor, "_conv.")) found.convolution = tensor;
    if (tensor == "lm_head.weight") found.head = tensor;
    if (tensor == "embed_tokens.weight") found.embedding = tensor;
    if (tensor == "d2t") found.id_map = tensor;
  }
  return found;
}

Status settle_draft_kind(const std::string& where, const DraftTensors& tensors,
                         std::string_view said, DraftConfig& config) {
  const auto refuse = [&](std::string why) {
    return Status(Code::mismatch, fmt::format("{}: {}", where, why));
  };
  const std::string_view second = tensors.selector.empty() ? tensors.convolution : tensors.selector;
  if (!config.is_dflash2() && !second.empty()) {
    return refuse(fmt::format(
        "tensor '{}' makes this a DFlash2 draft, but {}, as in a DFlash v1 draft; as that it would "
        "propose nonsense. Use the files as they were published",
        printable(second), said));
  }
  if (config.is_dflash2() && (tensors.selector.empty() || tensors.convolution.empty())) {
    return refuse(
        fmt::format("{}, as in a DFlash2 draft, but there are no tensors of a {}; this is a DFlash "
                    "v1 draft, or "
                    "half of a DFlash2 draft",
                    said, tensors.selector.empty() ? "candidate selector" : "convolution"));
  }
  if (config.is_dflash2() && !tensors.id_map.empty()) {
    return refuse("tensor 'd2t' gives a DFlash2 draft a vocabulary of its own, which none has");
  }
  if (!tensors.id_map.empty() && tensors.head.empty()) {
    return refuse(
        "tensor 'd2t' maps the ids of a draft's own head, but 'lm_head.weight' is missing");
  }
  if (tensors.id_map.empty() != (config.draft_vocab_size == 0)) {
    return tensors.id_map.empty()
               ? refuse(
                     fmt::format("draft_vocab_size is {} of {} ids, but tensor 'd2t', which says "
                                 "which ids they are, is missing",
                                 config.draft_vocab_size, config.vocab_size))
               : refuse("tensor 'd2t' is there, but draft_vocab_size is missing");
  }
  if (config.target_hidden_size != 0 && config.target_hidden_size != config.hidden_size &&
      (tensors.head.empty() || tensors.embedding.empty())) {
    return refuse(fmt::format(
        "hidden_size is {}, target_hidden_size {}: such a draft needs 'embed_tokens.weight' and "
        "'lm_head.weight' of its own",
        config.hidden_size, config.target_hidden_size));
  }
  config.own_head = !tensors.head.empty();
  config.own_embedding = !tensors.embedding.empty();
  return Status();
}

Status check_draft(const std::string& where, const DraftConfig& config) {
  const auto refuse = [&](std::string why) {
    return Status(Code::invalid_argument, fmt::format("{}: {}", where, why));
  };
  if (config.heads % config.kv_heads != 0) {
    return refuse(fmt::format("{} key/value heads do not divide the {} heads", config.kv_heads,
                              config.heads));
  }
  if (config.head_dim % 2 != 0) return refuse(fmt::format("head_dim is odd ({})", config.head_dim));
  if (config.mask_id >= config.vocab_size) {
    return refuse(fmt::format("mask_token_id {} is not below vocab_size {}", config.mask_id,
                              config.vocab_size));
  }
  const auto& ids = config.target_layer_ids;
  if (ids.empty()) return refuse("target_layer_ids is empty");
  for (std::size_t i = 1; i < ids.size(); ++i) {
    if (ids[i] <= ids[i - 1]) {
      return refuse(
          fmt::format("target_layer_ids [{}] must ascend without repeats", fmt::join(ids, ", ")));
    }
  }
  if (config.draft_vocab_size > config.vocab_size) {
    return refuse(fmt::format("draft_vocab_size {} is above vocab_size {}", config.draft_vocab_size,
                              config.vocab_size));
  }
  const Dflash2Config& second = config.dflash2;
  if (config.is_dflash2() && config.hidden_size % second.conv_group != 0) {
    return refuse(fmt::format("conv_group_size {} does not divide hidden_size {}",
                              second.conv_group, config.hidden_size));
  }
  if (config.num_target_layers && ids.back() >= *config.num_target_layers) {
    return refuse(fmt::format("target_layer_ids names layer {}, but num_target_layers is {}",
                              ids.back(), *config.num_target_layers));
  }
  return Status();
}

}  // namespace drafthouse
