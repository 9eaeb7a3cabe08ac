#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "formats/checkpoint.h"
#include "formats/test_files.h"
#include "tensor/half.h"
#include "tests/test_data.h"

namespace drafthouse::test {

// A bf16 folder, written anew in two ways with the same values: as a folder, and tensor by tensor
// into a GGUF file. Matrices become `kind`; all else stays bf16 in the folder and becomes f32 in
// the file, as converters do it.
class GgufTwin {
 public:
  enum class Kind { bf16, f16, f32, q8_0 };
  using Shape = std::vector<std::uint64_t>;
  using Values = std::vector<float>;

  GgufTwin(const std::string& folder, Kind kind)
      : folder_(folder), kind_(kind), checkpoint_(Checkpoint::open(folder).value()) {}

  testing::GgufBuilder file;
  nlohmann::json config() const { return read_json(folder_ + "/config.json"); }
  bool has(const std::string& name) const { return checkpoint_.find(name) != nullptr; }
  Shape shape(const std::string& name) const { return checkpoint_.find(name)->shape; }
  Values values(const std::string& name) const { return read_floats(checkpoint_, name); }

  // Nothing when the folder lacks it.
  void copy(const std::string& from, const std::string& to) {
    if (!has(from)) return;
    shape(from).size() == 1 ? vector(to, shape(from), values(from))
                            : matrix(to, shape(from), values(from));
  }
  // A vector with 1 added, as files of zero-centred norms have it.
  void copy_gain(const std::string& from, const std::string& to) {
    if (!has(from)) return;
    Values all = values(from);
    for (float& value : all) value += 1.0f;
    vector(to, shape(from), all);
  }
  void vector(const std::string& to, const Shape& dims, const Values& all) {
    file.tensor(to, reversed(dims), 0, bytes_of(all));
  }
  void matrix(const std::string& to, const Shape& dims, const Values& all) {
    if (!fits(dims)) {
      file.tensor(to, reversed(dims), 30, halves(all, float_to_bf16));
      return;
    }
    switch (kind_) {
      case Kind::bf16: file.tensor(to, reversed(dims), 30, halves(all, float_to_bf16)); return;
      case Kind::f16: file.tensor(to, reversed(dims), 1, halves(all, float_to_half)); return;
      case Kind::f32: file.tensor(to, reversed(dims), 0, bytes_of(all)); return;
      case Kind::q8_0: file.tensor(to, reversed(dims), 8, blocks(all)); return;
    }
  }

  // The folder, with a configuration changed by `change`.
  void write_folder(const testing::TempFolder& out) const {
    nlohmann::json header;
    std::string data;
    for (const TensorInfo& tensor : checkpoint_.tensors()) {
      const Values all = values(tensor.name);
      const bool convolution = tensor.shape.size() == 3 && tensor.shape[1] == 1;
      const bool kept = tensor.shape.size() == 1 || convolution || !fits(tensor.shape);
      std::string bytes;
      std::string type = "F32";
      if (kept || kind_ == Kind::bf16) {
        type = "BF16";
        bytes = halves(all, float_to_bf16);
      } else if (kind_ == Kind::f16) {
        type = "F16";
        bytes = halves(all, float_to_half);
      } else {
        bytes = bytes_of(kind_ == Kind::q8_0 ? rounded(all) : all);
      }
      header[tensor.file_name] = {{"dtype", type},
                                  {"shape", tensor.shape},
                                  {"data_offsets", {data.size(), data.size() + bytes.size()}}};
      data += bytes;
    }
    const std::string text = header.dump();
    out.write("config.json", config().dump());
    out.write("model.safetensors", testing::raw<std::uint64_t>(text.size()) + text + data);
  }

 private:
  // Rows of another length have no blocks of 32.
  bool fits(const Shape& dims) const { return kind_ != Kind::q8_0 || dims.back() % 32 == 0; }
  static Shape reversed(Shape dims) {
    std::reverse(dims.begin(), dims.end());
    return dims;
  }
  static std::string bytes_of(const Values& all) {
    return std::string(reinterpret_cast<const char*>(all.data()), all.size() * sizeof(float));
  }
  static std::string halves(const Values& all, std::uint16_t (*to)(float)) {
    std::string out;
    for (const float value : all) out += testing::raw(to(value));
    return out;
  }
  // Per 32 values: a half scale, and codes.
  template <class Emit>
  static void each_block(const Values& all, Emit&& emit) {
    for (std::size_t at = 0; at < all.size(); at += 32) {
      float largest = 0;
      for (std::size_t i = 0; i < 32; ++i) largest = std::max(largest, std::fabs(all[at + i]));
      const std::uint16_t scale = float_to_half(largest / 127.0f);
      std::array<std::int8_t, 32> codes{};
      for (std::size_t i = 0; i < 32 && scale != 0; ++i) {
        const float code = std::nearbyint(all[at + i] / half_to_float(scale));
        codes[i] = static_cast<std::int8_t>(std::clamp(code, -127.0f, 127.0f));
      }
      emit(scale, codes);
    }
  }
  static std::string blocks(const Values& all) {
    std::string out;
    each_block(all, [&](std::uint16_t scale, const std::array<std::int8_t, 32>& codes) {
      out += testing::raw(scale) + std::string(reinterpret_cast<const char*>(codes.data()), 32);
    });
    return out;
  }
  static Values rounded(const Values& all) {
    Values out;
    each_block(all, [&](std::uint16_t scale, const std::array<std::int8_t, 32>& codes) {
      for (const std::int8_t code : codes) out.push_back(half_to_float(scale) * code);
    });
    return out;
  }

  std::string folder_;
  Kind kind_;
  Checkpoint checkpoint_;
};

}  // namespace drafthouse::test
