#include "base/units.h"

#include <fmt/format.h>

namespace drafthouse {

std::string human_bytes(std::size_t bytes) {
  static constexpr const char* kNames[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  auto value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (value >= 1000.0 && unit + 1 < std::size(kNames)) {
    value /= 1024.0;
    ++unit;
  }
  if (unit == 0) return fmt::format("{} B", bytes);
  return fmt::format("{:.{}f} {}", value, value < 99.95 ? 1 : 0, kNames[unit]);
}

}  // namespace drafthouse
