#include "formats/gguf.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

#include "formats/gguf_types.h"
#include "formats/limits.h"
#include "formats/printable.h"

namespace drafthouse {
namespace {

static_assert(std::endian::native == std::endian::little);

enum class Kind : std::uint32_t {
  u8,
  i8,
  u16,
  i16,
  u32,
  i32,
  f32,
  boolean,
  string,
  array,
  u64,
  i64,
  f64
};
constexpr std::uint32_t kKinds = 13;

// Bytes of one element at least: what a claimed count is checked against before allocating.
std::uint64_t bytes_min(Kind kind) {
  switch (kind) {
    case Kind::u8:
    case Kind::i8:
    case Kind::boolean: return 1;
    case Kind::u16:
    case Kind::i16: return 2;
    case Kind::u32:
    case Kind::i32:
    case Kind::f32: return 4;
    case Kind::array: return 12;
    default: return 8;
  }
}

// Reads a header front to back. The first failure sticks: everything after it reads as zero, so
// callers look at ok() where a value steers a loop or is kept.
class Cursor {
 public:
  explicit Cursor(const ByteSource& source) : source_(source) {}

  bool ok() const { return status_.ok(); }
  const Status& status() const { return status_; }
  std::uint64_t position() const { return position_; }
  std::uint64_t left() const { return source_.size() - position_; }

  void fail(Code code, std::string why) {
    if (ok()) status_ = Status(code, fmt::format("{}: {}", source_.name(), why));
  }

  template <class T>
  T number() {
    static_assert(std::is_arithmetic_v<T>);
    T value{};
    take(std::as_writable_bytes(std::span(&value, 1)));
    return ok() ? value : T{};
  }

  bool boolean() {
    const auto byte = number<std::uint8_t>();
    if (byte > 1) fail(Code::corrupt, fmt::format("a metadata boolean is {}", byte));
    return byte == 1;
  }

  // `what` names the string in messages; it may come from the file.
  std::string string(std::uint64_t bytes_max, std::string_view what) {
    const auto length = number<std::uint64_t>();
    if (!ok()) return {};
    if (length > left()) {
      fail(Code::corrupt,
           fmt::format("a string ({}) of {} bytes runs past the end of the file; it is damaged or "
                       "was cut short",
                       printable(what), length));
      return {};
    }
    if (length > bytes_max) {
      fail(Code::corrupt, fmt::format("a string ({}) has {} bytes; at most {} are read",
                                      printable(what), length, bytes_max));
      return {};
    }
    std::string text(length, '\0');
    take(std::as_writable_bytes(std::span(text)));
    return text;
  }

 private:
  void take(std::span<std::byte> out) {
    if (!ok()) return;
    if (out.size() > left()) {
      fail(Code::corrupt, "the file ends inside its header; download it again");
      return;
    }
    if (position_ + out.size() > limits::kGgufHeaderBytesMax) {
      fail(Code::unsupported,
           fmt::format("its header is larger than {} bytes", limits::kGgufHeaderBytesMax));
      return;
    }
    while (!out.empty() && ok()) {
      if (position_ < window_start_ || position_ >= window_start_ + window_size_) refill();
      if (!ok()) return;
      const std::uint64_t inside = position_ - window_start_;
      const auto here = std::min<std::uint64_t>(out.size(), window_size_ - inside);
      std::memcpy(out.data(), window_.data() + inside, here);
      out = out.subspan(here);
      position_ += here;
    }
  }

  void refill() {
    window_start_ = position_;
    window_size_ = std::min<std::uint64_t>(window_.size(), left());
    auto read = source_.read(position_, std::span(window_).first(window_size_));
    if (!read.ok()) status_ = read;
  }

  const ByteSource& source_;
  Status status_;
  std::uint64_t position_ = 0;
  std::array<std::byte, 1u << 16> window_;
  std::uint64_t window_start_ = 0;
  std::uint64_t window_size_ = 0;
};

class Parser {
 public:
  explicit Parser(const ByteSource& source) : source_(source), in_(source) {}

