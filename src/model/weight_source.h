#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>

#include "drafthouse/status.h"
#include "formats/checkpoint.h"
#include "model/packed_copies.h"

namespace drafthouse {

// Where a model's tensors come from. Thread-safe for reading.
class WeightSource {
 public:
  virtual ~WeightSource() = default;
  // Null when there is no such tensor.
  virtual const TensorInfo* find(std::string_view name) const = 0;
  // The tensor that a model of this name and shape needs; null when there is none of that name.
  virtual const TensorInfo* need(std::string_view name,
                                 const std::vector<std::uint64_t>& shape) const {
    static_cast<void>(shape);
    return find(name);
  }
  virtual Status read(const TensorInfo& tensor, std::uint64_t offset,
                      std::span<std::byte> out) const = 0;
  // What messages call it: a file or a folder.
  virtual const std::string& label() const = 0;
  // Where copies of the packed weights are kept; null: nowhere.
  virtual const PackedCopies* copies() const { return nullptr; }
  // What tells these weights from all others and from themselves after a change; empty: not known.
  virtual std::string identity() const { return {}; }
};

// A checkpoint on disk; it, and the copies, must outlive the source.
class CheckpointSource final : public WeightSource {
 public:
  explicit CheckpointSource(const Checkpoint& checkpoint, const PackedCopies* copies = nullptr)
      : checkpoint_(checkpoint), copies_(copies) {}
  const TensorInfo* find(std::string_view name) const override { return checkpoint_.find(name); }
  Status read(const TensorInfo& tensor, std::uint64_t offset,
              std::span<std::byte> out) const override {
    return checkpoint_.read(tensor, offset, out);
  }
  const std::string& label() const override { return checkpoint_.path(); }
  const PackedCopies* copies() const override { return copies_; }
  std::string identity() const override { return checkpoint_.identity(); }

 private:
  const Checkpoint& checkpoint_;
  const PackedCopies* copies_;
};

// Random weights, the same for the same names: for benches, which need a model's sizes and not its
// knowledge. It has every tensor that is needed: [outputs, inputs] in the given format, [width] as
// f32 near 1. Every value is finite and small. need() is confined to one thread.
class RandomSource final : public WeightSource {
 public:
  // Any format but f8_blocks.
  RandomSource(std::string label, const RowFormat& format)
      : label_(std::move(label)), format_(format) {}

  const TensorInfo* need(std::string_view name,
                         const std::vector<std::uint64_t>& shape) const override;
  const TensorInfo* find(std::string_view name) const override;
  Status read(const TensorInfo& tensor, std::uint64_t offset,
              std::span<std::byte> out) const override;
  const std::string& label() const override { return label_; }
  // The inputs of a matrix that was needed and that the format cannot have; 0: none.
  std::uint64_t uneven_inputs() const { return uneven_inputs_; }

 private:
  std::string label_;
  RowFormat format_;
  mutable std::uint64_t uneven_inputs_ = 0;
  mutable std::unordered_map<std::string, TensorInfo> tensors_;  // those needed so far
};

}  // namespace drafthouse
