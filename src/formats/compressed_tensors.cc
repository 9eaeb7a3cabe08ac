#include "formats/compressed_tensors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include "formats/limits.h"
#include "formats/printable.h"

namespace drafthouse {
namespace {

constexpr std::string_view kPacked = ".weight_packed";
constexpr std::string_view kScale = ".weight_scale";
constexpr std::string_view kZeros = ".weight_zero_point";
constexpr std::string_view kShape = ".weight_shape";
constexpr std::string_view kOrder = ".weight_g_idx";

// How the modules of one of config_groups are packed.
struct Group {
  std::uint64_t bits = 0;
  std::uint64_t size = 0;  // inputs that share a scale; 0: a whole row
  bool symmetric = true;
};

Status unsupported(std::string_view field, std::string_view why) {
  return Status(Code::unsupported,
                fmt::format("({}) {}; use a checkpoint in another form", field, why));
}

Result<Group> read_group(const std::string& name, const JsonView& said) {
  const std::string at = "config_groups." + printable(name);
  const JsonView weights = said["weights"];
  if (!weights.is_object()) return unsupported(at + ".weights", "is missing");
  for (const char* key : {"input_activations", "output_activations"}) {
    if (said[key]) return unsupported(at + "." + key, "is not supported; only weights are");
  }
  if (said["format"] && said["format"].text() != "pack-quantized") {
    return unsupported(at + ".format", "is not supported; \"pack-quantized\" is");
  }
  Group group;
  group.bits = weights["num_bits"].whole().value_or(0);
  if (weights["type"].text().value_or("int") != "int" ||
      (group.bits != 2 && group.bits != 4 && group.bits != 8)) {
    return unsupported(at + ".weights.num_bits", "is not 2, 4 or 8 with type \"int\"");
  }
  group.symmetric = weights["symmetric"].flag().value_or(true);
  const std::string strategy = weights["strategy"].text().value_or("group");
  if (strategy == "group") {
    group.size = weights["group_size"].whole().value_or(0);
    if (group.size == 0 || group.size > limits::kHiddenMax ||
        (group.size != 32 && group.size % 64 != 0)) {
      return unsupported(at + ".weights.group_size", "is not 32 or a multiple of 64");
    }
  } else if (strategy != "channel") {
    return unsupported(at + ".weights.strategy", "is not \"group\" or \"channel\"");
  }
  if (weights["actorder"] && weights["actorder"].text() != "weight" &&
      weights["actorder"].text() != "static") {
    return unsupported(at + ".weights.actorder",
                       "puts inputs in another order, which is not built");
  }
  return group;
}

Result<std::vector<Group>> read_groups(const JsonView& said) {
  if (said["format"] && said["format"].text() != "pack-quantized") {
    return unsupported(
        "quantization_config.format " + printable(said["format"].text().value_or("?")),
        "is not supported; \"pack-quantized\" is");
  }
  if (said["kv_cache_scheme"]) return unsupported("kv_cache_scheme", "is not supported");
  const JsonView groups = said["config_groups"];
  if (!groups.is_object() || groups.size() == 0) {
    return unsupported("config_groups", "is missing");
  }
  std::vector<Group> all;
  for (const std::string& name : groups.keys()) {
    Result<Group> group = read_group(name, groups[name]);
    if (!group.ok()) return group.status();
    all.push_back(group.value());
  }
  return all;
}

class Joiner {
 public:
  Joiner(std::vector<Group> groups, const std::vector<std::string>& files,
         std::vector<TensorInfo>& tensors)
      : groups_(std::move(groups)), files_(files), tensors_(tensors) {
    for (TensorInfo& tensor : tensors) by_name_[tensor.name] = &tensor;
  }

  Status join() {
    for (const auto& [name, tensor] : by_name_) {
      if (name.ends_with(kOrder)) {
        return wrong(*tensor, "puts inputs in another order, which is not built",
                     Code::unsupported);
      }
      if (!name.ends_with(kPacked)) continue;
      if (Status s = join_module(name.substr(0, name.size() - kPacked.size()), *tensor); !s.ok()) {
        return s;
      }
    }
    std::erase_if(tensors_, [&](const TensorInfo& tensor) {
      return std::find(parts_.begin(), parts_.end(), &tensor) != parts_.end();
    });
    std::sort(tensors_.begin(), tensors_.end(),
              [](const TensorInfo& a, const TensorInfo& b) { return a.name < b.name; });
    return Status();
  }

 private:
  Status wrong(const TensorInfo& tensor, std::string_view why, Code code = Code::corrupt) const {
    return Status(code, fmt::format("{}: tensor '{}' {}", files_[tensor.file],
                                    printable(tensor.file_name), why));
  }
  TensorInfo* find(const std::string& name) const {
    const auto found = by_name_.find(name);
    return found == by_name_.end() ? nullptr : found->second;
  }

