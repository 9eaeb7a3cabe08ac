// Kernels of recurrent layers against the reference, against a run of tools/delta_ring.py, and
// against themselves: a row's bits must not depend on the rows beside it.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "kernels/kernels.h"
#include "kernels/test_values.h"

namespace drafthouse {
namespace {

using test::normal;

constexpr std::uint32_t kWidths[] = {1, 15, 16, 17, 33, 48, 100, 576};

void expect_near(const std::vector<float>& actual, const std::vector<float>& expected,
                 float relative) {
  test::expect_near(actual, expected, relative, 1e-7f);
}

// Inputs of one head that the Python script makes from the same integers.
float made_up(std::uint32_t stream, std::uint32_t i) {
  std::uint32_t x = i * 2654435761u + stream * 40503u + 12345u;
  x ^= x >> 15;
  x *= 2246822519u;
  x ^= x >> 13;
  return static_cast<float>(x & 0xffffu) / 32768.0f - 1.0f;
}

// A sequence of one value head with its state, cut into passes in any way.
struct Head {
  std::uint32_t key_dim, value_dim, positions;
  std::vector<float> q, k, v, decay, beta;

  Head(const Kernels& kernels, std::uint32_t dk, std::uint32_t dv, std::uint32_t count)
      : key_dim(dk), value_dim(dv), positions(count) {
    const auto fill = [](std::vector<float>& out, std::uint32_t stream, std::uint32_t size) {
      out.resize(size);
      for (std::uint32_t i = 0; i < size; ++i) out[i] = made_up(stream, i);
    };
    fill(q, 1, count * dk);
    fill(k, 2, count * dk);
    fill(v, 3, count * dv);
    fill(decay, 4, count);
    fill(beta, 5, count);
    const float scale = 1.0f / std::sqrt(static_cast<float>(dk));
    for (std::uint32_t t = 0; t < count; ++t) {
      kernels.l2_norm(q.data() + t * dk, q.data() + t * dk, dk, 1e-6f, scale);
      kernels.l2_norm(k.data() + t * dk, k.data() + t * dk, dk, 1e-6f, 1.0f);
      decay[t] = -std::fabs(decay[t]) * 0.3f;
      beta[t] = std::fabs(beta[t]);
    }
  }
};

struct Chunked {
  const Kernels& kernels;
  const Head& head;
  std::vector<float> state, next, keys, updates, decays, out;
  std::uint32_t position = 0;

  Chunked(const Kernels& with, const Head& of) : kernels(with), head(of) {
    next.resize(std::size_t{head.key_dim} * head.value_dim);
    keys.resize(std::size_t{kPagePositions} * head.key_dim);
    updates.resize(std::size_t{kPagePositions} * head.value_dim);
    decays.resize(kPagePositions);
    out.resize(std::size_t{head.positions} * head.value_dim);
  }

