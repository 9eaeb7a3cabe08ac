#pragma once

#include <string>

#include "cli/model_options.h"
#include "drafthouse/host.h"

namespace drafthouse::cli {

// What verbs with a prefix cache on disk are told about it.
struct CacheOptions {
  std::string directory;
  std::string limit;  // as typed
};

// --cache-dir, --cache-limit.
void add_cache_options(CLI::App& verb, CacheOptions& options);

// What is wrong with them together, or "".
std::string cache_refusal(const CacheOptions& options);

CacheConfig cache_config(const CacheOptions& options);

// The same pair, for a host. --threads is the host's, --prefill-chunk has no place there.
ModelSpec model_spec(const std::string& name, const ModelOptions& model, const CacheOptions& cache);

// Waits until what was published is on disk; says so when it cannot be within `deadline_s`.
void flush_cache(Host& host, const CacheOptions& options, double deadline_s);

}  // namespace drafthouse::cli
