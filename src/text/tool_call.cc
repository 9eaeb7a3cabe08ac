#include "text/tool_call.h"

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>
#include <utility>

namespace drafthouse {
namespace {

using json = nlohmann::ordered_json;

// Values inside each other at most: what a model writes is read by functions that call themselves.
constexpr int kDepthMax = 64;

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.front())) != 0)
    text.remove_prefix(1);
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back())) != 0)
    text.remove_suffix(1);
  return text;
}

bool take(std::string_view& text, std::string_view what) {
  if (!text.starts_with(what)) return false;
  text.remove_prefix(what.size());
  return true;
}

void skip_space(std::string_view& text) {
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.front())) != 0)
    text.remove_prefix(1);
}

std::string text_of(const json& value) {
  return value.dump(-1, ' ', false, json::error_handler_t::replace);
}

// The end of the JSON object or list that `text` begins with; npos: there is none, or it is too
// deep.
std::size_t end_of_value(std::string_view text) {
  int depth = 0;
  bool quoted = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted) {
      if (c == '\\') ++i;
      quoted = c != '"';
      continue;
    }
    if (c == '"') quoted = true;
    if ((c == '{' || c == '[') && ++depth > kDepthMax) return std::string_view::npos;
    if ((c == '}' || c == ']') && --depth == 0) return i + 1;
  }
  return std::string_view::npos;
}

// Discarded when it is no JSON, or nested deeper than what can be written out again.
json parse_value(std::string_view text) {
  text = trimmed(text);
  const bool nested = text.starts_with('{') || text.starts_with('[');
  if (nested && end_of_value(text) != text.size()) return json(json::value_t::discarded);
  return json::parse(text, nullptr, false);
}

bool add_json_call(const json& value, std::vector<ToolCall>& calls) {
  if (value.is_array()) {
    return !value.empty() && std::all_of(value.begin(), value.end(), [&](const json& each) {
      return add_json_call(each, calls);
    });
  }
  if (!value.is_object() || !value.contains("name") || !value["name"].is_string()) return false;
  json arguments = json::object();
  for (const char* key : {"arguments", "parameters"}) {
    if (value.contains(key)) arguments = value[key];
  }
  // Some models write the object as a string.
  if (arguments.is_string()) arguments = parse_value(arguments.get<std::string>());
  if (!arguments.is_object()) return false;
  calls.push_back({value["name"], text_of(arguments)});
  return true;
}

// A value of the declared type from bare text.
json typed(std::string_view text, std::string_view type) {
  const std::string word(trimmed(text));
  if (word == "null" && type != "string") return nullptr;
  if (type == "boolean") {
    std::string lower = word;
    std::transform(lower.begin(), lower.end(), lower.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    if (lower == "true" || lower == "false") return lower == "true";
  } else if (!type.empty() && type != "string") {
    json value = parse_value(word);
    if (!value.is_discarded()) return value;
  }
  return std::string(text);
}

// The values of Gemma's and Python's notation. Keys, quotes and words differ.
class Notation {
 public:
  enum class Kind { gemma, python };
  Notation(Kind kind, std::string_view text) : kind_(kind), left_(text) {}

  std::string_view& left() { return left_; }

  std::string word() {
    std::size_t end = 0;
    while (end < left_.size() && (std::isalnum(static_cast<unsigned char>(left_[end])) != 0 ||
                                  left_[end] == '_' || left_[end] == '-' || left_[end] == '.')) {
      ++end;
    }
    std::string found(left_.substr(0, end));
    left_.remove_prefix(end);
    return found;
  }

  // `members`: until `close`; false: malformed.
  bool members(json& object, char between, char close) {
    if (++depth_ > kDepthMax) return false;
    for (skip_space(left_); !take(left_, std::string_view(&close, 1)); skip_space(left_)) {
      if (!object.empty() && !take(left_, ",")) return false;
      skip_space(left_);
      std::string key;
      if (!string(key)) key = word();
      skip_space(left_);
      if (key.empty() || !take(left_, std::string_view(&between, 1))) return false;
      json inner;
      if (!value(inner)) return false;
      object[key] = std::move(inner);
    }
    --depth_;
    return true;
  }

  bool value(json& out) {
    skip_space(left_);
    std::string text;
    if (string(text)) {
      out = std::move(text);
      return true;
    }
    if (take(left_, "{")) {
      out = json::object();
      return members(out, ':', '}');
    }
    if (take(left_, "[")) return list(out);
    const std::string bare = word_or_number();
    if (kind_ == Kind::python && (bare == "True" || bare == "False")) {
      out = bare == "True";
      return true;
    }
    if (kind_ == Kind::python && bare == "None") {
      out = nullptr;
      return true;
    }
    out = parse_value(bare);
    return !out.is_discarded();
  }

 private:
  bool list(json& out) {
    if (++depth_ > kDepthMax) return false;
    out = json::array();
    for (skip_space(left_); !take(left_, "]"); skip_space(left_)) {
      if (!out.empty() && !take(left_, ",")) return false;
      json inner;
      if (!value(inner)) return false;
      out.push_back(std::move(inner));
    }
    --depth_;
    return true;
  }

  bool string(std::string& out) {
    if (kind_ == Kind::gemma) {
      constexpr std::string_view kQuote = "<|\"|>";
      if (!left_.starts_with(kQuote)) return false;
      const std::size_t end = left_.find(kQuote, kQuote.size());
      if (end == std::string_view::npos) return false;
      out = left_.substr(kQuote.size(), end - kQuote.size());
      left_.remove_prefix(end + kQuote.size());
      return true;
    }
    if (left_.empty() || (left_[0] != '"' && left_[0] != '\'')) return false;
    const char quote = left_[0];
    for (std::size_t i = 1; i < left_.size(); ++i) {
      if (left_[i] == quote) {
        left_.remove_prefix(i + 1);
        return true;
      }
      if (left_[i] != '\\' || i + 1 == left_.size()) {
        out += left_[i];
        continue;
      }
      const char escaped = left_[++i];
      out += escaped == 'n' ? '\n' : escaped == 't' ? '\t' : escaped == 'r' ? '\r' : escaped;
    }
    return false;
  }

  std::string word_or_number() {
    std::string found(left_.starts_with('+') ? "" : left_.starts_with('-') ? "-" : "");
    left_.remove_prefix(left_.starts_with('-') || left_.starts_with('+') ? 1 : 0);
    found += word();
    // An exponent's sign.
    if ((found.ends_with('e') || found.ends_with('E')) && left_.starts_with('+')) {
      left_.remove_prefix(1);
      found += word();
    }
    return found;
  }

  Kind kind_;
  std::string_view left_;
  int depth_ = 0;
};

}  // namespace

