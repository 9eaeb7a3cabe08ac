// Attention on the CPU: how the work of one call is cut into tasks and put together again.
//
// A query's keys are visited in one fixed order: position spans of 1,024 on an absolute grid, each
// a running softmax over its pages in order, joined in order. A draft block's own keys form a span
// after the last one. Tasks may hold any rows and any spans; the order does not depend on it.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "device/cpu_device.h"
#include "tensor/head_dim.h"

namespace drafthouse {
namespace {

constexpr std::uint32_t kSpanPages = 16;
constexpr std::uint32_t kSpanPositions = kSpanPages * kPagePositions;

constexpr std::uint32_t ceil_div(std::uint32_t a, std::uint32_t b) { return (a + b - 1) / b; }

// The slots of a page that hold positions of [begin, end).
struct Slots {
  std::uint8_t first;
  std::uint8_t last;
};
Slots slots_of(std::uint32_t begin, std::uint32_t end, std::uint32_t page) {
  const std::uint32_t start = page * kPagePositions;
  const std::uint32_t low = std::clamp(begin, start, start + kPagePositions) - start;
  const std::uint32_t high = std::clamp(end, start, start + kPagePositions) - start;
  return {static_cast<std::uint8_t>(low), static_cast<std::uint8_t>(std::max(low, high))};
}

// Positions of the sequence (not of a block) that a row sees, besides the sink.
struct Reach {
  std::uint32_t begin;
  std::uint32_t end;
};
// Whether a row that sees positions from `seen` on sees none of this position span.
bool is_gap(const AttentionJob& job, std::uint32_t span, std::uint32_t seen) {
  return span * kSpanPositions >= job.sink && (span + 1) * kSpanPositions <= seen;
}
Reach reach_of(const AttentionJob& job, const StepSpan& span, std::uint32_t local_row) {
  const std::uint32_t position = span.first_position + local_row;
  const std::uint32_t begin =
      job.window != 0 && position + 1 > job.window ? position + 1 - job.window : 0;
  return {begin, job.block_pages != nullptr ? span.first_position : position + 1};
}

}  // namespace

struct CpuDevice::Softmax {
  float* m;
  float* l;
  float* acc;

