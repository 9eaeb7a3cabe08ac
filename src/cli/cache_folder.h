#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "cache/disk/maintenance.h"
#include "cli/verb.h"

// What the verbs below `cache` have in common. Each stands in a source file of its own and
// describes itself as verb.h says; `app` is the cache verb.

namespace drafthouse::cli {

void add_cache_ls(CLI::App& app, RunFn& run);
void add_cache_show(CLI::App& app, RunFn& run);
void add_cache_verify(CLI::App& app, RunFn& run);
void add_cache_prune(CLI::App& app, RunFn& run);
void add_cache_clear(CLI::App& app, RunFn& run);

// FOLDER, required.
void add_folder_argument(CLI::App& verb, std::string& folder);

// What is in the folder of a disk cache.
Result<DirectorySummary> list_folder(const std::string& folder);

// The one digest in the folder that begins with these digits; not_found or invalid_argument
// (several do) otherwise.
Result<DigestSummary> find_digest(const std::string& folder, const std::string& prefix);

// The folder's only digest; not_found (there is none) or invalid_argument (several) otherwise.
Result<DigestSummary> only_digest(const std::string& folder);

// "3 min ago", "never"; of nanoseconds since the epoch.
std::string age_of(std::int64_t last_use_ns);
// The same for JSON: seconds since the epoch.
double seconds_of(std::int64_t last_use_ns);

}  // namespace drafthouse::cli
