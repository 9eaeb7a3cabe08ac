#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/memory.h"
#include "base/sha256.h"
#include "device/device.h"
#include "drafthouse/status.h"
#include "formats/model_config.h"
#include "model/decoder_layer.h"
#include "model/family.h"
#include "model/layer_plan.h"
#include "model/rope.h"
#include "model/scratch.h"

namespace drafthouse {

// A target. Its layers are a table of plans, which may differ; the family (one file each) says
// which tensors a layer has. The weights are immutable; forward() is confined to the thread that
// owns the scratch.
class Decoder {
 public:
  // Builds the family that `config` names and packs its weights. `config.family` unknown:
  // unsupported.
  static Result<std::unique_ptr<Decoder>> load(const ModelConfig& config,
                                               const WeightSource& source, bool compute_fp32,
                                               ThreadPool& pool, MemoryLedger& ledger,
                                               const LoadProgress& progress,
                                               const std::atomic<bool>* cancel);

  // Bytes that load() will pack: the total that it reports progress of. The same errors as load(),
  // from the configuration and the tensors' shapes alone.
  static Result<std::uint64_t> bytes_to_pack(const ModelConfig& config, const WeightSource& source,
                                             bool compute_fp32);

  const ModelConfig& config() const { return config_; }
  bool compute_fp32() const { return compute_fp32_; }
  // See WeightLoader::digest().
  const Sha256Digest& weights_digest() const { return weights_digest_; }
  const PackedMatrix& embedding() const { return embedding_; }
  // The output matrix, [vocab, hidden]; the embedding where the two are tied.
  const PackedMatrix& head() const { return head_.data != nullptr ? head_ : embedding_; }
  // What rows of the embedding are multiplied by before they enter the model, or its draft.
  float embedding_scale() const { return scale_of(config_.embedding_scale, embedding_); }
  std::span<const DecoderLayer> layers() const { return layers_; }
  std::span<const LayerPlan> plans() const { return plans_.layers; }
  // Groups of layers that share pages; StepSpan::pages has one table for each.
  std::span<const KvGroup> groups() const { return plans_.groups; }
  KvKind kv_kind() const { return compute_fp32_ ? KvKind::f32 : KvKind::bf16; }
  // Bytes of packed weights that a pass of one row reads: of experts those it chooses, the
  // embedding only where it is the head.
  std::size_t pass_bytes() const;
  // Weights of such a pass times two: multiplications and additions per row.
  std::uint64_t operations_per_row() const;

  // Scratch for passes of up to `rows` rows.
  Result<Scratch> make_scratch(std::uint32_t rows, MemoryLedger& ledger) const;

  // One pass over step.rows rows. Writes keys and values of all rows into their sequences' pages,
  // the taps of the spans that want them, and the normed hidden states of
  // step.logit_rows into the front rows of scratch.normed, for head(). Returns cancelled soon after
  // *cancel is set (may be null); what the pass wrote is worthless then.
  //
  // tap_layers: layers whose output, after the MLP, makes a tap row of tap_layers.size() · hidden
  // floats; 0-based, ascending.
  Status forward(Device& device, StepTable& step, Scratch& scratch,
                 std::span<const std::uint32_t> tap_layers, const std::atomic<bool>* cancel) const;

  // Logits of normed hidden states: normed [rows][hidden] → logits [rows][vocab].
  void project_head(Device& device, const float* normed, std::uint32_t rows, float* logits) const;

 private:
  Decoder(const ModelConfig& config, const Family& family, bool compute_fp32);
  static Result<std::unique_ptr<Decoder>> make(const ModelConfig& config,
                                               const WeightSource& source, bool compute_fp32);

  void declare(WeightLoader& loader);
  float scale_of(double scale, const PackedMatrix& table) const;
  void fill_layer_inputs(Device& device, const StepTable& step, Scratch& scratch) const;

  ModelConfig config_;
  const Family& family_;
  LayerPlans plans_;
  std::vector<Rope> ropes_;  // of the plans' rotary indices
  bool compute_fp32_;
  Buffer memory_;
  Sha256Digest weights_digest_{};
  PackedMatrix embedding_;  // [vocab, hidden]
  PackedMatrix head_;       // [vocab, hidden], or empty
  NormWeights final_norm_;
  // Per-layer inputs; empty without.
  PackedMatrix layer_embedding_;   // [vocab, layers · per_layer_input_size]
  PackedMatrix layer_projection_;  // [layers · per_layer_input_size, hidden]
  NormWeights layer_input_norm_;   // [per_layer_input_size]
  std::vector<DecoderLayer> layers_;
};

}  // namespace drafthouse
