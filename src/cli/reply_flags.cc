#include "cli/reply_flags.h"

#include <CLI/CLI.hpp>
#include <limits>

#include "cli/input.h"
#include "cli/model_options.h"
#include "text/chat_options.h"

namespace drafthouse::cli {
namespace {

CLI::Validator format_check() {
  return CLI::Validator(
      [](std::string& word) -> std::string {
        if (word == "auto" || reply_format_named(word).has_value()) return {};
        return word + " is none of auto, plain, think, gemma, harmony, llama and lfm2";
      },
      "");
}

Status read_list(const std::optional<std::string>& file, std::string& text) {
  if (!file.has_value()) return {};
  Result<std::string> read = read_input(*file);
  if (!read.ok()) return read.status();
  text = std::move(read).value();
  if (text.find_first_not_of(" \t\r\n") != std::string::npos) return {};
  return Status(Code::invalid_argument, input_name(*file) + ": is empty; expected a JSON list");
}

// What is wrong with one of the options alone, after where it was given.
Status check(const std::string& where, const ChatOptions& alone) {
  const Status status = check_chat_options(alone);
  return status.ok() ? status : Status(status.code(), where + ": " + status.message());
}

}  // namespace

void add_reply_flags(CLI::App& verb, ReplyFlags& flags) {
  verb.add_option("--template-options", flags.variables,
                  "Variables of the chat template, like {\"enable_thinking\": false}")
      ->type_name("JSON")
      ->check(not_empty("a JSON object"));
  verb.add_option("--tools", flags.tools_file,
                  "Tools that the model may call: a JSON list of {\"type\": \"function\", …}")
      ->type_name("FILE");
  verb.add_option("--documents", flags.documents_file,
                  "Documents for the chat template: a JSON list of objects")
      ->type_name("FILE");
  verb.add_option("--thinking-budget", flags.thinking_budget,
                  "Tokens of thoughts, after which they are ended [no limit]")
      ->type_name("N")
      ->check(number_check(0, std::numeric_limits<std::uint32_t>::max()));
  verb.add_option("--reply-format", flags.format,
                  "How thoughts and calls are marked: plain, think, gemma, harmony, llama, lfm2 "
                  "[auto: as the model's template has it]")
      ->type_name("NAME")
      ->check(format_check());
}

std::string reply_refusal(const ReplyFlags& flags) {
  return check("--template-options", {.variables = flags.variables}).message();
}

Result<ReadReply> read_reply(const ReplyFlags& flags) {
  ReadReply read;
  read.chat.variables = flags.variables;
  if (Status s = read_list(flags.tools_file, read.chat.tools); !s.ok()) return s;
  if (Status s = check(input_name(flags.tools_file.value_or("")), {.tools = read.chat.tools});
      !s.ok()) {
    return s;
  }
  if (Status s = read_list(flags.documents_file, read.chat.documents); !s.ok()) return s;
  if (Status s =
          check(input_name(flags.documents_file.value_or("")), {.documents = read.chat.documents});
      !s.ok()) {
    return s;
  }
  read.reply.format = reply_format_named(flags.format);
  read.reply.tools = read.chat.tools;
  read.reply.thinking_budget = flags.thinking_budget;
  return read;
}

}  // namespace drafthouse::cli
