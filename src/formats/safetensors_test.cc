#include "formats/safetensors.h"

#include <gtest/gtest.h>

#include "formats/test_files.h"

namespace drafthouse {
namespace {

using testing::safetensors;
using testing::source_of;

TEST(Safetensors, ReadsEveryField) {
  const std::string header = R"({"__metadata__":{"format":"pt","x":{"deep":[1,2]}},)"
                             R"("b":{"dtype":"F32","shape":[2,3],"data_offsets":[4,28]},)"
                             R"("a":{"dtype":"BF16","shape":[2],"data_offsets":[0,4]},)"
                             R"("scalar":{"dtype":"I64","shape":[],"data_offsets":[28,36]},)"
                             R"("none":{"dtype":"F16","shape":[0,5],"data_offsets":[36,36]}}   )";
  auto parsed = parse_safetensors(source_of(safetensors(header, 36)));
  ASSERT_TRUE(parsed.ok()) << parsed.status().message();
  const auto& all = parsed.value();
  ASSERT_EQ(all.size(), 4u);
  EXPECT_EQ(all[0].name, "a");
  EXPECT_EQ(all[0].dtype, Dtype::bf16);
  EXPECT_EQ(all[0].offset, 8 + header.size());
  EXPECT_EQ(all[1].shape, (std::vector<std::uint64_t>{2, 3}));
  EXPECT_EQ(all[1].bytes, 24u);
  EXPECT_EQ(all[2].dtype, Dtype::i64);
  EXPECT_EQ(all[2].bytes, 8u);
  EXPECT_EQ(all[3].bytes, 0u);
}

struct Broken {
  std::string header;
  std::size_t data;
  Code code;
  std::string named;
};

TEST(Safetensors, RefusesEveryBrokenPromiseByName) {
  const auto f32 = [](std::string_view offsets) {
    return R"({"w":{"dtype":"F32","shape":[2],"data_offsets":)" + std::string(offsets) + "}}";
  };
  const auto shape = [](std::string_view dims) {
    return R"({"w":{"dtype":"F32","shape":)" + std::string(dims) + R"(,"data_offsets":[0,8]}})";
  };
  const std::string deep = std::string(100, '[') + std::string(100, ']');
  const std::vector<Broken> all = {
      {f32("[0,8]"), 7, Code::corrupt, "'w'"},
      {f32("[0,8]"), 0, Code::corrupt, "'w'"},
      {f32("[0,8]"), 9, Code::corrupt, "1 bytes"},
      {f32("[8,0]"), 8, Code::corrupt, "'w'"},
      {f32("[4,12]"), 12, Code::corrupt, "'w'"},
      {f32("[0,4]"), 8, Code::corrupt, "'w'"},
      {f32("[0]"), 8, Code::corrupt, "'w'"},
      {f32("[0,8,8]"), 8, Code::corrupt, "'w'"},
      {f32("[-8,0]"), 8, Code::corrupt, "'w'"},
      {f32("[0.0,8.0]"), 8, Code::corrupt, "'w'"},
      {f32("[NaN,8]"), 8, Code::corrupt, "JSON"},
      {f32("[18446744073709551608,18446744073709551616]"), 8, Code::corrupt, "'w'"},
      {f32("[18446744073709551600,18446744073709551608]"), 8, Code::corrupt, "'w'"},
      {shape("[3]"), 8, Code::corrupt, "'w'"},
      {shape("[4294967296,4294967296,4]"), 8, Code::corrupt, "'w'"},
      {shape("[1,1,1,1,1,1,1,1,2]"), 8, Code::corrupt, "'w'"},
      {shape("[\"2\"]"), 8, Code::corrupt, "'w'"},
      {shape("[[2]]"), 8, Code::corrupt, "'w'"},
      {shape("2"), 8, Code::corrupt, "'w'"},
      {R"({"w":{"dtype":"F33","shape":[2],"data_offsets":[0,8]}})", 8, Code::corrupt, "F33"},
      {R"({"w":{"dtype":"F64","shape":[1],"data_offsets":[0,8]}})", 8, Code::unsupported, "F64"},
      {R"({"w":{"dtype":"U64","shape":[1],"data_offsets":[0,8]}})", 8, Code::unsupported, "'w'"},
      {R"({"w":{"dtype":7,"shape":[2],"data_offsets":[0,8]}})", 8, Code::corrupt, "'w'"},
      {R"({"w":{"shape":[2],"data_offsets":[0,8]}})", 8, Code::corrupt, "'w'"},
      {R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8],"x":1}})", 8, Code::corrupt, "'w'"},
      {R"({"w":[1]})", 8, Code::corrupt, "'w'"},
      {R"({"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
       R"("w":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
       8, Code::corrupt, "twice"},
      {R"({"v":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
       R"("w":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})",
       12, Code::corrupt, "overlaps"},
      {R"({"__metadata__":)" + deep + "}", 0, Code::corrupt, "__metadata__"},
      {R"({"__metadata__":{"a":)" + deep + "}}", 0, Code::corrupt, "nested"},
      {R"({"":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 8, Code::corrupt, "name"},
      {"{\"" + std::string(600, 'n') + "\":{}}", 0, Code::corrupt, "name"},
      {"[]", 0, Code::corrupt, "header"},
      {"", 0, Code::corrupt, "JSON"},
      {"{", 0, Code::corrupt, "JSON"},
      {"{}x", 0, Code::corrupt, "JSON"},
      {"{\"\xff\":1}", 0, Code::corrupt, "JSON"},
  };
  for (const Broken& broken : all) {
    auto parsed = parse_safetensors(source_of(safetensors(broken.header, broken.data)));
    ASSERT_FALSE(parsed.ok()) << broken.header;
    EXPECT_EQ(parsed.status().code(), broken.code) << broken.header;
    const std::string& message = parsed.status().message();
    EXPECT_NE(message.find(broken.named), std::string::npos) << message;
    EXPECT_EQ(message.rfind("test-file: ", 0), 0u) << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  }
}

TEST(Safetensors, RefusesAHeaderThatDoesNotFitItsFile) {
  for (const std::uint64_t length :
       {std::uint64_t{3}, std::uint64_t{100'000'001}, ~std::uint64_t{0}, ~std::uint64_t{0} - 7}) {
    const std::string file = testing::raw(length) + "{}";
    EXPECT_EQ(parse_safetensors(source_of(file)).status().code(), Code::corrupt);
  }
  for (const std::string& file : {std::string(), std::string(7, '\0')}) {
    EXPECT_EQ(parse_safetensors(source_of(file)).status().code(), Code::corrupt);
  }
}

}  // namespace
}  // namespace drafthouse
