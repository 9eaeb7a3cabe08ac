#include "formats/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <utility>

#include "formats/limits.h"
#include "formats/printable.h"

namespace drafthouse {
namespace {

constexpr std::uint64_t kLengthBytes = 8;

// An entry of the header as it stands in the file.
struct Entry {
  std::string name;
  std::string dtype;
  std::vector<std::uint64_t> shape;
  std::vector<std::uint64_t> offsets;
  bool has_dtype = false;
  bool has_shape = false;
  bool has_offsets = false;
};

// Reads the header as a stream: a hostile header of 100 MB must not become a tree of gigabytes.
class HeaderReader final : public nlohmann::json_sax<nlohmann::json> {
 public:
  std::vector<Entry> take_entries() { return std::move(entries_); }
  const std::string& why() const { return why_; }

  bool null() override { return scalar(); }
  bool boolean(bool) override { return scalar(); }
  bool number_integer(number_integer_t) override { return scalar(); }
  bool number_float(number_float_t, const string_t&) override { return scalar(); }
  bool binary(binary_t&) override { return scalar(); }

  bool number_unsigned(number_unsigned_t value) override {
    if (place_ == Place::shape) {
      if (entry_.shape.size() == limits::kDimsMax) return refuse("has too many dimensions");
      entry_.shape.push_back(value);
      return true;
    }
    if (place_ == Place::offsets) {
      if (entry_.offsets.size() == 2) return refuse("has more than two data_offsets");
      entry_.offsets.push_back(value);
      return true;
    }
    return scalar();
  }

  bool string(string_t& value) override {
    if (place_ != Place::entry || field_ != "dtype") return scalar();
    entry_.dtype = value;
    entry_.has_dtype = true;
    return true;
  }

  bool start_object(std::size_t) override {
    switch (place_) {
      case Place::before: place_ = Place::root; return true;
      case Place::root:
        if (entry_.name == "__metadata__") {
          place_ = Place::metadata;
          metadata_depth_ = 1;
        } else {
          place_ = Place::entry;
        }
        return true;
      case Place::metadata: return deeper();
      default: return refuse("has an object where none belongs");
    }
  }

  bool key(string_t& name) override {
    if (place_ == Place::root) {
      if (entries_.size() == limits::kTensorsMax) return refuse("is one of too many tensors");
      entry_ = Entry();
      entry_.name = name;
      if (name.empty() || name.size() > limits::kTensorNameBytesMax) {
        return refuse("has an empty or overlong name");
      }
    } else if (place_ == Place::entry) {
      field_ = name;
    }
    return true;
  }

  bool end_object() override {
    if (place_ == Place::metadata) {
      if (--metadata_depth_ == 0) place_ = Place::root;
      return true;
    }
    if (place_ == Place::entry) {
      if (!entry_.has_dtype || !entry_.has_shape || entry_.offsets.size() != 2) {
        return refuse("lacks dtype, shape or two data_offsets");
      }
      entries_.push_back(std::move(entry_));
      place_ = Place::root;
    } else {
      place_ = Place::after;
    }
    return true;
  }

  bool start_array(std::size_t) override {
    if (place_ == Place::metadata) return deeper();
    if (place_ == Place::entry && field_ == "shape" && !entry_.has_shape) {
      entry_.has_shape = true;
      place_ = Place::shape;
      return true;
    }
    if (place_ == Place::entry && field_ == "data_offsets" && !entry_.has_offsets) {
      entry_.has_offsets = true;
      place_ = Place::offsets;
      return true;
    }
    return refuse("has an array where none belongs");
  }

  bool end_array() override {
    if (place_ == Place::metadata) {
      --metadata_depth_;
    } else {
      place_ = Place::entry;
    }
    return true;
  }

  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception&) override {
    why_ = fmt::format("the header is not valid JSON at byte {}", position);
    return false;
  }

 private:
  enum class Place { before, root, metadata, entry, shape, offsets, after };

