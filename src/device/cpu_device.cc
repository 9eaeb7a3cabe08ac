#include "device/cpu_device.h"

#include <algorithm>
#include <cassert>
#include <cstring>

namespace drafthouse {
namespace {

// Weights that a thread takes at once: enough to make taking cheap, and enough column blocks for
// the kernels that need several.
constexpr std::size_t kBytesTaken = std::size_t{64} << 10;
constexpr std::uint32_t kBlocksTakenMin = 4;
constexpr std::uint32_t kPackColumns = 512;
constexpr std::size_t kPartialFloats = std::size_t{1} << 20;

constexpr std::uint32_t ceil_div(std::uint32_t a, std::uint32_t b) { return (a + b - 1) / b; }

// Bytes from one input column to the next in a tile of `rows` rows, for columns that are multiples
// of kInputPadding.
std::size_t tile_column_offset(ActKind act, std::uint32_t rows, std::uint32_t column) {
  switch (act) {
    case ActKind::f32: return std::size_t{column} * rows * 4;
    case ActKind::bf16: return std::size_t{column} / 2 * rows * 4;
    case ActKind::int8: return std::size_t{column} / kGroupInputs * 10 * rows * 4;
  }
  return 0;
}

}  // namespace

CpuDevice::CpuDevice(ThreadPool& pool, const HookedKernels& kernels)
    : pool_(pool), kernels_(kernels), ranges_(pool.threads()) {}

Result<std::unique_ptr<CpuDevice>> CpuDevice::create(ThreadPool& pool, Isa isa,
                                                     const Limits& limits, MemoryLedger& ledger,
                                                     const HookTable& hooks) {
  std::unique_ptr<CpuDevice> device(new CpuDevice(pool, HookedKernels(kernels_for(isa), hooks)));
  Result<Buffer> tile_buffer =
      Buffer::allocate(limits.activation_bytes, MemoryTag::activations, ledger);
  if (!tile_buffer.ok()) return tile_buffer.status();
  device->tiles_ = std::move(tile_buffer).value();

  // Per thread and head: the queries, and two running softmaxes of (m, l, acc) per query.
  const std::size_t floats =
      std::size_t{kHeadsTogether} * kQueryTile * (3 * limits.head_dim_max + 4);
  device->attention_stride_ = (floats * sizeof(float) + 127) / 64 * 64;
  Result<Buffer> attention =
      Buffer::allocate(device->attention_stride_ * pool.threads(), MemoryTag::activations, ledger);
  if (!attention.ok()) return attention.status();
  device->attention_ = std::move(attention).value();

  const std::size_t spans = limits.positions_max / 1024 + 2;
  device->partial_floats_ =
      std::min(kPartialFloats, spans * limits.heads_max * kQueryTile * (limits.head_dim_max + 2));
  Result<Buffer> partials =
      Buffer::allocate(device->partial_floats_ * sizeof(float), MemoryTag::activations, ledger);
  if (!partials.ok()) return partials.status();
  device->partials_ = std::move(partials).value();
  device->tasks_.reserve(4096);
  return device;
}

void CpuDevice::embed(const StepTable& step, const PackedMatrix& table, float scale, float* out) {
  const std::uint32_t width = table.inputs;
  for_chunks(step.rows, std::size_t{step.rows} * width, [&](unsigned, std::uint32_t row) {
    float* target = out + std::size_t{row} * width;
    unpack_row(table, step.ids[row], target);
    if (scale == 1.0f) return;
    for (std::uint32_t i = 0; i < width; ++i) target[i] *= scale;
  });
}

void CpuDevice::pack(ActKind act, const float* x, std::size_t x_stride, std::uint32_t rows,
                     std::uint32_t inputs, std::byte* tiles) {
  const std::uint32_t count = ceil_div(rows, kTileRows);
  const std::size_t tile_bytes = act_tile_bytes(act, inputs);
  assert(tiles + count * tile_bytes <= tiles_.data() + tiles_.size());
  const std::uint32_t parts = ceil_div(inputs, kPackColumns);
  for_chunks(count * parts, std::size_t{rows} * inputs, [&](unsigned, std::uint32_t chunk) {
    const std::uint32_t tile = chunk / parts;
    const std::uint32_t column = chunk % parts * kPackColumns;
    const std::uint32_t tile_rows = std::min(kTileRows, rows - tile * kTileRows);
    kernels_.pack_activations(
        act, x + std::size_t{tile} * kTileRows * x_stride + column, x_stride, tile_rows,
        std::min(kPackColumns, inputs - column),
        tiles + tile * tile_bytes + tile_column_offset(act, tile_rows, column));
  });
}

void CpuDevice::multiply(ActKind act, std::size_t out_stride, bool accumulate) {
  // Units are the column blocks of all parts, one after another.
  std::uint32_t units = 0;
  std::size_t block_bytes = 1;
  for (LinearPart& part : parts_) {
    part.first = units;
    units += part.end - part.begin;
    block_bytes = std::max(block_bytes, packed_block_bytes(part.weights.kind, part.weights.inputs));
  }
  const auto most =
      std::max(kBlocksTakenMin, static_cast<std::uint32_t>(kBytesTaken / block_bytes));
  for_ranges(units, most, [&](unsigned, WorkRanges::Range range) {
    auto part = std::upper_bound(
        parts_.begin(), parts_.end(), range.begin,
        [](std::uint32_t unit, const LinearPart& each) { return unit < each.first; });
    for (--part; part != parts_.end() && part->first < range.end; ++part) {
      const std::uint32_t skipped = std::max(range.begin, part->first) - part->first;
      const std::uint32_t end = std::min(part->end, part->begin + range.end - part->first);
      kernels_.matmul(MatmulJob{.weights = part->weights,
                                .block_begin = part->begin + skipped,
                                .block_end = end,
                                .act = act,
                                .x = part->x,
                                .rows = part->rows,
                                .out = part->out,
                                .out_stride = out_stride,
                                .accumulate = accumulate});
    }
  });
}

void CpuDevice::linear(std::span<const LinearSegment> segments, bool fp32, const float* x,
                       std::size_t x_stride, std::uint32_t rows, float* out, std::size_t out_stride,
                       bool accumulate) {
  for (const ActKind act : {ActKind::f32, ActKind::bf16, ActKind::int8}) {
    parts_.clear();
    // A thread has the same share of every segment: of gate and up, of queries, keys and values.
    const std::uint32_t shares = segments.size() == 1 ? 1 : pool_.threads();
    for (std::uint32_t share = 0; share < shares; ++share) {
      for (const LinearSegment& segment : segments) {
        if (act_kind_for(segment.weights.kind, fp32) != act) continue;
        const std::uint32_t blocks = column_blocks(segment.weights.outputs);
        const std::uint32_t begin = blocks * share / shares;
        const std::uint32_t end = blocks * (share + 1) / shares;
        if (begin == end) continue;
        parts_.push_back(
            {segment.weights, begin, end, tiles_.data(), rows, out + segment.out_column});
      }
    }
    if (parts_.empty()) continue;
    pack(act, x, x_stride, rows, parts_.front().weights.inputs, tiles_.data());
    multiply(act, out_stride, accumulate);
  }
}

void CpuDevice::rms_norm(const float* in, std::size_t in_stride, std::uint32_t rows,
                         std::uint32_t width, NormWeights norm, float* out,
                         std::size_t out_stride) {
  for_chunks(rows, std::size_t{rows} * width, [&](unsigned, std::uint32_t row) {
    kernels_.rms_norm(out + row * out_stride, in + row * in_stride, norm.gain, width, norm.eps);
  });
}

void CpuDevice::gate_mul(const GateJob& job) {
  const std::uint32_t width = job.width;
  constexpr std::uint32_t kColumns = 1024;
  for_chunks(job.rows * ceil_div(width, kColumns), std::size_t{job.rows} * width * 4,
             [&](unsigned, std::uint32_t chunk) {
               const std::size_t row = chunk % job.rows;
               const std::uint32_t column = chunk / job.rows * kColumns;
               const std::uint32_t count = std::min(kColumns, width - column);
               float* out = job.out + row * width + column;
               const float* gate = job.gate + row * job.gate_stride + column;
               const float* up = job.up + row * job.up_stride + column;
               switch (job.gating.kind) {
                 case Gating::Kind::silu: return kernels_.silu_mul(out, gate, up, count);
                 case Gating::Kind::gelu_tanh: return kernels_.gelu_mul(out, gate, up, count);
                 case Gating::Kind::clamped_silu:
                   return kernels_.clamped_silu_mul(out, gate, up, count, job.gating.alpha,
                                                    job.gating.limit);
               }
             });
}

void CpuDevice::add(const float* in, std::size_t in_stride, std::uint32_t rows, std::uint32_t width,
                    float* out, std::size_t out_stride) {
  for_chunks(rows, std::size_t{rows} * width, [&](unsigned, std::uint32_t row) {
    const float* from = in + row * in_stride;
    float* to = out + row * out_stride;
    for (std::uint32_t i = 0; i < width; ++i) to[i] += from[i];
  });
}

void CpuDevice::scale(float* values, std::size_t count, float factor) {
  constexpr std::size_t kChunk = 4096;
  for_chunks(static_cast<std::uint32_t>((count + kChunk - 1) / kChunk), count,
             [&](unsigned, std::uint32_t chunk) {
               const std::size_t end = std::min(count, (chunk + 1) * kChunk);
               for (std::size_t i = chunk * kChunk; i < end; ++i) values[i] *= factor;
             });
}

void CpuDevice::softcap(float* values, std::size_t count, float cap) {
  constexpr std::size_t kChunk = 4096;
  for_chunks(static_cast<std::uint32_t>((count + kChunk - 1) / kChunk), count * 4,
             [&](unsigned, std::uint32_t chunk) {
               const std::size_t begin = chunk * kChunk;
               kernels_.softcap(values + begin,
                                static_cast<std::uint32_t>(std::min(kChunk, count - begin)), cap);
             });
}

void CpuDevice::rope_kv(const StepTable& step, const RopeKvJob& job) {
  const std::uint32_t dim = job.kv.head_dim;
  const std::uint32_t pairs = job.rotary->pairs;
  const std::uint32_t kv_heads = job.k != nullptr ? job.kv.kv_heads : 0;
  const std::uint32_t heads = kv_heads + job.heads;
  // Keys of neighbouring positions share cache lines, and heads share none: of few rows a chunk is
  // one head, and a key/value head's queries follow it. Many rows are cut into runs, which are read
  // as they lie in memory.
  constexpr std::uint32_t kRun = 32;
  const bool by_run = step.rows >= 2 * kRun * pool_.threads();
  const std::uint32_t chunks = by_run ? ceil_div(step.rows, kRun) : heads;
  const std::uint32_t group = kv_heads == 0 ? 0 : 1 + job.heads / kv_heads;
  const std::size_t items = std::size_t{step.rows} * dim * (job.heads + 2 * kv_heads);
  const auto turn = [&](float* head, NormWeights norm, std::uint32_t row) {
    if (norm.gain != nullptr) kernels_.rms_norm(head, head, norm.gain, dim, norm.eps);
    const std::size_t at = std::size_t{row} * pairs;
    kernels_.rope(head, job.rotary->cos.data() + at, job.rotary->sin.data() + at, pairs);
  };
  const auto store = [&](std::size_t span_index, std::uint32_t row, std::uint32_t head) {
    const StepSpan& span = step.spans[span_index];
    std::byte* page = job.block_pages + span_index * job.block_page_bytes;
    std::uint32_t slot = row - span.first_row;
    if (job.block_pages == nullptr) {
      const std::uint32_t position = step.positions[row];
      page = span.pages[job.kv.group][position / kPagePositions];
      slot = position % kPagePositions;
    }
    const std::size_t at = row * job.stride + std::size_t{head} * dim;
    kernels_.write_kv(job.kv.kind, dim, slot, job.k + at, job.v + at,
                      page + job.kv.key_offset(head), page + job.kv.value_offset(head));
  };
  const auto query = [&](std::uint32_t row, std::uint32_t head) {
    turn(job.q + row * job.stride + std::size_t{head} * dim, job.q_norm, row);
  };
  const auto keys = [&](std::uint32_t begin, std::uint32_t end, std::uint32_t head) {
    for (std::size_t i = 0; i < step.spans.size(); ++i) {
      const StepSpan& span = step.spans[i];
      const std::uint32_t last = std::min(end, span.first_row + span.rows);
      for (std::uint32_t row = std::max(begin, span.first_row); row < last; ++row) {
        float* k = job.k + row * job.stride + std::size_t{head} * dim;
        float* v = job.v + row * job.stride + std::size_t{head} * dim;
        if (job.value_is_key) std::memcpy(v, k, dim * sizeof(float));
        if (job.v_norm.gain != nullptr) {
          kernels_.rms_norm(v, v, job.v_norm.gain, dim, job.v_norm.eps);
        }
        turn(k, job.k_norm, row);
        store(i, row, head);
      }
    }
  };
  for_chunks(chunks, items * 4, [&](unsigned, std::uint32_t chunk) {
    if (!by_run) {
      if (group != 0 && chunk % group == 0) {
        keys(0, step.rows, chunk / group);
      } else {
        const std::uint32_t head = group == 0 ? chunk : chunk - chunk / group - 1;
        for (std::uint32_t row = 0; row < step.rows; ++row) query(row, head);
      }
      return;
    }
    const std::uint32_t begin = chunk * kRun;
    const std::uint32_t end = std::min(step.rows, begin + kRun);
    for (std::uint32_t row = begin; row < end; ++row) {
      for (std::uint32_t head = 0; head < job.heads; ++head) query(row, head);
    }
    for (std::uint32_t head = 0; head < kv_heads; ++head) keys(begin, end, head);
  });
}

void CpuDevice::capture_tap(const float* stream, std::size_t stream_stride, std::uint32_t rows,
                            std::uint32_t width, float* out, std::size_t out_stride) {
  kernels_.capture_tap(stream, stream_stride, rows, width, out, out_stride);
}

void CpuDevice::argmax(const float* logits, std::uint32_t rows, std::size_t stride,
                       std::uint32_t count, std::uint32_t excluded, std::uint32_t* out) {
  for_chunks(rows, std::size_t{rows} * count, [&](unsigned, std::uint32_t row) {
    const float* values = logits + row * stride;
    if (excluded >= count) {
      out[row] = kernels_.argmax(values, count);
      return;
    }
    const std::uint32_t low = excluded == 0 ? 0 : kernels_.argmax(values, excluded);
    if (excluded + 1 == count) {
      out[row] = low;
      return;
    }
    const std::uint32_t high =
        excluded + 1 + kernels_.argmax(values + excluded + 1, count - excluded - 1);
    out[row] = excluded == 0 || values[high] > values[low] ? high : low;
  });
}

void CpuDevice::log_probabilities(const float* logits, std::uint32_t rows, std::size_t stride,
                                  std::uint32_t count, const std::uint32_t* ids, double* logprob) {
  for_chunks(rows, std::size_t{rows} * count, [&](unsigned, std::uint32_t row) {
    const float* values = logits + row * stride;
    logprob[row] = static_cast<double>(values[ids[row]]) - kernels_.log_sum_exp(values, count);
  });
}

void CpuDevice::group_maxima(const float* values, std::uint32_t count, float* maxima) {
  kernels_.group_maxima(values, count, maxima);
}

void CpuDevice::group_weights(const float* values, std::uint32_t count, float shift, float scale,
                              float* sums) {
  kernels_.group_weights(values, count, shift, scale, sums);
}

void CpuDevice::weights(const float* values, std::uint32_t count, float shift, float scale,
                        float* out) {
  kernels_.weights(values, count, shift, scale, out);
}

}  // namespace drafthouse
