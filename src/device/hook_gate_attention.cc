#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "device/hook_gate.h"
#include "tensor/half.h"

namespace drafthouse::gate {
namespace {

constexpr std::uint32_t kPages = 2;

struct Softmax {
  Guarded<float> m;
  Guarded<float> l;
  Guarded<float> acc;

  Softmax(std::uint32_t queries, std::uint32_t head_dim)
      : m(std::vector<float>(queries, -std::numeric_limits<float>::infinity())),
        l(std::vector<float>(queries, 0.0f)),
        acc(std::vector<float>(std::size_t{queries} * head_dim, 0.0f)) {}

  bool guards_hold() const { return m.guards_hold() && l.guards_hold() && acc.guards_hold(); }
  bool same_bits(const Softmax& other) const {
    return m.same_bits(other.m) && l.same_bits(other.l) && acc.same_bits(other.acc);
  }
  // Query `q` here against query `p` there.
  bool same_query(std::uint32_t q, const Softmax& other, std::uint32_t p,
                  std::uint32_t head_dim) const {
    return std::memcmp(m.data() + q, other.m.data() + p, 4) == 0 &&
           std::memcmp(l.data() + q, other.l.data() + p, 4) == 0 &&
           std::memcmp(acc.data() + std::size_t{q} * head_dim,
                       other.acc.data() + std::size_t{p} * head_dim, head_dim * 4) == 0;
  }
};

// Two pages, and queries that see different slots of them.
class Attention {
 public:
  Attention(KvKind kind, std::uint32_t head_dim, std::uint32_t queries, std::uint32_t seed)
      : kind_(kind), head_dim_(head_dim) {
    Random random(head_dim * 100 + seed);
    q_ = random.numbers(std::size_t{queries} * head_dim, 2.0f);
    if (kind == KvKind::bf16) {
      for (float& value : q_) value = bf16_to_float(float_to_bf16(value));
    }
    for (std::uint32_t page = 0; page < kPages; ++page) {
      std::uint32_t seen_from = kPagePositions;
      std::uint32_t seen_to = 0;
      for (std::uint32_t i = 0; i < queries; ++i) {
        add_reach(random, (i + page + seed) % 5);
        if (first_.back() >= last_.back()) continue;
        seen_from = std::min<std::uint32_t>(seen_from, first_.back());
        seen_to = std::max<std::uint32_t>(seen_to, last_.back());
      }
      // What nobody sees may hold anything.
      const std::size_t bytes = std::size_t{head_dim} * kPagePositions * kv_bytes(kind);
      k_.emplace_back(bytes, std::byte{0xff});
      v_.emplace_back(bytes, std::byte{0xff});
      for (std::uint32_t slot = 0; slot < kPagePositions; ++slot) {
        const std::vector<float> k = random.numbers(head_dim, 1.0f);
        const std::vector<float> v = random.numbers(head_dim, 1.0f);
        if (slot < seen_from || slot >= seen_to) continue;
        kernels_for(Isa::generic)
            .write_kv(kind, head_dim, slot, k.data(), v.data(), k_.back().data(), v_.back().data());
      }
    }
    queries_ = queries;
  }

  std::uint32_t head_dim() const { return head_dim_; }
  std::uint32_t queries() const { return queries_; }

  // Queries [from, from + count) over both pages.
  template <class Run>
  Softmax run(const Run& kernels, std::uint32_t from, std::uint32_t count) const {
    Softmax softmax(count, head_dim_);
    std::vector<std::uint16_t> bf16(std::size_t{count} * head_dim_);
    const float* q = q_.data() + std::size_t{from} * head_dim_;
    for (std::size_t i = 0; i < bf16.size(); ++i) bf16[i] = float_to_bf16(q[i]);
    for (std::uint32_t page = 0; page < kPages; ++page) {
      kernels.attend_page(
          AttendPageJob{.kind = kind_,
                        .head_dim = head_dim_,
                        .queries = count,
                        .q = kind_ == KvKind::bf16 ? static_cast<const void*>(bf16.data()) : q,
                        .k = k_[page].data(),
                        .v = v_[page].data(),
                        .first = first_.data() + page * queries_ + from,
                        .last = last_.data() + page * queries_ + from,
                        .scale = scale(),
                        .m = softmax.m.data(),
                        .l = softmax.l.data(),
                        .acc = softmax.acc.data()});
    }
    return softmax;
  }

