#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "drafthouse/status.h"
#include "formats/gguf.h"
#include "formats/json_document.h"

namespace drafthouse {

struct CountRange {
  std::uint32_t least;
  std::uint32_t most;
};

// Reads hyperparameters by name from config.json or GGUF metadata. The first failure sticks and
// names file and field; later reads give harmless values, so a reader reads everything and looks at
// status() once. Views what it was made from.
class ConfigFields {
 public:
  // A key is looked up in the scopes in order; null counts as absent.
  ConfigFields(std::string file, std::vector<JsonView> scopes);
  // Keys get `prefix` put before them ("qwen3.").
  ConfigFields(std::string file, const GgufMetadata& metadata, std::string prefix);

  const Status& status() const { return status_; }
  bool has(std::string_view key) const;
  void refuse(Code code, std::string_view key, std::string_view why);
  // Takes over what another reader ran into.
  void absorb(const ConfigFields& other) {
    if (status_.ok()) status_ = other.status_;
  }

  // Without a default the field is required.
  std::uint32_t count(std::string_view key, CountRange range,
                      std::optional<std::uint32_t> absent = std::nullopt);
  // One for each layer: a list of `layers` entries, or one number for all.
  std::vector<std::uint32_t> counts(std::string_view key, CountRange range, std::uint32_t layers,
                                    std::optional<std::uint32_t> absent = std::nullopt);
  double positive(std::string_view key, std::optional<double> absent = std::nullopt);
  std::optional<double> maybe_positive(std::string_view key);
  bool flag(std::string_view key, bool absent);
  std::optional<bool> maybe_flag(std::string_view key);
  std::optional<std::string> text(std::string_view key);
  // Whole numbers, each of at most `most`. Nothing when absent.
  std::optional<std::vector<std::int64_t>> wholes(std::string_view key, std::size_t count_max);

  // The field as JSON; nothing in GGUF.
  JsonView json(std::string_view key) const;

 private:
  std::string full(std::string_view key) const { return prefix_ + std::string(key); }

  std::string file_;
  std::vector<JsonView> scopes_;
  const GgufMetadata* metadata_ = nullptr;
  std::string prefix_;
  Status status_;
};

}  // namespace drafthouse
