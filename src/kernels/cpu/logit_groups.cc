#include "kernels/cpu/isa_ops.h"
#include "kernels/cpu/vec.h"

namespace drafthouse::DRAFTHOUSE_ISA {
namespace {

constexpr std::uint32_t kVectors = kLogitGroup / kLanes;

// One group of `count` (1 … kLogitGroup) values; what lies behind them becomes -inf.
struct Group {
  Vec part[kVectors];
};

inline Group load_group(const float* values, std::uint32_t count, Vec lowest) {
  Group group;
  for (std::uint32_t v = 0; v < kVectors; ++v) {
    const std::uint32_t begin = v * kLanes;
    group.part[v] = begin < count ? load_first(values + begin, count - begin, lowest) : lowest;
  }
  return group;
}

}  // namespace

void group_maxima(const float* values, std::uint32_t count, float* maxima) {
  const Vec lowest = splat(-__builtin_inff());
  for (std::uint32_t i = 0; i < count; i += kLogitGroup) {
    const Group group = load_group(values + i, count - i, lowest);
    Vec best = lowest;
    for (std::uint32_t v = 0; v < kVectors; ++v) best = max(group.part[v], best);
    *maxima++ = max_lane(best);
  }
}

void group_weights(const float* values, std::uint32_t count, float shift, float scale,
                   float* sums) {
  const Vec lowest = splat(-__builtin_inff());
  const Vec offset = splat(shift);
  const Vec factor = splat(scale);
  for (std::uint32_t i = 0; i < count; i += kLogitGroup) {
    Group group = load_group(values + i, count - i, lowest);
    for (std::uint32_t v = 0; v < kVectors; ++v) {
      group.part[v] = exp(mul(sub(group.part[v], offset), factor));
    }
    static_assert(kVectors == 4);
    *sums++ = sum(add(add(group.part[0], group.part[1]), add(group.part[2], group.part[3])));
  }
}

void weights(const float* values, std::uint32_t count, float shift, float scale, float* out) {
  const Vec lowest = splat(-__builtin_inff());
  for (std::uint32_t i = 0; i < count; i += kLanes) {
    const Vec x = load_first(values + i, count - i, lowest);
    store_first(out + i, count - i, exp(mul(sub(x, splat(shift)), splat(scale))));
  }
}

}  // namespace drafthouse::DRAFTHOUSE_ISA
