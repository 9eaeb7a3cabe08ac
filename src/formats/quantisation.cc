#include "formats/quantisation.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string_view>

#include "formats/compressed_tensors.h"
#include "formats/limits.h"
#include "formats/printable.h"

namespace drafthouse {
namespace {

constexpr std::string_view kWeight = ".weight";
constexpr std::string_view kScales = ".scales";
constexpr std::string_view kBiases = ".biases";
constexpr std::string_view kBlockScales = ".weight_scale_inv";
constexpr std::string_view kMxBlocks = "_blocks";
constexpr std::string_view kMxScales = "_scales";
constexpr std::uint64_t kExtentMax = std::uint64_t{1} << 32;

enum class Method { none, mlx, fp8, mxfp4, compressed };

// How one MLX module is quantised.
struct Scheme {
  std::uint64_t bits = 4;
  std::uint64_t group = 64;
  std::string mode = "affine";
};

JsonView described(const JsonDocument& config) {
  const JsonView root = config.root();
  if (const JsonView own = root["quantization"]) return own;
  if (const JsonView own = root["quantization_config"]) return own;
  // Wrappers may keep it with the text model.
  return root["text_config"]["quantization_config"];
}

std::string unknown_method(std::string_view name) {
  return fmt::format(
      "({}) is not supported; use a checkpoint in BF16, FP8 blocks, MXFP4, packed "
      "compressed-tensors or "
      "MLX's affine or mxfp4 form, or a GGUF file",
      printable(name));
}

Result<Method> method_of(const JsonView& said) {
  if (!said) return Method::none;
  if (const auto method = said["quant_method"].text()) {
    if (*method == "mxfp4") return Method::mxfp4;
    if (*method == "compressed-tensors") return Method::compressed;
    if (*method != "fp8") return Status(Code::unsupported, unknown_method(*method));
    const auto format = said["fmt"].text().value_or("e4m3");
    if (format != "e4m3") return Status(Code::unsupported, unknown_method("fp8 " + format));
    return Method::fp8;
  }
  if (!said["bits"] && !said["group_size"]) {
    return Status(Code::unsupported, unknown_method("no quant_method"));
  }
  return Method::mlx;
}

Status check_scheme(const Scheme& scheme) {
  const bool mxfp4 = scheme.mode == "mxfp4";
  if (!mxfp4 && scheme.mode != "affine") {
    return Status(Code::unsupported, unknown_method("mode " + scheme.mode));
  }
  constexpr std::uint64_t kBits[] = {2, 3, 4, 5, 6, 8};
  constexpr std::uint64_t kGroups[] = {32, 64, 128};
  const auto is_in = [](const auto& list, std::uint64_t value) {
    return std::find(std::begin(list), std::end(list), value) != std::end(list);
  };
  if (!is_in(kBits, scheme.bits) || !is_in(kGroups, scheme.group) ||
      (mxfp4 && (scheme.bits != 4 || scheme.group != 32))) {
    return Status(Code::unsupported,
                  unknown_method(fmt::format("{} with {} bits in groups of {}", scheme.mode,
                                             scheme.bits, scheme.group)));
  }
  return Status();
}

// `from` over `base`. A field of another type is as wrong as a wrong number.
Scheme scheme_of(const JsonView& from, Scheme base) {
  if (from["bits"]) base.bits = from["bits"].whole().value_or(0);
  if (from["group_size"]) base.group = from["group_size"].whole().value_or(0);
  if (from["mode"]) base.mode = from["mode"].text().value_or("?");
  return base;
}

class Joiner {
 public:
  Joiner(JsonView said, const std::string& config_path, const std::vector<std::string>& files,
         std::vector<TensorInfo>& tensors)
      : said_(said), config_path_(config_path), files_(files), tensors_(tensors) {
    for (TensorInfo& tensor : tensors) {
      by_name_[tensor.name] = &tensor;
      by_file_name_[tensor.file_name] = &tensor;
    }
  }

  Status join_mlx() {
    for (const auto& [name, scales] : by_name_) {
      if (!name.ends_with(kScales)) continue;
      const std::string module = name.substr(0, name.size() - kScales.size());
      if (Status s = join_module(module, *scales); !s.ok()) return s;
    }
    for (const auto& [name, weight] : by_name_) {
      if (weight->dtype == Dtype::u32 && name.ends_with(kWeight)) {
        return wrong(*weight, "is packed, but has no scales");
      }
    }
    return check_entries();
  }

  Status join_fp8() {
    for (const auto& [name, scales] : by_name_) {
      if (!name.ends_with(kBlockScales)) continue;
      const std::string module = name.substr(0, name.size() - kBlockScales.size());
      if (Status s = join_blocks(module, *scales); !s.ok()) return s;
    }
    return Status();
  }

  Status join_mxfp4() {
    for (const auto& [name, blocks] : by_name_) {
      if (!name.ends_with(kMxBlocks)) continue;
      TensorInfo* scales =
          find(name.substr(0, name.size() - kMxBlocks.size()) + std::string(kMxScales));
      if (scales == nullptr) return wrong(*blocks, "has no scales beside it");
      if (Status s = join_rows(*blocks, *scales); !s.ok()) return s;
    }
    return Status();
  }

