#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "drafthouse/reply.h"
#include "drafthouse/status.h"

namespace CLI {
class App;
}

namespace drafthouse::cli {

// What a command line says about the chat template and how a reply is read.
struct ReplyFlags {
  std::string variables;  // JSON
  std::optional<std::string> tools_file;
  std::optional<std::string> documents_file;
  std::optional<std::uint32_t> thinking_budget;
  std::string format = "auto";
};

// --template-options, --tools, --documents, --thinking-budget, --reply-format.
void add_reply_flags(CLI::App& verb, ReplyFlags& flags);

struct ReadReply {
  ChatOptions chat;
  ReplyOptions reply;
};
// What is wrong with the flags alone, or "".
std::string reply_refusal(const ReplyFlags& flags);
// Reads the files. An error names the file, the place in it, and why.
Result<ReadReply> read_reply(const ReplyFlags& flags);

}  // namespace drafthouse::cli
