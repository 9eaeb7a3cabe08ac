#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>

namespace drafthouse {

// Bytes that are written as hexadecimal digits in names of files.
template <std::size_t kSize>
struct HexName {
  std::array<std::uint8_t, kSize> bytes{};

  friend bool operator==(const HexName&, const HexName&) = default;
  friend auto operator<=>(const HexName&, const HexName&) = default;
};

template <std::size_t kSize>
struct HexNameHash {
  std::size_t operator()(const HexName<kSize>& name) const {
    std::size_t hash = 0;
    std::memcpy(&hash, name.bytes.data(), sizeof hash);
    return hash;
  }
};

using RootName = HexName<16>;     // a tenant's folder: keyed hash of the salt
using RunId = HexName<16>;        // a run of pages
using PageAddress = HexName<32>;  // hash over all tokens up to the end of a page; zero: no page

std::string to_hex(const std::uint8_t* bytes, std::size_t count);
bool from_hex(std::string_view text, std::uint8_t* bytes, std::size_t count);
template <std::size_t kSize>
std::string to_hex(const HexName<kSize>& name) {
  return to_hex(name.bytes.data(), kSize);
}

// DIR/
inline constexpr char kMarkerName[] = "drafthouse-cache";
inline constexpr char kLockName[] = "lock";  // also in a digest's folder
inline constexpr char kUsageName[] = "usage";
inline constexpr char kKeyName[] = "key";
inline constexpr char kVersionName[] = "v1";
// DIR/v1/<digest>/
inline constexpr char kIndexName[] = "index";
inline constexpr char kNoteName[] = "state.json";
inline constexpr char kQuarantineName[] = "quarantine";
inline constexpr char kTemporarySuffix[] = ".tmp";

// DIR/v1/<digest>/<root>/
std::string manifest_name(const RunId& run);
std::string pages_name(const RunId& run, std::uint32_t group);

// A name that this format gives to a file of a run; nothing else is ever touched.
struct RunFileName {
  RunId run = {};
  bool is_manifest = false;
  std::uint32_t group = 0;  // of a file of pages
  bool temporary = false;
};
std::optional<RunFileName> parse_run_file(std::string_view name);
std::optional<RootName> parse_root(std::string_view name);
bool is_digest(std::string_view name);

}  // namespace drafthouse