  // The group that these shapes are of, with its size in inputs.
  std::optional<Group> group_of(const TensorInfo& packed, const TensorInfo& scale,
                                bool symmetric) const {
    for (Group group : groups_) {
      const std::uint64_t inputs = packed.shape[1] * 32 / group.bits;
      if (group.size == 0) group.size = inputs;
      if (group.symmetric == symmetric && inputs == group.size * scale.shape[1]) return group;
    }
    return std::nullopt;
  }

  Status join_module(const std::string& module, TensorInfo& packed) {
    TensorInfo* scale = find(module + std::string(kScale));
    TensorInfo* zeros = find(module + std::string(kZeros));
    if (scale == nullptr) return wrong(packed, "has no weight_scale beside it");
    if (find(module + ".weight") != nullptr) return wrong(packed, "stands beside a plain weight");
    const Dtype kind = scale->dtype;
    if (packed.dtype != Dtype::i32 ||
        (kind != Dtype::bf16 && kind != Dtype::f16 && kind != Dtype::f32)) {
      return wrong(packed, fmt::format("is {} with scales in {}; I32 and floats are read",
                                       name_of(packed.dtype), name_of(kind)));
    }
    const bool fit = packed.shape.size() == 2 && scale->shape.size() == 2 &&
                     packed.shape[0] == scale->shape[0] && packed.shape[1] > 0 &&
                     packed.shape[1] <= limits::kIntermediateMax;
    const auto group = fit ? group_of(packed, *scale, zeros == nullptr) : std::nullopt;
    if (!group || (group->size != 32 && group->size % 64 != 0)) {
      return wrong(packed, fmt::format("has shape [{}] and scales [{}], {}, which no group of "
                                       "config_groups explains",
                                       fmt::join(packed.shape, ", "), fmt::join(scale->shape, ", "),
                                       zeros == nullptr ? "symmetric" : "with zero points"));
    }
    const std::uint64_t groups = scale->shape[1];
    const std::uint64_t per_word = 32 / group->bits;
    packed.bits = static_cast<std::uint32_t>(group->bits);
    packed.group = static_cast<std::uint32_t>(group->size);
    packed.scale = kind;
    const RowPiece codes{packed.file, packed.offset, packed.shape[1] * 4, 1};
    RowPiece scales{scale->file, scale->offset, groups * layout_of(kind).block_bytes, 1};
    if (zeros == nullptr) {
      packed.parts = {codes, scales, {.form = RowPiece::Form::half_minima}};
    } else {
      // Of 24 bits a product with a zero point has more than fp32 holds.
      if (kind == Dtype::f32) {
        return wrong(*scale, "is fp32 beside zero points, whose products no packed kind holds",
                     Code::unsupported);
      }
      if (zeros->dtype != Dtype::i32 || zeros->shape.size() != 2 || zeros->shape[1] != groups ||
          zeros->shape[0] != (packed.shape[0] + per_word - 1) / per_word) {
        return wrong(*zeros, fmt::format("is {} [{}], which the scales [{}] do not explain",
                                         name_of(zeros->dtype), fmt::join(zeros->shape, ", "),
                                         fmt::join(scale->shape, ", ")));
      }
      scales.form =
          kind == Dtype::bf16 ? RowPiece::Form::widened_bf16 : RowPiece::Form::widened_f16;
      packed.scale = Dtype::f32;
      packed.parts = {codes,
                      scales,
                      {.file = zeros->file,
                       .offset = zeros->offset,
                       .row_bytes = groups * 4,
                       .rows_per = per_word,
                       .form = RowPiece::Form::zero_point_minima}};
      parts_.push_back(zeros);
    }
    packed.dtype = Dtype::affine;
    packed.name = module + ".weight";
    packed.shape[1] = groups * group->size;
    packed.bytes = row_bytes(packed.row_format(), packed.shape[1]) * packed.shape[0];
    parts_.push_back(scale);
    if (const TensorInfo* shape = find(module + std::string(kShape))) parts_.push_back(shape);
    return Status();
  }

  std::vector<Group> groups_;
  const std::vector<std::string>& files_;
  std::vector<TensorInfo>& tensors_;
  std::map<std::string, TensorInfo*> by_name_;
  std::vector<const TensorInfo*> parts_;
};

}  // namespace

Status check_compressed(const JsonView& said) {
  const Result<std::vector<Group>> groups = read_groups(said);
  return groups.ok() ? Status() : groups.status();
}

Status join_compressed(const JsonView& said, const std::vector<std::string>& files,
                       std::vector<TensorInfo>& tensors) {
  Result<std::vector<Group>> groups = read_groups(said);
  if (!groups.ok()) return groups.status();
  return Joiner(std::move(groups).value(), files, tensors).join();
}

}  // namespace drafthouse
