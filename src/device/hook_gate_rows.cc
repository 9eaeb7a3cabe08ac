// The gate for operations on one row at a time, and for the copying of rows.

#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "device/hook_gate.h"

namespace drafthouse::gate {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr std::uint32_t kRowWidths[] = {1, 2, 15, 16, 17, 31, 32, 33, 48, 63, 100, 576, 1537};

Status other_bits(const Hook& hook, std::uint32_t width) {
  return refusal(hook,
                 fmt::format("gives other bits than the kernel it replaces for width {}", width));
}

// Holds `got` against the kernel's bits, or against exact values in units of the error measure.
template <class Exact>
Status judge(const Hook& hook, const Guarded<float>& got, const Guarded<float>& expected,
             Exact&& exact) {
  const auto width = static_cast<std::uint32_t>(got.size());
  if (!got.guards_hold()) return refusal(hook, kWroteOutside);
  if (hook.exact) return got.same_bits(expected) ? Status() : other_bits(hook, width);
  for (std::uint32_t i = 0; i < width; ++i) {
    const auto [value, unit] = exact(i);
    const double error = std::abs(double{got.data()[i]} - value);
    if (error <= hook.error_bound * unit + 1e-37) continue;
    return refusal(hook, fmt::format("is off by {:.3g} of {:.3g}, more than its bound {:.3g}, for "
                                     "width {}",
                                     error, unit, hook.error_bound, width));
  }
  return {};
}

struct Exactly {
  double value;
  double unit;
};

}  // namespace

Status check_rms_norm(const Hook& hook, const HookedKernels& run) {
  for (const std::uint32_t width : kRowWidths) {
    for (const float spread : {1e-3f, 3.0f, 400.0f}) {
      Random random(width);
      const std::vector<float> in = random.numbers(width, spread);
      const std::vector<float> gain = random.numbers(width, 2.0f);
      Guarded<float> got(width);
      Guarded<float> expected(width);
      run.rms_norm(got.data(), in.data(), gain.data(), width, 1e-5f);
      run.original().rms_norm(expected.data(), in.data(), gain.data(), width, 1e-5f);
      double squares = 0;
      for (const float value : in) squares += double{value} * double{value};
      const double scale = 1 / std::sqrt(squares / width + 1e-5);
      Status status = judge(hook, got, expected, [&](std::uint32_t i) {
        const double value = double{in[i]} * scale * double{gain[i]};
        return Exactly{value, std::abs(value)};
      });
      if (!status.ok()) return status;
      Guarded<float> in_place(in);
      run.rms_norm(in_place.data(), in_place.data(), gain.data(), width, 1e-5f);
      if (!in_place.same_bits(got)) return refusal(hook, "gives other bits in place");
    }
  }
  return {};
}

Status check_silu_mul(const Hook& hook, const HookedKernels& run) {
  for (const std::uint32_t width : kRowWidths) {
    Random random(width);
    std::vector<float> gate = random.numbers(width, 20.0f);
    const std::vector<float> up = random.numbers(width, 3.0f);
    const float ends[] = {0.0f, -0.0f, 88.0f, -88.0f, 1000.0f, -1000.0f, 1e-30f};
    for (std::uint32_t i = 0; i < width; i += 5) gate[i] = ends[i / 5 % std::size(ends)];
    Guarded<float> got(width);
    Guarded<float> expected(width);
    run.silu_mul(got.data(), gate.data(), up.data(), width);
    run.original().silu_mul(expected.data(), gate.data(), up.data(), width);
    Status status = judge(hook, got, expected, [&](std::uint32_t i) {
      const double product = double{gate[i]} * double{up[i]};
      return Exactly{product / (1 + std::exp(-double{gate[i]})), std::abs(product)};
    });
    if (!status.ok()) return status;
  }
  return {};
}

