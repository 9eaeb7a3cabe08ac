#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "kernels/kernels.h"
#include "kernels/test_rows.h"
#include "tensor/half.h"

namespace drafthouse {
namespace {

using testing::Content;
using testing::inputs_for;

// Memory for packed data, aligned as its users require.
class Bytes {
 public:
  explicit Bytes(std::size_t size) : storage_(size + 64, std::byte{0xcd}) {}
  std::byte* data() {
    void* at = storage_.data();
    std::size_t space = storage_.size();
    return static_cast<std::byte*>(std::align(64, storage_.size() - 64, at, space));
  }

 private:
  std::vector<std::byte> storage_;
};

struct Problem {
  Problem(const RowFormat& weights, ActKind inputs_as, std::uint32_t input_count,
          std::uint32_t output_count, Content numbers = Content::plain)
      : format(weights),
        act(inputs_as),
        inputs(inputs_for(weights, input_count)),
        outputs(output_count),
        content(numbers) {}

  RowFormat format;
  ActKind act;
  std::uint32_t inputs;
  std::uint32_t outputs;
  Content content;
};

std::string describe(const Problem& problem) {
  const char* acts[] = {"f32", "bf16", "int8"};
  return name_of(problem.format) + " x " + acts[static_cast<int>(problem.act)] + " " +
         std::to_string(problem.inputs) + " -> " + std::to_string(problem.outputs);
}

struct Weights {
  Bytes bytes;
  PackedMatrix matrix;
};

Weights make_weights(const Problem& problem, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<std::vector<std::byte>> rows;
  for (std::uint32_t o = 0; o < problem.outputs; ++o) {
    rows.push_back(testing::random_row(problem.format, problem.inputs, random, problem.content));
  }
  const Dtype kind = packed_kind(problem.format);
  Weights weights{Bytes(packed_bytes(kind, problem.outputs, problem.inputs)), {}};
  const std::size_t block_bytes = packed_block_bytes(kind, problem.inputs);
  for (std::uint32_t block = 0; block < column_blocks(problem.outputs); ++block) {
    const std::byte* of_block[kBlockOutputs] = {};
    for (std::uint32_t i = 0; i < kBlockOutputs; ++i) {
      const std::uint32_t output = block * kBlockOutputs + i;
      if (output < problem.outputs) of_block[i] = rows[output].data();
    }
    pack_block(problem.format, problem.inputs, of_block,
               weights.bytes.data() + block * block_bytes);
  }
  weights.matrix = {kind, problem.outputs, problem.inputs, weights.bytes.data()};
  return weights;
}

std::vector<float> make_inputs(const Problem& problem, std::uint32_t rows, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0f, 1.0f);
  std::vector<float> x(static_cast<std::size_t>(rows) * problem.inputs);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const std::size_t group = i % problem.inputs / 32;
    x[i] = normal(random);
    if (problem.content == Content::extreme) {
      x[i] = group == 0 || random() % 2 != 0 ? 50.0f : -50.0f;  // codes of ±127 only
    }
    if (problem.content == Content::tiny) {
      const float factors[] = {0.0f, 1e-39f, 1.0f};
      x[i] *= factors[group % 3];
    }
  }
  return x;
}

struct Tiles {
  Bytes bytes;
  std::uint32_t rows;
};

Tiles pack_tiles(const Kernels& kernels, const Problem& problem, const float* x,
                 std::uint32_t rows) {
  Tiles tiles{Bytes(act_bytes(problem.act, rows, problem.inputs)), rows};
  const std::size_t tile_bytes = act_tile_bytes(problem.act, problem.inputs);
  for (std::uint32_t row = 0; row < rows; row += kTileRows) {
    kernels.pack_activations(problem.act, x + static_cast<std::size_t>(row) * problem.inputs,
                             problem.inputs, std::min(kTileRows, rows - row), problem.inputs,
                             tiles.bytes.data() + row / kTileRows * tile_bytes);
  }
  return tiles;
}

