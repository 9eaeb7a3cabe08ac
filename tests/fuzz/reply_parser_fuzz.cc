#include <cstdlib>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>

#include "input.h"
#include "text/reply_parser.h"
#include "text/thought.h"

namespace drafthouse {
namespace {

void add(ReplyPart&& from, ReplyPart& to) {
  to.reasoning += from.reasoning;
  to.content += from.content;
  std::move(from.calls.begin(), from.calls.end(), std::back_inserter(to.calls));
}

// The reply as it is read when it comes in pieces of so many bytes.
ReplyPart read(const ReplyParser::Options& options, std::string_view reply, std::size_t piece) {
  ReplyParser parser(options);
  ReplyPart all;
  for (std::size_t at = 0; at < reply.size(); at += piece) {
    add(parser.push(reply.substr(at, piece)), all);
  }
  add(parser.finish(), all);
  return all;
}

void require(bool holds) {
  if (!holds) std::abort();
}

}  // namespace
}  // namespace drafthouse

// A digit: the format (modulo 6), from 6 on inside a thought; a reply; tools as JSON, behind a zero
// byte. Wherever the reply is cut, its parts are the same, and its calls have objects as arguments.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace drafthouse;
  if (size == 0) return 0;
  const unsigned kind = data[0] >= '0' ? (data[0] - '0') % 12u : data[0] % 12u;
  const auto parts = fuzz::split(fuzz::as_text(data + 1, size - 1), 2);
  const ReplyParser::Options options{.format = static_cast<ReplyFormat>(kind % 6),
                                     .in_reasoning = kind >= 6,
                                     .tools_json = std::string(parts[1])};
  const ReplyPart whole = read(options, parts[0], parts[0].size() + 1);
  for (const std::size_t piece : {1, 3, 16}) {
    const ReplyPart cut = read(options, parts[0], piece);
    require(cut.reasoning == whole.reasoning && cut.content == whole.content &&
            cut.calls == whole.calls);
  }
  for (const ToolCall& call : whole.calls) {
    const auto arguments = nlohmann::json::parse(call.arguments, nullptr, false);
    require(arguments.is_object() && !call.name.empty());
  }
  ThoughtTracker tracker(options.format, options.in_reasoning);
  for (std::size_t at = 0; at < parts[0].size(); at += 3) tracker.push(parts[0].substr(at, 3));
  return 0;
}
