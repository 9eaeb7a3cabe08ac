#include "cache/disk/disk_index.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

#include "cache/disk/hashing.h"
#include "cache/disk/test_disk.h"

namespace drafthouse {
namespace {

using Text = std::vector<std::uint32_t>;

RootName root(std::uint8_t number) {
  RootName name;
  name.bytes.fill(number);
  return name;
}

// Pages [first, end) of `text`, all groups.
std::shared_ptr<StoredRun> run_of(const Text& text, std::uint32_t first, std::uint32_t end,
                                  std::size_t groups, std::int64_t used, std::uint8_t of_root = 1) {
  RunRecord record;
  record.root = root(of_root);
  record.first = first;
  for (std::uint32_t page = 0; page < first; ++page) {
    record.parent = page_address(
        record.parent, std::span(text).subspan(std::size_t{page} * kPageTokens, kPageTokens));
  }
  record.tokens.assign(text.begin() + first * kPageTokens, text.begin() + end * kPageTokens);
  for (std::size_t g = 0; g < groups; ++g) {
    RunGroup& group = record.groups.emplace_back(RunGroup{100, {}});
    for (std::uint32_t page = first; page < end; ++page) group.pages.push_back({page, page});
  }
  name_run(record);
  return std::make_shared<StoredRun>(std::move(record), used);
}

const StateLayout kLayout{{{100, 0, false}}};

TEST(DiskIndex, ComparesTokensAndRoots) {
  DiskIndex index;
  const Text text = test_disk::tokens(1, 4 * 64);
  EXPECT_TRUE(index.insert(run_of(text, 0, 4, 1, 1)));
  EXPECT_FALSE(index.insert(run_of(text, 0, 4, 1, 1)));
  EXPECT_EQ(index.find(root(1), text, kLayout).pages, 4u);
  EXPECT_EQ(index.find(root(2), text, kLayout).pages, 0u);
  for (std::uint32_t at : {0u, 63u, 64u, 200u, 255u}) {
    Text other = text;
    other[at] ^= 1;
    const IndexMatch match = index.find(root(1), other, kLayout);
    EXPECT_EQ(match.pages, at / 64);
    EXPECT_EQ(match.equal_tokens, at % 64);
  }
  EXPECT_EQ(index.find(root(1), std::span(text).first(200), kLayout).pages, 3u);
}

TEST(DiskIndex, RunsWithoutTheirParentAreRefused) {
  DiskIndex index;
  const Text text = test_disk::tokens(1, 4 * 64);
  const Text other = test_disk::tokens(2, 4 * 64);
  EXPECT_FALSE(index.insert(run_of(text, 2, 4, 1, 1)));
  EXPECT_TRUE(index.insert(run_of(other, 0, 2, 1, 1)));
  EXPECT_FALSE(index.insert(run_of(text, 2, 4, 1, 1)));
  EXPECT_TRUE(index.insert(run_of(text, 0, 2, 1, 1)));
  EXPECT_TRUE(index.insert(run_of(text, 2, 4, 1, 1)));
  EXPECT_EQ(index.find(root(1), text, kLayout).pages, 4u);
}

TEST(DiskIndex, OldestLeafIsNeverOneThatOthersNeedOrHold) {
  DiskIndex index;
  const Text text = test_disk::tokens(1, 6 * 64);
  Text branch(text.begin(), text.begin() + 3 * 64);
  const Text tail = test_disk::tokens(5, 2 * 64);
  branch.insert(branch.end(), tail.begin(), tail.end());
  const auto base = run_of(text, 0, 4, 1, 1);
  const auto leaf = run_of(text, 4, 6, 1, 9);
  const auto side = run_of(branch, 3, 5, 1, 5);  // hangs from inside the base
  for (const auto& run : {base, leaf, side}) EXPECT_TRUE(index.insert(run));
  EXPECT_EQ(index.oldest_leaf(), side);
  EXPECT_EQ(index.parent_of(*side), base);
  side->holds = 1;
  EXPECT_EQ(index.oldest_leaf(), leaf);
  side->holds = 0;
  EXPECT_EQ(index.remove(root(1), side->record.id).size(), 1u);
  EXPECT_EQ(index.oldest_leaf(), leaf);
  index.remove(root(1), leaf->record.id);
  EXPECT_EQ(index.oldest_leaf(), base);
  index.remove(root(1), base->record.id);
  EXPECT_EQ(index.runs(), 0u);
  EXPECT_EQ(index.charged(), 0u);
  EXPECT_EQ(index.memory_bytes(), 0u);
}

TEST(DiskIndex, WithoutAMiddleNothingBehindItIsFound) {
  DiskIndex index;
  const Text text = test_disk::tokens(1, 6 * 64);
  const auto middle = run_of(text, 2, 4, 1, 1);
  EXPECT_TRUE(index.insert(run_of(text, 0, 2, 1, 1)));
  EXPECT_TRUE(index.insert(middle));
  EXPECT_TRUE(index.insert(run_of(text, 4, 6, 1, 1)));
  const auto removed = index.remove(root(1), middle->record.id);
  ASSERT_EQ(removed.size(), 2u);
  EXPECT_EQ(removed[0]->record.first, 4u);
  EXPECT_EQ(index.find(root(1), text, kLayout).pages, 2u);
}

// Against a plain map of prefixes, over random growing and branching texts.
TEST(DiskIndex, AgreesWithAPlainMap) {
  std::mt19937 generator(4);
  const auto random = [&] { return static_cast<std::uint32_t>(generator()); };
  DiskIndex index;
  std::set<Text> stored;  // every prefix of whole pages
  std::map<RunId, std::shared_ptr<StoredRun>> runs;
  std::vector<Text> texts{{}};
  for (int round = 0; round < 400; ++round) {
    Text text = texts[random() % texts.size()];
    text.resize(text.size() / 64 * (random() % 3 == 0 ? 32 : 64));
    text.resize(text.size() / 64 * 64);
    const Text more = test_disk::tokens(random() % 40, (1 + random() % 3) * 64);
    text.insert(text.end(), more.begin(), more.end());
    texts.push_back(text);
    if (random() % 4 != 0) {
      const auto missing = index.missing(root(1), text, kLayout);
      if (!missing.empty()) {
        const auto run = run_of(text, missing.front().page, missing.back().page + 1, 1, round);
        ASSERT_TRUE(index.insert(run));
        runs[run->record.id] = run;
        for (std::size_t end = 64; end <= text.size(); end += 64) {
          stored.insert(Text(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(end)));
        }
      }
      ASSERT_TRUE(index.missing(root(1), text, kLayout).empty());
    } else if (const auto leaf = index.oldest_leaf(); leaf != nullptr) {
      for (const auto& [id, run] : runs) {
        if (index.is_leaf(*run)) {
          EXPECT_LE(leaf->last_use_ns, run->last_use_ns);
        }
      }
      ASSERT_EQ(index.remove(root(1), leaf->record.id).size(), 1u);
      runs.erase(leaf->record.id);
      // The pages of the run that no other run has.
      std::erase_if(stored, [&](const Text& prefix) {
        return index.find(root(1), prefix, kLayout).pages * 64 != prefix.size();
      });
    }
    for (int i = 0; i < 20; ++i) {
      const Text& asked = texts[random() % texts.size()];
      std::uint32_t expected = 0;
      while ((expected + 1) * 64 <= asked.size() &&
             stored.contains(Text(asked.begin(), asked.begin() + (expected + 1) * 64))) {
        ++expected;
      }
      ASSERT_EQ(index.find(root(1), asked, kLayout).pages, expected);
    }
  }
  EXPECT_EQ(index.runs(), runs.size());
}

}  // namespace
}  // namespace drafthouse
