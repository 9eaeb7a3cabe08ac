#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "drafthouse/status.h"

namespace drafthouse {

// A value inside a JsonDocument, or nothing. A view: valid while the document lives.
class JsonView {
 public:
  JsonView() = default;

  // There, and not null.
  explicit operator bool() const;
  bool is_object() const;
  bool is_array() const;

  // Nothing when this is no object or has no such key.
  JsonView operator[](std::string_view key) const;
  // Elements of an array or members of an object; 0 for everything else.
  std::size_t size() const;
  JsonView at(std::size_t index) const;  // of an array
  std::vector<std::string> keys() const;

  // Nothing when the value is of another type. whole(): a non-negative integer.
  std::optional<std::string> text() const;
  std::optional<std::uint64_t> whole() const;
  std::optional<std::int64_t> integer() const;
  std::optional<double> number() const;
  std::optional<bool> flag() const;

  // As it stands in the file, for a message: one line, cut when it is long.
  std::string shown() const;

 private:
  friend class JsonDocument;
  explicit JsonView(const void* node) : node_(node) {}
  const void* node_ = nullptr;
};

// A small JSON file from an untrusted source. Refused: nesting and size beyond limits.h, a key
// twice in one object. Immutable.
class JsonDocument {
 public:
  JsonDocument();
  // `name` is the file, for messages.
  static Result<JsonDocument> parse(std::string_view text, const std::string& name);

  JsonDocument(JsonDocument&&) noexcept;
  JsonDocument& operator=(JsonDocument&&) noexcept;
  ~JsonDocument();

  JsonView root() const;

 private:
  struct Tree;
  std::unique_ptr<Tree> tree_;
};

}  // namespace drafthouse
