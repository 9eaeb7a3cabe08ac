#include "model/family.h"

namespace drafthouse {
namespace {

constexpr Family kFamilies[] = {
    {"llama", declare_llama_layer},
    {"qwen2", declare_qwen2_layer},
    {"qwen3", declare_qwen3_layer},
    {"qwen3_moe", declare_qwen3_layer},
    {"gemma4", declare_gemma4_layer},
    {"gpt_oss", declare_gpt_oss_layer},
    {"qwen3_5", declare_qwen3_5_layer},
    {"qwen3_next", declare_qwen3_next_layer},
    {"lfm2", declare_lfm2_layer, "model.embedding_norm.weight"},
};

}  // namespace

const Family* find_family(std::string_view name) {
  for (const Family& family : kFamilies) {
    if (family.name == name) return &family;
  }
  return nullptr;
}

std::string known_families() {
  std::string names;
  for (const Family& family : kFamilies) {
    if (!names.empty()) names += ", ";
    names += family.name;
  }
  return names;
}

}  // namespace drafthouse
