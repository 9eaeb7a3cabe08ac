#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "drafthouse/sampling.h"

namespace CLI {
class App;
}

namespace drafthouse::cli {

// How a command line says which ids are chosen.
struct SamplingFlags {
  SamplingOptions options;
  std::optional<std::uint64_t> seed;
  std::vector<std::string> logit_bias;  // "ID=BIAS"
};

// --temperature, --top-k, --top-p, --min-p, --seed.
void add_basic_sampling(CLI::App& verb, SamplingFlags& flags);
// Those and all others.
void add_sampling(CLI::App& verb, SamplingFlags& flags);

// What the flags ask for, or which of them makes no sense and why.
struct ReadSampling {
  SamplingOptions options;
  std::string wrong;  // empty: nothing
};
ReadSampling read_sampling(const SamplingFlags& flags);

// Says which of the flags change nothing, on standard error.
void tell_idle(const SamplingFlags& flags);

}  // namespace drafthouse::cli
