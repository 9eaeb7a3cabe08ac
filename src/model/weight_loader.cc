#include "model/weight_loader.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <mutex>

#include "tensor/half.h"

namespace drafthouse {
namespace {

// What one thread reads and packs at a time.
constexpr std::uint64_t kChunkBytes = std::uint64_t{4} << 20;
constexpr std::uint64_t kAlignment = 128;

std::uint64_t aligned(std::uint64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

// Puts inputs in the order of `columns`: plain numbers by moving them, `rows` then point into
// `moved`; others by saying where each group of 32 stands.
void order_inputs(const RowFormat& format, const InputOrder& columns,
                  std::vector<const std::byte*>& rows, std::vector<std::byte>& moved,
                  std::vector<std::uint32_t>& groups) {
  if (format.dtype > Dtype::bf16) {
    const std::uint32_t per_unit = columns.unit / kGroupInputs;
    for (const std::uint32_t unit : columns.units) {
      for (std::uint32_t g = 0; g < per_unit; ++g) groups.push_back(unit * per_unit + g);
    }
    return;
  }
  const std::size_t bytes = std::size_t{columns.unit} * layout_of(format.dtype).block_bytes;
  moved.resize(rows.size() * columns.units.size() * bytes);
  std::byte* to = moved.data();
  for (const std::byte*& row : rows) {
    const std::byte* from = row;
    row = to;
    for (const std::uint32_t unit : columns.units) {
      std::memcpy(to, from + unit * bytes, bytes);
      to += bytes;
    }
  }
}

}  // namespace

const TensorInfo* WeightLoader::require(const std::string& name,
                                        const std::vector<std::uint64_t>& shape) {
  if (!status_.ok()) return nullptr;
  const TensorInfo* tensor = source_.need(name, shape);
  if (tensor == nullptr) {
    status_ = Status(Code::corrupt, fmt::format("{}: tensor {} is missing; the checkpoint is "
                                                "incomplete or of another architecture",
                                                source_.label(), name));
    return nullptr;
  }
  if (tensor->shape != shape) {
    status_ = Status(Code::corrupt,
                     fmt::format("{}: tensor {} has shape [{}], but the configuration needs [{}]",
                                 source_.label(), tensor->file_name, fmt::join(tensor->shape, ", "),
                                 fmt::join(shape, ", ")));
    return nullptr;
  }
  if (!is_weight(tensor->dtype)) {
    status_ = Status(Code::unsupported,
                     fmt::format("{}: tensor {} is stored as {}, which no kernel takes",
                                 source_.label(), tensor->file_name, name_of(tensor->dtype)));
    return nullptr;
  }
  return tensor;
}

Status WeightLoader::check_columns(const TensorInfo& tensor, const InputOrder& columns) const {
  const RowFormat format = tensor.row_format();
  if (columns.units.empty() || format.dtype <= Dtype::bf16 || can_reorder(format, columns.unit)) {
    return Status();
  }
  return Status(
      Code::unsupported,
      fmt::format("{}: tensor {} is stored as {} with its inputs in another order, {} at a "
                  "time, in which no packed kind holds its values",
                  source_.label(), tensor.file_name, name_of(format), columns.unit));
}

void WeightLoader::matrix(PackedMatrix* out, const std::string& name, std::uint32_t outputs,
                          std::uint32_t inputs, RowOrder order, InputOrder columns) {
  const TensorInfo* tensor = require(name, {outputs, inputs});
  if (tensor == nullptr) return;
  if (Status s = check_columns(*tensor, columns); !s.ok()) {
    status_ = std::move(s);
    return;
  }
  *out = PackedMatrix{packed_kind(tensor->row_format()), outputs, inputs, nullptr};
  matrices_.push_back({out, tensor, std::move(order), {}, std::move(columns), bytes_});
  bytes_ += aligned(out->bytes());
}

void WeightLoader::matrix_part(PackedMatrix* out, const std::string& name, std::uint32_t outputs,
                               std::uint32_t inputs, TensorPart part) {
  const TensorInfo* tensor = require(name, part.shape);
  if (tensor == nullptr) return;
  if (part.transposed && tensor->dtype > Dtype::bf16) {
    status_ = Status(Code::unsupported,
                     fmt::format("{}: tensor {} is stored as {} with its outputs last; f32, f16 or "
                                 "bf16 expected",
                                 source_.label(), tensor->file_name, name_of(tensor->dtype)));
    return;
  }
  *out = PackedMatrix{packed_kind(tensor->row_format()), outputs, inputs, nullptr};
  matrices_.push_back({out, tensor, {}, std::move(part), {}, bytes_});
  bytes_ += aligned(out->bytes());
}

void WeightLoader::vector(const float** out, const std::string& name, std::uint32_t width,
                          float scale, float offset) {
  vector_part(out, name, width, {.shape = {width}}, {.scale = scale, .plus = offset});
}

void WeightLoader::vector_part(const float** out, const std::string& name, std::uint32_t width,
                               const TensorPart& part, VectorForm form) {
  const TensorInfo* tensor = require(name, part.shape);
  if (tensor == nullptr) return;
  if (tensor->dtype > Dtype::bf16) {
    status_ =
        Status(Code::unsupported,
               fmt::format("{}: tensor {} is a vector stored as {}; f32, f16 or bf16 expected",
                           source_.label(), tensor->file_name, name_of(tensor->dtype)));
    return;
  }
  vectors_.push_back({out, tensor, width, part.first, part.step, std::move(form), bytes_});
  bytes_ += aligned(std::uint64_t{width} * sizeof(float));
}

void WeightLoader::absent(const std::string& name, std::string_view why) {
  if (!status_.ok() || source_.find(name) == nullptr) return;
  status_ = Status(Code::corrupt,
                   fmt::format("{}: there is a tensor {}, but {}", source_.label(), name, why));
}

Status WeightLoader::read_vector(const Vector& vector, std::byte* base) const {
  const std::uint32_t bytes = layout_of(vector.tensor->dtype).block_bytes;
  const std::uint64_t count = std::uint64_t{vector.width - 1} * vector.step + 1;
  std::vector<std::byte> raw(count * bytes);
  if (Status s = source_.read(*vector.tensor, vector.first * bytes, raw); !s.ok()) return s;
  auto* out = reinterpret_cast<float*>(base + vector.offset);
  const VectorForm& form = vector.form;
  for (std::uint32_t i = 0; i < vector.width; ++i) {
    const std::size_t at = form.order.empty() ? i : form.order[i];
    const std::byte* from = raw.data() + at * vector.step * bytes;
    if (vector.tensor->dtype == Dtype::f32) {
      std::memcpy(out + i, from, 4);
    } else {
      std::uint16_t bits;
      std::memcpy(&bits, from, 2);
      out[i] = vector.tensor->dtype == Dtype::bf16 ? bf16_to_float(bits) : half_to_float(bits);
    }
    if (form.map != nullptr) out[i] = form.map(out[i]);
    if (form.scale != 1.0f) out[i] *= form.scale;
    if (form.plus != 0.0f) out[i] += form.plus;
  }
  return {};
}

Status WeightLoader::read_rows(const Matrix& m, std::uint32_t first, std::uint32_t end,
                               Staging& raw, std::vector<const std::byte*>& rows) const {
  const std::uint64_t bytes = row_bytes(m.tensor->row_format(), m.out->inputs);
  const auto file_row = [&](std::uint32_t row) {
    return m.order.empty() ? m.part.first + std::uint64_t{row} * m.part.step : m.order[row];
  };
  std::uint64_t low = file_row(first);
  std::uint64_t high = low;
  for (std::uint32_t row = first; row < end; ++row) {
    low = std::min<std::uint64_t>(low, file_row(row));
    high = std::max<std::uint64_t>(high, file_row(row) + 1);
  }
  // An order inside heads leaves the rows of a chunk close together; one of heads takes them apart.
  if (high - low > std::uint64_t{2} * (end - first) && m.part.step == 1) {
    raw.resize((end - first) * bytes);
    for (std::uint32_t row = first; row < end;) {
      std::uint32_t next = row + 1;
      while (next < end && file_row(next) == file_row(next - 1) + 1) ++next;
      const std::span<std::byte> run(raw.data() + (row - first) * bytes, (next - row) * bytes);
      if (Status s = source_.read(*m.tensor, file_row(row) * bytes, run); !s.ok()) return s;
      for (; row < next; ++row) rows.push_back(raw.data() + (row - first) * bytes);
    }
    return Status();
  }
  raw.resize((high - low) * bytes);
  for (std::uint32_t row = first; row < end; ++row) {
    rows.push_back(raw.data() + (file_row(row) - low) * bytes);
  }
  return source_.read(*m.tensor, low * bytes, raw);
}

// Rows that are columns of the file: reads them across all inputs and turns them.
Status WeightLoader::read_columns(const Matrix& m, std::uint32_t first, std::uint32_t end,
                                  Staging& raw, std::vector<const std::byte*>& rows) const {
  const std::size_t bytes = layout_of(m.out->kind).block_bytes;
  const std::uint32_t inputs = m.out->inputs;
  const std::uint64_t columns = m.part.shape.back();
  const std::uint64_t matrix = m.part.first / columns;
  const std::uint64_t begin = m.part.first % columns;
  Staging table;
  table.resize(inputs * columns * bytes);
  if (Status s = source_.read(*m.tensor, matrix * table.size(), table); !s.ok()) return s;
  raw.resize(std::size_t{end - first} * inputs * bytes);
  for (std::uint32_t row = first; row < end; ++row) {
    std::byte* to = raw.data() + std::size_t{row - first} * inputs * bytes;
    const std::byte* from = table.data() + (begin + std::uint64_t{row} * m.part.step) * bytes;
    for (std::uint32_t k = 0; k < inputs; ++k) {
      std::memcpy(to + k * bytes, from + k * columns * bytes, bytes);
    }
    rows.push_back(to);
  }
  return {};
}

Status WeightLoader::pack_chunk(const Chunk& chunk, std::byte* base, Staging& raw) const {
  const Matrix& m = matrices_[chunk.matrix];
  const PackedMatrix& packed = *m.out;
  const std::uint32_t first = chunk.block_begin * kBlockOutputs;
  const std::uint32_t end = std::min(packed.outputs, chunk.block_end * kBlockOutputs);
  std::vector<const std::byte*> file_rows;
  file_rows.reserve(end - first);
  const Status read = m.part.transposed ? read_columns(m, first, end, raw, file_rows)
                                        : read_rows(m, first, end, raw, file_rows);
  if (!read.ok()) return read;
  std::vector<std::byte> moved;
  std::vector<std::uint32_t> groups;
  if (!m.columns.units.empty())
    order_inputs(m.tensor->row_format(), m.columns, file_rows, moved, groups);
  const std::size_t block_bytes = packed_block_bytes(packed.kind, packed.inputs);
  for (std::uint32_t block = chunk.block_begin; block < chunk.block_end; ++block) {
    const std::byte* rows[kBlockOutputs] = {};
    for (std::uint32_t i = 0; i < kBlockOutputs && block * kBlockOutputs + i < end; ++i) {
      rows[i] = file_rows[block * kBlockOutputs + i - first];
    }
    std::byte* out = base + m.offset + block * block_bytes;
    if (groups.empty()) {
      pack_block(m.tensor->row_format(), packed.inputs, rows, out);
    } else {
      pack_reordered(m.tensor->row_format(), packed.inputs, rows, groups.data(), out);
    }
  }
  return {};
}

void WeightLoader::place(const std::byte* base) const {
  for (const Vector& vector : vectors_) {
    *vector.out = reinterpret_cast<const float*>(base + vector.offset);
  }
  for (const Matrix& m : matrices_) m.out->data = base + m.offset;
}

// All that decides what packed bytes are: the files, and what is made of each tensor.
PackedCopies::Key WeightLoader::copy_key() const {
  std::string content = source_.identity();
  if (content.empty()) return {};
  Sha256 declared;
  const auto add_order = [&](const std::vector<std::uint32_t>& order) {
    declared.add(fmt::format(" {}:", order.size()));
    declared.add(std::as_bytes(std::span(order)));
  };
  for (const Matrix& m : matrices_) {
    const PackedMatrix& packed = *m.out;
    declared.add(fmt::format(
        "{} {}:{} {} {}x{} at {} part {} {} {} unit {}", m.tensor->file_name.size(),
        m.tensor->file_name, name_of(m.tensor->row_format()), name_of(packed.kind), packed.outputs,
        packed.inputs, m.offset, m.part.first, m.part.step, m.part.transposed, m.columns.unit));
    add_order(m.order);
    add_order(m.columns.units);
  }
  for (const Vector& v : vectors_) {
    declared.add(fmt::format("{} {}:{} {} at {} part {} {} form {} {} {}",
                             v.tensor->file_name.size(), v.tensor->file_name,
                             name_of(v.tensor->dtype), v.width, v.offset, v.first, v.step,
                             v.form.scale, v.form.plus, v.form.map != nullptr));
    add_order(v.form.order);
  }
  const Sha256Digest digest = declared.finish();
  content.append(reinterpret_cast<const char*>(digest.data()), digest.size());
  return {.name = source_.label(), .content = std::move(content), .bytes = bytes_};
}

Result<Buffer> WeightLoader::load(ThreadPool& pool, MemoryLedger& ledger,
                                  const LoadProgress& progress, const std::atomic<bool>* cancel) {
  if (!status_.ok()) return status_;
  const PackedCopies* copies = source_.copies();
  const PackedCopies::Key key = copies == nullptr ? PackedCopies::Key() : copy_key();
  if (key.content.empty()) return pack(pool, ledger, progress, cancel);
  Result<std::optional<PackedCopies::Found>> found = copies->find(key, pool, ledger);
  if (!found.ok()) return found.status();
  if (found.value()) {
    place(found.value()->memory.data());
    digest_ = found.value()->weights;
    if (progress) progress(bytes_, bytes_);
    return std::move(found.value()->memory);
  }
  Result<Buffer> packed = pack(pool, ledger, progress, cancel);
  if (packed.ok()) copies->keep(key, packed.value(), digest_, pool);
  return packed;
}

Result<Buffer> WeightLoader::pack(ThreadPool& pool, MemoryLedger& ledger,
                                  const LoadProgress& progress, const std::atomic<bool>* cancel) {
  Result<Buffer> memory = Buffer::allocate(bytes_, MemoryTag::weights, ledger);
  if (!memory.ok()) return memory.status();
  std::byte* base = memory.value().data();

  Sha256 sum;
  for (const Vector& vector : vectors_) {
    if (Status s = read_vector(vector, base); !s.ok()) return s;
    sum.add(std::span(base + vector.offset, std::size_t{vector.width} * sizeof(float)));
  }
  std::vector<Chunk> chunks;
  for (std::size_t i = 0; i < matrices_.size(); ++i) {
    const PackedMatrix& packed = *matrices_[i].out;
    const std::size_t block_bytes = packed_block_bytes(packed.kind, packed.inputs);
    const std::uint32_t blocks = column_blocks(packed.outputs);
    // Columns are read with all of their matrix, so that is done once.
    const auto step =
        matrices_[i].part.transposed
            ? blocks
            : static_cast<std::uint32_t>(std::max<std::uint64_t>(1, kChunkBytes / block_bytes));
    for (std::uint32_t b = 0; b < blocks; b += step) {
      chunks.push_back({i, b, std::min(blocks, b + step)});
    }
  }

  std::vector<Sha256Digest> digests(chunks.size());
  std::vector<Staging> raw(pool.threads());
  std::atomic<std::uint64_t> done{0};
  std::atomic<bool> stop{false};
  std::mutex failure_lock;
  Status failure;
  pool.run(static_cast<std::uint32_t>(chunks.size()), [&](unsigned thread, std::uint32_t i) {
    if (stop.load(std::memory_order_relaxed)) return;
    const Chunk& chunk = chunks[i];
    Status status = cancel != nullptr && cancel->load(std::memory_order_relaxed)
                        ? Status(Code::cancelled, "loading was cancelled")
                        : pack_chunk(chunk, base, raw[thread]);
    if (!status.ok()) {
      std::lock_guard<std::mutex> lock(failure_lock);
      if (failure.ok()) failure = std::move(status);
      stop = true;
      return;
    }
    const PackedMatrix& packed = *matrices_[chunk.matrix].out;
    const std::size_t block_bytes = packed_block_bytes(packed.kind, packed.inputs);
    const std::size_t bytes = (chunk.block_end - chunk.block_begin) * block_bytes;
    // While the chunk is still in the caches.
    Sha256 part;
    part.add(
        std::span(base + matrices_[chunk.matrix].offset + chunk.block_begin * block_bytes, bytes));
    digests[i] = part.finish();
    const std::uint64_t packed_now = done += bytes;
    if (thread == 0 && progress) progress(packed_now, bytes_);
  });
  if (!failure.ok()) return failure;
  for (const Matrix& m : matrices_) {
    sum.add(fmt::format("{} {} {};", name_of(m.out->kind), m.out->outputs, m.out->inputs));
  }
  for (const Sha256Digest& each : digests) sum.add(std::as_bytes(std::span(each)));
  digest_ = sum.finish();
  place(base);
  if (progress) progress(bytes_, bytes_);
  return memory;
}

}  // namespace drafthouse
