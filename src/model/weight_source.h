#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>

#include "drafthouse/status.h"
#include "formats/checkpoint.h"

namespace drafthouse {

// Where a model's tensors come from. Thread-safe for reading.
class WeightSource {
 public:
  virtual ~WeightSource() = default;
  // Null when there is no such tensor.
  virtual const TensorInfo* find(std::string_view name) const = 0;
  virtual Status read(const TensorInfo& tensor, std::uint64_t offset,
                      std::span<std::byte> out) const = 0;
  // What messages call it: a file or a folder.
  virtual const std::string& label() const = 0;
};

// A checkpoint on disk; it must outlive the source.
class CheckpointSource final : public WeightSource {
 public:
  explicit CheckpointSource(const Checkpoint& checkpoint) : checkpoint_(checkpoint) {}
  const TensorInfo* find(std::string_view name) const override { return checkpoint_.find(name); }
  Status read(const TensorInfo& tensor, std::uint64_t offset,
              std::span<std::byte> out) const override {
    return checkpoint_.read(tensor, offset, out);
  }
  const std::string& label() const override { return checkpoint_.path(); }

 private:
  const Checkpoint& checkpoint_;
};

// Random weights of given shapes, the same for the same names: for benches, which need a model's
// sizes and not its knowledge. Every value is finite and small.
class RandomSource final : public WeightSource {
 public:
  explicit RandomSource(std::string label) : label_(std::move(label)) {}

  // `shape` is [outputs, inputs] for a matrix, [width] for a norm (always f32, near 1).
  void add(const std::string& name, Dtype dtype, std::vector<std::uint64_t> shape);

  const TensorInfo* find(std::string_view name) const override;
  Status read(const TensorInfo& tensor, std::uint64_t offset,
              std::span<std::byte> out) const override;
  const std::string& label() const override { return label_; }

 private:
  std::string label_;
  std::unordered_map<std::string, TensorInfo> tensors_;
};

}  // namespace drafthouse
