#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace drafthouse {

using Sha256Digest = std::array<std::uint8_t, 32>;

// A running SHA-256 (OpenSSL's). Confined to one thread.
class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;

  void add(std::span<const std::byte> bytes);
  void add(std::string_view text) { add(std::as_bytes(std::span(text))); }
  // Ends the sum; the object takes nothing more.
  Sha256Digest finish();

 private:
  void* context_;
};

}  // namespace drafthouse
