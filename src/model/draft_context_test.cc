#include "model/draft_context.h"

#include <gtest/gtest.h>

namespace drafthouse {
namespace {

TEST(DraftContext, FullLayersSeeTheWindowLessThePagesThatMayBeOpen) {
  const DraftContext kept = DraftContext::of(1024, 64, 0);
  EXPECT_EQ(kept.reach(0), 1024u - 2 * kPagePositions + 2);
  EXPECT_EQ(kept.sink_of(0), 64u);
  EXPECT_EQ(DraftContext::of(1000, 65, 0).reach(0), kept.reach(0)) << "in whole pages";
  EXPECT_EQ(DraftContext::of(1000, 65, 0).sink_of(0), 128u);
  EXPECT_EQ(DraftContext::of(0, 64, 0).reach(0), 0u) << "all positions";
  EXPECT_EQ(DraftContext::of(0, 64, 0).sink_of(0), 0u);
}

// What a draft was trained with is neither cut nor extended.
TEST(DraftContext, SlidingLayersKeepTheirOwnWindow) {
  for (const std::uint32_t window : {0u, 256u, 1024u, 4096u}) {
    const DraftContext kept = DraftContext::of(window, 64, 2048);
    EXPECT_EQ(kept.reach(2048), 2048u) << window;
    EXPECT_EQ(kept.sink_of(2048), 0u);
  }
  // Full layers beside them see no less than they do.
  EXPECT_EQ(DraftContext::of(1024, 64, 2048).window, 2048u);
  EXPECT_EQ(DraftContext::of(4096, 64, 2048).window, 4096u);
  EXPECT_EQ(DraftContext::of(0, 64, 2048).reach(0), 0u);
}

}  // namespace
}  // namespace drafthouse
