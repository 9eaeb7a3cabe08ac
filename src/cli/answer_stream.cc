#include "cli/answer_stream.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "cli/interrupt.h"

namespace drafthouse::cli {

AnswerStream::AnswerStream(const Options& options)
    : has_text_(options.has_text),
      on_terminal_(::isatty(STDOUT_FILENO) == 1),
      splits_(has_text_ && options.format != ReplyFormat::plain &&
              (on_terminal_ || !options.continues_text)),
      keeps_blank_lines_(options.constrained) {}

void AnswerStream::push(std::string_view text, std::span<const std::uint32_t> ids) {
  if (splits_) return;
  if (has_text_) return show(text);
  std::string out;
  for (const std::uint32_t id : ids) out += fmt::format("{} ", id);
  show(out);
}

void AnswerStream::push(const ReplyPart& part) {
  if (!splits_) return;
  if (on_terminal_) return show(screen_.show(part));
  push_answer(part);
}

void AnswerStream::push_answer(const ReplyPart& part) {
  if (!part.reasoning.empty() && stderr_is_terminal()) {
    std::fputs(screen_.show({.reasoning = part.reasoning}).c_str(), stderr);
    thinks_ = true;
  }
  std::string_view content = part.content;
  if (!begun_ && !keeps_blank_lines_) {
    content.remove_prefix(std::min(content.find_first_not_of("\r\n"), content.size()));
  }
  if (content.empty() && part.calls.empty()) return;
  end_thought();
  show(content);
  for (const ToolCall& call : part.calls) {
    end_line();
    show(call.name + " " + call.arguments + "\n");
  }
  begun_ = true;
}

void AnswerStream::end_thought() {
  if (thinks_) std::fputs("\n", stderr);
  thinks_ = false;
}

void AnswerStream::end_line() {
  end_thought();
  if (ends_line_) return;
  write("\n");
  ends_line_ = true;
}

void AnswerStream::push_more(const GenerateResult& result) {
  for (std::size_t i = 0; i < result.more.size(); ++i) {
    write(fmt::format("--- answer {} of {}\n", i + 2, result.more.size() + 1));
    screen_.reset();
    begun_ = false;
    push(result.more[i].text, result.more[i].ids);
    push(result.more[i].reply);
    end_line();
  }
}

void AnswerStream::show(std::string_view out) {
  if (out.empty()) return;
  ends_line_ = out.back() == '\n';
  write(out);
}

void AnswerStream::write(std::string_view text) {
  if (state_ == kOk) state_ = write_out(text);
  if (state_ != kOk) interrupt_flag().store(true);
}

}  // namespace drafthouse::cli
