#include "cache/prefix_index.h"

#include <gtest/gtest.h>

#include <random>

#include "cache/cache_test_pages.h"

namespace drafthouse {
namespace {

const auto kAlways = [](std::size_t) { return true; };

StateLayout dense_layout() {
  return {{{.page_bytes = 256, .reach = 0, .draft = false},
           {.page_bytes = 128, .reach = 0, .draft = true}}};
}

std::vector<std::uint32_t> joined(std::vector<std::uint32_t> a,
                                  const std::vector<std::uint32_t>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

TEST(PrefixIndex, FindsTheLongestCommonPagesAndSharesThem) {
  PageStore store(dense_layout(), nullptr);
  PrefixIndex index(store.layout());
  const auto system = made_up_tokens(1, 128);
  const auto a = joined(system, made_up_tokens(2, 200));
  const auto b = joined(system, made_up_tokens(3, 200));
  EXPECT_EQ(index.insert("", a, made_up_pages(store, 9, a), kAlways), 5u);
  EXPECT_EQ(index.insert("", b, made_up_pages(store, 9, b), kAlways), 5u);
  EXPECT_EQ(index.nodes(), 8u) << "the first two pages are shared";

  const auto found = index.find("", b, 5, true);
  ASSERT_EQ(found.pages, 5u);
  EXPECT_EQ(found.draft_begin, 0u);
  EXPECT_EQ(found.why_not_more, "");
  for (std::size_t p = 0; p < 5; ++p) {
    const auto prefix = std::span(b).first((p + 1) * kPageTokens);
    EXPECT_TRUE(page_is(found.shared[0][p], 9, 0, prefix)) << p;
    EXPECT_TRUE(page_is(found.shared[1][p], 9, 1, prefix)) << p;
  }
  const auto other = joined(system, made_up_tokens(4, 200));
  const auto partly = index.find("", other, 5, true);
  EXPECT_EQ(partly.pages, 2u);
}

TEST(PrefixIndex, WithRecurrentLayersAPrefixEndsAtACheckpoint) {
  PageStore store({{{.page_bytes = 256},
                    {.page_bytes = 4096, .reach = kRecurrentReach, .kind = GroupKind::recurrent},
                    {.page_bytes = 512, .reach = kRingReach, .kind = GroupKind::ring},
                    {.page_bytes = 128, .draft = true}}},
                  nullptr);
  PrefixIndex index(store.layout());
  const auto stored = made_up_tokens(1, 320);
  PrefixPages pages = made_up_pages(store, 9, stored);
  ASSERT_TRUE(pages[1][4]);
  ASSERT_FALSE(pages[1][3]) << "the state at its end is all that a prefix needs";
  EXPECT_EQ(index.insert("", stored, pages, kAlways), 5u);
  EXPECT_EQ(index.find("", stored, 5, false).pages, 5u);
  // One page less is known, but there is no way to go on from there.
  auto found = index.find("", stored, 4, false);
  EXPECT_EQ(found.known, 4u);
  EXPECT_EQ(found.pages, 0u);
  EXPECT_EQ(found.why_not_more, "no checkpoint of the recurrent layers");
  // A checkpoint that comes later makes it usable.
  const auto shorter = std::span(stored).first(3 * kPageTokens);
  EXPECT_EQ(index.insert("", shorter, made_up_pages(store, 9, shorter), kAlways), 3u);
  found = index.find("", stored, 4, false);
  EXPECT_EQ(found.pages, 3u);
  EXPECT_TRUE(page_is(found.shared[1][2], 9, 1, shorter));
  EXPECT_FALSE(found.shared[1][1]);
  EXPECT_FALSE(found.shared[2][2]);
}

TEST(PrefixIndex, SaysWhereAPromptStopsMatching) {
  PageStore store(dense_layout(), nullptr);
  PrefixIndex index(store.layout());
  const auto stored = made_up_tokens(1, 320);
  index.insert("", stored, made_up_pages(store, 9, stored), kAlways);
  for (const std::size_t at : {0u, 1u, 63u, 64u, 100u, 319u}) {
    auto prompt = stored;
    prompt[at] += 1;
    const auto found = index.find("", prompt, 5, false);
    EXPECT_EQ(found.pages, at / kPageTokens);
    EXPECT_EQ(found.why_not_more, "differs at token " + std::to_string(at));
  }
  EXPECT_EQ(index.find("tenant", stored, 5, false).why_not_more, "nothing is stored");
}

TEST(PrefixIndex, SaltsNeverMeet) {
  PageStore store(dense_layout(), nullptr);
  PrefixIndex index(store.layout());
  const auto tokens = made_up_tokens(1, 256);
  index.insert("a", tokens, made_up_pages(store, 1, tokens), kAlways);
  index.insert("b", tokens, made_up_pages(store, 2, tokens), kAlways);
  EXPECT_EQ(index.nodes(), 8u);
  EXPECT_TRUE(page_is(index.find("a", tokens, 4, true).shared[0][3], 1, 0, tokens));
  EXPECT_TRUE(page_is(index.find("b", tokens, 4, true).shared[0][3], 2, 0, tokens));
  EXPECT_EQ(index.find("", tokens, 4, true).pages, 0u);
  index.clear("a");
  EXPECT_EQ(index.find("a", tokens, 4, true).pages, 0u);
  EXPECT_EQ(index.find("b", tokens, 4, true).pages, 4u);
}

TEST(PrefixIndex, MissingDraftPagesShortenTheDraftContextOnly) {
  PageStore store(dense_layout(), nullptr);
  PrefixIndex index(store.layout());
  const auto tokens = made_up_tokens(1, 320);
  PrefixPages plain = made_up_pages(store, 9, tokens);
  for (PageRef& page : plain[1]) page.reset();
  index.insert("", tokens, plain, kAlways);
  auto found = index.find("", tokens, 5, true);
  EXPECT_EQ(found.pages, 5u);
  EXPECT_EQ(found.draft_begin, 5u);

  PrefixPages partly = made_up_pages(store, 9, tokens);
  partly[1][1].reset();
  index.insert("", tokens, partly, kAlways);
  found = index.find("", tokens, 5, true);
  EXPECT_EQ(found.draft_begin, 2u) << "context in one piece, up to the prefix's end";
  EXPECT_FALSE(found.shared[1][0]);
  EXPECT_TRUE(found.shared[1][2]);
}

TEST(PrefixIndex, AWindowedGroupNeedsOnlyItsReach) {
  const StateLayout layout{{{.page_bytes = 64, .reach = 0, .draft = false},
                            {.page_bytes = 64, .reach = 100, .draft = false}}};
  PageStore store(layout, nullptr);
  PrefixIndex index(layout);
  const auto tokens = made_up_tokens(1, 640);
  index.insert("", tokens, made_up_pages(store, 9, tokens), kAlways);
  const auto all = index.find("", tokens, 10, true);
  EXPECT_EQ(all.pages, 10u);
  EXPECT_FALSE(all.shared[1][7]);
  EXPECT_TRUE(all.shared[1][8]);
  const auto inner = index.find("", tokens, 9, true);
  EXPECT_EQ(inner.pages, 0u) << "the window of the inner boundary was not stored";
  EXPECT_EQ(inner.why_not_more, "evicted");
}

TEST(PrefixIndex, TheSinkOfADraftComesWithItsWindow) {
  const StateLayout layout{{{.page_bytes = 64, .reach = 0, .draft = false},
                            {.page_bytes = 64, .reach = 100, .draft = true, .sink = 128}}};
  PageStore store(layout, nullptr);
  PrefixIndex index(layout);
  const auto tokens = made_up_tokens(1, 640);
  auto pages = made_up_pages(store, 9, tokens);
  for (std::uint32_t page = 0; page < 2; ++page) {
    pages[1][page] = store.pool(1)->take().value();
  }
  index.insert("", tokens, pages, kAlways);
  const auto found = index.find("", tokens, 10, true);
  EXPECT_EQ(found.pages, 10u);
  EXPECT_EQ(found.draft_begin, 0u);
  for (std::uint32_t page = 0; page < 10; ++page) {
    EXPECT_EQ(static_cast<bool>(found.shared[1][page]), page < 2 || page >= 8) << page;
  }
}

TEST(PrefixIndex, EvictsLeavesByValueAndNeverHeldOrPinnedPages) {
  PageStore store(dense_layout(), nullptr);
  PrefixIndex index(store.layout());
  const auto busy = made_up_tokens(1, 256);
  const auto idle = made_up_tokens(2, 256);
  const auto pinned = made_up_tokens(3, 256);
  for (const auto* each : {&busy, &idle, &pinned}) {
    index.insert("", *each, made_up_pages(store, 9, *each), kAlways);
  }
  EXPECT_EQ(index.pin("", pinned, true), 4u);
  for (int i = 0; i < 5; ++i) (void)index.find("", busy, 4, true);
  const PageRef held = index.find("", idle, 4, false).shared[0][3];
  EXPECT_GT(index.evict(), 0u);
  EXPECT_EQ(index.find("", idle, 4, false).pages, 4u) << "held by a sequence";
  EXPECT_EQ(index.find("", busy, 4, false).pages, 3u);
  EXPECT_EQ(index.find("", busy, 4, false).why_not_more, "evicted");
  while (index.evict() > 0) {
  }
  EXPECT_EQ(index.find("", pinned, 4, false).pages, 4u);
  EXPECT_EQ(index.pin("", pinned, false), 4u);
  while (index.evict() > 0) {
  }
  EXPECT_EQ(index.nodes(), 4u) << "the held leaf and the pages before it";
}

TEST(PrefixIndex, TheOlderUseLeavesFirstAmongEquals) {
  PageStore store(dense_layout(), nullptr);
  PrefixIndex index(store.layout());
  std::vector<std::vector<std::uint32_t>> all;
  for (std::uint32_t i = 0; i < 10; ++i) {
    all.push_back(made_up_tokens(i, 64));
    index.insert("", all.back(), made_up_pages(store, 9, all.back()), kAlways);
  }
  for (std::uint32_t i = 0; i < 10; ++i) {
    index.evict();
    for (std::uint32_t j = 0; j < 10; ++j) {
      EXPECT_EQ(index.find("", all[j], 1, false).pages, j > i ? 1u : 0u);
    }
  }
}

TEST(PrefixIndex, AdmissionEndsAnInsertionWithoutHoles) {
  PageStore store(dense_layout(), nullptr);
  PrefixIndex index(store.layout());
  const auto tokens = made_up_tokens(1, 640);
  int left = 4;
  EXPECT_EQ(index.insert("", tokens, made_up_pages(store, 9, tokens),
                         [&left](std::size_t) { return left-- > 0; }),
            4u);
  EXPECT_EQ(index.find("", tokens, 10, true).pages, 4u);
  EXPECT_EQ(index.bytes(), 4u * (256 + 128));
}

// Against the plainest model: a map from prefix to bytes.
TEST(PrefixIndex, MakingRoomNeverTakesThePageThatIsCompleted) {
  PageStore store(dense_layout(), nullptr);
  PrefixIndex index(store.layout());
  const auto tokens = made_up_tokens(1, 64);
  {
    PrefixPages plain = made_up_pages(store, 9, tokens);
    plain[1][0] = PageRef();
    index.insert("", tokens, plain, kAlways);
  }
  // Another sequence computed the same text, with the draft's pages.
  const auto evict_all = [&index](std::size_t) {
    while (index.evict() > 0) {
    }
    return true;
  };
  EXPECT_EQ(index.insert("", tokens, made_up_pages(store, 9, tokens), evict_all), 1u);
  const auto found = index.find("", tokens, 1, false);
  ASSERT_EQ(found.pages, 1u);
  EXPECT_EQ(found.draft_begin, 0u);
  EXPECT_EQ(index.bytes(), std::size_t{256 + 128});
}

// A store of the same groups whose pages are all there, as the chunks of a prompt publish them.
StateLayout without_reach(StateLayout layout) {
  for (GroupLayout& group : layout.groups) group.reach = 0;
  return layout;
}

std::vector<std::uint32_t> pages_there(const PrefixIndex& index,
                                       const std::vector<std::uint32_t>& tokens,
                                       std::size_t group) {
  std::vector<std::uint32_t> there;
  for (const PrefixIndex::Leaf& leaf : index.leaves()) {
    if (!std::equal(leaf.tokens.begin(), leaf.tokens.end(), tokens.begin())) continue;
    for (std::uint32_t p = 0; p < leaf.pages[group].size(); ++p) {
      if (leaf.pages[group][p]) there.push_back(p);
    }
  }
  return there;
}

TEST(PrefixIndex, WhatTheEndOfATextDoesNotSeeGoesBeforeIt) {
  const StateLayout layout{{{.page_bytes = 256},
                            {.page_bytes = 64, .reach = 100},
                            {.page_bytes = 128, .reach = 130, .draft = true, .sink = 64}}};
  PageStore store(without_reach(layout), nullptr);
  PrefixIndex index(layout);
  const auto text = made_up_tokens(1, 640);
  index.insert("", text, made_up_pages(store, 9, text), kAlways);
  const auto system = std::span(text).first(128);
  const auto other = joined({system.begin(), system.end()}, made_up_tokens(2, 3 * kPageTokens));

  // Pages 1 to 6 of the draft (after its sink) and 0 to 7 of the sliding layers, first ones first.
  EXPECT_EQ(index.evict(), 64u);
  EXPECT_EQ(index.evict(), 64u + 128u);
  for (int i = 2; i < 7; ++i) EXPECT_EQ(index.evict(), 64u + 128u);
  EXPECT_EQ(index.evict(), 64u);
  EXPECT_EQ(index.evictions(), 0u);
  EXPECT_EQ(index.find("", text, 10, false).pages, 10u);
  EXPECT_EQ(index.find("", text, 10, false).draft_begin, 0u);
  EXPECT_EQ(pages_there(index, text, 0).size(), 10u);
  EXPECT_EQ(pages_there(index, text, 1), (std::vector<std::uint32_t>{8, 9}));
  EXPECT_EQ(pages_there(index, text, 2), (std::vector<std::uint32_t>{0, 7, 8, 9}));
  EXPECT_EQ(index.bytes(), 10u * 256 + 2u * 64 + 4u * 128);
  EXPECT_EQ(index.evict(), 256u + 64u + 128u) << "then the end";

  // Where texts part a hit needs what it sees there.
  index.clear();
  index.insert("", text, made_up_pages(store, 9, text), kAlways);
  index.insert("", other, made_up_pages(store, 9, other), kAlways);
  while (index.evictions() == 0) ASSERT_GT(index.evict(), 0u);
  EXPECT_EQ(index.find("", text, 2, false).pages, 2u);
  EXPECT_EQ(index.find("", text, 2, false).draft_begin, 0u);
}

TEST(PrefixIndex, OlderCheckpointsOfATextGoBeforeItsEnd) {
  const StateLayout layout{
      {{.page_bytes = 256},
       {.page_bytes = 4096, .reach = kRecurrentReach, .kind = GroupKind::recurrent}}};
  PageStore store(without_reach(layout), nullptr);
  PrefixIndex index(layout);
  const auto text = made_up_tokens(1, 8 * kPageTokens);
  PrefixPages pages = made_up_pages(store, 9, text);
  for (const std::size_t page : {0u, 2u, 4u, 6u}) pages[1][page].reset();
  pages[1][7].reset();  // a run that is not at its end yet
  index.insert("", text, pages, kAlways);
  EXPECT_EQ(pages_there(index, text, 1), (std::vector<std::uint32_t>{1, 3, 5}));
  const PageRef held = pages[0][7];
  pages.clear();
  // The pages of the end are held by a sequence, older checkpoints by nobody.
  EXPECT_EQ(index.evict(), 4096u);
  EXPECT_EQ(pages_there(index, text, 1), (std::vector<std::uint32_t>{3, 5}));
  // Another text parts behind page 3.
  const auto system = std::span(text).first(4 * kPageTokens);
  const auto other = joined({system.begin(), system.end()}, made_up_tokens(2, 2 * kPageTokens));
  index.insert("", other, made_up_pages(store, 9, other), kAlways);
  while (index.evictions() == 0) ASSERT_GT(index.evict(), 0u);
  EXPECT_EQ(index.find("", text, 4, false).pages, 4u);
}

// Of a prompt that is larger than the limit the target's pages are kept, not what the draft has
// left behind.
TEST(PrefixIndex, ADraftsOldPagesMakeRoomForTheTargets) {
  const StateLayout layout{
      {{.page_bytes = 256}, {.page_bytes = 128, .reach = 130, .draft = true, .sink = 64}}};
  PageStore store(without_reach(layout), nullptr);
  PrefixIndex index(layout);
  const auto text = made_up_tokens(1, 40 * kPageTokens);
  constexpr std::size_t kLimit = 20u * (256 + 128);
  const auto limited = [&](std::size_t bytes) { return index.bytes() + bytes <= kLimit; };
  const std::uint32_t stored = index.insert("", text, made_up_pages(store, 9, text), limited);
  // The sink, and three pages and the one that comes next.
  EXPECT_EQ(stored, (kLimit - 5 * 128) / 256);
  EXPECT_LE(index.bytes(), kLimit);
  const auto found = index.find("", text, 40, false);
  EXPECT_EQ(found.pages, stored);
  EXPECT_EQ(found.draft_begin, 0u);
  EXPECT_TRUE(found.shared[1][0]);
  EXPECT_TRUE(found.shared[1][stored - 3]);
}

TEST(PrefixIndex, RandomSchedulesAgreeWithAPlainMap) {
  for (std::uint32_t seed = 0; seed < 20; ++seed) {
    std::mt19937 random(seed);
    PageStore store(dense_layout(), nullptr);
    PrefixIndex index(store.layout());
    std::vector<std::vector<std::uint32_t>> texts;
    for (int step = 0; step < 300; ++step) {
      std::vector<std::uint32_t> text;
      if (!texts.empty() && random() % 4 != 0) {
        text = texts[random() % texts.size()];
        text.resize(random() % (text.size() + 1));
      }
      text = joined(std::move(text),
                    made_up_tokens(static_cast<std::uint32_t>(random() % 6), 1 + random() % 300));
      texts.push_back(text);
      const auto pages_max = static_cast<std::uint32_t>(text.size() / kPageTokens);
      const auto found = index.find(random() % 2 == 0 ? "" : "s", text, pages_max, true);
      for (std::uint32_t p = 0; p < found.pages; ++p) {
        const auto prefix = std::span(text).first((p + 1) * kPageTokens);
        ASSERT_TRUE(page_is(found.shared[0][p], 9, 0, prefix));
      }
      if (pages_max > 0) {
        index.insert(random() % 2 == 0 ? "" : "s", text, made_up_pages(store, 9, text), kAlways);
      }
      if (random() % 3 == 0) index.evict();
    }
    EXPECT_EQ(store.pool(0)->pages_in_use(), index.nodes());
    index.clear();
    EXPECT_EQ(index.nodes(), 0u);
    EXPECT_EQ(index.bytes(), 0u);
    EXPECT_EQ(store.pool(0)->pages_in_use(), 0u);
  }
}

// Whatever goes first, what is found is whole and right, and bytes are counted.
TEST(PrefixIndex, RandomSchedulesWithReachesFindWholePrefixes) {
  const StateLayout layout{
      {{.page_bytes = 256},
       {.page_bytes = 64, .reach = 100},
       {.page_bytes = 1024, .reach = kRecurrentReach, .kind = GroupKind::recurrent},
       {.page_bytes = 128, .reach = 130, .draft = true, .sink = 64}}};
  for (std::uint32_t seed = 0; seed < 20; ++seed) {
    std::mt19937 random(seed);
    PageStore store(without_reach(layout), nullptr);
    PrefixIndex index(layout);
    const std::size_t limit = 4096 + random() % 32768;
    const auto admit = [&](std::size_t bytes) {
      while (index.bytes() + bytes > limit) {
        if (index.evict() == 0) return false;
      }
      return true;
    };
    std::vector<std::vector<std::uint32_t>> texts{made_up_tokens(99, 300)};
    for (int step = 0; step < 200; ++step) {
      std::vector<std::uint32_t> text = texts[random() % texts.size()];
      text.resize(random() % (text.size() + 1));
      text = joined(std::move(text),
                    made_up_tokens(static_cast<std::uint32_t>(random() % 6), 1 + random() % 500));
      if (text.size() > 20 * kPageTokens) text.resize(20 * kPageTokens);
      texts.push_back(text);
      const auto pages_max = static_cast<std::uint32_t>(text.size() / kPageTokens);
      {
        const auto found = index.find("", text, pages_max, true);
        for (std::size_t g = 0; g < layout.groups.size(); ++g) {
          const std::uint32_t begin =
              std::max(first_page_seen(found.pages * kPageTokens, layout.groups[g].reach),
                       layout.groups[g].draft ? found.draft_begin : 0);
          for (std::uint32_t p = begin; p < found.pages; ++p) {
            const auto prefix = std::span(text).first((p + 1) * kPageTokens);
            ASSERT_TRUE(page_is(found.shared[g][p], 9, g, prefix)) << g << " " << p;
          }
        }
      }
      if (pages_max == 0) continue;
      PrefixPages pages = made_up_pages(store, 9, text);
      for (std::uint32_t p = 0; p + 1 < pages_max; ++p) {
        if (random() % 4 != 0) pages[2][p].reset();
      }
      const std::uint32_t stored = index.insert("", text, pages, admit);
      ASSERT_LE(stored, pages_max);
      ASSERT_LE(index.bytes(), limit);
    }
    std::size_t bytes = 0;
    for (std::size_t g = 0; g < layout.groups.size(); ++g) {
      bytes += store.pool(g)->pages_in_use() * layout.groups[g].page_bytes;
    }
    EXPECT_EQ(index.bytes(), bytes);
    EXPECT_EQ(store.pool(0)->pages_in_use(), index.nodes());
    while (index.evict() > 0) {
    }
    EXPECT_EQ(index.nodes(), 0u);
    EXPECT_EQ(index.bytes(), 0u);
  }
}

}  // namespace
}  // namespace drafthouse
