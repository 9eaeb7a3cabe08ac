#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "kernels/kernels.h"
#include "tensor/half.h"

namespace drafthouse {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr std::uint32_t kHeadDims[] = {16, 32, 64, 80, 96, 128, 256};

struct State {
  std::vector<float> m, l, acc;

  State(std::uint32_t queries, std::uint32_t head_dim)
      : m(queries, -kInfinity), l(queries, 0.0f), acc(queries * head_dim, 0.0f) {}
};

void expect_same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  ASSERT_EQ(a.size(), b.size());
  EXPECT_EQ(std::memcmp(a.data(), b.data(), a.size() * sizeof(float)), 0);
}

void expect_same_bits(const State& a, const State& b) {
  expect_same_bits(a.m, b.m);
  expect_same_bits(a.l, b.l);
  expect_same_bits(a.acc, b.acc);
}

// Queries and a few pages of keys and values; unwritten slots hold all-ones bits, which are NaN.
struct Scene {
  KvKind kind;
  std::uint32_t head_dim;
  std::uint32_t queries;
  std::vector<std::byte> q;
  std::vector<std::vector<std::byte>> k, v;

  Scene(KvKind kind_in, std::uint32_t head_dim_in, std::uint32_t queries_in, std::uint32_t pages,
        std::uint32_t slots_in_last = kPagePositions)
      : kind(kind_in), head_dim(head_dim_in), queries(queries_in) {
    std::mt19937 random(head_dim * 100 + queries);
    std::normal_distribution<float> normal(0.0f, 1.0f);
    q.resize(std::size_t{queries} * head_dim * kv_bytes(kind));
    for (std::size_t i = 0; i < std::size_t{queries} * head_dim; ++i) {
      const float x = 2.0f * normal(random);
      const std::uint16_t rounded = float_to_bf16(x);
      if (kind == KvKind::f32) std::memcpy(q.data() + i * 4, &x, 4);
      if (kind == KvKind::bf16) std::memcpy(q.data() + i * 2, &rounded, 2);
    }
    for (std::uint32_t page = 0; page < pages; ++page) {
      k.emplace_back(kv_bytes(kind) * head_dim * kPagePositions, std::byte{0xff});
      v.emplace_back(k.back());
      const std::uint32_t slots = page + 1 == pages ? slots_in_last : kPagePositions;
      for (std::uint32_t slot = 0; slot < slots; ++slot) {
        std::vector<float> key(head_dim), value(head_dim);
        for (float& x : key) x = normal(random);
        for (float& x : value) x = normal(random);
        write(page, slot, key, value);
      }
    }
  }

  void write(std::uint32_t page, std::uint32_t slot, const std::vector<float>& key,
             const std::vector<float>& value) {
    reference_kernels().write_kv(kind, head_dim, slot, key.data(), value.data(), k[page].data(),
                                 v[page].data());
  }

  void attend(const Kernels& kernels, std::uint32_t page, const std::vector<std::uint8_t>& first,
              const std::vector<std::uint8_t>& last, State& state, std::uint32_t from = 0,
              std::uint32_t count = 0) const {
    AttendPageJob job;
    job.kind = kind;
    job.head_dim = head_dim;
    job.queries = count == 0 ? queries : count;
    job.q = q.data() + std::size_t{from} * head_dim * kv_bytes(kind);
    job.k = k[page].data();
    job.v = v[page].data();
    job.first = first.data() + from;
    job.last = last.data() + from;
    job.scale = 1.0f / std::sqrt(static_cast<float>(head_dim));
    job.m = state.m.data() + from;
    job.l = state.l.data() + from;
    job.acc = state.acc.data() + std::size_t{from} * head_dim;
    kernels.attend_page(job);
  }
};

struct Visible {
  std::vector<std::uint8_t> first, last;
};

Visible all_visible(std::uint32_t queries) {
  return {std::vector<std::uint8_t>(queries, 0), std::vector<std::uint8_t>(queries, 64)};
}

