#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "drafthouse/status.h"
#include "formats/model_config.h"
#include "formats/tokenizer_source.h"
#include "tensor/dtype.h"
#include "tensor/row_format.h"

namespace drafthouse {

// Where a part of every row of a tensor lies, when a file keeps a row in several places: piece i of
// `row_bytes` belongs to the rows from i × rows_per on.
struct RowPiece {
  // What becomes of the piece in the row. All but bytes are of packed whole numbers
  // (compressed_tensors.h), and stand behind the scales.
  enum class Form : std::uint8_t {
    bytes,
    widened_bf16,  // scales, to fp32
    widened_f16,
    half_minima,        // no bytes of the file: −2^(bits − 1) times each scale, in the scale's kind
    zero_point_minima,  // minus the zero point times each scale, in fp32; the piece holds one of
                        // `rows_per` rows in `bits` of every word
  };
  std::uint32_t file = 0;
  std::uint64_t offset = 0;
  std::uint64_t row_bytes = 0;
  std::uint64_t rows_per = 1;
  Form form = Form::bytes;
};

// One tensor of a checkpoint. Every field has been checked against its file.
struct TensorInfo {
  std::string name;  // Hugging Face's name, also for GGUF ("model.layers.0.mlp.up_proj.weight")
  std::string file_name;  // the name in the file, for messages
  Dtype dtype = Dtype::bf16;
  std::vector<std::uint64_t> shape;  // outermost first: a linear layer is [outputs, inputs]
  std::uint32_t file = 0;            // index into Checkpoint::files()
  std::uint64_t offset = 0;          // from the start of that file
  std::uint64_t bytes = 0;
  // Of affine and f8_blocks (tensor/row_format.h).
  std::uint32_t bits = 0;
  std::uint32_t group = 0;
  Dtype scale = Dtype::f32;
  // Of kinds that a file keeps in several tensors, in the order of RowFormat; else empty.
  std::vector<RowPiece> parts = {};

  RowFormat row_format() const { return {dtype, bits, group, scale}; }
};

// A model on disk: a Hugging Face folder (safetensors, one file or sharded) or a .gguf file.
//
// open() reads headers only and checks everything that the headers promise: lengths, offsets,
// overlaps, shapes, dtypes, shards, against the sizes of the files. Errors are one line that names
// the file, the tensor and the reason. Untrusted input; never crashes. Immutable and thread-safe
// afterwards; files stay open, so replacing them on disk changes nothing.
class Checkpoint {
 public:
  // `path`: a folder, a .gguf file, or a Hugging Face id ("org/name", optionally
  // "org/name@revision") that is in the local hub cache (HF_HUB_CACHE, HF_HOME,
  // ~/.cache/huggingface/hub).
  static Result<Checkpoint> open(const std::string& path);

  Checkpoint(Checkpoint&&) noexcept;
  Checkpoint& operator=(Checkpoint&&) noexcept;
  ~Checkpoint();

  const std::string& path() const;             // the folder or file that was opened, resolved
  std::string_view format() const;             // "safetensors" or "gguf"
  std::span<const std::string> files() const;  // paths of the weight files
  std::uint64_t bytes() const;                 // of all tensors

  // Sorted by name.
  std::span<const TensorInfo> tensors() const;
  const TensorInfo* find(std::string_view name) const;

  // Reads [offset, offset + out.size()) of a tensor's bytes; whole rows of one in parts.
  // Thread-safe.
  Status read(const TensorInfo& tensor, std::uint64_t offset, std::span<std::byte> out) const;

  // What tells the weight files, as they were opened, from all others; empty when it is not known.
  std::string identity() const;

  // True when this is a DFlash draft and not a model that can answer.
  bool is_draft() const;
  // The target's configuration; invalid_argument names the field when it cannot be used.
  Result<ModelConfig> model_config() const;
  // The draft's configuration. mismatch / invalid_argument names the field.
  Result<DraftConfig> draft_config() const;
  const TokenizerSource& tokenizer() const;

 private:
  struct State;
  explicit Checkpoint(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace drafthouse