  // How far query `q` of `got` is from the formula, as a part of the error measure's unit.
  double error(const Softmax& got, std::uint32_t q) const {
    std::vector<double> s;
    std::vector<std::pair<std::uint32_t, std::uint32_t>> where;
    double s_max = -std::numeric_limits<double>::infinity();
    double s_magnitude = 0;
    for (std::uint32_t page = 0; page < kPages; ++page) {
      const dh_hook_attend_page_job job = layout(page);
      for (std::uint32_t slot = first_[page * queries_ + q]; slot < last_[page * queries_ + q];
           ++slot) {
        double dot = 0;
        for (std::uint32_t d = 0; d < head_dim_; ++d) {
          dot += double{q_[std::size_t{q} * head_dim_ + d]} * double{dh_hook_key(&job, slot, d)};
        }
        s.push_back(dot * double{scale()});
        where.emplace_back(page, slot);
        s_max = std::max(s_max, s.back());
        s_magnitude = std::max(s_magnitude, std::abs(s.back()));
      }
    }
    if (s.empty()) return 0;
    double sum = 0;
    for (double& value : s) sum += value = std::exp(value - s_max);
    const double log_sum = s_max + std::log(sum);
    double worst = std::abs(double{got.m.data()[q]} + std::log(double{got.l.data()[q]}) - log_sum) /
                   (1 + s_magnitude);
    for (std::uint32_t d = 0; d < head_dim_; ++d) {
      double exact = 0;
      double v_max = 1e-30;
      for (std::size_t i = 0; i < s.size(); ++i) {
        const dh_hook_attend_page_job job = layout(where[i].first);
        const double v = dh_hook_value(&job, where[i].second, d);
        exact += s[i] / sum * v;
        v_max = std::max(v_max, std::abs(v));
      }
      const double value =
          double{got.acc.data()[std::size_t{q} * head_dim_ + d]} / double{got.l.data()[q]};
      // NaN must not pass for small.
      const double part = std::abs(value - exact) / v_max;
      worst = part <= worst ? worst : part;
    }
    return worst;
  }

 private:
  void add_reach(Random& random, std::uint32_t form) {
    std::uint32_t first = 0;
    std::uint32_t last = kPagePositions;
    if (form == 1) last = 1 + random.below(kPagePositions);
    if (form == 2) first = random.below(kPagePositions);
    if (form == 3) last = first = random.below(kPagePositions);  // sees nothing
    if (form == 4) {
      first = random.below(40);
      last = first + 1 + random.below(20);
    }
    first_.push_back(static_cast<std::uint8_t>(first));
    last_.push_back(static_cast<std::uint8_t>(last));
  }
  float scale() const { return 1.0f / std::sqrt(static_cast<float>(head_dim_)); }
  dh_hook_attend_page_job layout(std::uint32_t page) const {
    dh_hook_attend_page_job job = {};
    job.pages = format_of(kind_);
    job.head_dim = head_dim_;
    job.k = k_[page].data();
    job.v = v_[page].data();
    return job;
  }