  Result<GgufFile> parse() {
    read_preamble();
    for (std::uint64_t i = 0; in_.ok() && i < keys_; ++i) read_key();
    read_alignment();
    for (std::uint64_t i = 0; in_.ok() && i < tensors_; ++i) read_tensor();
    if (!in_.ok()) return in_.status();
    place_tensors();
    check_overlap();
    check_names();
    if (!in_.ok()) return in_.status();
    return std::move(file_);
  }

 private:
  void read_preamble() {
    const auto magic = in_.number<std::uint32_t>();
    constexpr std::uint32_t kMagic = 0x46554747;  // "GGUF"
    if (in_.ok() && magic != kMagic && magic != __builtin_bswap32(kMagic)) {
      return in_.fail(Code::corrupt, "is no GGUF file (wrong first four bytes)");
    }
    const auto version = in_.number<std::uint32_t>();
    if (!in_.ok()) return;
    if (magic == __builtin_bswap32(kMagic) ||
        (magic == kMagic && version != 0 && (version & 0xffff) == 0)) {
      return in_.fail(Code::unsupported,
                      "big-endian GGUF is not supported; convert it again for a "
                      "little-endian machine");
    }
    if (version != 2 && version != 3) {
      return in_.fail(
          Code::unsupported,
          fmt::format("GGUF version {} is not supported; versions 2 and 3 are", version));
    }
    tensors_ = in_.number<std::uint64_t>();
    keys_ = in_.number<std::uint64_t>();
    if (tensors_ > limits::kTensorsMax || keys_ > limits::kGgufKeysMax) {
      in_.fail(Code::corrupt,
               fmt::format("claims {} tensors and {} metadata keys; at most {} and {} "
                           "are read",
                           tensors_, keys_, limits::kTensorsMax, limits::kGgufKeysMax));
    }
  }

  void read_key() {
    std::string key = in_.string(limits::kGgufKeyBytesMax, "a metadata key");
    const Kind kind = read_kind(key);
    if (!in_.ok()) return;
    GgufValue value = kind == Kind::array ? read_array(key, 1) : read_scalar(kind, key);
    if (!in_.ok()) return;
    const std::string shown = printable(key);
    if (!file_.metadata.add(std::move(key), std::move(value))) {
      in_.fail(Code::corrupt, fmt::format("metadata key '{}' is there twice", shown));
    }
  }

  Kind read_kind(const std::string& key) {
    const auto raw = in_.number<std::uint32_t>();
    if (raw >= kKinds) {
      in_.fail(Code::corrupt,
               fmt::format("metadata key '{}' has the unknown type {}", printable(key), raw));
      return Kind::u8;
    }
    return static_cast<Kind>(raw);
  }

  GgufValue read_scalar(Kind kind, const std::string& key) {
    switch (kind) {
      case Kind::f32: return static_cast<double>(in_.number<float>());
      case Kind::f64: return in_.number<double>();
      case Kind::boolean: return in_.boolean();
      case Kind::string: return in_.string(limits::kGgufStringBytesMax, key);
      case Kind::u64: return in_.number<std::uint64_t>();
      default: break;
    }
    const std::int64_t value = read_whole(kind);
    if (value < 0) return value;
    return static_cast<std::uint64_t>(value);
  }

  std::int64_t read_whole(Kind kind) {
    switch (kind) {
      case Kind::u8: return in_.number<std::uint8_t>();
      case Kind::i8: return in_.number<std::int8_t>();
      case Kind::u16: return in_.number<std::uint16_t>();
      case Kind::i16: return in_.number<std::int16_t>();
      case Kind::u32: return in_.number<std::uint32_t>();
      case Kind::i32: return in_.number<std::int32_t>();
      case Kind::boolean: return in_.boolean() ? 1 : 0;
      case Kind::i64: return in_.number<std::int64_t>();
      case Kind::u64: {
        const auto value = in_.number<std::uint64_t>();
        if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
          in_.fail(Code::unsupported, "a metadata array holds a number above 2^63");
          return 0;
        }
        return static_cast<std::int64_t>(value);
      }
      default: return 0;
    }
  }

