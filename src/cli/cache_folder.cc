#include "cli/cache_folder.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <chrono>

#include "formats/printable.h"

namespace drafthouse::cli {

void add_folder_argument(CLI::App& verb, std::string& folder) {
  verb.add_option("folder", folder, "The folder that --cache-dir named")
      ->type_name("FOLDER")
      ->required();
}

Result<DirectorySummary> list_folder(const std::string& folder) {
  return list_disk_cache(posix_file_system(), folder);
}

Result<DigestSummary> only_digest(const std::string& folder) {
  const Result<DirectorySummary> found = list_folder(folder);
  if (!found.ok()) return found.status();
  const std::vector<DigestSummary>& digests = found.value().digests;
  if (digests.size() == 1) return digests.front();
  if (digests.empty()) {
    return Status(Code::not_found, fmt::format("{}: nothing is stored here", folder));
  }
  return Status(Code::invalid_argument,
                fmt::format("{}: there are {} digests; name one with --digest (drafthouse cache ls "
                            "shows them)",
                            folder, digests.size()));
}

Result<DigestSummary> find_digest(const std::string& folder, const std::string& prefix) {
  const Result<DirectorySummary> found = list_folder(folder);
  if (!found.ok()) return found.status();
  const DigestSummary* match = nullptr;
  for (const DigestSummary& digest : found.value().digests) {
    if (prefix.empty() || !digest.digest.starts_with(prefix)) continue;
    if (match != nullptr) {
      return Status(Code::invalid_argument,
                    fmt::format("{}: several digests begin with {}; give more digits", folder,
                                printable(prefix)));
    }
    match = &digest;
  }
  if (match != nullptr) return *match;
  return Status(Code::not_found,
                fmt::format("{}: no digest begins with \"{}\"; drafthouse cache ls "
                            "shows those there are",
                            folder, printable(prefix)));
}

std::string age_of(std::int64_t last_use_ns) {
  if (last_use_ns == 0) return "never";
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const double seconds =
      std::chrono::duration<double>(now - std::chrono::nanoseconds(last_use_ns)).count();
  if (seconds < 90) return "just now";
  if (seconds < 90 * 60) return fmt::format("{:.0f} min ago", seconds / 60);
  if (seconds < 36 * 3600) return fmt::format("{:.0f} h ago", seconds / 3600);
  return fmt::format("{:.0f} days ago", seconds / 86400);
}

double seconds_of(std::int64_t last_use_ns) { return static_cast<double>(last_use_ns) / 1e9; }

}  // namespace drafthouse::cli