// Random ranges, some of them empty, none past `slots`.
Visible random_visible(std::uint32_t queries, std::uint32_t slots, unsigned seed) {
  std::mt19937 random(seed);
  Visible visible = all_visible(queries);
  for (std::uint32_t q = 0; q < queries; ++q) {
    const auto a = static_cast<std::uint8_t>(random() % (slots + 1));
    const auto b = static_cast<std::uint8_t>(random() % (slots + 1));
    visible.first[q] = random() % 2 == 0 ? std::uint8_t{0} : std::min(a, b);
    visible.last[q] = std::max(a, b);
    if (random() % 5 == 0) visible.first[q] = visible.last[q];
  }
  return visible;
}

class Attention : public testing::TestWithParam<std::tuple<Isa, KvKind>> {
 protected:
  void SetUp() override {
    const Isa isa = std::get<0>(GetParam());
    if (!cpu_has(isa)) GTEST_SKIP() << "this CPU lacks " << name_of(isa);
    kernels_ = &kernels_for(isa);
  }
  KvKind kind() const { return std::get<1>(GetParam()); }

  // Scores differ by their summation order; then weights near a tie of bf16 may round either way.
  void expect_near(const Scene& scene, const State& actual, const State& expected) const {
    const float weight_error = kind() == KvKind::bf16 ? 2e-4f : 2e-6f;
    for (std::uint32_t q = 0; q < scene.queries; ++q) {
      if (expected.l[q] == 0.0f) {
        EXPECT_EQ(actual.m[q], expected.m[q]);
        EXPECT_EQ(actual.l[q], 0.0f);
        continue;
      }
      EXPECT_NEAR(actual.m[q], expected.m[q], 4e-6f);
      EXPECT_NEAR(actual.l[q], expected.l[q], 1e-5f * expected.l[q]);
      for (std::uint32_t d = 0; d < scene.head_dim; ++d) {
        const std::size_t i = std::size_t{q} * scene.head_dim + d;
        EXPECT_NEAR(actual.acc[i], expected.acc[i], weight_error * expected.l[q] + 1e-5f);
      }
    }
  }

  const Kernels* kernels_ = nullptr;
};

TEST_P(Attention, MatchesTheReference) {
  for (const std::uint32_t head_dim : kHeadDims) {
    for (const std::uint32_t queries : {1u, 2u, 3u, 4u, 7u, 16u}) {
      const Scene scene(kind(), head_dim, queries, 3, 41);
      State actual(queries, head_dim), expected(queries, head_dim);
      for (std::uint32_t page = 0; page < 3; ++page) {
        const Visible visible = page == 1 ? all_visible(queries)
                                          : random_visible(queries, page == 2 ? 41 : 64, queries);
        scene.attend(*kernels_, page, visible.first, visible.last, actual);
        scene.attend(reference_kernels(), page, visible.first, visible.last, expected);
      }
      expect_near(scene, actual, expected);
    }
  }
}

TEST_P(Attention, AQueryAloneGivesItsBitsAmongSixteen) {
  for (const std::uint32_t head_dim : kHeadDims) {
    for (unsigned seed = 0; seed < 4; ++seed) {
      const Scene scene(kind(), head_dim, 16, 2, 50);
      const Visible visible = random_visible(16, 50, seed);
      const Visible all = all_visible(16);
      State together(16, head_dim), alone(16, head_dim), in_parts(16, head_dim);
      scene.attend(*kernels_, 0, all.first, all.last, together);
      scene.attend(*kernels_, 1, visible.first, visible.last, together);
      for (std::uint32_t q = 0; q < 16; ++q) {
        scene.attend(*kernels_, 0, all.first, all.last, alone, q, 1);
        scene.attend(*kernels_, 1, visible.first, visible.last, alone, q, 1);
      }
      expect_same_bits(together, alone);
      for (const auto& [from, count] : {std::pair{0u, 3u}, {3u, 6u}, {9u, 7u}}) {
        scene.attend(*kernels_, 0, all.first, all.last, in_parts, from, count);
        scene.attend(*kernels_, 1, visible.first, visible.last, in_parts, from, count);
      }
      expect_same_bits(together, in_parts);
    }
  }
}

