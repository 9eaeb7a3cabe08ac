#include "text/reply_parser.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

namespace drafthouse {
namespace {

constexpr std::string_view kMessage = "<|message|>";
constexpr std::string_view kChannel = "<|channel|>";
// What stands before a message's text is a few words; more is text of its own.
constexpr std::size_t kHeaderMax = 512;

// Bytes at the end of `text` that may begin `marker`.
std::size_t begun(std::string_view text, std::string_view marker) {
  for (std::size_t size = std::min(text.size(), marker.size() - 1); size > 0; --size) {
    if (text.ends_with(marker.substr(0, size))) return size;
  }
  return 0;
}

bool has(std::string_view text, std::string_view what) {
  return text.find(what) != std::string_view::npos;
}

}  // namespace

std::string_view name_of(ReplyFormat format) {
  switch (format) {
    case ReplyFormat::plain: return "plain";
    case ReplyFormat::think: return "think";
    case ReplyFormat::gemma: return "gemma";
    case ReplyFormat::harmony: return "harmony";
    case ReplyFormat::llama: return "llama";
    case ReplyFormat::lfm2: return "lfm2";
  }
  return "?";
}

std::optional<ReplyFormat> reply_format_named(std::string_view name) {
  for (const ReplyFormat format : {ReplyFormat::plain, ReplyFormat::think, ReplyFormat::gemma,
                                   ReplyFormat::harmony, ReplyFormat::llama, ReplyFormat::lfm2}) {
    if (name_of(format) == name) return format;
  }
  return std::nullopt;
}

std::span<const std::string_view> marker_tokens(ReplyFormat format) {
  static constexpr std::string_view kThink[] = {"<think>", "</think>", "<tool_call>",
                                                "</tool_call>"};
  static constexpr std::string_view kGemma[] = {"<|channel>",   "<channel|>",       "<|tool_call>",
                                                "<tool_call|>", "<|tool_response>", "<|\"|>"};
  static constexpr std::string_view kHarmony[] = {"<|start|>", "<|channel|>", "<|constrain|>",
                                                  "<|message|>", "<|end|>"};
  static constexpr std::string_view kLlama[] = {"<|python_tag|>"};
  static constexpr std::string_view kLfm2[] = {"<think>", "</think>", "<|tool_call_start|>",
                                               "<|tool_call_end|>"};
  switch (format) {
    case ReplyFormat::plain: return {};
    case ReplyFormat::think: return kThink;
    case ReplyFormat::gemma: return kGemma;
    case ReplyFormat::harmony: return kHarmony;
    case ReplyFormat::llama: return kLlama;
    case ReplyFormat::lfm2: return kLfm2;
  }
  return {};
}

ReplyFormat reply_format_of(std::string_view chat_template) {
  if (has(chat_template, kChannel) && has(chat_template, kMessage)) return ReplyFormat::harmony;
  if (has(chat_template, "<|channel>") || has(chat_template, "<|tool_call>"))
    return ReplyFormat::gemma;
  if (has(chat_template, "<|tool_call_start|>")) return ReplyFormat::lfm2;
  if (has(chat_template, "<think>") || has(chat_template, "<tool_call>")) return ReplyFormat::think;
  if (has(chat_template, "<|python_tag|>")) return ReplyFormat::llama;
  return ReplyFormat::plain;
}

ReplyFormat reply_format_of(std::string_view chat_template,
                            const std::function<bool(std::string_view)>& has_token) {
  const ReplyFormat spoken_of = reply_format_of(chat_template);
  if (spoken_of != ReplyFormat::plain) return spoken_of;
  if (has_token(kChannel) && has_token(kMessage)) return ReplyFormat::harmony;
  if (has_token("<|channel>") || has_token("<|tool_call>")) return ReplyFormat::gemma;
  if (has_token("<|tool_call_start|>")) return ReplyFormat::lfm2;
  if (has_token("<think>") || has_token("<tool_call>")) return ReplyFormat::think;
  if (has_token("<|python_tag|>")) return ReplyFormat::llama;
  return ReplyFormat::plain;
}

bool ends_in_reasoning(ReplyFormat format, std::string_view prompt) {
  const auto open_after = [&](std::string_view open, std::string_view close) {
    const std::size_t opened = prompt.rfind(open);
    if (opened == std::string_view::npos) return false;
    const std::string_view rest = prompt.substr(opened + open.size());
    // Only a prompt that ends there: one that quotes the marker somewhere does not.
    return !has(rest, close) && rest.find_first_not_of(" \n") == std::string_view::npos;
  };
  if (format == ReplyFormat::gemma) return open_after("<|channel>thought", "<channel|>");
  if (format == ReplyFormat::think || format == ReplyFormat::lfm2)
    return open_after("<think>", "</think>");
  return false;
}

bool opens_reply(ReplyFormat format, std::string_view prompt) {
  switch (format) {
    case ReplyFormat::think:
    case ReplyFormat::lfm2: return prompt.ends_with("<|im_start|>assistant\n");
    case ReplyFormat::gemma: return prompt.ends_with("<|turn>model\n");
    case ReplyFormat::harmony: return prompt.ends_with("<|start|>assistant");
    case ReplyFormat::plain:
    case ReplyFormat::llama: return false;
  }
  return false;
}

ReplyParser::ReplyParser(Options options)
    : options_(std::move(options)), types_(options_.tools_json), state_(State::content) {
  if (options_.format == ReplyFormat::harmony) state_ = State::header;
  if (options_.format == ReplyFormat::llama && !types_.empty()) state_ = State::maybe_call;
  if (options_.in_reasoning) state_ = State::reasoning;
  at_start_ = options_.in_reasoning;
}

std::vector<ReplyParser::Marker> ReplyParser::markers() const {
  const bool reasoning = state_ == State::reasoning;
  const bool call = state_ == State::call;
  switch (options_.format) {
    case ReplyFormat::plain: return {};
    case ReplyFormat::think:
      if (reasoning) return {{"</think>", State::content}};
      if (call) return {{"</tool_call>", State::content}};
      return {{"<think>", State::reasoning}, {"<tool_call>", State::call}};
    case ReplyFormat::lfm2:
      if (reasoning) return {{"</think>", State::content}};
      if (call) return {{"<|tool_call_end|>", State::content}};
      return {{"<think>", State::reasoning}, {"<|tool_call_start|>", State::call}};
    case ReplyFormat::gemma:
      if (reasoning) return {{"<channel|>", State::content}};
      if (call) return {{"<tool_call|>", State::content}};
      return {{"<|channel>thought", State::reasoning},
              {"<|tool_call>", State::call},
              {"<|tool_response>", State::content}};
    case ReplyFormat::harmony:
      if (state_ == State::header) return {{kMessage, State::content}};
      return {{"<|end|>", State::header},
              {"<|return|>", State::header},
              {"<|call|>", State::header},
              {"<|start|>", State::header}};
    case ReplyFormat::llama:
      if (call) return {{"<|eom_id|>", State::content}, {"<|eot_id|>", State::content}};
      return {{"<|python_tag|>", State::call}};
  }
  return {};
}

void ReplyParser::emit(std::string_view text, ReplyPart& out) {
  if (state_ == State::call || state_ == State::header) {
    body_ += text;
    return;
  }
  if (options_.format == ReplyFormat::plain) {
    out.content += text;
    return;
  }
  if (at_start_) text.remove_prefix(std::min(text.find_first_not_of('\n'), text.size()));
  if (text.empty()) return;
  at_start_ = false;
  const std::size_t last = text.find_last_not_of('\n');
  const std::size_t kept = last == std::string_view::npos ? 0 : last + 1;
  std::string& into = state_ == State::reasoning ? out.reasoning : out.content;
  if (kept > 0) {
    if (text.find_first_not_of(" \n") != std::string_view::npos) ends_with_call_ = false;
    into += newlines_;
    newlines_.clear();
    into += text.substr(0, kept);
  }
  newlines_ += text.substr(kept);
}

std::vector<ToolCall> ReplyParser::calls_in(std::string_view text) const {
  switch (options_.format) {
    case ReplyFormat::gemma: return parse_gemma_calls(text);
    case ReplyFormat::lfm2: {
      std::vector<ToolCall> calls = parse_python_calls(text);
      return calls.empty() ? parse_json_calls(text) : calls;
    }
    case ReplyFormat::harmony: {
      const nlohmann::json arguments = nlohmann::json::parse(text, nullptr, false);
      if (!arguments.is_object()) return {};
      return {{recipient_, std::string(text)}};
    }
    case ReplyFormat::think: {
      std::vector<ToolCall> calls = parse_xml_calls(text, types_);
      return calls.empty() ? parse_json_calls(text) : calls;
    }
    case ReplyFormat::plain:
    case ReplyFormat::llama: return parse_json_calls(text);
  }
  return {};
}

void ReplyParser::end_call(std::string_view end_marker, ReplyPart& out) {
  const std::string body = std::exchange(body_, {});
  std::vector<ToolCall> calls = calls_in(body);
  state_ = State::content;
  at_start_ = !calls.empty();
  if (calls.empty()) {
    emit(opened_by_ + body + std::string(end_marker), out);
  } else {
    out.calls.insert(out.calls.end(), calls.begin(), calls.end());
    ends_with_call_ = true;
  }
}

// "<|channel|>commentary to=functions.NAME <|constrain|>json": whose turn it is may stand before.
void ReplyParser::read_header() {
  const std::string header = std::exchange(body_, {});
  const std::size_t channel_at = header.find(kChannel);
  const bool analysis =
      channel_at != std::string::npos &&
      std::string_view(header).substr(channel_at + kChannel.size()).starts_with("analysis");
  recipient_.clear();
  if (const std::size_t to = header.find("to="); to != std::string::npos) {
    const std::size_t end = header.find_first_of(" <\n", to);
    recipient_ = header.substr(to + 3, end == std::string::npos ? end : end - to - 3);
    constexpr std::string_view kFunctions = "functions.";
    if (recipient_.starts_with(kFunctions)) recipient_.erase(0, kFunctions.size());
  }
  state_ = !recipient_.empty() ? State::call : analysis ? State::reasoning : State::content;
  opened_by_ = header + std::string(kMessage);
  at_start_ = false;
}

void ReplyParser::enter(const Marker& marker, ReplyPart& out) {
  const bool harmony = options_.format == ReplyFormat::harmony;
  if (state_ == State::header) {
    read_header();
    return;
  }
  if (state_ == State::call) {
    end_call(harmony ? std::string_view() : marker.text, out);
    if (!harmony) return;
  }
  newlines_.clear();
  at_start_ = true;
  opened_by_ = marker.text;
  state_ = marker.next;
}

bool ReplyParser::step(bool last, ReplyPart& out) {
  if (state_ == State::maybe_call) {
    const std::size_t first = held_.find_first_not_of(" \n");
    if (first == std::string::npos && !last) return false;
    const bool call = first != std::string::npos && held_[first] == '{';
    state_ = call ? State::call : State::content;
    opened_by_.clear();
    return true;
  }
  if (state_ == State::header && body_.size() > kHeaderMax) {
    const std::string text = std::exchange(body_, {});
    state_ = State::content;
    emit(text, out);
  }
  const std::vector<Marker> all = markers();
  const Marker* found = nullptr;
  std::size_t at = std::string::npos;
  std::size_t kept = 0;
  for (const Marker& marker : all) {
    const std::size_t place = held_.find(marker.text);
    if (place < at) {
      at = place;
      found = &marker;
    }
    if (!last) kept = std::max(kept, begun(held_, marker.text));
  }
  if (found == nullptr) {
    emit(std::string_view(held_).substr(0, held_.size() - kept), out);
    held_.erase(0, held_.size() - kept);
    return false;
  }
  emit(std::string_view(held_).substr(0, at), out);
  held_.erase(0, at + found->text.size());
  enter(*found, out);
  return true;
}

ReplyPart ReplyParser::push(std::string_view text) {
  ReplyPart out;
  held_ += text;
  while (step(false, out)) {
  }
  return out;
}

ReplyPart ReplyParser::finish() {
  ReplyPart out;
  while (step(true, out)) {
  }
  if (state_ == State::call) end_call({}, out);
  if (state_ == State::header && !has(body_, kChannel)) {
    const std::string text = std::exchange(body_, {});
    state_ = State::content;
    emit(text, out);
  }
  if (state_ == State::content) out.content += newlines_;
  newlines_.clear();
  return out;
}

}  // namespace drafthouse
