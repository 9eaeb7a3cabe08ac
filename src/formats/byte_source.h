#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <utility>

#include "drafthouse/status.h"

namespace drafthouse {

// Something of known size that parsers read from at any offset: a file, or bytes in a test.
class ByteSource {
 public:
  virtual ~ByteSource() = default;
  virtual const std::string& name() const = 0;  // for messages
  virtual std::uint64_t size() const = 0;
  // Fills `out` from `offset`, whole or not at all.
  virtual Status read(std::uint64_t offset, std::span<std::byte> out) const = 0;
};

// The first bytes of a file that claims to be `size` long; what is not there reads as zero, so that
// a header alone can be parsed.
class MemorySource final : public ByteSource {
 public:
  MemorySource(std::span<const std::byte> bytes, std::uint64_t size, std::string name)
      : bytes_(bytes), size_(size), name_(std::move(name)) {}

  const std::string& name() const override { return name_; }
  std::uint64_t size() const override { return size_; }
  Status read(std::uint64_t offset, std::span<std::byte> out) const override {
    if (out.size() > size_ || offset > size_ - out.size()) {
      return Status(Code::corrupt, name_ + ": read past the end");
    }
    std::fill(out.begin(), out.end(), std::byte{0});
    if (!out.empty() && offset < bytes_.size()) {
      const auto here = std::min<std::uint64_t>(out.size(), bytes_.size() - offset);
      std::memcpy(out.data(), bytes_.data() + offset, here);
    }
    return Status();
  }

 private:
  std::span<const std::byte> bytes_;
  std::uint64_t size_;
  std::string name_;
};

}  // namespace drafthouse