  void reset(std::uint32_t queries, std::uint32_t dim) {
    std::fill_n(m, queries, -std::numeric_limits<float>::infinity());
    std::fill_n(l, queries, 0.0f);
    std::fill_n(acc, std::size_t{queries} * dim, 0.0f);
  }
};

// Keys of neighbouring heads lie side by side. Read together, a page is one long stream, which
// memory gives half as fast again as it gives single heads (25 against 17 GB/s on Zen 4). Many rows
// use a head's keys again from the cache, and many threads need many tasks.
std::uint32_t CpuDevice::heads_together(const AttentionJob& job, std::size_t tasks) const {
  const std::size_t per_head = tasks / job.kv.kv_heads;
  std::uint32_t together = per_head > 4 ? 1 : kHeadsTogether;
  while (job.kv.kv_heads % together != 0 || tasks / together < pool_.threads()) {
    if (together == 1) break;
    together /= 2;
  }
  return together;
}

void CpuDevice::plan_attention(const StepTable& step, const AttentionJob& job) {
  tasks_.clear();
  const std::uint32_t group = job.heads / job.kv.kv_heads;
  const std::uint32_t heads_per_tile = std::min(group, kQueryTile);
  const std::uint32_t rows_per_tile = std::max(1u, kQueryTile / heads_per_tile);
  std::size_t tiles = 0;
  for (const StepSpan& span : step.spans) {
    tiles += std::size_t{ceil_div(group, heads_per_tile)} * ceil_div(span.rows, rows_per_tile);
  }
  const std::uint32_t together = heads_together(job, tiles * job.kv.kv_heads);
  for (std::uint32_t s = 0; s < step.spans.size(); ++s) {
    const StepSpan& span = step.spans[s];
    for (std::uint32_t head = 0; head < job.kv.kv_heads; head += together) {
      for (std::uint32_t g = 0; g < group; g += heads_per_tile) {
        for (std::uint32_t r = 0; r < span.rows; r += rows_per_tile) {
          const std::uint32_t rows = std::min(rows_per_tile, span.rows - r);
          const Reach reach = reach_of(job, span, r + rows - 1);
          const std::uint32_t begin = job.sink != 0 ? 0 : reach_of(job, span, r).begin;
          tasks_.push_back({s, head, together, r, rows, g, std::min(heads_per_tile, group - g),
                            begin / kSpanPositions, ceil_div(reach.end, kSpanPositions), nullptr});
        }
      }
    }
  }
  // Few tasks over a long context (plain decoding) are cut again, by position span.
  if (tasks_.size() >= 2 * pool_.threads() || job.block_pages != nullptr) return;
  std::size_t floats = 0;
  std::uint32_t spans_most = 0;
  for (const AttentionTask& task : tasks_) {
    const std::uint32_t spans = task.span_end - task.span_begin;
    floats += std::size_t{spans} * task.kv_heads * task.queries() * (job.kv.head_dim + 2);
    spans_most = std::max(spans_most, spans);
  }
  if (spans_most < 2 || floats > partial_floats_) return;
  const std::size_t whole = tasks_.size();
  float* partial = partials_.as<float>();
  for (std::size_t i = 0; i < whole; ++i) {
    const StepSpan& span = step.spans[tasks_[i].step_span];
    const std::uint32_t seen = reach_of(job, span, tasks_[i].first_row).begin;
    for (std::uint32_t s = tasks_[i].span_begin; s < tasks_[i].span_end; ++s) {
      if (is_gap(job, s, seen)) continue;
      AttentionTask part = tasks_[i];
      part.span_begin = s;
      part.span_end = s + 1;
      part.partial = partial;
      partial += std::size_t{part.kv_heads} * part.queries() * (job.kv.head_dim + 2);
      tasks_.push_back(part);
    }
  }
  tasks_.erase(tasks_.begin(), tasks_.begin() + static_cast<std::ptrdiff_t>(whole));
}

// Queries and sums of a task's key/value heads stand side by side.
void CpuDevice::attend_span(const StepTable& step, const AttentionJob& job,
                            const AttentionTask& task, std::uint32_t span, const float* queries,
                            Softmax softmax[kHeadsTogether]) {
  const StepSpan& rows = step.spans[task.step_span];
  const std::uint32_t count = task.queries();
  const std::size_t tile = std::size_t{kQueryTile} * job.kv.head_dim;
  std::uint8_t first[kQueryTile];
  std::uint8_t last[kQueryTile];
  AttendPageJob page_job{.kind = job.kv.kind,
                         .head_dim = job.kv.head_dim,
                         .queries = count,
                         .first = first,
                         .last = last,
                         .scale = job.scale};
  for (std::uint32_t h = 0; h < task.kv_heads; ++h) softmax[h].reset(count, job.kv.head_dim);
  for (std::uint32_t page = span * kSpanPages; page < (span + 1) * kSpanPages; ++page) {
    bool any = false;
    for (std::uint32_t r = 0; r < task.rows; ++r) {
      const Reach reach = reach_of(job, rows, task.first_row + r);
      const std::uint32_t begin = page * kPagePositions < job.sink ? 0 : reach.begin;
      const Slots slots = slots_of(begin, reach.end, page);
      any |= slots.first < slots.last;
      for (std::uint32_t h = 0; h < task.heads; ++h) {
        first[r * task.heads + h] = slots.first;
        last[r * task.heads + h] = slots.last;
      }
    }
    if (!any) continue;
    const std::byte* bytes = rows.pages[job.kv.group][page];
    if (bytes == nullptr) continue;  // the context does not have it
    for (std::uint32_t h = 0; h < task.kv_heads; ++h) {
      page_job.q = queries + h * tile;
      page_job.k = bytes + job.kv.key_offset(task.kv_head + h);
      page_job.v = bytes + job.kv.value_offset(task.kv_head + h);
      page_job.m = softmax[h].m;
      page_job.l = softmax[h].l;
      page_job.acc = softmax[h].acc;
      kernels_.attend_page(page_job);
    }
  }
}

void CpuDevice::attend_block(const StepTable& step, const AttentionJob& job,
                             const AttentionTask& task, std::uint32_t kv_head, const float* queries,
                             Softmax& softmax) {
  const std::byte* page = job.block_pages + task.step_span * job.block_page_bytes;
  std::uint8_t first[kQueryTile] = {};
  std::uint8_t last[kQueryTile];
  const std::uint32_t count = task.queries();
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::uint32_t row = task.first_row + i / task.heads;
    last[i] =
        static_cast<std::uint8_t>(job.causal_in_block ? row + 1 : step.spans[task.step_span].rows);
  }
  softmax.reset(count, job.kv.head_dim);
  kernels_.attend_page(AttendPageJob{.kind = job.kv.kind,
                                     .head_dim = job.kv.head_dim,
                                     .queries = count,
                                     .q = queries,
                                     .k = page + job.kv.key_offset(kv_head),
                                     .v = page + job.kv.value_offset(kv_head),
                                     .first = first,
                                     .last = last,
                                     .scale = job.scale,
                                     .m = softmax.m,
                                     .l = softmax.l,
                                     .acc = softmax.acc});
}

