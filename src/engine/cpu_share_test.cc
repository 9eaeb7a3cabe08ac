#include "engine/cpu_share.h"

#include <gtest/gtest.h>

namespace drafthouse {
namespace {

TEST(CpuShare, IsCpuTimeOverWhatTheThreadsCouldHaveHad) {
  EXPECT_DOUBLE_EQ(cpu_share(8, 2, 4), 1);
  EXPECT_DOUBLE_EQ(cpu_share(4, 2, 4), 0.5);
  EXPECT_DOUBLE_EQ(cpu_share(0, 2, 4), 0);
  EXPECT_DOUBLE_EQ(cpu_share(9, 2, 4), 1) << "other threads of the process";
  EXPECT_DOUBLE_EQ(cpu_share(0, 0, 4), 1) << "nothing was measured";
}

TEST(CpuShare, ABusyMachineGivesLessThanSevenTenths) {
  EXPECT_TRUE(is_busy(cpu_share(2.7, 2, 2)));
  EXPECT_FALSE(is_busy(cpu_share(2.9, 2, 2)));
}

}  // namespace
}  // namespace drafthouse