TEST_P(Attention, InvisibleSlotsDoNotMatter) {
  for (const std::uint32_t head_dim : {64u, 80u, 128u}) {
    for (std::uint32_t shift = 0; shift < 8; ++shift) {
      Scene scene(kind(), head_dim, 16, 1);
      // A verify: row q sees one slot more than row q - 1, within a window that slides along.
      Visible visible = all_visible(16);
      for (std::uint32_t q = 0; q < 16; ++q) {
        visible.first[q] = static_cast<std::uint8_t>(shift + q / 2);
        visible.last[q] = static_cast<std::uint8_t>(shift + 20 + q / 2);
      }
      State before(16, head_dim), after(16, head_dim);
      scene.attend(*kernels_, 0, visible.first, visible.last, before);

      const float nan = std::numeric_limits<float>::quiet_NaN();
      for (std::uint32_t slot = 0; slot < kPagePositions; ++slot) {
        const float garbage = slot % 3 == 0 ? nan : slot % 3 == 1 ? kInfinity : -1e38f;
        if (slot >= shift && slot < shift + 28) continue;
        scene.write(0, slot, std::vector<float>(head_dim, garbage),
                    std::vector<float>(head_dim, garbage));
      }
      scene.attend(*kernels_, 0, visible.first, visible.last, after);
      expect_same_bits(before, after);

      // Slots that only other rows see do not matter either.
      for (std::uint32_t row = 0; row < 16; ++row) {
        Scene spoilt = scene;
        for (std::uint32_t slot = shift; slot < shift + 28; ++slot) {
          if (slot >= visible.first[row] && slot < visible.last[row]) continue;
          spoilt.write(0, slot, std::vector<float>(head_dim, nan),
                       std::vector<float>(head_dim, nan));
        }
        State state(16, head_dim);
        spoilt.attend(*kernels_, 0, visible.first, visible.last, state);
        EXPECT_EQ(state.m[row], before.m[row]);
        EXPECT_EQ(state.l[row], before.l[row]);
        EXPECT_EQ(std::memcmp(state.acc.data() + row * head_dim, before.acc.data() + row * head_dim,
                              head_dim * sizeof(float)),
                  0);
      }
    }
  }
}

TEST_P(Attention, AQueryWithoutASlotIsUntouched) {
  const Scene scene(kind(), 64, 5, 1, 0);
  State state(5, 64);
  for (std::size_t i = 0; i < state.acc.size(); ++i) {
    state.acc[i] = i % 3 == 0 ? -0.0f : i % 3 == 1 ? 1e-41f : 3.25f;
  }
  state.m = {-kInfinity, 1.5f, -0.0f, 0.0f, 2.0f};
  state.l = {0.0f, 2.0f, 1e-42f, 1.0f, 5.0f};
  const State before = state;
  scene.attend(*kernels_, 0, {0, 7, 64, 0, 9}, {0, 7, 64, 0, 9}, state);
  expect_same_bits(before, state);
}

TEST_P(Attention, NeighboursWithOtherRangesDoNotTouchSignedZeros) {
  const Scene scene(kind(), 32, 2, 1);
  for (const auto& [first, last] : {std::pair{3, 5}, {4, 6}, {62, 64}}) {
    State together(2, 32), alone(2, 32);
    for (State* state : {&together, &alone}) {
      state->m.assign(2, 1000.0f);
      state->l.assign(2, 1.0f);
      state->acc.assign(64, -0.0f);
    }
    const auto a = static_cast<std::uint8_t>(first);
    const auto b = static_cast<std::uint8_t>(last);
    scene.attend(*kernels_, 0, {a, 0}, {b, 64}, together);
    scene.attend(*kernels_, 0, {a, 0}, {b, 64}, alone, 0, 1);
    scene.attend(*kernels_, 0, {a, 0}, {b, 64}, alone, 1, 1);
    expect_same_bits(together, alone);
  }
}

