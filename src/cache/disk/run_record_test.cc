#include "cache/disk/run_record.h"

#include <gtest/gtest.h>

#include "cache/disk/hashing.h"
#include "cache/disk/test_disk.h"

namespace drafthouse {
namespace {

RunRecord sample() {
  RunRecord record;
  record.digest = test_disk::digest(7);
  record.root.bytes.fill(3);
  record.parent.bytes.fill(9);
  record.first = 2;
  record.tokens = test_disk::tokens(1, 3 * kPageTokens);
  record.tail = {1, 2, 3};
  record.groups = {{1000, {{2, 11}, {3, 12}, {4, 13}}}, {512, {{4, 14}}}, {0, {}}};
  name_run(record);
  return record;
}

TEST(RunRecord, ComesBackAsItWas) {
  const RunRecord record = sample();
  const std::vector<std::byte> bytes = encode(record);
  EXPECT_EQ(bytes.size(), encoded_bytes(record));
  const DecodedRecord decoded = decode_record(bytes);
  ASSERT_EQ(decoded.kind, DecodedRecord::Kind::run) << decoded.why;
  EXPECT_EQ(decoded.bytes, bytes.size());
  EXPECT_EQ(encode(decoded.run), bytes);
  EXPECT_EQ(decoded.run.tokens, record.tokens);
  EXPECT_EQ(decoded.run.groups[1].pages[0].checksum, 14u);
}

TEST(RunRecord, EveryFlippedBitAndEveryCutIsSeen) {
  const std::vector<std::byte> bytes = encode(sample());
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      std::vector<std::byte> broken = bytes;
      broken[i] ^= static_cast<std::byte>(1 << bit);
      EXPECT_NE(decode_record(broken).kind, DecodedRecord::Kind::run) << i;
    }
  }
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_EQ(decode_record(std::span(bytes).first(size)).kind, DecodedRecord::Kind::partial);
  }
}

TEST(RunRecord, NumbersAreCheckedEvenWhenTheChecksumFits) {
  const auto refused = [](auto&& change) {
    RunRecord record = sample();
    change(record);
    return decode_record(encode(record)).kind == DecodedRecord::Kind::damaged;
  };
  EXPECT_TRUE(refused([](RunRecord& r) { r.tokens.clear(); }));
  EXPECT_TRUE(refused([](RunRecord& r) { r.tail.resize(kPageTokens); }));
  EXPECT_TRUE(refused([](RunRecord& r) { r.groups[0].pages[2].page = 5; }));
  EXPECT_TRUE(refused([](RunRecord& r) { r.groups[0].pages[0].page = 1; }));
  EXPECT_TRUE(refused([](RunRecord& r) { std::swap(r.groups[0].pages[0], r.groups[0].pages[1]); }));
  EXPECT_TRUE(refused([](RunRecord& r) { r.first = 0; }));
  EXPECT_TRUE(refused([](RunRecord& r) { r.parent = {}; }));
  EXPECT_TRUE(refused([](RunRecord& r) { r.first = ~0u; }));
  EXPECT_TRUE(refused([](RunRecord& r) { r.groups[0].page_bytes = ~std::uint64_t{0}; }));
}

TEST(RunRecord, OneRunHasOneName) {
  RunRecord record = sample();
  const RunId name = record.id;
  record.groups[0].pages[0].checksum = 99;
  record.tail = {};
  name_run(record);
  EXPECT_EQ(record.id, name);
  record.tokens[5] ^= 1;
  name_run(record);
  EXPECT_NE(record.id, name);
}

TEST(RunRecord, RemovalsAndHeaders) {
  const RunRecord record = sample();
  const DecodedRecord removal = decode_record(encode_removal(record.root, record.id));
  EXPECT_EQ(removal.kind, DecodedRecord::Kind::removal);
  EXPECT_EQ(removal.run.id, record.id);
  EXPECT_EQ(removal.run.root, record.root);
  EXPECT_EQ(encode_pages_header(record, 0).size(), kPagesHeaderBytes);
  EXPECT_NE(encode_pages_header(record, 0), encode_pages_header(record, 1));
}

TEST(Names, OnlyNamesOfOursAreOurs) {
  const RunId id = sample().id;
  const auto manifest = parse_run_file(manifest_name(id));
  ASSERT_TRUE(manifest.has_value());
  EXPECT_TRUE(manifest->is_manifest);
  EXPECT_EQ(manifest->run, id);
  const auto pages = parse_run_file(pages_name(id, 12) + kTemporarySuffix);
  ASSERT_TRUE(pages.has_value());
  EXPECT_TRUE(pages->temporary);
  EXPECT_EQ(pages->group, 12u);
  const std::string digits = to_hex(id);
  for (const std::string& name : std::vector<std::string>{
           digits, digits + ".", digits + ".pages", digits + ".-1.pages", digits + ".01.pages",
           digits + ".1.pages.tmp.tmp", digits + ".1234.pages", "x" + digits + ".manifest",
           digits + ".manifest2", std::string("../") + digits + ".manifest", std::string()}) {
    EXPECT_FALSE(parse_run_file(name).has_value()) << name;
  }
  EXPECT_TRUE(parse_root(std::string(32, 'a')).has_value());
  EXPECT_FALSE(parse_root(std::string(32, 'A')).has_value());
  EXPECT_FALSE(parse_root("..").has_value());
  EXPECT_TRUE(is_digest(test_disk::digest(1).hex()));
  EXPECT_FALSE(is_digest(std::string(63, '0')));
}

TEST(Hashing, RootsDependOnKeyAndSalt) {
  const std::vector<std::byte> a(32, std::byte{1});
  const std::vector<std::byte> b(32, std::byte{2});
  EXPECT_EQ(root_name(a, "x"), root_name(a, "x"));
  EXPECT_NE(root_name(a, "x"), root_name(a, "y"));
  EXPECT_NE(root_name(a, "x"), root_name(b, "x"));
  EXPECT_NE(root_name(a, ""), root_name(b, ""));
}

}  // namespace
}  // namespace drafthouse