Status check_rope(const Hook& hook, const HookedKernels& run) {
  for (const std::uint32_t half : {1u, 8u, 16u, 24u, 32u, 40u, 64u, 128u}) {
    Random random(half);
    const std::vector<float> head = random.numbers(std::size_t{half} * 2, 5.0f);
    std::vector<float> cos(half);
    std::vector<float> sin(half);
    for (std::uint32_t i = 0; i < half; ++i) {
      cos[i] = random.number(1.0f);
      sin[i] = std::sqrt(1.0f - cos[i] * cos[i]) * (i % 2 == 0 ? 1.0f : -1.0f);
    }
    Guarded<float> got(head);
    Guarded<float> expected(head);
    run.rope(got.data(), cos.data(), sin.data(), half);
    run.original().rope(expected.data(), cos.data(), sin.data(), half);
    Status status = judge(hook, got, expected, [&](std::uint32_t i) {
      const std::uint32_t pair = i % half;
      const double a = head[pair];
      const double b = head[pair + half];
      const double value = i < half ? a * cos[pair] - b * sin[pair] : b * cos[pair] + a * sin[pair];
      return Exactly{value, std::abs(a) + std::abs(b)};
    });
    if (!status.ok()) return status;
  }
  return {};
}

Status check_write_kv(const Hook& hook, const HookedKernels& run) {
  const KvKind kind = hook.slot.pages();
  for (const std::uint32_t head_dim : {16u, 64u, 80u, 96u, 128u, 256u}) {
    const std::size_t bytes = kv_bytes(kind) * head_dim * kPagePositions;
    Guarded<std::byte> k_got(bytes);
    Guarded<std::byte> v_got(bytes);
    Guarded<std::byte> k_expected(bytes);
    Guarded<std::byte> v_expected(bytes);
    for (const std::uint32_t slot : {0u, 1u, 17u, 32u, 62u, 63u}) {
      Random random(head_dim + slot);
      std::vector<float> k = random.numbers(head_dim, 4.0f);
      const std::vector<float> v = random.numbers(head_dim, 1.0f);
      const float odd[] = {kInfinity, -kInfinity, 1e-40f, -0.0f, 3.4e38f, 1.00390625f, 1.01171875f};
      std::copy(std::begin(odd), std::end(odd), k.begin());
      run.write_kv(kind, head_dim, slot, k.data(), v.data(), k_got.data(), v_got.data());
      run.original().write_kv(kind, head_dim, slot, k.data(), v.data(), k_expected.data(),
                              v_expected.data());
      if (!k_got.guards_hold() || !v_got.guards_hold()) return refusal(hook, kWroteOutside);
      if (!k_got.same_bits(k_expected) || !v_got.same_bits(v_expected)) {
        return refusal(hook, fmt::format("leaves another page than the kernel it replaces (slot {} "
                                         "of {} dimensions)",
                                         slot, head_dim));
      }
    }
  }
  return {};
}

Status check_argmax(const Hook& hook, const HookedKernels& run) {
  for (const std::uint32_t count : kRowWidths) {
    Random random(count);
    for (int round = 0; round < 20; ++round) {
      std::vector<float> values(count);
      for (float& value : values) {
        const std::uint32_t draw = random.below(8);
        value = draw == 0 ? kNan : draw == 1 ? -kInfinity : static_cast<float>(random.below(4));
        if (round == 0) value = kNan;
        if (round == 1) value = random.number(1.0f);
      }
      const std::uint32_t got = run.argmax(values.data(), count);
      const std::uint32_t expected = run.original().argmax(values.data(), count);
      if (got == expected) continue;
      return refusal(hook, fmt::format("chooses {} of {} values, the kernel it replaces {}", got,
                                       count, expected));
    }
  }
  return {};
}

Status check_capture_tap(const Hook& hook, const HookedKernels& run) {
  for (const std::uint32_t width : {1u, 17u, 192u, 576u}) {
    for (const std::uint32_t rows : tried_widths(hook, 130)) {
      Random random(rows + width);
      const std::size_t stream_stride = width + 5;
      const std::size_t out_stride = 3 * width + 1;
      std::vector<float> stream = random.numbers(rows * stream_stride, 100.0f);
      stream[0] = kNan;
      Guarded<float> got(rows * out_stride);
      Guarded<float> expected(rows * out_stride);
      run.capture_tap(stream.data(), stream_stride, rows, width, got.data() + width, out_stride);
      HookedKernels(run.original())
          .capture_tap(stream.data(), stream_stride, rows, width, expected.data() + width,
                       out_stride);
      if (!got.guards_hold() || !got.same_bits(expected)) {
        return refusal(hook,
                       fmt::format("leaves other taps than a copy for {} rows of {}", rows, width));
      }
    }
  }
  return {};
}

}  // namespace drafthouse::gate
