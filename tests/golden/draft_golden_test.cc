// Drafts of every v1 kind against the published reference code in float32: masks, windows, positions,
// context that grows between two blocks, short blocks. (tests/data/README.md says how they were made.)

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "cache/sequence_cache.h"
#include "device/cpu_device.h"
#include "model/decoder.h"
#include "model/dflash_draft.h"
#include "tests/test_data.h"

namespace drafthouse {
namespace {

// The table and the head that the golden file lends the draft, as a target without layers.
class LentTarget final : public WeightSource {
 public:
  explicit LentTarget(const Checkpoint& golden) : golden_(golden) {
    rename("model.embed_tokens.weight", "target.embed_tokens.weight");
    rename("lm_head.weight", "target.lm_head.weight");
    TensorInfo norm;
    norm.name = norm.file_name = "model.norm.weight";
    norm.dtype = Dtype::f32;
    norm.shape = {64};
    norm.bytes = 256;
    tensors_["model.norm.weight"] = norm;
  }
  const TensorInfo* find(std::string_view name) const override {
    const auto found = tensors_.find(std::string(name));
    return found == tensors_.end() ? nullptr : &found->second;
  }
  Status read(const TensorInfo& tensor, std::uint64_t offset,
              std::span<std::byte> out) const override {
    if (tensor.name == "model.norm.weight") {
      std::fill(out.begin(), out.end(), std::byte{0});
      return {};
    }
    return golden_.read(tensor, offset, out);
  }
  const std::string& label() const override { return label_; }

 private:
  void rename(const std::string& name, const std::string& from) { tensors_[name] = *golden_.find(from); }

  const Checkpoint& golden_;
  std::map<std::string, TensorInfo> tensors_;
  std::string label_ = "golden";
};

class Fixture {
 public:
  explicit Fixture(const std::string& folder)
      : golden_(Checkpoint::open(folder + "/golden.safetensors").value()),
        draft_files_(Checkpoint::open(folder + "/draft").value()),
        pool_(2) {
    const LentTarget lent(golden_);
    ModelConfig config;
    config.family = "qwen3";
    config.hidden_size = 64;
    config.heads = config.kv_heads = 1;
    config.head_dim = 32;
    config.intermediate_size = 64;
    config.vocab_size = 256;
    target_ = Decoder::load(config, lent, true, pool_, ledger_, {}, nullptr).value();
    const CheckpointSource source(draft_files_);
    draft_ = DFlashDraft::load(draft_files_.draft_config().value(), 64, source, true, pool_, ledger_,
                               {}, nullptr)
                 .value();
    work_ = draft_->make_workspace(1, ledger_).value();
    device_ = CpuDevice::create(pool_, best_isa(),
                                {.activation_bytes = act_bytes(ActKind::f32, 128, 1024),
                                 .heads_max = 4,
                                 .head_dim_max = 32,
                                 .positions_max = 256},
                                ledger_)
                  .value();
    for (const DFlashDraft::Group& group : draft_->groups()) {
      pools_.push_back(PagePool::create(group.page_bytes, MemoryTag::draft_pages,
                                        std::make_shared<MemoryLedger>()));
    }
    taps_ = test::read_floats(golden_, "taps");
  }

  SequenceCache context() {
    std::vector<LayerGroup> groups;
    for (std::size_t g = 0; g < pools_.size(); ++g) {
      groups.push_back({pools_[g], draft_->groups()[g].reach});
    }
    return SequenceCache(std::move(groups));
  }

  void append(SequenceCache& context, std::uint32_t rows) {
    for (std::uint32_t left = rows; left > 0;) {
      const std::uint32_t count = std::min(left, DFlashDraft::kProjectRows);
      ASSERT_TRUE(context.extend(count).ok());
      StepTable step = table(context, count);
      draft_->project(*device_, step, work_,
                      taps_.data() + std::size_t{context.length()} * draft_->tap_width());
      context.commit(count);
      left -= count;
    }
  }

  void check_block(const SequenceCache& context, const std::string& name) {
    SCOPED_TRACE(name);
    const std::vector<std::uint32_t> ids = test::read_ids(golden_, name + ".block_ids");
    const auto rows = static_cast<std::uint32_t>(ids.size());
    StepTable step = table(context, rows);
    step.ids = ids;
    for (std::uint32_t row = 0; row < rows; ++row) step.logit_rows.push_back(row);
    ASSERT_TRUE(draft_->propose(*device_, *target_, step, work_, nullptr).ok());
    const std::vector<float> want = test::read_floats(golden_, name + ".hidden");
    const float* got = work_.scratch.normed.as<float>();
    double worst = 0;
    for (std::size_t i = 0; i < want.size(); ++i) {
      worst = std::max(worst, std::fabs(static_cast<double>(got[i]) - want[i]));
    }
    EXPECT_LT(worst, 1e-3) << "hidden states";

    std::vector<float> logits(std::size_t{rows} * 256);
    target_->project_head(*device_, got, rows, logits.data());
    std::vector<std::uint32_t> proposals(rows - 1);
    device_->argmax(logits.data() + 256, rows - 1, 256, 256, draft_->config().mask_id,
                    proposals.data());
    EXPECT_EQ(proposals, test::read_ids(golden_, name + ".proposals"));
  }

 private:
  StepTable table(const SequenceCache& context, std::uint32_t rows) {
    StepTable step;
    step.rows = rows;
    for (std::uint32_t row = 0; row < rows; ++row) step.positions.push_back(context.length() + row);
    StepSpan span{.first_row = 0, .rows = rows, .first_position = context.length()};
    for (std::uint32_t g = 0; g < context.groups(); ++g) span.pages[g] = context.pages(g);
    step.spans.push_back(span);
    return step;
  }

  MemoryLedger ledger_;
  Checkpoint golden_;
  Checkpoint draft_files_;
  ThreadPool pool_;
  std::unique_ptr<Decoder> target_;
  std::unique_ptr<DFlashDraft> draft_;
  DFlashDraft::Workspace work_;
  std::unique_ptr<CpuDevice> device_;
  std::vector<std::shared_ptr<PagePool>> pools_;
  std::vector<float> taps_;
};

class V1Draft : public testing::TestWithParam<const char*> {};

TEST_P(V1Draft, BlocksEqualTheReference) {
  const std::string folder = test::data_path(std::string("tiny-drafts/") + GetParam());
  ASSERT_FALSE(folder.empty());
  Fixture fixture(folder);
  for (const std::uint32_t prefix : {1u, 7u, 70u, 150u}) {
    SequenceCache context = fixture.context();
    fixture.append(context, prefix);
    const std::string name = "p" + std::to_string(prefix);
    fixture.check_block(context, name);
    if (prefix < 70) continue;
    fixture.append(context, 5);
    fixture.check_block(context, name + "+5");
  }
  SequenceCache context = fixture.context();
  fixture.append(context, 70);
  fixture.check_block(context, "p70/6");
}

INSTANTIATE_TEST_SUITE_P(Variants, V1Draft,
                         testing::Values("v1-full", "v1-swa", "v1-causal-flag", "v1-gemma-style"),
                         [](const auto& tested) {
                           std::string name = tested.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace drafthouse