  bool scalar() {
    return place_ == Place::metadata ||
           refuse("has a value where none belongs, or one that is not a whole number");
  }
  bool deeper() {
    return ++metadata_depth_ <= limits::kJsonDepthMax || refuse("is nested too deeply");
  }
  bool refuse(std::string_view what) {
    why_ = entry_.name.empty() ? fmt::format("the header {}", what)
                               : fmt::format("tensor '{}' {}", printable(entry_.name), what);
    return false;
  }

  Place place_ = Place::before;
  std::size_t metadata_depth_ = 0;
  std::string field_;
  Entry entry_;
  std::vector<Entry> entries_;
  std::string why_;
};

struct NamedDtype {
  std::string_view name;
  std::optional<Dtype> dtype;
};

constexpr std::array kDtypes = {
    NamedDtype{"BF16", Dtype::bf16},       NamedDtype{"F16", Dtype::f16},
    NamedDtype{"F32", Dtype::f32},         NamedDtype{"I64", Dtype::i64},
    NamedDtype{"I32", Dtype::i32},         NamedDtype{"U8", Dtype::u8},
    NamedDtype{"BOOL", Dtype::boolean},    NamedDtype{"I8", std::nullopt},
    NamedDtype{"I16", std::nullopt},       NamedDtype{"U16", std::nullopt},
    NamedDtype{"U32", Dtype::u32},         NamedDtype{"U64", std::nullopt},
    NamedDtype{"F64", std::nullopt},       NamedDtype{"C64", std::nullopt},
    NamedDtype{"F8_E4M3", Dtype::f8_e4m3}, NamedDtype{"F8_E5M2", std::nullopt},
    NamedDtype{"F8_E8M0", std::nullopt},   NamedDtype{"F4", std::nullopt},
    NamedDtype{"F6_E2M3", std::nullopt},   NamedDtype{"F6_E3M2", std::nullopt},
};

// Nothing when the product does not fit.
std::optional<std::uint64_t> size_bytes(const std::vector<std::uint64_t>& shape, Dtype dtype) {
  std::uint64_t bytes = layout_of(dtype).block_bytes;
  for (const std::uint64_t dim : shape) {
    if (__builtin_mul_overflow(bytes, dim, &bytes)) return std::nullopt;
  }
  return bytes;
}

Result<TensorInfo> check_entry(Entry entry, std::uint64_t data_start, std::uint64_t data_bytes,
                               const std::string& file) {
  const std::string where = fmt::format("{}: tensor '{}'", file, printable(entry.name));
  const auto named = std::find_if(kDtypes.begin(), kDtypes.end(),
                                  [&](const NamedDtype& d) { return d.name == entry.dtype; });
  if (named == kDtypes.end()) {
    return Status(Code::corrupt,
                  fmt::format("{} has the unknown dtype '{}'", where, printable(entry.dtype)));
  }
  if (!named->dtype) {
    return Status(Code::unsupported,
                  fmt::format("{} has dtype {}, which is not supported; use a checkpoint in BF16, "
                              "F16 or F32, or a GGUF file",
                              where, entry.dtype));
  }
  const std::uint64_t begin = entry.offsets[0];
  const std::uint64_t end = entry.offsets[1];
  if (begin > end) {
    return Status(Code::corrupt, fmt::format("{} has data_offsets [{}, {}) that run backwards",
                                             where, begin, end));
  }
  const auto bytes = size_bytes(entry.shape, *named->dtype);
  if (!bytes || *bytes != end - begin) {
    return Status(Code::corrupt,
                  fmt::format("{} has {} bytes, but its shape [{}] and dtype {} "
                              "need {}",
                              where, end - begin, fmt::join(entry.shape, ", "), entry.dtype,
                              bytes ? std::to_string(*bytes) : "more than 2^64"));
  }
  if (end > data_bytes) {
    return Status(Code::corrupt,
                  fmt::format("{} ends {} bytes past the end of the file: the file was cut short; "
                              "download it again",
                              where, end - data_bytes));
  }
  TensorInfo tensor;
  tensor.file_name = entry.name;
  tensor.name = std::move(entry.name);
  tensor.dtype = *named->dtype;
  tensor.shape = std::move(entry.shape);
  tensor.offset = data_start + begin;
  tensor.bytes = *bytes;
  return tensor;
}

// Sorts by offset; the ranges must touch one another from the first byte to the last.
Status check_cover(std::vector<TensorInfo>& tensors, std::uint64_t data_start,
                   std::uint64_t data_bytes, const std::string& file) {
  std::sort(tensors.begin(), tensors.end(), [](const TensorInfo& a, const TensorInfo& b) {
    return std::pair(a.offset, a.bytes) < std::pair(b.offset, b.bytes);
  });
  std::uint64_t next = data_start;
  for (const TensorInfo& tensor : tensors) {
    if (tensor.offset != next) {
      return Status(
          Code::corrupt,
          fmt::format(
              "{}: tensor '{}' {} (it starts at byte {}, not {})", file, printable(tensor.name),
              tensor.offset < next ? "overlaps the tensor before it" : "leaves a gap before it",
              tensor.offset, next));
    }
    next += tensor.bytes;
  }
  if (next - data_start != data_bytes) {
    return Status(Code::corrupt, fmt::format("{}: its last {} bytes belong to no tensor", file,
                                             data_bytes - (next - data_start)));
  }
  return Status();
}

Status check_names(const std::vector<TensorInfo>& tensors, const std::string& file) {
  std::vector<std::string_view> names;
  names.reserve(tensors.size());
  for (const TensorInfo& tensor : tensors) names.push_back(tensor.name);
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  if (twice == names.end()) return Status();
  return Status(Code::corrupt,
                fmt::format("{}: tensor '{}' is there twice", file, printable(*twice)));
}

Result<std::string> read_header(const ByteSource& source) {
  const std::string& file = source.name();
  if (source.size() < kLengthBytes) {
    return Status(Code::corrupt, fmt::format("{}: {} bytes are no safetensors file; download it "
                                             "again",
                                             file, source.size()));
  }
  std::array<std::byte, kLengthBytes> raw;
  if (auto read = source.read(0, raw); !read.ok()) return read;
  std::uint64_t length = 0;
  for (std::size_t i = raw.size(); i-- > 0;)
    length = length << 8 | std::to_integer<unsigned>(raw[i]);
  if (length > limits::kSafetensorsHeaderBytesMax) {
    return Status(Code::corrupt,
                  fmt::format("{}: claims a header of {} bytes, more than the format allows; it is "
                              "damaged or no safetensors file",
                              file, length));
  }
  if (length > source.size() - kLengthBytes) {
    return Status(Code::corrupt, fmt::format("{}: its header of {} bytes runs past the end of the "
                                             "file ({} bytes); download it again",
                                             file, length, source.size()));
  }
  std::string header(length, '\0');
  if (auto read = source.read(kLengthBytes, std::as_writable_bytes(std::span(header)));
      !read.ok()) {
    return read;
  }
  return header;
}

}  // namespace

Result<std::vector<TensorInfo>> parse_safetensors(const ByteSource& source) {
  const std::string& file = source.name();
  auto header = read_header(source);
  if (!header.ok()) return header.status();
  HeaderReader reader;
  bool parsed = false;
  std::string why;
  try {
    parsed = nlohmann::json::sax_parse(header.value(), &reader);
    why = reader.why();
  } catch (const std::exception& error) {
    why = printable(error.what());
  }
  if (!parsed) return Status(Code::corrupt, fmt::format("{}: {}", file, why));

  const std::uint64_t data_start = kLengthBytes + header.value().size();
  const std::uint64_t data_bytes = source.size() - data_start;
  std::vector<TensorInfo> tensors;
  for (Entry& entry : reader.take_entries()) {
    auto tensor = check_entry(std::move(entry), data_start, data_bytes, file);
    if (!tensor.ok()) return tensor.status();
    tensors.push_back(std::move(tensor).value());
  }
  if (auto names = check_names(tensors, file); !names.ok()) return names;
  if (auto cover = check_cover(tensors, data_start, data_bytes, file); !cover.ok()) return cover;
  return tensors;
}

}  // namespace drafthouse