  KvKind kind_;
  std::uint32_t head_dim_;
  std::uint32_t queries_ = 0;
  std::vector<float> q_;
  std::vector<std::uint8_t> first_;  // [page][query]
  std::vector<std::uint8_t> last_;
  std::vector<std::vector<std::byte>> k_;
  std::vector<std::vector<std::byte>> v_;
};

std::string at(const Attention& attention, std::uint32_t queries) {
  return fmt::format("for {} queries of {} dimensions", queries, attention.head_dim());
}

Status check_exact(const Hook& hook, const HookedKernels& run, const Attention& attention) {
  for (const std::uint32_t count : tried_widths(hook, kQueryTile)) {
    for (const std::uint32_t from : {0u, attention.queries() - count}) {
      const Softmax got = attention.run(run, from, count);
      if (!got.guards_hold()) return refusal(hook, kWroteOutside);
      if (!got.same_bits(attention.run(run.original(), from, count))) {
        return refusal(hook,
                       "gives other bits than the kernel it replaces " + at(attention, count));
      }
    }
  }
  return {};
}

Status check_approximate(const Hook& hook, const HookedKernels& run, const Attention& attention) {
  std::vector<Softmax> alone;
  for (std::uint32_t q = 0; q < attention.queries(); ++q) {
    alone.push_back(attention.run(run, q, 1));
    if (!alone.back().guards_hold()) return refusal(hook, kWroteOutside);
  }
  for (std::uint32_t count = 2; count <= kQueryTile; ++count) {
    for (const std::uint32_t from : {0u, attention.queries() - count}) {
      const Softmax got = attention.run(run, from, count);
      if (!got.guards_hold()) return refusal(hook, kWroteOutside);
      for (std::uint32_t q = 0; q < count; ++q) {
        if (got.same_query(q, alone[from + q], 0, attention.head_dim())) continue;
        return refusal(
            hook, fmt::format("gives query {} other bits {} than alone", q, at(attention, count)));
      }
    }
  }
  const Softmax all = attention.run(run, 0, kQueryTile);
  for (std::uint32_t q = 0; q < kQueryTile; ++q) {
    const double error = attention.error(all, q);
    if (error <= hook.error_bound) continue;
    return refusal(hook, fmt::format("is off by {:.3g}, more than its bound {:.3g}, {}", error,
                                     hook.error_bound, at(attention, kQueryTile)));
  }
  return {};
}

// A query that sees nothing of a page keeps its softmax, whatever that is.
Status check_untouched(const Hook& hook, const HookedKernels& run) {
  constexpr std::uint32_t kDim = 32;
  for (const std::uint32_t count : tried_widths(hook, kQueryTile)) {
    const std::vector<std::uint8_t> none(count, 7);
    const std::vector<std::byte> page(kDim * kPagePositions * 4, std::byte{0xff});
    const std::vector<float> q(std::size_t{count} * kDim, 1.0f);
    Softmax softmax(count, kDim);
    Random random(count);
    for (std::uint32_t i = 1; i < count; ++i) softmax.m.data()[i] = random.number(3.0f);
    for (std::uint32_t i = 1; i < count; ++i) softmax.l.data()[i] = 1.0f + random.number(0.5f);
    for (std::size_t i = kDim; i < softmax.acc.size(); ++i) {
      softmax.acc.data()[i] = random.number(9.0f);
    }
    const Softmax before = softmax;
    run.attend_page(AttendPageJob{.kind = hook.slot.pages(),
                                  .head_dim = kDim,
                                  .queries = count,
                                  .q = q.data(),
                                  .k = page.data(),
                                  .v = page.data(),
                                  .first = none.data(),
                                  .last = none.data(),
                                  .scale = 1.0f,
                                  .m = softmax.m.data(),
                                  .l = softmax.l.data(),
                                  .acc = softmax.acc.data()});
    if (!softmax.guards_hold() || !softmax.same_bits(before)) {
      return refusal(hook, "changes queries that see nothing of a page");
    }
  }
  return {};
}

}  // namespace

Status check_attend_page(const Hook& hook, const HookedKernels& run) {
  if (tried_widths(hook, kQueryTile).empty()) {
    return refusal(hook, fmt::format("serves no number of queries from 1 to {}", kQueryTile));
  }
  if (Status s = check_untouched(hook, run); !s.ok()) return s;
  for (const std::uint32_t head_dim : {16u, 64u, 80u, 128u}) {
    for (std::uint32_t seed = 0; seed < 2; ++seed) {
      const Attention attention(hook.slot.pages(), head_dim, kQueryTile + 3, seed);
      Status status =
          hook.exact ? check_exact(hook, run, attention) : check_approximate(hook, run, attention);
      if (!status.ok()) return status;
    }
  }
  return {};
}

}  // namespace drafthouse::gate
