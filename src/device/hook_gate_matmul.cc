#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "device/hook_gate.h"
#include "tensor/half.h"

namespace drafthouse::gate {
namespace {

// What the numbers of a problem are like. Ends: the largest codes. Faint: zeros, numbers next to
// zero.
enum class Content { plain, ends, faint };

struct Problem {
  Dtype weights;
  ActKind inputs;
  std::uint32_t input_count;
  std::uint32_t output_count;
  Content content;
};

// Memory aligned as packed data is.
class Packed {
 public:
  explicit Packed(std::size_t bytes) : lines_((bytes + 63) / 64) {}
  std::byte* data() { return lines_.front().bytes; }
  bool same_bytes(const Packed& other) const {
    return std::memcmp(lines_.data(), other.lines_.data(), lines_.size() * sizeof(Line)) == 0;
  }

 private:
  struct alignas(64) Line {
    std::byte bytes[64];
  };
  std::vector<Line> lines_;
};

void put(std::vector<std::byte>& out, const void* from, std::size_t bytes) {
  const auto* first = static_cast<const std::byte*>(from);
  out.insert(out.end(), first, first + bytes);
}
void put16(std::vector<std::byte>& out, std::uint16_t bits) { put(out, &bits, 2); }

// One output's weights as a file stores them.
std::vector<std::byte> stored_row(const Problem& problem, Random& random) {
  std::vector<std::byte> row;
  const bool faint = problem.content == Content::faint;
  const bool ends = problem.content == Content::ends;
  if (layout_of(problem.weights).block_values == 1) {
    for (std::uint32_t k = 0; k < problem.input_count; ++k) {
      float value = random.number(0.1f);
      if (ends) value = random.below(2) == 0 ? 3e4f : -3e4f;
      if (faint) value *= random.below(2) == 0 ? 0.0f : 1e-6f;
      if (problem.weights == Dtype::f32) {
        put(row, &value, 4);
      } else {
        put16(row, problem.weights == Dtype::f16 ? float_to_half(value) : float_to_bf16(value));
      }
    }
    return row;
  }
  const std::uint32_t code_bytes = problem.weights == Dtype::q8_0 ? 32 : 16;
  for (std::uint32_t group = 0; group < problem.input_count / kGroupInputs; ++group) {
    const float factor = faint ? 1e-4f : 1.0f;
    put16(row, float_to_half((0.011f + random.number(0.01f)) * factor));
    if (problem.weights == Dtype::q4_1) {
      put16(row, float_to_half((random.number(0.05f) - 0.06f) * factor));
    }
    for (std::uint32_t i = 0; i < code_bytes; ++i) {
      auto code = static_cast<std::uint8_t>(random.bits());
      constexpr std::uint8_t kEnds[] = {0x80, 0x7f, 0xff, 0x00, 0x81, 0xf0, 0x0f};
      if (ends) code = group == 0 ? kEnds[code_bytes == 32 ? 0 : 2] : kEnds[random.below(7)];
      row.push_back(static_cast<std::byte>(code));
    }
  }
  return row;
}

// A problem with its packed weights and `rows` rows of inputs.
class Product {
 public:
  Product(const Problem& problem, std::uint32_t rows)
      : problem_(problem),
        weights_(packed_bytes(problem.weights, problem.output_count, problem.input_count)),
        weights_as_made_(weights_) {
    Random random(problem.input_count * 1000 + problem.output_count * 10 +
                  static_cast<unsigned>(problem.content));
    std::vector<std::vector<std::byte>> stored;
    for (std::uint32_t o = 0; o < problem.output_count; ++o) {
      stored.push_back(stored_row(problem, random));
    }
    const std::size_t bytes = packed_block_bytes(problem.weights, problem.input_count);
    for (std::uint32_t block = 0; block < column_blocks(problem.output_count); ++block) {
      const std::byte* of_block[kBlockOutputs] = {};
      for (std::uint32_t i = 0; i < kBlockOutputs; ++i) {
        const std::size_t output = block * kBlockOutputs + i;
        if (output < stored.size()) of_block[i] = stored[output].data();
      }
      pack_block(problem.weights, problem.input_count, of_block, weights_.data() + block * bytes);
    }
    weights_as_made_ = weights_;
    x_ = random.numbers(std::size_t{rows} * problem.input_count, 2.0f);
    for (std::size_t i = 0; i < x_.size(); ++i) {
      const std::size_t group = i % problem.input_count / kGroupInputs;
      if (problem.content == Content::ends) x_[i] = group == 0 || x_[i] > 0 ? 50.0f : -50.0f;
      if (problem.content == Content::faint) x_[i] *= group % 2 == 0 ? 0.0f : 1e-3f;
    }
  }

  const Problem& problem() const { return problem_; }
  bool weights_hold() const { return weights_.same_bytes(weights_as_made_); }
  std::size_t stride() const { return problem_.output_count + 3; }