std::vector<float> multiply(const Kernels& kernels, const Weights& weights, ActKind act,
                            Tiles& tiles) {
  const PackedMatrix& matrix = weights.matrix;
  std::vector<float> out(static_cast<std::size_t>(tiles.rows) * matrix.outputs, NAN);
  MatmulJob job;
  job.weights = matrix;
  job.block_end = column_blocks(matrix.outputs);
  job.act = act;
  job.x = tiles.bytes.data();
  job.rows = tiles.rows;
  job.out = out.data();
  job.out_stride = matrix.outputs;
  kernels.matmul(job);
  return out;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// Two orders of rounding may differ by a few units in the last place of the sum of magnitudes, and
// VDPBF16PS takes denormals for zero.
void expect_close(const std::vector<float>& got, const std::vector<float>& expected,
                  const Problem& problem, const std::vector<float>& x, const Weights& weights) {
  std::vector<float> w(problem.inputs);
  for (std::uint32_t o = 0; o < problem.outputs; ++o) {
    unpack_row(weights.matrix, o, w.data());
    for (std::size_t r = 0; r < x.size() / problem.inputs; ++r) {
      double magnitude = 0.0;
      for (std::uint32_t k = 0; k < problem.inputs; ++k) {
        magnitude +=
            std::abs(static_cast<double>(w[k]) * static_cast<double>(x[r * problem.inputs + k]));
      }
      const std::size_t at = r * problem.outputs + o;
      // Rounding errors of a chain of n terms grow like sqrt(n) units; 4 covers the largest seen.
      const double bound =
          4.0 * std::sqrt(static_cast<double>(problem.inputs)) * 0x1p-24 * magnitude + 1e-37;
      ASSERT_LE(std::abs(static_cast<double>(got[at]) - static_cast<double>(expected[at])), bound)
          << describe(problem) << " row " << r << " output " << o;
    }
  }
}

std::vector<Isa> runnable() {
  std::vector<Isa> isas;
  for (const Isa isa : built_isas()) {
    if (cpu_has(isa)) isas.push_back(isa);
  }
  return isas;
}

ActKind natural_act(const RowFormat& format) { return act_kind_for(packed_kind(format), false); }

std::vector<ActKind> acts_of(const RowFormat& format) {
  const ActKind natural = natural_act(format);
  if (natural == ActKind::f32) return {ActKind::f32};
  return {natural, ActKind::f32};
}

void check_against_reference(const Problem& problem, std::uint32_t rows) {
  const Weights weights = make_weights(problem, problem.inputs + problem.outputs);
  const std::vector<float> x = make_inputs(problem, rows, rows);
  Tiles plain = pack_tiles(reference_kernels(), problem, x.data(), rows);
  const std::vector<float> expected = multiply(reference_kernels(), weights, problem.act, plain);
  for (const Isa isa : runnable()) {
    SCOPED_TRACE(std::string(name_of(isa)) + " " + std::to_string(rows) + " rows");
    Tiles tiles = pack_tiles(kernels_for(isa), problem, x.data(), rows);
    const std::vector<float> got = multiply(kernels_for(isa), weights, problem.act, tiles);
    if (problem.act == ActKind::int8) {
      ASSERT_TRUE(same_bits(got, expected)) << describe(problem);
    } else {
      ASSERT_NO_FATAL_FAILURE(expect_close(got, expected, problem, x, weights));
    }
  }
}

TEST(Matmul, SaysWhichPathsRun) {
  for (const Isa isa : built_isas()) {
    std::printf("  %-10s %s\n", std::string(name_of(isa)).c_str(),
                cpu_has(isa) ? "runs" : "built, but this CPU lacks it");
  }
  EXPECT_TRUE(cpu_has(best_isa()));
}

class MatmulKinds : public ::testing::TestWithParam<RowFormat> {};

TEST_P(MatmulKinds, EqualsTheReference) {
  for (const ActKind act : acts_of(GetParam())) {
    for (const std::uint32_t inputs : {64u, 96u, 192u, 576u}) {
      for (const std::uint32_t outputs : {1u, 16u, 100u, 192u}) {
        const Problem problem{GetParam(), act, inputs, outputs};
        for (const std::uint32_t rows : {1u, 2u, 5u, 16u, 19u}) {
          ASSERT_NO_FATAL_FAILURE(check_against_reference(problem, rows));
        }
      }
    }
    ASSERT_NO_FATAL_FAILURE(check_against_reference({GetParam(), act, 2048, 36}, 37));
  }
}

TEST_P(MatmulKinds, EqualsTheReferenceForEveryRowCount) {
  for (const ActKind act : acts_of(GetParam())) {
    for (std::uint32_t rows = 1; rows <= 20; ++rows) {
      ASSERT_NO_FATAL_FAILURE(check_against_reference({GetParam(), act, 192, 100}, rows));
    }
  }
}

TEST_P(MatmulKinds, HandlesExtremeAndTinyValues) {
  for (const ActKind act : acts_of(GetParam())) {
    for (const Content content : {Content::extreme, Content::tiny}) {
      const Problem problem{GetParam(), act, 576, 40, content};
      ASSERT_NO_FATAL_FAILURE(check_against_reference(problem, 7));
    }
  }
}

// A row's result is its own: computed alone or among others it has the same bits.
TEST_P(MatmulKinds, RowsDoNotDependOnEachOther) {
  for (const Isa isa : runnable()) {
    const Kernels& kernels = kernels_for(isa);
    for (const ActKind act : acts_of(GetParam())) {
      const Problem problem{GetParam(), act, 2048, 100};
      const Weights weights = make_weights(problem, 3);
      const std::vector<float> x = make_inputs(problem, 37, 4);
      std::vector<float> alone;
      for (std::uint32_t row = 0; row < 37; ++row) {
        Tiles tile = pack_tiles(kernels, problem, x.data() + row * problem.inputs, 1);
        const std::vector<float> one = multiply(kernels, weights, act, tile);
        alone.insert(alone.end(), one.begin(), one.end());
      }
      for (std::uint32_t rows = 1; rows <= 37; rows = rows < 20 ? rows + 1 : rows + 17) {
        Tiles tiles = pack_tiles(kernels, problem, x.data(), rows);
        const std::vector<float> together = multiply(kernels, weights, act, tiles);
        ASSERT_EQ(std::memcmp(together.data(), alone.data(), together.size() * sizeof(float)), 0)
            << name_of(isa) << " " << describe(problem) << " " << rows << " rows";
      }
    }
  }
}

// More rows than the kernels take at once, and more inputs than they keep in cache.
TEST_P(MatmulKinds, ManyRowsEqualOneRow) {
  constexpr std::uint32_t kRows = 530;
  for (const Isa isa : runnable()) {
    const Kernels& kernels = kernels_for(isa);
    const Problem problem{GetParam(), natural_act(GetParam()), 1088, 17};
    const Weights weights = make_weights(problem, 5);
    const std::vector<float> x = make_inputs(problem, kRows, 6);
    Tiles tiles = pack_tiles(kernels, problem, x.data(), kRows);
    const std::vector<float> together = multiply(kernels, weights, problem.act, tiles);
    for (const std::uint32_t row : {0u, 15u, 16u, 300u, 511u, 512u, 529u}) {
      Tiles tile = pack_tiles(kernels, problem, x.data() + row * problem.inputs, 1);
      const std::vector<float> one = multiply(kernels, weights, problem.act, tile);
      ASSERT_EQ(std::memcmp(one.data(), together.data() + row * problem.outputs,
                            one.size() * sizeof(float)),
                0)
          << name_of(isa) << " " << describe(problem) << " row " << row;
    }
  }
}

TEST_P(MatmulKinds, CutsOfColumnBlocksAreEqual) {
  for (const Isa isa : runnable()) {
    for (const std::uint32_t rows : {1u, 3u, 8u, 17u}) {
      const Problem problem{GetParam(), natural_act(GetParam()), 192, 200};
      const Weights weights = make_weights(problem, 8);
      const std::vector<float> x = make_inputs(problem, rows, 9);
      Tiles tiles = pack_tiles(kernels_for(isa), problem, x.data(), rows);
      const std::vector<float> whole = multiply(kernels_for(isa), weights, problem.act, tiles);
      std::vector<float> cut(whole.size(), NAN);
      const std::uint32_t cuts[] = {0, 1, 3, 6, 11, column_blocks(problem.outputs)};
      for (std::size_t i = 0; i + 1 < std::size(cuts); ++i) {
        MatmulJob job{weights.matrix, cuts[i],    cuts[i + 1],     problem.act, tiles.bytes.data(),
                      rows,           cut.data(), problem.outputs, false};
        kernels_for(isa).matmul(job);
      }
      ASSERT_TRUE(same_bits(whole, cut)) << name_of(isa) << " " << describe(problem);
    }
  }
}

TEST_P(MatmulKinds, AccumulateAddsTheSum) {
  for (const Isa isa : runnable()) {
    const Problem problem{GetParam(), natural_act(GetParam()), 192, 100};
    const Weights weights = make_weights(problem, 10);
    const std::vector<float> x = make_inputs(problem, 6, 11);
    Tiles tiles = pack_tiles(kernels_for(isa), problem, x.data(), 6);
    const std::vector<float> sums = multiply(kernels_for(isa), weights, problem.act, tiles);
    const std::vector<float> before = make_inputs({Dtype::f32, problem.act, 100, 1}, 6, 12);
    std::vector<float> out = before;
    MatmulJob job{weights.matrix,
                  0,
                  column_blocks(problem.outputs),
                  problem.act,
                  tiles.bytes.data(),
                  6,
                  out.data(),
                  problem.outputs,
                  true};
    kernels_for(isa).matmul(job);
    for (std::size_t i = 0; i < out.size(); ++i) ASSERT_EQ(out[i], before[i] + sums[i]);
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, MatmulKinds, ::testing::ValuesIn(testing::packed_formats()),
                         [](const auto& tested) { return testing::test_name(tested.param); });

// The packed bytes are the same on every path, so a tile made by one may be read by another.
TEST(PackActivations, EqualsTheReference) {
  for (const ActKind act : {ActKind::f32, ActKind::bf16, ActKind::int8}) {
    for (const Content content : {Content::plain, Content::extreme, Content::tiny}) {
      for (const std::uint32_t inputs : {64u, 90u, 96u, 576u}) {
        for (const std::uint32_t rows : {1u, 3u, 16u}) {
          const Problem problem{Dtype::bf16, act, inputs, 1, content};
          const std::vector<float> x = make_inputs(problem, rows, inputs + rows);
          Tiles expected = pack_tiles(reference_kernels(), problem, x.data(), rows);
          const std::size_t bytes = act_tile_bytes(act, inputs) / kTileRows * rows;
          for (const Isa isa : runnable()) {
            Tiles tiles = pack_tiles(kernels_for(isa), problem, x.data(), rows);
            ASSERT_EQ(std::memcmp(tiles.bytes.data(), expected.bytes.data(), bytes), 0)
                << name_of(isa) << " " << describe(problem) << " " << rows << " rows";
          }
        }
      }
    }
  }
}

TEST(PackActivations, RoundsTiesToEvenAndKeepsTheEnds) {
  std::vector<float> x(64, 0.0f);
  x[0] = 127.0f;
  x[1] = -127.0f;
  x[2] = 0.5f;
  x[3] = 1.5f;
  x[4] = -2.5f;
  x[5] = 126.5f;
  const std::int8_t codes[6] = {127, -127, 0, 2, -2, 126};
  for (const Isa isa : runnable()) {
    const Problem problem{Dtype::q8_0, ActKind::int8, 64, 1};
    Tiles tile = pack_tiles(kernels_for(isa), problem, x.data(), 1);
    EXPECT_EQ(std::memcmp(tile.bytes.data(), codes, sizeof codes), 0) << name_of(isa);
  }
}

}  // namespace
}  // namespace drafthouse