TEST_P(Attention, OneSlotIsItsValue) {
  const Scene scene(kind(), 128, 1, 1);
  for (std::uint8_t slot = 0; slot < kPagePositions; ++slot) {
    State state(1, 128), expected(1, 128);
    const auto next = static_cast<std::uint8_t>(slot + 1);
    scene.attend(*kernels_, 0, {slot}, {next}, state);
    scene.attend(reference_kernels(), 0, {slot}, {next}, expected);
    EXPECT_EQ(state.l[0], 1.0f);
    expect_same_bits(state.acc, expected.acc);
  }
}

TEST_P(Attention, PagesInTurnAreOneSoftmax) {
  const std::uint32_t head_dim = 64;
  const Scene scene(kind(), head_dim, 4, 5, 30);
  State state(4, head_dim);
  for (std::uint32_t page = 0; page < 5; ++page) {
    const auto last = static_cast<std::uint8_t>(page == 4 ? 30 : 64);
    scene.attend(*kernels_, page, std::vector<std::uint8_t>(4, 0),
                 std::vector<std::uint8_t>(4, last), state);
  }

  const auto number = [&](const std::byte* data, std::size_t index) {
    float x;
    std::uint16_t bits;
    if (kind() == KvKind::f32) {
      std::memcpy(&x, data + index * 4, 4);
      return static_cast<double>(x);
    }
    std::memcpy(&bits, data + index * 2, 2);
    return static_cast<double>(bf16_to_float(bits));
  };
  for (std::uint32_t q = 0; q < 4; ++q) {
    std::vector<double> scores;
    for (std::uint32_t slot = 0; slot < 4 * 64 + 30; ++slot) {
      double dot = 0.0;
      for (std::uint32_t d = 0; d < head_dim; ++d) {
        const std::uint32_t at = slot % 64;
        const std::size_t key = kind() == KvKind::f32 ? d * 64 + at : (d / 2 * 64 + at) * 2 + d % 2;
        dot += number(scene.q.data(), q * head_dim + d) * number(scene.k[slot / 64].data(), key);
      }
      scores.push_back(dot / 8.0);
    }
    double sum = 0.0;
    for (const double s : scores) sum += std::exp(s);
    for (std::uint32_t d = 0; d < head_dim; ++d) {
      double expected = 0.0;
      for (std::uint32_t slot = 0; slot < scores.size(); ++slot) {
        const std::uint32_t at = slot % 64;
        const std::size_t value =
            kind() == KvKind::f32 ? at * head_dim + d : (at / 2 * head_dim + d) * 2 + at % 2;
        expected += std::exp(scores[slot]) / sum * number(scene.v[slot / 64].data(), value);
      }
      const float actual = state.acc[q * head_dim + d] / state.l[q];
      EXPECT_NEAR(actual, expected, kind() == KvKind::bf16 ? 2e-3 : 1e-5);
    }
  }
}

// avx512bf16 has an instruction of its own for bf16 pairs; all else is the same arithmetic.
TEST_P(Attention, BitsAreThoseOfGeneric) {
  const Isa isa = std::get<0>(GetParam());
  if (isa == Isa::avx512bf16 && kind() == KvKind::bf16) GTEST_SKIP() << "its own numerics";
  for (const std::uint32_t head_dim : kHeadDims) {
    const Scene scene(kind(), head_dim, 6, 2, 37);
    const Visible visible = random_visible(6, 37, head_dim);
    const Visible all = all_visible(6);
    State state(6, head_dim), generic(6, head_dim);
    scene.attend(*kernels_, 0, all.first, all.last, state);
    scene.attend(*kernels_, 1, visible.first, visible.last, state);
    scene.attend(kernels_for(Isa::generic), 0, all.first, all.last, generic);
    scene.attend(kernels_for(Isa::generic), 1, visible.first, visible.last, generic);
    expect_same_bits(state, generic);
  }
}

INSTANTIATE_TEST_SUITE_P(EveryIsa, Attention,
                         testing::Combine(testing::ValuesIn(built_isas().begin(),
                                                            built_isas().end()),
                                          testing::Values(KvKind::bf16, KvKind::f32)),
                         [](const auto& test) {
                           return std::string(name_of(std::get<0>(test.param))) +
                                  (std::get<1>(test.param) == KvKind::bf16 ? "_bf16" : "_f32");
                         });

}  // namespace
}  // namespace drafthouse