  struct Call {
    std::uint32_t first_row = 0;
    std::uint32_t rows = 1;
    std::uint32_t block_begin = 0;
    std::uint32_t block_end = std::numeric_limits<std::uint32_t>::max();
    bool accumulate = false;
  };
  struct Outcome {
    Guarded<float> out;  // [rows][stride]
    bool inputs_hold;
  };
  // The rows of inputs [first_row, first_row + rows) packed as a pass packs them, multiplied.
  template <class Run>
  Outcome run(const Run& kernels, const Call& call) {
    Packed tiles(act_bytes(problem_.inputs, call.rows, problem_.input_count));
    const std::size_t tile_bytes = act_tile_bytes(problem_.inputs, problem_.input_count);
    for (std::uint32_t row = 0; row < call.rows; row += kTileRows) {
      kernels_for(Isa::generic)
          .pack_activations(problem_.inputs,
                            x_.data() + std::size_t{call.first_row + row} * problem_.input_count,
                            problem_.input_count, std::min(kTileRows, call.rows - row),
                            problem_.input_count, tiles.data() + row / kTileRows * tile_bytes);
    }
    const Packed before = tiles;
    Outcome outcome{Guarded<float>(call.rows * stride()), true};
    if (call.accumulate) {
      for (std::size_t i = 0; i < outcome.out.size(); ++i) {
        outcome.out.data()[i] = start_value(i);
      }
    }
    kernels.matmul(job(call, tiles.data(), outcome.out.data()));
    outcome.inputs_hold = tiles.same_bytes(before);
    return outcome;
  }
  static float start_value(std::size_t i) { return static_cast<float>(i % 17) - 8.0f; }

  // Exact sums and sums of magnitudes of a row.
  struct Sum {
    double value = 0;
    double magnitude = 0;
  };
  std::vector<Sum> sums(std::uint32_t row) {
    Packed tile(act_bytes(problem_.inputs, 1, problem_.input_count));
    kernels_for(Isa::generic)
        .pack_activations(problem_.inputs, x_.data() + std::size_t{row} * problem_.input_count,
                          problem_.input_count, 1, problem_.input_count, tile.data());
    const dh_hook_matmul_job job{.size = sizeof job,
                                 .weights = format_of(problem_.weights),
                                 .inputs = format_of(problem_.inputs),
                                 .output_count = problem_.output_count,
                                 .input_count = problem_.input_count,
                                 .weight_data = weights_.data(),
                                 .block_begin = 0,
                                 .block_end = column_blocks(problem_.output_count),
                                 .x = tile.data(),
                                 .rows = 1,
                                 .accumulate = 0,
                                 .out = nullptr,
                                 .out_stride = 0};
    std::vector<Sum> all(problem_.output_count);
    for (std::uint32_t k = 0; k < problem_.input_count; ++k) {
      const double x = problem_.inputs == ActKind::int8
                           ? double{dh_hook_input_scale(&job, 0, k / kGroupInputs)} *
                                 dh_hook_input_code(&job, 0, k)
                           : double{dh_hook_input(&job, 0, k)};
      for (std::uint32_t o = 0; o < problem_.output_count; ++o) {
        const double product = x * double{dh_hook_weight(&job, o, k)};
        all[o].value += product;
        all[o].magnitude += std::abs(product);
      }
    }
    return all;
  }

 private:
  MatmulJob job(const Call& call, const std::byte* tiles, float* out) {
    const PackedMatrix matrix{problem_.weights, problem_.output_count, problem_.input_count,
                              weights_.data()};
    return MatmulJob{.weights = matrix,
                     .block_begin = call.block_begin,
                     .block_end = std::min(call.block_end, column_blocks(matrix.outputs)),
                     .act = problem_.inputs,
                     .x = tiles,
                     .rows = call.rows,
                     .out = out,
                     .out_stride = stride(),
                     .accumulate = call.accumulate};
  }

  Problem problem_;
  Packed weights_;
  Packed weights_as_made_;
  std::vector<float> x_;
};

std::string at(const Problem& p, std::uint32_t rows) {
  return fmt::format("for {} rows, {} inputs, {} outputs", rows, p.input_count, p.output_count);
}

// Past the last output of a call.
std::uint32_t end_of(const Problem& problem, const Product::Call& call) {
  return call.block_end < column_blocks(problem.output_count) ? call.block_end * kBlockOutputs
                                                              : problem.output_count;
}

// Outputs that a call does not have keep what they held: guards, the stride's gap, other blocks.
bool only_outputs_changed(const Product::Outcome& outcome, const Product& product,
                          const Product::Call& call) {
  const std::uint32_t begin = call.block_begin * kBlockOutputs;
  const std::uint32_t end = end_of(product.problem(), call);
  const Guarded<float> fresh(1);
  for (std::size_t i = 0; i < call.rows * product.stride(); ++i) {
    const std::size_t column = i % product.stride();
    if (column >= begin && column < end) continue;
    const float expected = call.accumulate ? Product::start_value(i) : fresh.data()[0];
    if (std::memcmp(outcome.out.data() + i, &expected, sizeof expected) != 0) return false;
  }
  return outcome.out.guards_hold() && outcome.inputs_hold;
}

class MatmulGate {
 public:
  MatmulGate(const Hook& hook, const HookedKernels& run) : hook_(hook), run_(run) {}

