#include "formats/row_parts.h"

#include <fmt/format.h>

#include <cmath>
#include <cstring>

#include "formats/printable.h"
#include "tensor/half.h"

namespace drafthouse {
namespace {

// Bytes of a part in the row that is put together.
std::uint64_t bytes_in_row(const TensorInfo& tensor, const RowPiece& part) {
  const std::uint64_t groups = tensor.group == 0 ? 0 : tensor.shape.back() / tensor.group;
  switch (part.form) {
    case RowPiece::Form::bytes: return part.row_bytes;
    case RowPiece::Form::widened_bf16:
    case RowPiece::Form::widened_f16:
    case RowPiece::Form::zero_point_minima: return groups * sizeof(float);
    case RowPiece::Form::half_minima: return groups * layout_of(tensor.scale).block_bytes;
  }
  return 0;
}

// Minima of scales that stand before them, in the same kind. False where that does not hold one.
bool write_half_minima(const TensorInfo& tensor, std::uint64_t bytes, std::byte* minima) {
  const auto factor = static_cast<float>(-(1 << (tensor.bits - 1)));
  const std::byte* scales = minima - bytes;
  const std::uint64_t size = layout_of(tensor.scale).block_bytes;
  for (std::uint64_t at = 0; at < bytes; at += size) {
    if (size == sizeof(float)) {
      float scale;
      std::memcpy(&scale, scales + at, sizeof scale);
      const float minimum = factor * scale;
      if (!std::isfinite(minimum)) return false;
      std::memcpy(minima + at, &minimum, sizeof minimum);
      continue;
    }
    std::uint16_t bits;
    std::memcpy(&bits, scales + at, sizeof bits);
    const bool bf16 = tensor.scale == Dtype::bf16;
    const float minimum = factor * (bf16 ? bf16_to_float(bits) : half_to_float(bits));
    bits = bf16 ? float_to_bf16(minimum) : float_to_half(minimum);
    if ((bf16 ? bf16_to_float(bits) : half_to_float(bits)) != minimum) return false;
    std::memcpy(minima + at, &bits, sizeof bits);
  }
  return true;
}

void widen(const std::byte* from, bool bf16, std::uint64_t count, std::byte* to) {
  for (std::uint64_t i = 0; i < count; ++i) {
    std::uint16_t bits;
    std::memcpy(&bits, from + i * sizeof bits, sizeof bits);
    const float value = bf16 ? bf16_to_float(bits) : half_to_float(bits);
    std::memcpy(to + i * sizeof value, &value, sizeof value);
  }
}

// `words`: the zero points of the group of rows that `row` is in.
void write_zero_point_minima(const TensorInfo& tensor, const std::byte* words, std::uint64_t row,
                             std::uint64_t count, std::byte* minima) {
  const std::uint64_t shift = row % (32 / tensor.bits) * tensor.bits;
  for (std::uint64_t i = 0; i < count; ++i) {
    std::uint32_t word;
    float scale;
    std::memcpy(&word, words + i * sizeof word, sizeof word);
    std::memcpy(&scale, minima - (count - i) * sizeof scale, sizeof scale);
    const std::uint32_t zero = word >> shift & ((1u << tensor.bits) - 1u);
    const float minimum = -(static_cast<float>(zero) * scale);
    std::memcpy(minima + i * sizeof minimum, &minimum, sizeof minimum);
  }
}

}  // namespace

Status read_parts(const std::vector<File>& weights, const TensorInfo& tensor, std::uint64_t offset,
                  std::span<std::byte> out) {
  std::uint64_t row_bytes = 0;
  for (const RowPiece& part : tensor.parts) row_bytes += bytes_in_row(tensor, part);
  if (out.empty()) return Status();
  if (row_bytes == 0 || offset % row_bytes != 0 || out.size() % row_bytes != 0) {
    return Status(
        Code::invalid_argument,
        fmt::format("{}: bytes {}+{} of tensor '{}' are not whole rows",
                    weights[tensor.file].name(), offset, out.size(), printable(tensor.file_name)));
  }
  const std::uint64_t first = offset / row_bytes;
  const std::uint64_t rows = out.size() / row_bytes;
  std::vector<std::byte> pieces;
  std::uint64_t at = 0;
  for (const RowPiece& part : tensor.parts) {
    const std::uint64_t begin = first / part.rows_per;
    const std::uint64_t end = (first + rows - 1) / part.rows_per + 1;
    pieces.resize((end - begin) * part.row_bytes);
    auto read = weights[part.file].read(part.offset + begin * part.row_bytes, pieces);
    if (!read.ok()) {
      return Status(read.code(),
                    fmt::format("{} (tensor '{}')", read.message(), printable(tensor.file_name)));
    }
    const std::uint64_t bytes = bytes_in_row(tensor, part);
    for (std::uint64_t row = 0; row < rows; ++row) {
      const std::uint64_t piece = (first + row) / part.rows_per - begin;
      const std::byte* from = pieces.data() + piece * part.row_bytes;
      std::byte* to = out.data() + row * row_bytes + at;
      switch (part.form) {
        case RowPiece::Form::bytes: std::memcpy(to, from, part.row_bytes); break;
        case RowPiece::Form::widened_bf16: widen(from, true, bytes / sizeof(float), to); break;
        case RowPiece::Form::widened_f16: widen(from, false, bytes / sizeof(float), to); break;
        case RowPiece::Form::zero_point_minima:
          write_zero_point_minima(tensor, from, first + row, bytes / sizeof(float), to);
          break;
        case RowPiece::Form::half_minima:
          if (write_half_minima(tensor, bytes, to)) break;
          return Status(Code::unsupported,
                        fmt::format("{}: tensor '{}' has a scale whose minimum {} cannot hold",
                                    weights[tensor.file].name(), printable(tensor.file_name),
                                    name_of(tensor.scale)));
      }
    }
    at += bytes;
  }
  return Status();
}

}  // namespace drafthouse
