#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/memory.h"
#include "base/sha256.h"
#include "base/thread_pool.h"
#include "device/device.h"
#include "model/weight_source.h"

namespace drafthouse {

// Bytes packed so far of all that a load will pack. Called on the loading thread.
using LoadProgress = std::function<void(std::uint64_t done, std::uint64_t total)>;

// The output rows of a matrix in the order the model wants them. Empty: as in the file.
using RowOrder = std::vector<std::uint32_t>;

// Gathers the tensors of one model and packs them, in parallel, into one block of memory.
//
// Use: declare every tensor with matrix() and vector(), then load(). A missing tensor or a wrong
// shape is reported by the first call that meets it and by load(). Nothing is allocated before
// load(); when it fails nothing is kept. Confined to one thread.
class WeightLoader {
 public:
  explicit WeightLoader(const WeightSource& source) : source_(source) {}

  // *out becomes the packed [outputs, inputs] matrix at load(). `out` must stay where it is.
  void matrix(PackedMatrix* out, const std::string& name, std::uint32_t outputs,
              std::uint32_t inputs, RowOrder order = {});
  // *out becomes a pointer to `width` floats at load().
  void vector(const float** out, const std::string& name, std::uint32_t width);

  // Reports a tensor that should not be there: the configuration describes a smaller model.
  void absent(const std::string& name);

  std::uint64_t bytes_packed() const { return bytes_; }
  // First problem met while declaring, if any.
  const Status& status() const { return status_; }

  // Reads and packs. `cancel` may be null; cancelled when it is set meanwhile.
  Result<Buffer> load(ThreadPool& pool, MemoryLedger& ledger, const LoadProgress& progress,
                      const std::atomic<bool>* cancel);

  // SHA-256 over kinds, shapes and bytes of all weights as they are packed, known after load(). The
  // same for the same weights, whatever file format they came in, if it keeps their kinds.
  const Sha256Digest& digest() const { return digest_; }

 private:
  struct Matrix {
    PackedMatrix* out;
    const TensorInfo* tensor;
    RowOrder order;
    std::uint64_t offset;
  };
  struct Vector {
    const float** out;
    const TensorInfo* tensor;
    std::uint32_t width;
    std::uint64_t offset;
  };
  struct Chunk {
    std::size_t matrix;
    std::uint32_t block_begin;
    std::uint32_t block_end;
  };

  const TensorInfo* require(const std::string& name, const std::vector<std::uint64_t>& shape);
  Status pack_chunk(const Chunk& chunk, std::byte* base, std::vector<std::byte>& raw) const;
  Status read_vector(const Vector& vector, std::byte* base) const;

  const WeightSource& source_;
  std::vector<Matrix> matrices_;
  std::vector<Vector> vectors_;
  std::uint64_t bytes_ = 0;
  Status status_;
  Sha256Digest digest_{};
};

}  // namespace drafthouse