  // Takes out what has become a part of another tensor.
  void drop_parts() {
    std::erase_if(tensors_, [&](const TensorInfo& tensor) {
      return std::find(parts_.begin(), parts_.end(), &tensor) != parts_.end();
    });
  }

 private:
  Status wrong(const TensorInfo& tensor, std::string_view why) const {
    return Status(Code::corrupt, fmt::format("{}: tensor '{}' {}", files_[tensor.file],
                                             printable(tensor.file_name), why));
  }
  TensorInfo* find(const std::string& name) const {
    const auto found = by_name_.find(name);
    return found == by_name_.end() ? nullptr : found->second;
  }
  static RowPiece part_of(const TensorInfo& tensor, std::uint64_t rows_per = 1) {
    const std::uint64_t row = tensor.shape.back() * layout_of(tensor.dtype).block_bytes;
    return {tensor.file, tensor.offset, row, rows_per};
  }
  // The other tensor's extents, but for the innermost.
  static bool same_rows(const TensorInfo& a, const TensorInfo& b) {
    return a.shape.size() == b.shape.size() && a.shape.size() >= 2 &&
           std::equal(a.shape.begin(), a.shape.end() - 1, b.shape.begin());
  }
  static bool is_number(Dtype dtype) {
    return dtype == Dtype::f32 || dtype == Dtype::f16 || dtype == Dtype::bf16;
  }

  Result<std::optional<Scheme>> scheme_for(const std::string& module) const {
    const Scheme base = scheme_of(said_, {});
    const JsonView entry = said_[module];
    if (entry.flag() == false) return std::optional<Scheme>();
    const Scheme scheme = entry.is_object() ? scheme_of(entry, base) : base;
    if (Status s = check_scheme(scheme); !s.ok()) {
      return Status(s.code(), fmt::format("{}: quantization.{} {}", config_path_, printable(module),
                                          s.message()));
    }
    return std::optional(scheme);
  }

  Status join_module(const std::string& module, TensorInfo& scales) {
    // The configuration calls modules as the file does.
    const std::string in_file =
        scales.file_name.substr(0, scales.file_name.size() - kScales.size());
    const auto scheme = scheme_for(said_[in_file] ? in_file : module);
    if (!scheme.ok()) return scheme.status();
    if (!scheme.value()) {
      return wrong(scales, fmt::format("is there, but {} says that {} is not quantised",
                                       config_path_, printable(module)));
    }
    const auto& [bits, group, mode] = *scheme.value();
    TensorInfo* weight = find(module + std::string(kWeight));
    if (weight == nullptr) return wrong(scales, "has no weight beside it");
    if (weight->dtype != Dtype::u32) {
      return wrong(*weight, fmt::format("has scales, but is stored as {} and not as U32",
                                        name_of(weight->dtype)));
    }
    const bool affine = mode == "affine";
    if (affine ? !is_number(scales.dtype) : scales.dtype != Dtype::u8) {
      return wrong(scales, fmt::format("is stored as {}, but {} scales are {}",
                                       name_of(scales.dtype), mode, affine ? "floats" : "U8"));
    }
    const std::uint64_t groups = scales.shape.empty() ? 0 : scales.shape.back();
    if (!same_rows(*weight, scales) || groups > kExtentMax || weight->shape.back() > kExtentMax ||
        weight->shape.back() * 32 != groups * group * bits) {
      return wrong(*weight, fmt::format("has shape [{}] and scales [{}], which {} bits in groups "
                                        "of {} do not explain",
                                        fmt::join(weight->shape, ", "),
                                        fmt::join(scales.shape, ", "), bits, group));
    }
    weight->parts = {part_of(*weight), part_of(scales)};
    weight->bytes += scales.bytes;
    if (affine) {
      TensorInfo* biases = find(module + std::string(kBiases));
      if (biases == nullptr) return wrong(scales, "has no biases beside it");
      if (biases->dtype != scales.dtype || biases->shape != scales.shape) {
        return wrong(*biases, fmt::format("is {} [{}], but the scales are {} [{}]",
                                          name_of(biases->dtype), fmt::join(biases->shape, ", "),
                                          name_of(scales.dtype), fmt::join(scales.shape, ", ")));
      }
      weight->parts.push_back(part_of(*biases));
      weight->bytes += biases->bytes;
      weight->bits = static_cast<std::uint32_t>(bits);
      weight->group = static_cast<std::uint32_t>(group);
      weight->scale = scales.dtype;
      parts_.push_back(biases);
    }
    weight->dtype = affine ? Dtype::affine : Dtype::mxfp4_rows;
    weight->shape.back() = groups * group;
    parts_.push_back(&scales);
    return Status();
  }