  Status check() {
    // Inputs that are no multiple of 64, outputs that are none of 16, and sums that are long.
    struct Shape {
      std::uint32_t inputs, outputs;
      Content content;
      std::uint32_t rows_max;
    };
    constexpr Shape kShapes[] = {
        {64, 16, Content::plain, 130}, {96, 37, Content::plain, 62},   {320, 52, Content::ends, 33},
        {160, 36, Content::faint, 20}, {2112, 20, Content::plain, 19},
    };
    for (const Shape& shape : kShapes) {
      const Problem problem{hook_.slot.weights(), hook_.slot.inputs(), shape.inputs, shape.outputs,
                            shape.content};
      std::vector<std::uint32_t> widths = tried_widths(hook_, shape.rows_max);
      // A list that lies above the shape's rows is tried with it all the same.
      if (widths.empty()) widths = tried_widths(hook_, DH_HOOK_WIDTH_MAX);
      Product product(problem, std::max(shape.rows_max, DH_HOOK_WIDTH_MAX) + 3);
      Status status = hook_.exact ? exact(product, widths) : approximate(product, widths);
      if (!status.ok()) return status;
      if (!product.weights_hold()) return refusal(hook_, "changes the weights");
    }
    return {};
  }

 private:
  // Whole, cut into column blocks, and added to what is there.
  std::vector<Product::Call> calls(const Problem& problem, std::uint32_t rows) const {
    const std::uint32_t blocks = column_blocks(problem.output_count);
    return {{.first_row = 0, .rows = rows},
            {.first_row = 3, .rows = rows, .block_begin = blocks / 2},
            {.first_row = 1, .rows = rows, .block_end = (blocks + 1) / 2, .accumulate = true}};
  }

  Status exact(Product& product, const std::vector<std::uint32_t>& widths) {
    for (const std::uint32_t rows : widths) {
      for (const Product::Call& call : calls(product.problem(), rows)) {
        const Product::Outcome got = product.run(run_, call);
        if (!only_outputs_changed(got, product, call)) return refusal(hook_, kWroteOutside);
        const Product::Outcome expected = product.run(run_.original(), call);
        if (!got.out.same_bits(expected.out)) {
          return refusal(
              hook_, "gives other bits than the kernel it replaces " + at(product.problem(), rows));
        }
      }
    }
    return {};
  }

  Status approximate(Product& product, const std::vector<std::uint32_t>& widths) {
    const Problem& problem = product.problem();
    const std::uint32_t rows_all = widths.back() + 3;
    std::vector<std::vector<float>> alone;
    for (std::uint32_t row = 0; row < rows_all; ++row) {
      const Product::Call call{.first_row = row};
      const Product::Outcome got = product.run(run_, call);
      if (!only_outputs_changed(got, product, call)) return refusal(hook_, kWroteOutside);
      alone.emplace_back(got.out.data(), got.out.data() + problem.output_count);
      if (row >= 8) continue;  // the rest is bound by having its bits
      const std::vector<Product::Sum> sums = product.sums(row);
      for (std::uint32_t o = 0; o < problem.output_count; ++o) {
        const double error = std::abs(double{alone[row][o]} - sums[o].value);
        if (error <= hook_.error_bound * sums[o].magnitude + 1e-37) continue;
        return refusal(hook_,
                       fmt::format("is off by {:.3g} of the magnitude of its sum, more than "
                                   "its bound {:.3g}, {}",
                                   error / sums[o].magnitude, hook_.error_bound, at(problem, 1)));
      }
    }
    for (const std::uint32_t rows : widths) {
      for (const Product::Call& call : calls(problem, rows)) {
        const Product::Outcome got = product.run(run_, call);
        if (!only_outputs_changed(got, product, call)) return refusal(hook_, kWroteOutside);
        if (Status s = same_as_alone(product, call, got, alone); !s.ok()) return s;
      }
    }
    return {};
  }

  Status same_as_alone(const Product& product, const Product::Call& call,
                       const Product::Outcome& got, const std::vector<std::vector<float>>& alone) {
    const std::uint32_t begin = call.block_begin * kBlockOutputs;
    const std::uint32_t end = end_of(product.problem(), call);
    for (std::uint32_t row = 0; row < call.rows; ++row) {
      for (std::uint32_t o = begin; o < end; ++o) {
        const std::size_t i = row * product.stride() + o;
        float expected = alone[call.first_row + row][o];
        if (call.accumulate) expected = Product::start_value(i) + expected;
        if (std::memcmp(got.out.data() + i, &expected, sizeof expected) == 0) continue;
        return refusal(hook_, fmt::format("gives row {} other bits {} than alone{}", row,
                                          at(product.problem(), call.rows),
                                          call.accumulate ? " (adding)" : ""));
      }
    }
    return {};
  }

  const Hook& hook_;
  const HookedKernels& run_;
};

}  // namespace

Status check_matmul(const Hook& hook, const HookedKernels& run) {
  return MatmulGate(hook, run).check();
}

}  // namespace drafthouse::gate
