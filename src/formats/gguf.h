#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "drafthouse/status.h"
#include "formats/byte_source.h"
#include "formats/checkpoint.h"

namespace drafthouse {

// A metadata value. Whole numbers of every width are one kind, both floats another. An array keeps
// its elements in one of three forms; nested arrays are skipped (kept as monostate).
using GgufValue =
    std::variant<std::monostate, std::uint64_t, std::int64_t, double, bool, std::string,
                 std::vector<std::int64_t>, std::vector<double>, std::vector<std::string>>;

// The metadata of a GGUF file. Lookups give nothing when the key is absent or of another type.
class GgufMetadata {
 public:
  bool has(std::string_view key) const { return values_.find(key) != values_.end(); }
  const GgufValue* find(std::string_view key) const;
  std::optional<std::uint64_t> whole(std::string_view key) const;  // not negative
  std::optional<double> number(std::string_view key) const;
  std::optional<bool> flag(std::string_view key) const;
  std::optional<std::string> text(std::string_view key) const;
  // Booleans are whole numbers 0 and 1 here.
  const std::vector<std::int64_t>* wholes(std::string_view key) const;
  const std::vector<std::string>* texts(std::string_view key) const;

  // False when the key is already there.
  bool add(std::string key, GgufValue value);

 private:
  std::map<std::string, GgufValue, std::less<>> values_;
};

struct GgufFile {
  GgufMetadata metadata;
  // In file order, named as in the file; shapes outermost first.
  std::vector<TensorInfo> tensors;
};

// GGUF version 2 and 3, little-endian. Reads the header only and checks it against the size of the
// file. corrupt: the file breaks its format or was cut short. unsupported: another version, byte
// order or tensor type; the message names it.
Result<GgufFile> parse_gguf(const ByteSource& source);

}  // namespace drafthouse