void CpuDevice::attend(const StepTable& step, const AttentionJob& job, const AttentionTask& task,
                       unsigned thread) {
  const StepSpan& span = step.spans[task.step_span];
  const std::uint32_t dim = job.kv.head_dim;
  const std::uint32_t count = task.queries();
  const std::uint32_t group = job.heads / job.kv.kv_heads;
  const std::size_t tile = std::size_t{kQueryTile} * dim;
  const std::size_t tiles = kHeadsTogether * tile;
  auto* queries = reinterpret_cast<float*>(attention_.data() + thread * attention_stride_);
  Softmax total[kHeadsTogether];
  Softmax part[kHeadsTogether];
  for (std::uint32_t h = 0; h < kHeadsTogether; ++h) {
    float* sums = queries + 3 * tiles + std::size_t{h} * 4 * kQueryTile;
    total[h] = {sums, sums + kQueryTile, queries + tiles + h * tile};
    part[h] = {sums + 2 * kQueryTile, sums + 3 * kQueryTile, queries + 2 * tiles + h * tile};
  }

  // Where query i of key/value head h begins in a row of all heads.
  const auto head_of = [&](std::uint32_t h, std::uint32_t i) {
    return std::size_t{(task.kv_head + h) * group + task.first_head + i % task.heads} * dim;
  };
  const auto row_of = [&](std::uint32_t i) {
    return std::size_t{span.first_row + task.first_row + i / task.heads};
  };
  for (std::uint32_t h = 0; h < task.kv_heads; ++h) {
    for (std::uint32_t i = 0; i < count; ++i) {
      const float* q = job.q + row_of(i) * job.q_stride + head_of(h, i);
      if (job.kv.kind == KvKind::bf16) {
        kernels_.to_bf16(
            reinterpret_cast<std::uint16_t*>(queries + h * tile) + std::size_t{i} * dim, q, dim);
      } else {
        std::memcpy(queries + h * tile + std::size_t{i} * dim, q, dim * sizeof(float));
      }
    }
  }

  if (task.partial != nullptr) {
    Softmax out[kHeadsTogether];
    for (std::uint32_t h = 0; h < task.kv_heads; ++h) {
      float* sums = task.partial + std::size_t{h} * count * (dim + 2);
      out[h] = {sums, sums + count, sums + 2 * count};
    }
    attend_span(step, job, task, task.span_begin, queries, out);
    return;
  }

  for (std::uint32_t h = 0; h < task.kv_heads; ++h) total[h].reset(count, dim);
  const auto merge = [&](std::uint32_t h) {
    for (std::uint32_t i = 0; i < count; ++i) {
      kernels_.merge_spans(total[h].m + i, total[h].l + i, total[h].acc + std::size_t{i} * dim,
                           part[h].m[i], part[h].l[i], part[h].acc + std::size_t{i} * dim, dim);
    }
  };
  const std::uint32_t seen = reach_of(job, span, task.first_row).begin;
  for (std::uint32_t s = task.span_begin; s < task.span_end; ++s) {
    if (is_gap(job, s, seen)) continue;
    attend_span(step, job, task, s, queries, part);
    for (std::uint32_t h = 0; h < task.kv_heads; ++h) merge(h);
  }
  for (std::uint32_t h = 0; h < task.kv_heads; ++h) {
    if (job.block_pages != nullptr) {
      attend_block(step, job, task, task.kv_head + h, queries + h * tile, part[h]);
      merge(h);
    }
    for (std::uint32_t i = 0; i < count; ++i) {
      float* out = job.out + row_of(i) * job.heads * dim + head_of(h, i);
      if (job.sinks != nullptr) {
        add_sink(job.sinks[head_of(h, i) / dim], total[h].m + i, total[h].l + i,
                 total[h].acc + std::size_t{i} * dim, dim);
      }
      const float inverse = total[h].l[i] > 0.0f ? 1.0f / total[h].l[i] : 0.0f;
      const float* acc = total[h].acc + std::size_t{i} * dim;
      for (std::uint32_t d = 0; d < dim; ++d) out[d] = acc[d] * inverse;
    }
  }
}