  DeltaChunk chunk() {
    return {head.key_dim, head.value_dim, state.empty() ? nullptr : state.data(),
            keys.data(),  updates.data(), decays.data()};
  }
  // Rows that end at the chunk's end at the latest.
  void rows(std::uint32_t count) {
    const std::uint32_t slot = position % kPagePositions;
    std::copy_n(head.k.begin() + std::size_t{position} * head.key_dim, count * head.key_dim,
                keys.begin() + std::size_t{slot} * head.key_dim);
    kernels.delta_rows({.chunk = chunk(),
                        .first = slot,
                        .rows = count,
                        .q = head.q.data() + std::size_t{position} * head.key_dim,
                        .q_stride = head.key_dim,
                        .v = head.v.data() + std::size_t{position} * head.value_dim,
                        .v_stride = head.value_dim,
                        .decay = head.decay.data() + position,
                        .beta = head.beta.data() + position,
                        .gate_stride = 1,
                        .out = out.data() + std::size_t{position} * head.value_dim,
                        .out_stride = head.value_dim});
  }
  void commit(std::uint32_t count) {
    position += count;
    if (count == 0 || position % kPagePositions != 0) return;
    kernels.delta_fold(chunk(), next.data());
    state = next;
  }
};

class RecurrentKernels : public testing::TestWithParam<Isa> {
 protected:
  void SetUp() override {
    if (!cpu_has(GetParam())) GTEST_SKIP() << "this CPU lacks " << name_of(GetParam());
    kernels_ = &kernels_for(GetParam());
  }
  const Kernels* kernels_ = nullptr;
  const Kernels& reference_ = reference_kernels();
  const Kernels& generic_ = kernels_for(Isa::generic);
};

TEST_P(RecurrentKernels, Norms) {
  for (const std::uint32_t width : kWidths) {
    const auto in = normal(width, width, 3.0f);
    const auto gain = normal(width, width + 1);
    const auto gate = normal(width, width + 2, 4.0f);
    std::vector<float> out(width), expected(width), same(width);
    kernels_->gated_rms_norm(out.data(), in.data(), gain.data(), gate.data(), width, 1e-6f);
    reference_.gated_rms_norm(expected.data(), in.data(), gain.data(), gate.data(), width, 1e-6f);
    generic_.gated_rms_norm(same.data(), in.data(), gain.data(), gate.data(), width, 1e-6f);
    expect_near(out, expected, 1e-6f);
    EXPECT_EQ(out, same);
    kernels_->l2_norm(out.data(), in.data(), width, 1e-6f, 0.25f);
    reference_.l2_norm(expected.data(), in.data(), width, 1e-6f, 0.25f);
    generic_.l2_norm(same.data(), in.data(), width, 1e-6f, 0.25f);
    expect_near(out, expected, 1e-6f);
    EXPECT_EQ(out, same);
  }
}

TEST_P(RecurrentKernels, Gates) {
  for (const std::uint32_t width : kWidths) {
    const auto a = normal(width, width, 8.0f);
    auto b = normal(width, width + 1, 8.0f);
    b[0] = 100.0f;
    b[width - 1] = -100.0f;
    std::vector<float> out(width), expected(width), same(width), beta(width), beta_expected(width);
    kernels_->sigmoid_mul(out.data(), b.data(), a.data(), width);
    reference_.sigmoid_mul(expected.data(), b.data(), a.data(), width);
    expect_near(out, expected, 1e-6f);
    kernels_->multiply(out.data(), a.data(), b.data(), width);
    reference_.multiply(expected.data(), a.data(), b.data(), width);
    EXPECT_EQ(out, expected);
    const auto a_log = normal(width, width + 2, 2.0f);
    const auto bias = normal(width, width + 3, 20.0f);
    kernels_->delta_gates(out.data(), beta.data(), a.data(), b.data(), a_log.data(), bias.data(),
                          width);
    reference_.delta_gates(expected.data(), beta_expected.data(), a.data(), b.data(), a_log.data(),
                           bias.data(), width);
    expect_near(out, expected, 1e-6f);
    expect_near(beta, beta_expected, 1e-6f);
    generic_.delta_gates(same.data(), beta_expected.data(), a.data(), b.data(), a_log.data(),
                         bias.data(), width);
    EXPECT_EQ(out, same);
    EXPECT_EQ(beta, beta_expected);
  }
}

TEST_P(RecurrentKernels, ShortConv) {
  for (const std::uint32_t channels : kWidths) {
    for (const std::uint32_t kernel : {2u, 3u, 4u}) {
      for (const bool silu : {false, true}) {
        const auto rows = normal(std::size_t{kernel} * channels, channels);
        const auto weights = normal(std::size_t{kernel} * channels, channels + 1);
        for (std::uint32_t before = 0; before < kernel; ++before) {
          std::vector<const float*> taps, weight_rows;
          for (std::uint32_t j = 0; j < kernel; ++j) {
            weight_rows.push_back(weights.data() + std::size_t{j} * channels);
            taps.push_back(j < before ? nullptr : rows.data() + std::size_t{j} * channels);
          }
          std::vector<float> out(channels), expected(channels), same(channels);
          ShortConvJob job{kernel, channels, taps.data(), weight_rows.data(), silu, out.data()};
          kernels_->short_conv(job);
          job.out = expected.data();
          reference_.short_conv(job);
          job.out = same.data();
          generic_.short_conv(job);
          expect_near(out, expected, 2e-6f);
          EXPECT_EQ(out, same);
        }
      }
    }
  }
}

TEST_P(RecurrentKernels, DeltaRuleIsTheRecurrence) {
  for (const auto& [dk, dv] : {std::pair{32u, 48u}, {128u, 128u}, {16u, 16u}, {64u, 80u}}) {
    SCOPED_TRACE(dk);
    const Head head(*kernels_, dk, dv, 150);
    Chunked chunked(*kernels_, head);
    while (chunked.position < head.positions) {
      const std::uint32_t count = std::min(kPagePositions - chunked.position % kPagePositions,
                                           head.positions - chunked.position);
      chunked.rows(count);
      chunked.commit(count);
    }
    // S ← e^g S; u = beta (v − Sᵀk); S ← S + k uᵀ; o = Sᵀq, in double.
    std::vector<double> state(std::size_t{dk} * dv, 0.0);
    for (std::uint32_t t = 0; t < head.positions; ++t) {
      const float* k = head.k.data() + std::size_t{t} * dk;
      const float* q = head.q.data() + std::size_t{t} * dk;
      for (double& s : state) s *= std::exp(static_cast<double>(head.decay[t]));
      for (std::uint32_t d = 0; d < dv; ++d) {
        double known = 0.0;
        for (std::uint32_t i = 0; i < dk; ++i)
          known += state[std::size_t{i} * dv + d] * static_cast<double>(k[i]);
        const double u = static_cast<double>(head.beta[t]) *
                         (static_cast<double>(head.v[std::size_t{t} * dv + d]) - known);
        double out = 0.0;
        for (std::uint32_t i = 0; i < dk; ++i) {
          state[std::size_t{i} * dv + d] += static_cast<double>(k[i]) * u;
          out += state[std::size_t{i} * dv + d] * static_cast<double>(q[i]);
        }
        ASSERT_NEAR(chunked.out[std::size_t{t} * dv + d], out, 5e-7) << t << " " << d;
      }
      if (t + 1 == 128) {
        for (std::size_t i = 0; i < state.size(); ++i)
          ASSERT_NEAR(chunked.state[i], state[i], 1e-6);
      }
    }
  }
}

// Printed by a run of tools/delta_ring.py on these inputs.
TEST_P(RecurrentKernels, DeltaRuleGivesTheScriptsValues) {
  const Head head(*kernels_, 32, 48, 150);
  Chunked chunked(*kernels_, head);
  while (chunked.position < head.positions) {
    chunked.rows(1);
    chunked.commit(1);
  }
  const struct {
    std::uint32_t row;
    float at_0, at_17, at_47;
  } wanted[] = {{0, 0.00018043676f, -1.8478464e-05f, 0.00039436444f},
                {63, 0.0093910228f, -0.054940421f, -0.020372525f},
                {64, -0.012670906f, -0.0054774424f, -0.0086092735f},
                {100, -0.011225785f, -0.018658288f, -0.02585455f},
                {149, 0.01992292f, 0.038358141f, 0.012218637f}};
  for (const auto& w : wanted) {
    const float* out = chunked.out.data() + std::size_t{w.row} * 48;
    EXPECT_NEAR(out[0], w.at_0, 1e-7f);
    EXPECT_NEAR(out[17], w.at_17, 1e-7f);
    EXPECT_NEAR(out[47], w.at_47, 1e-7f);
  }
  EXPECT_NEAR(chunked.state[0], -0.092398927f, 2e-7f);
  EXPECT_NEAR(chunked.state[5 * 48 + 20], 0.048147544f, 2e-7f);
  EXPECT_NEAR(chunked.state[31 * 48 + 47], 0.10832019f, 2e-7f);
}

TEST_P(RecurrentKernels, ARowsBitsDoNotDependOnItsPass) {
  const Head head(generic_, 64, 80, 200);
  Chunked one(generic_, head);
  while (one.position < head.positions) {
    one.rows(1);
    one.commit(1);
  }
  std::mt19937 random(7);
  const auto below = [&random](std::uint32_t most) {
    return static_cast<std::uint32_t>(random() % most);
  };
  for (int round = 0; round < 20; ++round) {
    Chunked cut(*kernels_, head);
    while (cut.position < head.positions) {
      const std::uint32_t room =
          std::min(kPagePositions - cut.position % kPagePositions, head.positions - cut.position);
      const std::uint32_t count = std::min(room, 1 + below(round < 10 ? 9 : 64));
      cut.rows(count);
      // Some rows are refused and come again.
      cut.commit(round % 2 == 0 ? count : below(count + 1));
    }
    EXPECT_EQ(cut.out, one.out);
    EXPECT_EQ(cut.state, one.state);
  }
}

TEST_P(RecurrentKernels, DeltaRowsAreTheReference) {
  const Head head(generic_, 32, 48, 128);
  Chunked fast(*kernels_, head);
  Chunked plain(reference_, head);
  for (Chunked* each : {&fast, &plain}) {
    while (each->position < head.positions) {
      each->rows(8);
      each->commit(8);
    }
  }
  for (std::size_t i = 0; i < fast.out.size(); ++i) ASSERT_NEAR(fast.out[i], plain.out[i], 1e-6f);
  for (std::size_t i = 0; i < fast.state.size(); ++i)
    ASSERT_NEAR(fast.state[i], plain.state[i], 1e-6f);
}

INSTANTIATE_TEST_SUITE_P(EveryIsa, RecurrentKernels,
                         testing::ValuesIn(built_isas().begin(), built_isas().end()),
                         [](const auto& isa) { return std::string(name_of(isa.param)); });

}  // namespace
}  // namespace drafthouse