  GgufValue read_array(const std::string& key, std::uint32_t depth) {
    const Kind kind = read_kind(key);
    const auto count = in_.number<std::uint64_t>();
    if (!in_.ok()) return {};
    if (count > in_.left() / bytes_min(kind)) {
      in_.fail(Code::corrupt,
               fmt::format("metadata array '{}' claims {} elements, more than the file "
                           "has room for; it is damaged or was cut short",
                           printable(key), count));
      return {};
    }
    if (count > limits::kGgufElementsMax - elements_) {
      in_.fail(Code::unsupported, fmt::format("metadata array '{}' has {} elements; at most {} are "
                                              "read",
                                              printable(key), count, limits::kGgufElementsMax));
      return {};
    }
    elements_ += count;
    if (kind == Kind::array) {
      if (depth >= limits::kGgufArrayDepthMax) {
        in_.fail(Code::unsupported,
                 fmt::format("metadata array '{}' is nested too deeply", printable(key)));
      }
      for (std::uint64_t i = 0; in_.ok() && i < count; ++i) (void)read_array(key, depth + 1);
      return {};
    }
    if (kind == Kind::string) {
      return read_all<std::string>(count,
                                   [&] { return in_.string(limits::kGgufStringBytesMax, key); });
    }
    if (kind == Kind::f32) {
      return read_all<double>(count, [&] { return static_cast<double>(in_.number<float>()); });
    }
    if (kind == Kind::f64) return read_all<double>(count, [&] { return in_.number<double>(); });
    return read_all<std::int64_t>(count, [&] { return read_whole(kind); });
  }

  template <class T, class Read>
  std::vector<T> read_all(std::uint64_t count, Read read) {
    std::vector<T> all;
    // A count is only a claim until its elements have been read.
    all.reserve(std::min<std::uint64_t>(count, 1u << 16));
    for (std::uint64_t i = 0; in_.ok() && i < count; ++i) all.push_back(read());
    return all;
  }

  void read_alignment() {
    constexpr std::string_view kKey = "general.alignment";
    if (!in_.ok() || !file_.metadata.has(kKey)) return;
    const auto value = file_.metadata.whole(kKey);
    if (!value || !std::has_single_bit(*value) || *value > limits::kGgufAlignmentMax) {
      return in_.fail(Code::corrupt, "general.alignment is not a power of two in range");
    }
    alignment_ = *value;
  }

  void read_tensor() {
    TensorInfo tensor;
    tensor.file_name = in_.string(limits::kTensorNameBytesMax, "a tensor name");
    const std::string shown = printable(tensor.file_name);
    if (in_.ok() && tensor.file_name.empty()) in_.fail(Code::corrupt, "a tensor has no name");
    const auto dims = in_.number<std::uint32_t>();
    if (in_.ok() && (dims == 0 || dims > limits::kGgufDimsMax)) {
      in_.fail(Code::corrupt, fmt::format("tensor '{}' has {} dimensions", shown, dims));
    }
    for (std::uint32_t i = 0; in_.ok() && i < dims; ++i) {
      tensor.shape.push_back(in_.number<std::uint64_t>());
    }
    const auto type = in_.number<std::uint32_t>();
    tensor.offset = in_.number<std::uint64_t>();
    if (!in_.ok()) return;
    const auto dtype = dtype_of_ggml(type);
    if (!dtype) {
      return in_.fail(Code::unsupported,
                      fmt::format("tensor '{}' has type {}, which is not supported; use a file in "
                                  "Q2_K to Q8_0, IQ4, MXFP4, F16, BF16 or F32",
                                  shown, name_of_ggml(type)));
    }
    tensor.dtype = *dtype;
    set_size(tensor, shown);
    std::reverse(tensor.shape.begin(), tensor.shape.end());
    tensor.name = tensor.file_name;
    file_.tensors.push_back(std::move(tensor));
  }

