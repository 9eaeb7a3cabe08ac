#include "base/units.h"

#include <fmt/format.h>

namespace drafthouse {

ByteUnit byte_unit(std::size_t bytes) {
  static constexpr const char* kNames[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  ByteUnit result;
  std::size_t unit = 0;
  while (static_cast<double>(bytes) / result.bytes >= 1000.0 && unit + 1 < std::size(kNames)) {
    result.bytes *= 1024.0;
    ++unit;
  }
  result.name = kNames[unit];
  return result;
}

std::string ByteUnit::number(std::size_t of) const {
  const double value = static_cast<double>(of) / bytes;
  const bool small = value > 0 && value < 0.095;
  std::string text = fmt::format("{:.{}f}", value, small ? 2 : value < 99.95 ? 1 : 0);
  if (text.ends_with(".0")) text.resize(text.size() - 2);
  return text;
}

std::string human_bytes(std::size_t bytes) {
  const ByteUnit unit = byte_unit(bytes);
  if (unit.bytes == 1) return fmt::format("{} B", bytes);
  const double value = static_cast<double>(bytes) / unit.bytes;
  return fmt::format("{:.{}f} {}", value, value < 99.95 ? 1 : 0, unit.name);
}

}  // namespace drafthouse
