#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/memory.h"
#include "base/sha256.h"
#include "base/staging.h"
#include "base/thread_pool.h"
#include "device/device.h"
#include "model/weight_source.h"

namespace drafthouse {

// Bytes packed so far of all that a load will pack. Called on the loading thread.
using LoadProgress = std::function<void(std::uint64_t done, std::uint64_t total)>;

// The output rows of a matrix in the order the model wants them. Empty: as in the file.
using RowOrder = std::vector<std::uint32_t>;

// The inputs of a matrix in the order the model wants them, `unit` at a time: units[i] is the unit
// in the file of the model's unit i. Empty: as in the file.
struct InputOrder {
  std::uint32_t unit = 0;
  std::vector<std::uint32_t> units = {};
};

// What is done to the values of a vector as they are read: value `order[i]` of the part (empty: i)
// becomes map(value) · scale + plus.
struct VectorForm {
  float scale = 1.0f;
  float plus = 0.0f;
  float (*map)(float) = nullptr;  // null: the value itself
  RowOrder order = {};
};

// Where a matrix or vector lies inside a larger tensor. Its row (or element) i is number
// first + i · step of the tensor's rows (elements), all leading axes taken together.
struct TensorPart {
  std::vector<std::uint64_t> shape;  // of the whole tensor
  std::uint64_t first = 0;
  std::uint32_t step = 1;
  // The last two axes are [inputs, outputs] instead: rows are columns of the tensor, and `first`
  // counts those of all leading indices together.
  bool transposed = false;
};

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
              std::uint32_t inputs, RowOrder order = {}, InputOrder columns = {});
  // A matrix that is part of a tensor.
  void matrix_part(PackedMatrix* out, const std::string& name, std::uint32_t outputs,
                   std::uint32_t inputs, TensorPart part);
  // *out becomes a pointer to `width` floats at load(), each times `scale`, plus `offset`.
  void vector(const float** out, const std::string& name, std::uint32_t width, float scale = 1.0f,
              float offset = 0.0f);
  void vector_part(const float** out, const std::string& name, std::uint32_t width,
                   const TensorPart& part, VectorForm form = {});

  // Whether the source has a tensor of this name already: for layouts that exist in several forms.
  bool has(const std::string& name) const { return source_.find(name) != nullptr; }

  // Reports a tensor that should not be there: the configuration describes another model. `why`
  // goes on from "there is a tensor N, but".
  void absent(const std::string& name, std::string_view why);

  std::uint64_t bytes_packed() const { return bytes_; }
  // First problem met while declaring, if any.
  const Status& status() const { return status_; }

  // Reads and packs, or takes the copy that the source's PackedCopies has; what was packed is left
  // there for the next time. `cancel` may be null; cancelled when it is set meanwhile.
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
    TensorPart part;
    InputOrder columns;
    std::uint64_t offset;
  };
  struct Vector {
    const float** out;
    const TensorInfo* tensor;
    std::uint32_t width;
    std::uint64_t first;
    std::uint32_t step;
    VectorForm form;
    std::uint64_t offset;
  };
  struct Chunk {
    std::size_t matrix;
    std::uint32_t block_begin;
    std::uint32_t block_end;
  };

  const TensorInfo* require(const std::string& name, const std::vector<std::uint64_t>& shape);
  // Reads rows [first, end) of a matrix; rows[i] points to row first + i in file form, in `raw`.
  Status read_rows(const Matrix& matrix, std::uint32_t first, std::uint32_t end, Staging& raw,
                   std::vector<const std::byte*>& rows) const;
  Status read_columns(const Matrix& matrix, std::uint32_t first, std::uint32_t end, Staging& raw,
                      std::vector<const std::byte*>& rows) const;
  PackedCopies::Key copy_key() const;
  // Points everything that was declared into the packed memory.
  void place(const std::byte* base) const;
  Result<Buffer> pack(ThreadPool& pool, MemoryLedger& ledger, const LoadProgress& progress,
                      const std::atomic<bool>* cancel);
  Status check_columns(const TensorInfo& tensor, const InputOrder& columns) const;
  Status pack_chunk(const Chunk& chunk, std::byte* base, Staging& raw) const;
  Status read_vector(const Vector& vector, std::byte* base) const;

  const WeightSource& source_;
  std::vector<Matrix> matrices_;
  std::vector<Vector> vectors_;
  std::uint64_t bytes_ = 0;
  Status status_;
  Sha256Digest digest_{};
};

}  // namespace drafthouse
