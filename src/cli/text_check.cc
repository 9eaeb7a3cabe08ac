#include "cli/text_check.h"

#include <memory>

#include "engine/request_check.h"
#include "formats/checkpoint.h"
#include "text/chat_template.h"
#include "text/grammar.h"
#include "text/reply_parser.h"
#include "text/tokenizer.h"

namespace drafthouse::cli {
namespace {

Status check_template(const TokenizerSource& source, const ChatOptions& options) {
  if (!source.chat_template.has_value()) return {};
  const Result<std::shared_ptr<const ChatTemplate>> made = ChatTemplate::create(source);
  if (!made.ok()) return {};
  const ChatMessage probe{.role = "user", .content = "Hi"};
  const Result<std::string> text = made.value()->render(std::span(&probe, 1), true, options);
  return text.ok() ? Status() : text.status();
}

}  // namespace

Status check_reply(const std::string& target, const ReadReply& reply, bool templated) {
  const ChatOptions& chat = reply.chat;
  const bool fills =
      templated && !(chat.variables.empty() && chat.tools.empty() && chat.documents.empty());
  const bool bounded = reply.reply.thinking_budget.has_value();
  if (!fills && !bounded) return {};
  const Result<Checkpoint> checkpoint = Checkpoint::open(target);
  if (!checkpoint.ok()) return {};
  const TokenizerSource& source = checkpoint.value().tokenizer();
  if (fills) {
    if (Status s = check_template(source, chat); !s.ok()) return s;
  }
  if (!bounded) return {};
  if (reply.reply.format.has_value()) return check_budget(*reply.reply.format);
  const Result<std::shared_ptr<const Tokenizer>> tokenizer = Tokenizer::create(source);
  if (!tokenizer.ok()) return {};
  return check_budget(reply_format_of(
      source.chat_template.value_or(""),
      [&](std::string_view token) { return tokenizer.value()->id_of(token) >= 0; }));
}

Status check_grammar(const std::string& target, const GrammarSpec& grammar) {
  if (grammar.form == GrammarForm::none) return {};
  const Result<Checkpoint> checkpoint = Checkpoint::open(target);
  if (!checkpoint.ok() || !checkpoint.value().tokenizer().has_tokenizer()) return {};
  const auto tokenizer = Tokenizer::create(checkpoint.value().tokenizer());
  if (!tokenizer.ok()) return {};
  // What ends an answer does not change what compiles.
  auto vocabulary = GrammarVocabulary::create(*tokenizer.value(), {});
  if (!vocabulary.ok()) return {};
  const auto made = Grammar::create(std::move(vocabulary).value(), grammar);
  return made.ok() ? Status() : made.status();
}

}  // namespace drafthouse::cli
