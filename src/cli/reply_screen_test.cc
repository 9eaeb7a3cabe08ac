#include "cli/reply_screen.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace drafthouse::cli {
namespace {

TEST(ReplyScreen, ThoughtsAreDimmedAndCallsStandAlone) {
  ::unsetenv("NO_COLOR");
  ReplyScreen screen;
  EXPECT_EQ(screen.show({}), "");
  EXPECT_EQ(screen.show({.reasoning = "I think"}), "\x1b[2mI think\x1b[0m");
  EXPECT_EQ(screen.show({.reasoning = " twice.", .content = "Yes"}),
            "\x1b[2m twice.\x1b[0m\n\nYes");
  EXPECT_EQ(screen.show({.content = "."}), ".");
  EXPECT_EQ(
      screen.show({.calls = {{.name = "f", .arguments = "{}"}, {.name = "g", .arguments = "{}"}}}),
      "\nf {}\ng {}\n");
}

TEST(ReplyScreen, ControlCharactersDoNotReachTheTerminal) {
  ReplyScreen screen;
  EXPECT_EQ(screen.show({.content = "a\x1b[31mb\r\x7f\tc\n"}), "a[31mb\tc\n");
}

}  // namespace
}  // namespace drafthouse::cli