  // Dimensions are still innermost first here.
  void set_size(TensorInfo& tensor, const std::string& shown) {
    const DtypeLayout layout = layout_of(tensor.dtype);
    if (tensor.shape.front() % layout.block_values != 0) {
      return in_.fail(
          Code::corrupt,
          fmt::format("tensor '{}' has rows of {} values, not a multiple of {} as {} "
                      "needs",
                      shown, tensor.shape.front(), layout.block_values, name_of(tensor.dtype)));
    }
    tensor.bytes = layout.block_bytes;
    std::uint64_t dim = tensor.shape.front() / layout.block_values;
    for (std::size_t i = 0; i < tensor.shape.size(); ++i) {
      if (i > 0) dim = tensor.shape[i];
      if (dim == 0 || __builtin_mul_overflow(tensor.bytes, dim, &tensor.bytes)) {
        return in_.fail(Code::corrupt, fmt::format("tensor '{}' has the impossible shape [{}]",
                                                   shown, fmt::join(tensor.shape, ", ")));
      }
    }
  }

  // Offsets become absolute; each tensor must be aligned and inside the file.
  void place_tensors() {
    const std::uint64_t start = (in_.position() + alignment_ - 1) / alignment_ * alignment_;
    for (TensorInfo& tensor : file_.tensors) {
      const std::string shown = printable(tensor.file_name);
      if (tensor.offset % alignment_ != 0) {
        return in_.fail(Code::corrupt, fmt::format("tensor '{}' starts at {}, not a multiple of {}",
                                                   shown, tensor.offset, alignment_));
      }
      const std::uint64_t data = source_.size() > start ? source_.size() - start : 0;
      if (tensor.offset > data || tensor.bytes > data - tensor.offset) {
        return in_.fail(
            Code::corrupt,
            fmt::format("tensor '{}' (offset {}, {} bytes) runs past the end of the file "
                        "({} bytes of data): the file was cut short; download it again",
                        shown, tensor.offset, tensor.bytes, data));
      }
      tensor.offset += start;
    }
  }

  void check_overlap() {
    std::vector<const TensorInfo*> order;
    for (const TensorInfo& tensor : file_.tensors) order.push_back(&tensor);
    std::sort(order.begin(), order.end(),
              [](const TensorInfo* a, const TensorInfo* b) { return a->offset < b->offset; });
    for (std::size_t i = 1; in_.ok() && i < order.size(); ++i) {
      if (order[i - 1]->offset + order[i - 1]->bytes > order[i]->offset) {
        in_.fail(Code::corrupt,
                 fmt::format("tensors '{}' and '{}' overlap", printable(order[i - 1]->file_name),
                             printable(order[i]->file_name)));
      }
    }
  }

  void check_names() {
    std::vector<std::string_view> names;
    for (const TensorInfo& tensor : file_.tensors) names.push_back(tensor.file_name);
    std::sort(names.begin(), names.end());
    const auto twice = std::adjacent_find(names.begin(), names.end());
    if (twice != names.end()) {
      in_.fail(Code::corrupt, fmt::format("tensor '{}' is there twice", printable(*twice)));
    }
  }

  const ByteSource& source_;
  Cursor in_;
  GgufFile file_;
  std::uint64_t tensors_ = 0;
  std::uint64_t keys_ = 0;
  std::uint64_t elements_ = 0;
  std::uint64_t alignment_ = 32;
};

}  // namespace

Result<GgufFile> parse_gguf(const ByteSource& source) { return Parser(source).parse(); }

}  // namespace drafthouse