// A span of one key with this logit and a value of zeros.
void CpuDevice::add_sink(float sink, float* m, float* l, float* acc, std::uint32_t dim) {
  static constexpr float kNoValue[kHeadDimMax] = {};
  kernels_.merge_spans(m, l, acc, sink, 1.0f, kNoValue, dim);
}

void CpuDevice::merge_partials(const StepTable& step, const AttentionJob& job) {
  const std::uint32_t dim = job.kv.head_dim;
  const std::uint32_t group = job.heads / job.kv.kv_heads;
  for (std::size_t i = 0; i < tasks_.size();) {
    const AttentionTask& task = tasks_[i];
    std::size_t end = i + 1;
    while (end < tasks_.size() && tasks_[end].same_queries(task)) ++end;
    const std::uint32_t count = task.queries();
    const StepSpan& span = step.spans[task.step_span];
    for (std::uint32_t at = 0; at < count * task.kv_heads; ++at) {
      const std::uint32_t q = at % count;
      const std::size_t before = std::size_t{at / count} * count * (dim + 2);
      const std::size_t row = span.first_row + task.first_row + q / task.heads;
      const std::size_t head =
          (task.kv_head + at / count) * group + task.first_head + q % task.heads;
      float* out = job.out + row * job.heads * dim + head * dim;
      float m = -std::numeric_limits<float>::infinity();
      float l = 0.0f;
      std::fill_n(out, dim, 0.0f);
      for (std::size_t t = i; t < end; ++t) {
        const float* partial = tasks_[t].partial + before;
        kernels_.merge_spans(&m, &l, out, partial[q], partial[count + q],
                             partial + 2 * count + std::size_t{q} * dim, dim);
      }
      if (job.sinks != nullptr) add_sink(job.sinks[head], &m, &l, out, dim);
      const float inverse = l > 0.0f ? 1.0f / l : 0.0f;
      for (std::uint32_t d = 0; d < dim; ++d) out[d] *= inverse;
    }
    i = end;
  }
}

void CpuDevice::attention(const StepTable& step, const AttentionJob& job) {
  plan_attention(step, job);
  std::size_t products = 0;
  for (const AttentionTask& task : tasks_) {
    const StepSpan& span = step.spans[task.step_span];
    const std::size_t positions = std::min<std::size_t>(
        span.first_position + span.rows, (task.span_end - task.span_begin) * kSpanPositions);
    products += positions * task.kv_heads * task.queries() * job.kv.head_dim;
  }
  // A product costs a fraction of the element operations that for_chunks weighs.
  for_chunks(static_cast<std::uint32_t>(tasks_.size()), products / 8,
             [&](unsigned thread, std::uint32_t i) { attend(step, job, tasks_[i], thread); });
  if (!tasks_.empty() && tasks_.front().partial != nullptr) merge_partials(step, job);
}

}  // namespace drafthouse
