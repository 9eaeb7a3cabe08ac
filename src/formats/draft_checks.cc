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
    TensorMark{"candidate_selector.", "a DFlash2 draft"},
    TensorMark{"_conv.", "a DFlash2 draft"},
    TensorMark{"selector_", "a DFlash2 draft"},
    TensorMark{"markov_", "a DSpark draft"},
    TensorMark{"confidence_head", "a DSpark draft"},
    TensorMark{"conf_proj", "a DSpark draft"},
    TensorMark{"d2t", "a draft with a vocabulary of its own"},
    TensorMark{"lm_head.", "a draft with an output head of its own"},
    TensorMark{"embed_tokens.", "a draft with an embedding of its own"},
    TensorMark{"mask_embedding", "a draft with a mask embedding of its own"},
};

}  // namespace

Status check_draft_tensors(const std::string& where, const std::vector<std::string_view>& tensors) {
  for (const std::string_view tensor : tensors) {
    for (const TensorMark& mark : kOtherTensors) {
      if (tensor.find(mark.part) != std::string_view::npos) {
        return Status(Code::unsupported,
                      fmt::format("{}: tensor '{}' makes this {}, which is not supported", where,
                                  printable(tensor), mark.kind));
      }
    }
  }
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
  if (config.num_target_layers && ids.back() >= *config.num_target_layers) {
    return refuse(fmt::format("target_layer_ids names layer {}, but num_target_layers is {}",
                              ids.back(), *config.num_target_layers));
  }
  return Status();
}

}  // namespace drafthouse
