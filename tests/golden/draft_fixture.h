#pragma once

#include <fmt/format.h>
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

namespace drafthouse::test {

// The table and the head that a file lends the draft, as a target without layers.
class LentTarget final : public WeightSource {
 public:
  LentTarget(const Checkpoint& lender, const std::string& table, const std::string& head)
      : golden_(lender) {
    rename("model.embed_tokens.weight", table);
    rename("lm_head.weight", head);
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
  void rename(const std::string& name, const std::string& from) {
    tensors_[name] = *golden_.find(from);
  }

  const Checkpoint& golden_;
  std::map<std::string, TensorInfo> tensors_;
  std::string label_ = "golden";
};

// A draft of tiny-drafts, its golden file and what it takes to run it, in fp32.
class DraftFixture {
 public:
  // `draft`: the draft in another form; empty: the one in the folder.
  explicit DraftFixture(const std::string& folder, const std::string& draft = "")
      : golden_(Checkpoint::open(folder + "/golden.safetensors").value()),
        draft_files_(Checkpoint::open(draft.empty() ? folder + "/draft" : draft).value()),
        pool_(2) {
    const std::string table = "target.embed_tokens.weight";
    const bool lends = golden_.find(table) != nullptr;
    // A draft with a table and a head of its own; the target's are not looked at.
    const std::string own = "embed_tokens.weight";
    const LentTarget lent(lends ? golden_ : draft_files_, lends ? table : own,
                          lends ? "target.lm_head.weight" : own);
    ModelConfig config;
    config.family = "qwen3";
    config.hidden_size = 64;
    config.heads = config.kv_heads = 1;
    config.head_dim = 32;
    config.intermediate_size = 64;
    config.vocab_size = 256;
    target_ = Decoder::load(config, lent, true, pool_, ledger_, {}, nullptr).value();
    const CheckpointSource source(draft_files_);
    draft_ = DFlashDraft::load(draft_files_.draft_config().value(), 64, source, true, pool_,
                               ledger_, {}, nullptr)
                 .value();
    work_ = draft_->make_workspace(1, ledger_).value();
    device_ = CpuDevice::create(pool_, best_isa(),
                                {.activation_bytes = act_bytes(ActKind::f32, 128, 1024),
                                 .heads_max = 4,
                                 .head_dim_max = 32,
                                 .positions_max = 40'000},
                                ledger_)
                  .value();
    for (const DFlashDraft::Group& group : draft_->groups()) {
      pools_.push_back(PagePool::create(group.page_bytes, MemoryTag::draft_pages,
                                        std::make_shared<MemoryLedger>()));
    }
    taps_ = test::read_floats(golden_, "taps");
  }

  const DFlashDraft& draft() const { return *draft_; }

  bool has(const std::string& name) const { return golden_.find(name + ".block_ids") != nullptr; }

  std::size_t draft_pages() const {
    std::size_t pages = 0;
    for (const auto& pool : pools_) pages += pool->pages_in_use();
    return pages;
  }

  SequenceCache context(const DraftContext& kept = {}) {
    std::vector<LayerGroup> groups;
    for (std::size_t g = 0; g < pools_.size(); ++g) {
      const std::uint32_t window = draft_->groups()[g].window;
      groups.push_back({pools_[g], kept.reach(window), GroupKind::attention, kept.sink_of(window)});
    }
    return SequenceCache(std::move(groups));
  }

  void append(SequenceCache& context, std::uint32_t rows) {
    for (std::uint32_t left = rows; left > 0;) {
      const std::uint32_t count = std::min(left, DFlashDraft::kProjectRows);
      ASSERT_TRUE(context.extend(count).ok());
      StepTable step = table(context, count);
      // Past the golden rows they come again.
      const bool golden = context.length() + count <= taps_.size() / draft_->tap_width();
      const std::size_t first = golden ? context.length() : 0;
      draft_->project(*device_, step, work_, taps_.data() + first * draft_->tap_width());
      context.commit(count);
      left -= count;
    }
  }

  // Hidden states of a golden block, [rows][64].
  std::vector<float> run_block(const SequenceCache& context, const std::string& name,
                               const DraftContext& kept = {}) {
    const std::vector<std::uint32_t> ids = test::read_ids(golden_, name + ".block_ids");
    const auto rows = static_cast<std::uint32_t>(ids.size());
    StepTable step = table(context, rows);
    step.ids = ids;
    for (std::uint32_t row = 0; row < rows; ++row) step.logit_rows.push_back(row);
    EXPECT_TRUE(draft_->propose(*device_, *target_, step, work_, kept, nullptr).ok());
    const float* normed = work_.scratch.normed.as<float>();
    return {normed, normed + std::size_t{rows} * 64};
  }

  void check_block(const SequenceCache& context, const std::string& name) {
    SCOPED_TRACE(name);
    const std::vector<std::uint32_t> ids = test::read_ids(golden_, name + ".block_ids");
    const auto rows = static_cast<std::uint32_t>(ids.size());
    const std::vector<float> want = test::read_floats(golden_, name + ".hidden");
    const std::vector<float> got = run_block(context, name);
    double worst = 0;
    for (std::size_t i = 0; i < want.size(); ++i) {
      worst = std::max(worst, std::fabs(static_cast<double>(got[i]) - want[i]));
    }
    EXPECT_LT(worst, 1e-3) << "hidden states";

    logits_.resize(std::size_t{rows - 1} * 256);
    draft_->project_head(*device_, *target_, got.data() + 64, rows - 1, logits_.data());
    check_logits(name, rows - 1);
    std::vector<std::uint32_t> proposals(rows - 1);
    if (draft_->selector() != nullptr) {
      // Rows 1 … of the block, as a turn asks for them.
      std::copy_n(got.data() + 64, std::size_t{rows - 1} * 64, work_.scratch.normed.as<float>());
      draft_->select_from(*device_, work_, rows - 1);
      return check_walk(name, ids.front(), rows - 1);
    }
    device_->argmax(logits_.data(), rows - 1, 256, 256, draft_->config().mask_id, proposals.data());
    const bool mapped = draft_->config().draft_vocab_size != 0;
    EXPECT_EQ(proposals, test::read_ids(golden_, name + (mapped ? ".target_ids" : ".proposals")));
  }

 private:
  // Relative to the largest of a row. With a vocabulary of its own the file has those ids alone.
  void check_logits(const std::string& name, std::uint32_t rows) {
    const std::vector<float> want = test::read_floats(golden_, name + ".logits");
    const std::uint32_t own = draft_->config().draft_vocab_size;
    const std::size_t width = own != 0 ? own : 256;
    ASSERT_EQ(want.size(), rows * width);
    double worst = 0;
    double largest = 0;
    for (std::size_t row = 0; row < rows; ++row) {
      std::size_t at = 0;
      for (std::size_t id = 0; id < 256; ++id) {
        const float got = logits_[row * 256 + id];
        if (std::isinf(got)) continue;
        ASSERT_LT(at, width);
        const double expected = static_cast<double>(want[row * width + at++]);
        worst = std::max(worst, std::fabs(static_cast<double>(got) - expected));
        largest = std::max(largest, std::fabs(expected));
      }
      EXPECT_EQ(at, width) << row;
    }
    EXPECT_LT(worst, 1e-3 * largest) << "logits";
  }

  // The walk of a DFlash2 draft: the scores along it, and what it chooses.
  void check_walk(const std::string& name, std::uint32_t anchor, std::uint32_t rows) {
    const std::uint32_t top_k = draft_->selector()->top_k();
    const std::vector<std::uint32_t> candidates = test::read_ids(golden_, name + ".candidates");
    const std::vector<float> scores = test::read_floats(golden_, name + ".scores");
    const std::vector<std::uint32_t> want = test::read_ids(golden_, name + ".proposals");
    double worst = 0;
    for (std::uint32_t row = 0; row < rows; ++row) {
      const float* logits = logits_.data() + std::size_t{row} * 256;
      std::vector<std::uint32_t> ids(256);
      std::iota(ids.begin(), ids.end(), 0u);
      std::stable_sort(ids.begin(), ids.end(),
                       [&](std::uint32_t a, std::uint32_t b) { return logits[a] > logits[b]; });
      ids.resize(top_k);
      const auto begin = candidates.begin() + static_cast<std::ptrdiff_t>(row * top_k);
      EXPECT_TRUE(std::equal(ids.begin(), ids.end(), begin)) << row;
      std::vector<float> got(top_k);
      const std::uint32_t previous = row == 0 ? anchor : want[row - 1];
      draft_->selector()->score(*device_, work_.selector, row, previous, ids, got);
      for (std::uint32_t i = 0; i < top_k; ++i) {
        got[i] += logits[ids[i]];
        worst = std::max(worst, std::fabs(static_cast<double>(got[i]) -
                                          static_cast<double>(scores[row * top_k + i])));
      }
      const auto best = std::max_element(got.begin(), got.end()) - got.begin();
      EXPECT_EQ(ids[static_cast<std::size_t>(best)], want[row]) << row;
    }
    EXPECT_LT(worst, 1e-3) << "scores";
  }

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
  std::vector<float> logits_;
};

// All cases of a golden file.
inline void check_blocks(DraftFixture& fixture) {
  for (const std::uint32_t prefix : {1u, 7u, 70u, 150u}) {
    SequenceCache context = fixture.context();
    fixture.append(context, prefix);
    const std::string name = fmt::format("p{}", prefix);
    fixture.check_block(context, name);
    if (prefix < 70) continue;
    fixture.append(context, 5);
    fixture.check_block(context, name + "+5");
  }
  SequenceCache context = fixture.context();
  fixture.append(context, 70);
  for (const char* short_block : {"p70/6", "p70/5"}) {
    if (fixture.has(short_block)) fixture.check_block(context, short_block);
  }
}

}  // namespace drafthouse::test
