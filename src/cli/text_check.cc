#include "cli/text_check.h"

#include <memory>

#include "engine/request_check.h"
#include "text/grammar.h"

namespace drafthouse::cli {
namespace {

bool fills_template(const ReadReply& reply, bool templated) {
  const ChatOptions& chat = reply.chat;
  return templated && !(chat.variables.empty() && chat.tools.empty() && chat.documents.empty());
}

}  // namespace

Status check_reply(const OpenedTarget& target, const ReadReply& reply, bool templated) {
  if (templated && target.chat_template != nullptr) {
    if (Status s = target.chat_template->usable(); !s.ok()) return s;
  }
  if (fills_template(reply, templated) && target.chat_template != nullptr) {
    const ChatMessage probe{.role = "user", .content = "Hi"};
    const Result<std::string> text =
        target.chat_template->render(std::span(&probe, 1), true, reply.chat);
    if (!text.ok()) return text.status();
  }
  if (!reply.reply.thinking_budget.has_value()) return {};
  return check_budget(reply.reply.format.value_or(target.reply_format));
}

Status check_reply(const std::string& target, const ReadReply& reply, bool templated) {
  if (!fills_template(reply, templated) && !reply.reply.thinking_budget.has_value()) return {};
  const Result<OpenedTarget> opened = open_target(target);
  return opened.ok() ? check_reply(opened.value(), reply, templated) : Status();
}

Status check_grammar(const OpenedTarget& target, const GrammarSpec& grammar) {
  if (grammar.form == GrammarForm::none || target.tokenizer == nullptr) return {};
  // What ends an answer does not change what compiles.
  auto vocabulary = GrammarVocabulary::create(*target.tokenizer, {});
  if (!vocabulary.ok()) return {};
  const auto made = Grammar::create(std::move(vocabulary).value(), grammar);
  return made.ok() ? Status() : made.status();
}

}  // namespace drafthouse::cli
