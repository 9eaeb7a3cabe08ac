#include "model/draft_vocabulary.h"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <map>
#include <string>

namespace drafthouse {
namespace {

class Maps final : public WeightSource {
 public:
  template <class Value>
  void add(const std::string& name, Dtype dtype, const std::vector<Value>& values) {
    TensorInfo& tensor = tensors_[name].first;
    tensor.name = tensor.file_name = name;
    tensor.dtype = dtype;
    tensor.shape = {values.size()};
    tensor.bytes = values.size() * sizeof(Value);
    std::vector<std::byte>& bytes = tensors_[name].second;
    bytes.resize(tensor.bytes);
    std::memcpy(bytes.data(), values.data(), bytes.size());
  }
  const TensorInfo* find(std::string_view name) const override {
    const auto found = tensors_.find(std::string(name));
    return found == tensors_.end() ? nullptr : &found->second.first;
  }
  Status read(const TensorInfo& tensor, std::uint64_t offset,
              std::span<std::byte> out) const override {
    std::memcpy(out.data(), tensors_.at(tensor.name).second.data() + offset, out.size());
    return {};
  }
  const std::string& label() const override { return label_; }

 private:
  std::map<std::string, std::pair<TensorInfo, std::vector<std::byte>>> tensors_;
  std::string label_ = "draft";
};

DraftConfig three_of_six(bool absolute) {
  DraftConfig config;
  config.vocab_size = 6;
  config.draft_vocab_size = 3;
  config.id_map_is_absolute = absolute;
  return config;
}

TEST(DraftVocabulary, ReadsOffsetsAndIds) {
  Maps offsets;
  offsets.add<std::int64_t>("d2t", Dtype::i64, {1, 1, 3});
  offsets.add<std::uint8_t>("t2d", Dtype::boolean, {0, 1, 1, 0, 0, 1});
  const std::vector<std::uint32_t> want = {1, 2, 5};
  EXPECT_EQ(read_draft_ids(three_of_six(false), offsets).value(), want);
  Maps ids;
  ids.add<std::int32_t>("d2t", Dtype::i32, {1, 2, 5});
  EXPECT_EQ(read_draft_ids(three_of_six(true), ids).value(), want);
  EXPECT_TRUE(read_draft_ids(DraftConfig(), Maps()).value().empty());
}

TEST(DraftVocabulary, RefusesMapsThatCannotBe) {
  const auto refused = [](const std::vector<std::int64_t>& map, const char* what,
                          const std::vector<std::uint8_t>& flags = {}) {
    Maps maps;
    maps.add("d2t", Dtype::i64, map);
    if (!flags.empty()) maps.add("t2d", Dtype::boolean, flags);
    const auto read = read_draft_ids(three_of_six(false), maps);
    ASSERT_FALSE(read.ok()) << what;
    EXPECT_NE(read.status().message().find(what), std::string::npos) << read.status().message();
  };
  refused({1, 0, 3}, "entry 1");
  refused({1, 1, 4}, "entry 2");
  refused({-1, 1, 3}, "entry 0");
  refused({1, 1, std::numeric_limits<std::int64_t>::max()}, "entry 2");
  refused({1, 1}, "draft_vocab_size");
  refused({1, 1, 3}, "about id 4", {0, 1, 1, 0, 1, 0});
  refused({1, 1, 3}, "vocab_size", {0, 1, 1});
  EXPECT_EQ(read_draft_ids(three_of_six(false), Maps()).status().code(), Code::corrupt);
}

TEST(DraftVocabulary, SpreadsLogitsInPlace) {
  constexpr float kOut = -std::numeric_limits<float>::infinity();
  std::vector<float> row = {10, 11, 12, 99, 99, 99};
  spread_logits(std::vector<std::uint32_t>{1, 2, 5}, row);
  EXPECT_EQ(row, (std::vector<float>{kOut, 10, 11, kOut, kOut, 12}));
  row = {10, 11, 12, 99};
  spread_logits(std::vector<std::uint32_t>{0, 1, 2}, row);
  EXPECT_EQ(row, (std::vector<float>{10, 11, 12, kOut}));
}

}  // namespace
}  // namespace drafthouse
