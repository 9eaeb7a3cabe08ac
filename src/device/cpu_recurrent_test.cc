// Recurrent layers on the CPU device against a plain computation of the whole sequence, and bit for
// bit over every way of cutting it into passes, spans and threads.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "device/cpu_device.h"

namespace drafthouse {
namespace {

constexpr std::uint32_t kPositions = 170;

struct Layer {
  RecurrentLayout layout;
  std::vector<float> conv, a_log, dt_bias;
  std::vector<float> x, a, b;  // of every position

  std::uint32_t value_width() const { return layout.value_heads * layout.value_dim; }
};

Layer make_layer() {
  Layer layer;
  RecurrentLayout& l = layer.layout;
  l.state_group = 1;
  l.ring_group = 2;
  l.key_heads = 2;
  l.value_heads = 4;
  l.key_dim = 32;
  l.value_dim = 16;
  l.channels = 2 * l.key_heads * l.key_dim + l.value_heads * l.value_dim;
  l.kernel = 4;
  l.state_offset = 64;
  l.ring_offset = 128;
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  const auto fill = [&](std::vector<float>& values, std::size_t count) {
    values.resize(count);
    for (float& value : values) value = normal(random);
  };
  fill(layer.conv, std::size_t{l.kernel} * l.channels);
  fill(layer.a_log, l.value_heads);
  fill(layer.dt_bias, l.value_heads);
  fill(layer.x, std::size_t{kPositions} * l.channels);
  fill(layer.a, std::size_t{kPositions} * l.value_heads);
  fill(layer.b, std::size_t{kPositions} * l.value_heads);
  return layer;
}

// Pages of one sequence: every chunk has its own.
struct Pages {
  std::vector<std::vector<std::byte>> memory;
  std::vector<std::byte*> states, rings;