  // blocks […, rows, groups, 16 bytes] and scales [.., rows, groups] become […, rows, inputs].
  Status join_rows(TensorInfo& blocks, TensorInfo& scales) {
    const auto& shape = blocks.shape;
    if (blocks.dtype != Dtype::u8 || scales.dtype != Dtype::u8) {
      return wrong(blocks, fmt::format("is {} with scales in {}, but both are to be U8",
                                       name_of(blocks.dtype), name_of(scales.dtype)));
    }
    if (shape.size() < 3 || shape.back() != 16 || scales.shape.size() + 1 != shape.size() ||
        !std::equal(scales.shape.begin(), scales.shape.end(), shape.begin()) ||
        scales.shape.back() > kExtentMax) {
      return wrong(blocks, fmt::format("has shape [{}] and scales [{}], which groups of 32 do not "
                                       "explain",
                                       fmt::join(shape, ", "), fmt::join(scales.shape, ", ")));
    }
    const std::uint64_t groups = scales.shape.back();
    blocks.parts = {{blocks.file, blocks.offset, groups * 16, 1}, part_of(scales)};
    blocks.bytes += scales.bytes;
    blocks.dtype = Dtype::mxfp4_rows;
    blocks.shape.pop_back();
    blocks.shape.back() = groups * 32;
    parts_.push_back(&scales);
    return Status();
  }

  // An entry that asks for a quantised module must find one.
  Status check_entries() const {
    for (const std::string& module : said_.keys()) {
      if (!said_[module].is_object()) continue;
      const auto in_file = by_file_name_.find(module + std::string(kWeight));
      const TensorInfo* weight =
          in_file != by_file_name_.end() ? in_file->second : find(module + std::string(kWeight));
      if (weight != nullptr && weight->parts.empty()) {
        return wrong(*weight,
                     fmt::format("has no scales, but {} says how it is quantised", config_path_));
      }
    }
    return Status();
  }

  Status join_blocks(const std::string& module, TensorInfo& scales) {
    TensorInfo* weight = find(module + std::string(kWeight));
    if (weight == nullptr) return wrong(scales, "has no weight beside it");
    if (weight->dtype != Dtype::f8_e4m3 || !is_number(scales.dtype)) {
      return wrong(*weight, fmt::format("is {} with scales in {}; F8_E4M3 and floats are read",
                                        name_of(weight->dtype), name_of(scales.dtype)));
    }
    const JsonView block = said_["weight_block_size"];
    const std::uint64_t high = block ? block.at(0).whole().value_or(0) : 128;
    const std::uint64_t wide = block ? block.at(1).whole().value_or(0) : 128;
    if (high == 0 || wide == 0 || high > limits::kHiddenMax || wide > limits::kHiddenMax) {
      return Status(
          Code::corrupt,
          fmt::format("{}: quantization_config.weight_block_size is not two block extents",
                      config_path_));
    }
    const auto blocks = [](std::uint64_t extent, std::uint64_t of) {
      return extent / of + (extent % of != 0 ? 1 : 0);
    };
    const auto& w = weight->shape;
    const auto& s = scales.shape;
    if (w.size() != 2 || s.size() != 2 || s[0] != blocks(w[0], high) ||
        s[1] != blocks(w[1], wide)) {
      return wrong(scales, fmt::format("has shape [{}], which blocks of {} x {} over [{}] do not "
                                       "explain",
                                       fmt::join(s, ", "), high, wide, fmt::join(w, ", ")));
    }
    weight->parts = {part_of(*weight), part_of(scales, high)};
    weight->dtype = Dtype::f8_blocks;
    weight->group = static_cast<std::uint32_t>(wide);
    weight->scale = scales.dtype;
    // Every row brings the scales of its blocks along.
    weight->bytes = row_bytes(weight->row_format(), w[1]) * w[0];
    parts_.push_back(&scales);
    return Status();
  }

  JsonView said_;
  const std::string& config_path_;
  const std::vector<std::string>& files_;
  std::vector<TensorInfo>& tensors_;
  std::map<std::string, TensorInfo*> by_name_;
  std::map<std::string, TensorInfo*> by_file_name_;
  std::vector<const TensorInfo*> parts_;
};

}  // namespace

Status check_quantisation(const JsonDocument& config) {
  const JsonView said = described(config);
  const auto method = method_of(said);
  if (!method.ok()) return method.status();
  if (method.value() == Method::compressed) return check_compressed(said);
  return method.value() == Method::mlx ? check_scheme(scheme_of(said, {})) : Status();
}

Status join_quantised(const JsonDocument& config, const std::string& config_path,
                      const std::vector<std::string>& files, std::vector<TensorInfo>& tensors) {
  if (!check_quantisation(config).ok()) return Status();
  const JsonView said = described(config);
  const Method method = method_of(said).value();
  if (method == Method::none) return Status();
  if (method == Method::compressed) return join_compressed(said, files, tensors);
  Joiner joiner(said, config_path, files, tensors);
  Status joined = method == Method::mlx   ? joiner.join_mlx()
                  : method == Method::fp8 ? joiner.join_fp8()
                                          : joiner.join_mxfp4();
  if (joined.ok()) joiner.drop_parts();
  return joined;
}

}  // namespace drafthouse
