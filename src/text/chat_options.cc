#include "text/chat_options.h"

#include <fmt/format.h>

#include <cctype>
#include <nlohmann/json.hpp>
#include <string>

namespace drafthouse {
namespace {

using Json = nlohmann::json;

Status invalid(std::string message) { return Status(Code::invalid_argument, std::move(message)); }

constexpr int kDepthMax = 100;

// The value, or why there is none.
Result<Json> parsed(std::string_view what, std::string_view text) {
  if (too_deep(text)) {
    return invalid(fmt::format("{}: more than {} values stand inside each other", what, kDepthMax));
  }
  try {
    return Json::parse(text);
  } catch (const Json::parse_error& error) {
    return invalid(fmt::format("{}: not JSON at byte {}; check quotes, commas and brackets there",
                               what, error.byte));
  } catch (const Json::exception&) {
    return invalid(fmt::format("{}: holds a number that is too large; write it as a text", what));
  }
}

std::string_view kind(const Json& value) { return value.type_name(); }

Status check_tool(const Json& tool, std::size_t index) {
  const std::string where = fmt::format("tools[{}]", index);
  if (!tool.is_object()) {
    return invalid(
        fmt::format("{}: is a JSON {}; a tool is an object {{\"type\": \"function\", "
                    "\"function\": {{\"name\": …}}}}",
                    where, kind(tool)));
  }
  if (tool.contains("type") && tool["type"] != "function") {
    return invalid(
        fmt::format("{}.type: only \"function\" is known; leave other tools out", where));
  }
  const Json& function = tool.contains("function") ? tool["function"] : tool;
  const std::string inner = tool.contains("function") ? where + ".function" : where;
  if (!function.is_object()) {
    return invalid(fmt::format("{}: is a JSON {}, not an object with the name of a function", inner,
                               kind(function)));
  }
  if (!function.contains("name") || !function["name"].is_string() ||
      function["name"].get_ref<const std::string&>().empty()) {
    return invalid(
        fmt::format("{}.name: is missing or not a text; every function has a name", inner));
  }
  if (function.contains("parameters") && !function["parameters"].is_object()) {
    return invalid(fmt::format("{}.parameters: is a JSON {}, not the object of a JSON schema",
                               inner, kind(function["parameters"])));
  }
  return {};
}

Status check_documents(std::string_view text) {
  const Result<Json> list = parsed("documents", text);
  if (!list.ok()) return list.status();
  if (!list.value().is_array()) {
    return invalid(
        fmt::format("documents: is a JSON {}, not a list of objects", kind(list.value())));
  }
  for (std::size_t i = 0; i < list.value().size(); ++i) {
    if (list.value()[i].is_object()) continue;
    return invalid(
        fmt::format("documents[{}]: is a JSON {}, not an object like {{\"title\": …, "
                    "\"text\": …}}",
                    i, kind(list.value()[i])));
  }
  return {};
}

Status check_variables(std::string_view text) {
  const Result<Json> object = parsed("template options", text);
  if (!object.ok()) return object.status();
  if (!object.value().is_object()) {
    return invalid(
        fmt::format("template options: are a JSON {}, not an object like "
                    "{{\"enable_thinking\": false}}",
                    kind(object.value())));
  }
  for (const char* given : {"messages", "tools", "documents", "add_generation_prompt"}) {
    if (!object.value().contains(given)) continue;
    return invalid(
        fmt::format("template options: \"{}\" is what the request gives in its own "
                    "field; leave it out here",
                    given));
  }
  return {};
}

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

}  // namespace

bool too_deep(std::string_view json) {
  int depth = 0;
  bool quoted = false;
  for (std::size_t i = 0; i < json.size(); ++i) {
    const char c = json[i];
    if (quoted) {
      if (c == '\\') ++i;
      quoted = c != '"';
      continue;
    }
    if (c == '"') quoted = true;
    if ((c == '{' || c == '[') && ++depth > kDepthMax) return true;
    if (c == '}' || c == ']') --depth;
  }
  return false;
}

Status check_tools(std::string_view tools_json) {
  const Result<Json> list = parsed("tools", tools_json);
  if (!list.ok()) return list.status();
  if (!list.value().is_array()) {
    return invalid(fmt::format("tools: is a JSON {}, not a list of tools", kind(list.value())));
  }
  for (std::size_t i = 0; i < list.value().size(); ++i) {
    if (Status s = check_tool(list.value()[i], i); !s.ok()) return s;
  }
  return {};
}

Status check_chat_options(const ChatOptions& options) {
  if (!options.variables.empty()) {
    if (Status s = check_variables(options.variables); !s.ok()) return s;
  }
  if (!options.tools.empty()) {
    if (Status s = check_tools(options.tools); !s.ok()) return s;
  }
  return options.documents.empty() ? Status() : check_documents(options.documents);
}

bool template_names(std::string_view source, std::string_view variable) {
  for (std::size_t at = source.find(variable); at != std::string_view::npos;
       at = source.find(variable, at + 1)) {
    const std::size_t end = at + variable.size();
    if (at > 0 && (is_word(source[at - 1]) || source[at - 1] == '.')) continue;
    if (end < source.size() && is_word(source[end])) continue;
    // In plain text it is only a word: what opened last before it must be a tag.
    const std::size_t open = std::max(source.rfind("{{", at) + 1, source.rfind("{%", at) + 1);
    const std::size_t close = std::max(source.rfind("}}", at) + 1, source.rfind("%}", at) + 1);
    if (open > close) return true;
  }
  return false;
}

}  // namespace drafthouse
