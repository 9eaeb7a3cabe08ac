#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace drafthouse::cli {

// The repository that this binary was built in, found from where the binary lies; empty when it has
// been installed or copied elsewhere.
std::filesystem::path repository_root();

// A pair that comes with the repository.
struct KnownPair {
  std::string name;
  std::string target;
  std::string draft;
  std::string missing = {};  // the file that is not there; empty: all are
  std::string remedy = {};   // how to get it, or empty
};

// The default pair, as tools/fetch_default_model leaves it.
KnownPair default_pair(const std::filesystem::path& root);

// All pairs, the small test pairs first. `folder`: where they are, laid out like tests/data/models,
// with the default pair's two files in it; empty: at their places in the repository.
std::vector<KnownPair> known_pairs(const std::filesystem::path& folder);

}  // namespace drafthouse::cli
