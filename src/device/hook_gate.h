#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "device/hook.h"
#include "device/hooked_kernels.h"
#include "drafthouse/status.h"

namespace drafthouse {

// Runs a hook on the gate's test shapes and holds it to its promise (hooks.h): an exact one to the
// bits of the generic kernels, which are those of every instruction set here; an approximate one to
// its bound, to the same bits for a row at every width, and both to their outputs and nothing else.
// Shapes and numbers are the same on every machine, and so is the verdict for a hook whose
// arithmetic is. invalid_argument says what the hook did; nothing is remembered. Takes up to a few
// hundred milliseconds on the calling thread; the hook's code runs in this process, so one that
// crashes ends it.
Status check_hook(const Hook& hook);

// The parts of the gate, by operation. `run` has the hook in place over the generic kernels.
namespace gate {

Status check_matmul(const Hook& hook, const HookedKernels& run);
Status check_attend_page(const Hook& hook, const HookedKernels& run);
Status check_rms_norm(const Hook& hook, const HookedKernels& run);
Status check_silu_mul(const Hook& hook, const HookedKernels& run);
Status check_rope(const Hook& hook, const HookedKernels& run);
Status check_write_kv(const Hook& hook, const HookedKernels& run);
Status check_argmax(const Hook& hook, const HookedKernels& run);
Status check_capture_tap(const Hook& hook, const HookedKernels& run);

// "matmul[q8_0,int8] by name@version is refused: it …"
Status refusal(const Hook& hook, const std::string& what);

// Numbers that are the same with every compiler and library (splitmix64).
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t bits() {
    state_ += 0x9e3779b97f4a7c15u;
    std::uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  std::uint32_t below(std::uint32_t count) { return static_cast<std::uint32_t>(bits() % count); }
  // In [-spread, spread).
  float number(float spread) {
    const auto step = static_cast<std::int32_t>(bits() >> 40) - (1 << 23);
    return static_cast<float>(step) * 0x1p-23f * spread;
  }
  std::vector<float> numbers(std::size_t count, float spread) {
    std::vector<float> values(count);
    for (float& value : values) value = number(spread);
    return values;
  }

 private:
  std::uint64_t state_;
};

// A stretch of memory with guards around it that tell whether somebody wrote outside.
template <class T>
class Guarded {
 public:
  explicit Guarded(std::size_t count) : all_(count + 2 * kGuard) {
    std::memset(all_.data(), 0xa5, all_.size() * sizeof(T));
  }
  explicit Guarded(const std::vector<T>& values) : Guarded(values.size()) {
    std::copy(values.begin(), values.end(), data());
  }
  T* data() { return all_.data() + kGuard; }
  const T* data() const { return all_.data() + kGuard; }
  std::size_t size() const { return all_.size() - 2 * kGuard; }
  bool guards_hold() const {
    const Guarded fresh(size());
    return std::memcmp(all_.data(), fresh.all_.data(), kGuard * sizeof(T)) == 0 &&
           std::memcmp(data() + size(), fresh.all_.data(), kGuard * sizeof(T)) == 0;
  }
  bool same_bits(const Guarded& other) const {
    return size() == other.size() && std::memcmp(data(), other.data(), size() * sizeof(T)) == 0;
  }

 private:
  static constexpr std::size_t kGuard = 64;
  std::vector<T> all_;
};

inline constexpr const char* kWroteOutside = "writes outside its outputs";

// The numbers of rows that a hook is tried with: of a list all of it.
std::vector<std::uint32_t> tried_widths(const Hook& hook, std::uint32_t most);

}  // namespace gate
}  // namespace drafthouse
