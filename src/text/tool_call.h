#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "drafthouse/reply.h"

namespace drafthouse {

// What the tools of a request declare about their parameters: models that write values as bare text
// leave it to the declaration whether 12 is a number. Immutable, thread-safe.
class ToolTypes {
 public:
  ToolTypes() = default;
  // `tools_json`: a list of {"type": "function", "function": {"name", "parameters"}} or of what
  // stands in "function". Whatever in it has another form declares nothing.
  explicit ToolTypes(std::string_view tools_json);

  bool empty() const { return types_.empty(); }
  // "string", "integer", "number", "boolean", "object", "array", "null"; empty: not declared.
  std::string_view type_of(const std::string& tool, const std::string& parameter) const;

 private:
  std::map<std::string, std::map<std::string, std::string>> types_;
};

// The calls in what stands between a family's call markers; none when it is not a call of this
// form. Everything but white space has to belong to it. An end that is missing is forgiven where
// noted.

// {"name": …, "arguments" or "parameters": {…}}, or a list of these, or several after each other,
// with ";" between them or not.
std::vector<ToolCall> parse_json_calls(std::string_view text);
// <function=NAME><parameter=KEY>VALUE</parameter>…</function>; a value loses one newline at each
// end and becomes what is declared, a string where nothing is. The last closing tags may be
// missing.
std::vector<ToolCall> parse_xml_calls(std::string_view text, const ToolTypes& types);
// call:NAME{key:value,…}, strings between <|"|>, keys bare, lists and objects nested.
std::vector<ToolCall> parse_gemma_calls(std::string_view text);
// [NAME(key=value, …), …] with the values of Python.
std::vector<ToolCall> parse_python_calls(std::string_view text);

}  // namespace drafthouse
