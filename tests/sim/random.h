#pragma once

#include <cstdint>
#include <random>

namespace drafthouse {

// Seeded choices, the same on every machine.
class Random {
 public:
  explicit Random(std::uint32_t seed) : engine_(seed) {}
  // 0 … count − 1.
  std::uint32_t below(std::uint32_t count) { return static_cast<std::uint32_t>(engine_()) % count; }
  bool percent(std::uint32_t chance) { return below(100) < chance; }

 private:
  std::mt19937 engine_;
};

}  // namespace drafthouse