  explicit Pages(const RecurrentLayout& layout) {
    for (std::uint32_t page = 0; page <= kPositions / kPagePositions; ++page) {
      states.push_back(
          memory.emplace_back(layout.state_offset + layout.state_bytes(), std::byte{0xee}).data());
      rings.push_back(
          memory.emplace_back(layout.ring_offset + layout.ring_bytes(), std::byte{0xee}).data());
    }
  }
};

struct Part {
  Pages* pages;
  std::uint32_t position, rows;
};

// What a pass over these parts gives, one after another.
std::vector<float> run(CpuDevice& device, const Layer& layer, const std::vector<Part>& parts) {
  StepTable step;
  std::vector<float> x, a, b;
  const std::uint32_t channels = layer.layout.channels;
  const std::uint32_t heads = layer.layout.value_heads;
  const auto append = [](std::vector<float>& to, const std::vector<float>& from, std::size_t width,
                         const Part& part) {
    const auto begin = from.begin() + static_cast<std::ptrdiff_t>(part.position * width);
    to.insert(to.end(), begin, begin + static_cast<std::ptrdiff_t>(part.rows * width));
  };
  for (const Part& part : parts) {
    StepSpan span{.first_row = step.rows, .rows = part.rows, .first_position = part.position};
    span.pages[1] = part.pages->states.data();
    span.pages[2] = part.pages->rings.data();
    step.spans.push_back(span);
    step.rows += part.rows;
    append(x, layer.x, channels, part);
    append(a, layer.a, heads, part);
    append(b, layer.b, heads, part);
  }
  std::vector<float> qkv(x.size());
  std::vector<float> out(std::size_t{step.rows} * layer.value_width());
  const float* weights[kConvTapsMax];
  for (std::uint32_t j = 0; j < layer.layout.kernel; ++j) {
    weights[j] = layer.conv.data() + std::size_t{j} * channels;
  }
  device.convolution(step, {.layout = layer.layout,
                            .weights = weights,
                            .silu = true,
                            .x = x.data(),
                            .x_stride = channels,
                            .out = qkv.data(),
                            .out_stride = channels});
  device.delta_rule(step, {.layout = layer.layout,
                           .qkv = qkv.data(),
                           .qkv_stride = channels,
                           .a = a.data(),
                           .b = b.data(),
                           .gate_stride = heads,
                           .a_log = layer.a_log.data(),
                           .dt_bias = layer.dt_bias.data(),
                           .out = out.data(),
                           .out_stride = layer.value_width()});
  return out;
}

// The layer as the models define it, in double: convolution, then the recurrence.
std::vector<double> defined(const Layer& layer) {
  const RecurrentLayout& l = layer.layout;
  std::vector<double> all;
  std::vector<double> states(l.value_heads * l.head_state_floats(), 0.0);
  for (std::uint32_t t = 0; t < kPositions; ++t) {
    std::vector<double> c(l.channels);
    for (std::uint32_t ch = 0; ch < l.channels; ++ch) {
      double sum = 0.0;
      for (std::uint32_t j = 0; j < l.kernel; ++j) {
        if (t + j < l.kernel - 1) continue;
        sum += static_cast<double>(layer.conv[std::size_t{j} * l.channels + ch]) *
               static_cast<double>(layer.x[std::size_t{t + j - l.kernel + 1} * l.channels + ch]);
      }
      c[ch] = sum / (1.0 + std::exp(-sum));
    }
    for (std::uint32_t h = 0; h < l.value_heads; ++h) {
      const std::uint32_t kh = h / (l.value_heads / l.key_heads);
      const double* q = c.data() + kh * l.key_dim;
      const double* k = q + l.key_heads * l.key_dim;
      const double* v = c.data() + 2 * l.key_heads * l.key_dim + h * l.value_dim;
      double qq = 1e-6;
      double kk = 1e-6;
      for (std::uint32_t i = 0; i < l.key_dim; ++i) {
        qq += q[i] * q[i];
        kk += k[i] * k[i];
      }
      const std::size_t at = std::size_t{t} * l.value_heads + h;
      const double dt = layer.a[at] + layer.dt_bias[h];
      const double g = -std::exp(static_cast<double>(layer.a_log[h])) * std::log1p(std::exp(dt));
      const double beta = 1.0 / (1.0 + std::exp(-static_cast<double>(layer.b[at])));
      double* s = states.data() + h * l.head_state_floats();
      for (std::size_t i = 0; i < l.head_state_floats(); ++i) s[i] *= std::exp(g);
      for (std::uint32_t d = 0; d < l.value_dim; ++d) {
        double known = 0.0;
        for (std::uint32_t i = 0; i < l.key_dim; ++i) {
          known += s[i * l.value_dim + d] * k[i] / std::sqrt(kk);
        }
        double out = 0.0;
        for (std::uint32_t i = 0; i < l.key_dim; ++i) {
          s[i * l.value_dim + d] += k[i] / std::sqrt(kk) * beta * (v[d] - known);
          out += s[i * l.value_dim + d] * q[i] / std::sqrt(qq * l.key_dim);
        }
        all.push_back(out);
      }
    }
  }
  return all;
}

std::unique_ptr<CpuDevice> make_device(ThreadPool& pool, Isa isa, MemoryLedger& ledger) {
  return CpuDevice::create(pool, isa, {.head_dim_max = 64, .positions_max = 1024}, ledger).value();
}

TEST(CpuRecurrent, ALayerIsItsDefinitionAndItsRowsBitsAreTheirOwn) {
  const Layer layer = make_layer();
  const std::vector<double> want = defined(layer);
  std::vector<float> all;  // of the first set of kernels
  Pages first(layer.layout);
  for (const Isa isa : built_isas()) {
    if (!cpu_has(isa)) continue;
    SCOPED_TRACE(name_of(isa));
    for (const unsigned threads : {1u, 2u}) {
      MemoryLedger ledger;
      ThreadPool pool(threads);
      const auto device = make_device(pool, isa, ledger);
      Pages whole(layer.layout);
      Pages& pages = all.empty() ? first : whole;
      const std::vector<float> out = run(*device, layer, {{&pages, 0, kPositions}});
      if (all.empty()) {
        all = out;
        for (std::size_t i = 0; i < all.size(); ++i) ASSERT_NEAR(all[i], want[i], 2e-5) << i;
      }
      ASSERT_EQ(out, all);

      // Two sequences in uneven passes, rows of which are refused and come again.
      std::mt19937 random(threads);
      const auto below = [&random](std::uint32_t most) {
        return static_cast<std::uint32_t>(random() % most);
      };
      Pages cut[2] = {Pages(layer.layout), Pages(layer.layout)};
      std::uint32_t position[2] = {0, 0};
      while (position[0] < kPositions || position[1] < kPositions) {
        std::vector<Part> parts;
        std::vector<std::uint32_t> whose;
        for (std::uint32_t i = 0; i < 2; ++i) {
          if (position[i] == kPositions) continue;
          parts.push_back(
              {&cut[i], position[i], std::min(kPositions - position[i], 1 + below(40))});
          whose.push_back(i);
        }
        const std::vector<float> got = run(*device, layer, parts);
        auto at = got.begin();
        for (std::size_t i = 0; i < parts.size(); ++i) {
          const std::size_t count = std::size_t{parts[i].rows} * layer.value_width();
          ASSERT_TRUE(std::equal(
              at, at + static_cast<std::ptrdiff_t>(count),
              all.begin() + static_cast<std::ptrdiff_t>(parts[i].position * layer.value_width())));
          at += static_cast<std::ptrdiff_t>(count);
          position[whose[i]] += below(2) == 0 ? parts[i].rows : below(parts[i].rows + 1);
        }
      }
      for (std::uint32_t page = 0; page < kPositions / kPagePositions; ++page) {
        for (const Pages& each : cut) {
          EXPECT_EQ(each.memory[2 * page], first.memory[2 * page]) << "state after page " << page;
        }
      }
    }
  }
}

}  // namespace
}  // namespace drafthouse
