#include "cli/reply_screen.h"

#include <cstdlib>
#include <string_view>

namespace drafthouse::cli {
namespace {

constexpr std::string_view kDim = "\x1b[2m";
constexpr std::string_view kNormal = "\x1b[0m";

// A model's text must not steer the terminal.
std::string without_controls(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if ((byte >= 0x20 && byte != 0x7f) || c == '\n' || c == '\t') out += c;
  }
  return out;
}

}  // namespace

ReplyScreen::ReplyScreen() : dims_(std::getenv("NO_COLOR") == nullptr) {}

void ReplyScreen::begin(Last next, std::string& out) {
  if (last_ == Last::reasoning && next != last_) out += "\n\n";
  if (last_ == Last::content && next != last_) out += "\n";
  last_ = next;
}

std::string ReplyScreen::show(const ReplyPart& part) {
  std::string out;
  if (!part.reasoning.empty()) {
    begin(Last::reasoning, out);
    if (dims_) out += kDim;
    out += without_controls(part.reasoning);
    if (dims_) out += kNormal;
  }
  if (!part.content.empty()) {
    begin(Last::content, out);
    out += without_controls(part.content);
  }
  for (const ToolCall& call : part.calls) {
    begin(Last::call, out);
    out += without_controls(call.name + " " + call.arguments) + "\n";
  }
  return out;
}

}  // namespace drafthouse::cli
