#include "formats/gguf.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <functional>

#include "formats/test_files.h"

namespace drafthouse {
namespace {

using testing::GgufBuilder;
using testing::raw;
using testing::source_of;

TEST(Gguf, ReadsEveryKindOfMetadata) {
  for (const std::uint32_t version : {2u, 3u}) {
    GgufBuilder file;
    file.version = version;
    file.add("u8", 0, raw<std::uint8_t>(200))
        .add("i8", 1, raw<std::int8_t>(-2))
        .add("u16", 2, raw<std::uint16_t>(60000))
        .add("i16", 3, raw<std::int16_t>(-300))
        .u32("u32", 4'000'000'000)
        .add("i32", 5, raw<std::int32_t>(7))
        .f32("f32", 0.5f)
        .flag("flag", true)
        .text("text", "words")
        .add("u64", 10, raw<std::uint64_t>(~std::uint64_t{0}))
        .add("i64", 11, raw<std::int64_t>(-5))
        .add("f64", 12, raw(2.5))
        .texts("texts", {"a", "", "c"})
        .flags("flags", {1, 0})
        .list("f32s", 6, 2, raw(1.0f) + raw(2.0f))
        .list("nested", 9, 1, raw<std::uint32_t>(0) + raw<std::uint64_t>(2) + "ab")
        .u32("last", 9);
    auto parsed = parse_gguf(source_of(file.build()));
    ASSERT_TRUE(parsed.ok()) << parsed.status().message();
    const GgufMetadata& keys = parsed.value().metadata;
    EXPECT_EQ(keys.whole("u8"), 200u);
    EXPECT_EQ(keys.whole("i8"), std::nullopt);
    EXPECT_EQ(keys.number("i8"), -2.0);
    EXPECT_EQ(keys.whole("u16"), 60000u);
    EXPECT_EQ(keys.number("i16"), -300.0);
    EXPECT_EQ(keys.whole("u32"), 4'000'000'000u);
    EXPECT_EQ(keys.whole("i32"), 7u);
    EXPECT_EQ(keys.number("f32"), 0.5);
    EXPECT_EQ(keys.whole("f32"), std::nullopt);
    EXPECT_EQ(keys.flag("flag"), true);
    EXPECT_EQ(keys.text("text"), "words");
    EXPECT_EQ(keys.whole("u64"), ~std::uint64_t{0});
    EXPECT_EQ(keys.number("f64"), 2.5);
    EXPECT_EQ(*keys.texts("texts"), (std::vector<std::string>{"a", "", "c"}));
    EXPECT_EQ(*keys.wholes("flags"), (std::vector<std::int64_t>{1, 0}));
    EXPECT_EQ(keys.wholes("f32s"), nullptr);
    EXPECT_TRUE(keys.has("nested"));
    EXPECT_EQ(keys.whole("last"), 9u);
    EXPECT_FALSE(keys.has("absent"));
  }
}

TEST(Gguf, PlacesTensorsOutermostAxisFirst) {
  GgufBuilder file;
  file.alignment = 64;
  file.u32("general.alignment", 64);
  file.tensor("a", {2, 3});
  file.tensor("q4_0", {32, 2}, 2, std::string(36, 'x'));
  file.tensor("q4_1", {64}, 3, std::string(40, 'x'));
  file.tensor("q8_0", {32, 1, 2}, 8, std::string(68, 'x'));
  file.tensor("f16", {3}, 1, std::string(6, 'x'));
  file.tensor("bf16", {5}, 30, std::string(10, 'x'));
  constexpr struct {
    std::uint32_t type;
    std::uint64_t values;
    std::size_t bytes;
    Dtype dtype;
  } kBlocks[] = {{6, 32, 22, Dtype::q5_0},      {7, 32, 24, Dtype::q5_1},
                 {10, 256, 84, Dtype::q2_k},    {11, 256, 110, Dtype::q3_k},
                 {12, 256, 144, Dtype::q4_k},   {13, 256, 176, Dtype::q5_k},
                 {14, 256, 210, Dtype::q6_k},   {20, 32, 18, Dtype::iq4_nl},
                 {23, 256, 136, Dtype::iq4_xs}, {39, 32, 17, Dtype::mxfp4}};
  for (const auto& block : kBlocks) {
    file.tensor(fmt::format("t{}", block.type), {block.values, 3}, block.type,
                std::string(block.bytes * 3, 'x'));
  }
  const std::string bytes = file.build();
  auto parsed = parse_gguf(source_of(bytes));
  ASSERT_TRUE(parsed.ok()) << parsed.status().message();
  const auto& all = parsed.value().tensors;
  ASSERT_EQ(all.size(), 6u + std::size(kBlocks));
  for (std::size_t i = 0; i < std::size(kBlocks); ++i) {
    EXPECT_EQ(all[6 + i].dtype, kBlocks[i].dtype);
    EXPECT_EQ(all[6 + i].bytes, kBlocks[i].bytes * 3);
  }
  EXPECT_EQ(all[0].shape, (std::vector<std::uint64_t>{3, 2}));
  EXPECT_EQ(all[0].bytes, 24u);
  EXPECT_EQ(all[1].dtype, Dtype::q4_0);
  EXPECT_EQ(all[1].offset, all[0].offset + 64);
  EXPECT_EQ(all[3].shape, (std::vector<std::uint64_t>{2, 1, 32}));
  EXPECT_EQ(all[3].bytes, 68u);
  for (const TensorInfo& tensor : all) EXPECT_EQ(tensor.offset % 64, 0u);
  EXPECT_EQ(all.back().offset + all.back().bytes, bytes.size());
}

struct Broken {
  std::function<void(GgufBuilder&)> make;
  Code code;
  std::string named;
};

TEST(Gguf, RefusesEveryBrokenPromiseByName) {
  const std::uint64_t huge = std::uint64_t{1} << 62;
  const std::vector<Broken> all = {
      {[](auto& f) { f.version = 1; }, Code::unsupported, "version 1"},
      {[](auto& f) { f.version = 4; }, Code::unsupported, "version 4"},
      {[](auto& f) { f.version = 0x03000000; }, Code::unsupported, "big-endian"},
      {[](auto& f) { f.u32("k", 1).u32("k", 2); }, Code::corrupt, "'k'"},
      {[](auto& f) { f.add("k", 13, ""); }, Code::corrupt, "'k'"},
      {[](auto& f) { f.add("k", 7, "\2"); }, Code::corrupt, "boolean"},
      {[&](auto& f) { f.add("k", 8, raw(huge)); }, Code::corrupt, "(k)"},
      {[&](auto& f) { f.list("k", 4, huge, ""); }, Code::corrupt, "'k'"},
      {[&](auto& f) { f.list("k", 8, 1000, ""); }, Code::corrupt, "'k'"},
      {[&](auto& f) { f.list("k", 99, 1, ""); }, Code::corrupt, "'k'"},
      {[](auto& f) { f.list("k", 10, 1, raw(~std::uint64_t{0})); }, Code::unsupported, "2^63"},
      {[](auto& f) {
         std::string nest;
         for (int i = 0; i < 8; ++i) nest += raw<std::uint32_t>(9) + raw<std::uint64_t>(1);
         f.add("k", 9, nest + raw<std::uint32_t>(0) + raw<std::uint64_t>(0));
       },
       Code::unsupported, "'k'"},
      {[](auto& f) { f.u32("general.alignment", 0); }, Code::corrupt, "general.alignment"},
      {[](auto& f) { f.u32("general.alignment", 48); }, Code::corrupt, "general.alignment"},
      {[](auto& f) { f.u32("general.alignment", 1u << 30); }, Code::corrupt, "general.alignment"},
      {[](auto& f) { f.text("general.alignment", "32"); }, Code::corrupt, "general.alignment"},
      {[](auto& f) { f.info("w", {}, 0, 0); }, Code::corrupt, "'w'"},
      {[](auto& f) { f.info("w", {1, 1, 1, 1, 1}, 0, 0); }, Code::corrupt, "'w'"},
      {[](auto& f) { f.info("w", {0}, 0, 0); }, Code::corrupt, "'w'"},
      {[](auto& f) { f.info("w", {1u << 31, 1u << 31, 8}, 0, 0); }, Code::corrupt, "'w'"},
      {[](auto& f) { f.info("w", {33}, 2, 0); }, Code::corrupt, "'w'"},
      {[](auto& f) { f.tensor("w", {128}, 12, std::string(72, 'x')); }, Code::corrupt, "q4_k"},
      {[](auto& f) { f.tensor("w", {256}, 14, std::string(209, 'x')); }, Code::corrupt, "'w'"},
      {[](auto& f) { f.tensor("w", {256}, 16, std::string(66, 'x')); }, Code::unsupported,
       "IQ2_XXS"},
      {[](auto& f) { f.tensor("w", {32}, 4, std::string(17, 'x')); }, Code::unsupported, "Q4_2"},
      {[](auto& f) { f.tensor("w", {32}, 4000, "x"); }, Code::unsupported, "4000"},
      {[](auto& f) { f.tensor("w", {2}).info("w", {2}, 0, 0); }, Code::corrupt, "'w'"},
      {[](auto& f) { f.tensor("v", {16}).info("w", {2}, 0, 0); }, Code::corrupt, "overlap"},
      {[](auto& f) { f.tensor("v", {16}).info("w", {2}, 0, 16); }, Code::corrupt, "multiple"},
      {[](auto& f) { f.tensor("v", {16}).info("w", {2}, 0, 64); }, Code::corrupt, "'w'"},
      {[&](auto& f) { f.info("w", {2}, 0, huge); }, Code::corrupt, "'w'"},
      {[](auto& f) { f.info("", {2}, 0, 0); }, Code::corrupt, "name"},
      {[](auto& f) { f.info(std::string(600, 'n'), {2}, 0, 0); }, Code::corrupt, "600"},
  };
  for (std::size_t i = 0; i < all.size(); ++i) {
    GgufBuilder file;
    all[i].make(file);
    auto parsed = parse_gguf(source_of(file.build()));
    ASSERT_FALSE(parsed.ok()) << i;
    const std::string& message = parsed.status().message();
    EXPECT_EQ(parsed.status().code(), all[i].code) << i << " " << message;
    EXPECT_NE(message.find(all[i].named), std::string::npos) << i << " " << message;
    EXPECT_EQ(message.rfind("test-file: ", 0), 0u) << message;
  }
}

TEST(Gguf, RefusesAbsurdCountsBeforeAllocating) {
  const std::string start = "GGUF" + raw<std::uint32_t>(3);
  for (const std::uint64_t count :
       {std::uint64_t{1} << 20, std::uint64_t{1} << 40, ~std::uint64_t{0}}) {
    for (const std::string& file :
         {start + raw(count) + raw<std::uint64_t>(0), start + raw<std::uint64_t>(0) + raw(count)}) {
      EXPECT_EQ(parse_gguf(source_of(file)).status().code(), Code::corrupt);
    }
  }
}

TEST(Gguf, EveryTruncationIsAnError) {
  const std::string whole = testing::tiny_gguf("qwen3").build();
  ASSERT_TRUE(parse_gguf(source_of(whole)).ok());
  for (std::size_t size = 0; size < whole.size(); ++size) {
    const std::string cut = whole.substr(0, size);
    ASSERT_EQ(parse_gguf(source_of(cut)).status().code(), Code::corrupt) << size;
  }
}

TEST(Gguf, OtherFilesAreNamedAsSuch) {
  for (const std::string& bytes :
       {std::string("PK\3\4aaaaaaaaaaaaaaaaaaaaaaaa"), std::string("GG")}) {
    EXPECT_EQ(parse_gguf(source_of(bytes)).status().code(), Code::corrupt);
  }
  EXPECT_EQ(parse_gguf(source_of("FUGG" + std::string(40, '\0'))).status().code(),
            Code::unsupported);
}

}  // namespace
}  // namespace drafthouse