ToolTypes::ToolTypes(std::string_view tools_json) {
  const json tools = json::parse(tools_json, nullptr, false);
  if (!tools.is_array()) return;
  for (const json& tool : tools) {
    const json& function = tool.is_object() && tool.contains("function") ? tool["function"] : tool;
    if (!function.is_object() || !function.contains("name") || !function["name"].is_string())
      continue;
    auto& types = types_[function["name"]];
    if (!function.contains("parameters") || !function["parameters"].is_object()) continue;
    const json& parameters = function["parameters"];
    if (!parameters.contains("properties") || !parameters["properties"].is_object()) continue;
    for (const auto& [key, schema] : parameters["properties"].items()) {
      if (schema.is_object() && schema.contains("type") && schema["type"].is_string()) {
        types[key] = schema["type"];
      }
    }
  }
}

std::string_view ToolTypes::type_of(const std::string& tool, const std::string& parameter) const {
  const auto types = types_.find(tool);
  if (types == types_.end()) return {};
  const auto type = types->second.find(parameter);
  return type == types->second.end() ? std::string_view() : std::string_view(type->second);
}

std::vector<ToolCall> parse_json_calls(std::string_view text) {
  std::vector<ToolCall> calls;
  for (text = trimmed(text); !text.empty(); text = trimmed(text)) {
    const std::size_t end = end_of_value(text);
    if (end == std::string_view::npos) return {};
    const json value = json::parse(text.substr(0, end), nullptr, false);
    if (value.is_discarded() || !add_json_call(value, calls)) return {};
    text = trimmed(text.substr(end));
    take(text, ";");
  }
  return calls;
}

std::vector<ToolCall> parse_xml_calls(std::string_view text, const ToolTypes& types) {
  constexpr std::string_view kParameterEnd = "</parameter>";
  std::vector<ToolCall> calls;
  for (skip_space(text); !text.empty(); skip_space(text)) {
    if (!take(text, "<function=")) return {};
    const std::size_t end = text.find('>');
    if (end == std::string_view::npos || end == 0) return {};
    const std::string name(text.substr(0, end));
    text.remove_prefix(end + 1);
    json arguments = json::object();
    for (skip_space(text); take(text, "<parameter="); skip_space(text)) {
      const std::size_t key_end = text.find('>');
      if (key_end == std::string_view::npos || key_end == 0) return {};
      const std::string key(text.substr(0, key_end));
      text.remove_prefix(key_end + 1);
      const std::size_t close = text.find(kParameterEnd);
      std::string_view value = text.substr(0, close);
      text.remove_prefix(close == std::string_view::npos ? text.size()
                                                         : close + kParameterEnd.size());
      if (value.starts_with('\n')) value.remove_prefix(1);
      if (value.ends_with('\n')) value.remove_suffix(1);
      arguments[key] = typed(value, types.type_of(name, key));
    }
    if (!take(text, "</function>") && !text.empty()) return {};
    calls.push_back({name, text_of(arguments)});
  }
  return calls;
}

std::vector<ToolCall> parse_gemma_calls(std::string_view text) {
  std::vector<ToolCall> calls;
  Notation notation(Notation::Kind::gemma, text);
  for (skip_space(notation.left()); !notation.left().empty(); skip_space(notation.left())) {
    if (!take(notation.left(), "call:")) return {};
    ToolCall call{.name = notation.word()};
    json arguments = json::object();
    if (call.name.empty() || !take(notation.left(), "{")) return {};
    if (!notation.members(arguments, ':', '}')) return {};
    call.arguments = text_of(arguments);
    calls.push_back(std::move(call));
  }
  return calls;
}

std::vector<ToolCall> parse_python_calls(std::string_view text) {
  std::vector<ToolCall> calls;
  Notation notation(Notation::Kind::python, trimmed(text));
  const bool listed = take(notation.left(), "[");
  for (;;) {
    skip_space(notation.left());
    ToolCall call{.name = notation.word()};
    json arguments = json::object();
    if (call.name.empty() || !take(notation.left(), "(")) return {};
    if (!notation.members(arguments, '=', ')')) return {};
    call.arguments = text_of(arguments);
    calls.push_back(std::move(call));
    skip_space(notation.left());
    if (take(notation.left(), ",")) continue;
    if (listed && !take(notation.left(), "]")) return {};
    return trimmed(notation.left()).empty() ? calls : std::vector<ToolCall>();
  }
}

}  // namespace drafthouse
