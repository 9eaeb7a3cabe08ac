#pragma once

// Whether a value conforms to a JSON schema, for the keywords that answer_schemas() uses. A keyword
// that it does not know makes every value wrong.

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <regex>
#include <string>

namespace drafthouse::test {

class SchemaCheck {
 public:
  explicit SchemaCheck(const std::string& schema) : root_(nlohmann::json::parse(schema)) {}

  // Empty, or what is wrong and where.
  std::string why_not(const std::string& text) const {
    const auto value = nlohmann::json::parse(text, nullptr, false);
    return value.is_discarded() ? "not JSON" : why_not(root_, value);
  }

 private:
  using Json = nlohmann::json;

  std::string why_not(const Json& schema, const Json& value) const {
    for (const auto& [key, wanted] : schema.items()) {
      if (holds(key, wanted, schema, value)) continue;
      return key + " " + wanted.dump() + " refuses " + value.dump();
    }
    return {};
  }
  bool conforms(const Json& schema, const Json& value) const {
    return schema.is_boolean() ? schema.get<bool>() : why_not(schema, value).empty();
  }

  bool holds(const std::string& key, const Json& wanted, const Json& schema,
             const Json& value) const {
    const auto conforming = [&](const Json& each) { return conforms(each, value); };
    if (key == "$defs") return true;
    if (key == "$ref") return conforms(root_.at(pointer(wanted)), value);
    if (key == "enum") return std::find(wanted.begin(), wanted.end(), value) != wanted.end();
    if (key == "const") return value == wanted;
    if (key == "anyOf") return std::any_of(wanted.begin(), wanted.end(), conforming);
    if (key == "allOf") return std::all_of(wanted.begin(), wanted.end(), conforming);
    if (key == "oneOf") return std::count_if(wanted.begin(), wanted.end(), conforming) == 1;
    if (key == "type") return of_type(wanted, value);
    if (of_objects(key)) return !value.is_object() || holds_object(key, wanted, schema, value);
    if (of_arrays(key)) return !value.is_array() || holds_array(key, wanted, schema, value);
    if (of_numbers(key))
      return !value.is_number() || holds_number(key, wanted.get<double>(), value);
    return !value.is_string() || holds_string(key, wanted, value.get<std::string>());
  }

  static Json::json_pointer pointer(const std::string& reference) {
    return Json::json_pointer(reference.substr(1));
  }

  static bool of_type(const Json& wanted, const Json& value) {
    if (wanted.is_array()) {
      return std::any_of(wanted.begin(), wanted.end(),
                         [&](const Json& one) { return of_type(one, value); });
    }
    const std::string name = wanted;
    if (name == "integer") return value.is_number() && whole(value.get<double>());
    if (name == "number") return value.is_number();
    if (name == "object") return value.is_object();
    if (name == "array") return value.is_array();
    if (name == "string") return value.is_string();
    if (name == "boolean") return value.is_boolean();
    return name == "null" && value.is_null();
  }
  static bool whole(double number) { return number == std::floor(number); }

  static bool among(const std::string& key, std::initializer_list<const char*> keys) {
    return std::find(keys.begin(), keys.end(), key) != keys.end();
  }
  static bool of_objects(const std::string& key) {
    return among(key, {"properties", "required", "additionalProperties", "maxProperties"});
  }
  static bool of_arrays(const std::string& key) {
    return among(key, {"items", "prefixItems", "minItems", "maxItems"});
  }
  static bool of_numbers(const std::string& key) {
    return among(key, {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"});
  }

  bool holds_object(const std::string& key, const Json& wanted, const Json& schema,
                    const Json& value) const {
    if (key == "maxProperties") return value.size() <= wanted.get<std::size_t>();
    if (key == "required") {
      return std::all_of(wanted.begin(), wanted.end(),
                         [&](const Json& name) { return value.contains(name.get<std::string>()); });
    }
    for (const auto& [name, inner] : value.items()) {
      const bool known = schema.contains("properties") && schema["properties"].contains(name);
      if (key == "properties" && known && !conforms(wanted[name], inner)) return false;
      if (key == "additionalProperties" && !known && !conforms(wanted, inner)) return false;
    }
    return true;
  }

  bool holds_array(const std::string& key, const Json& wanted, const Json& schema,
                   const Json& value) const {
    if (key == "minItems") return value.size() >= wanted.get<std::size_t>();
    if (key == "maxItems") return value.size() <= wanted.get<std::size_t>();
    const std::size_t first = schema.contains("prefixItems") ? schema["prefixItems"].size() : 0;
    for (std::size_t i = 0; i < value.size(); ++i) {
      if (key == "prefixItems" && i < first && !conforms(wanted[i], value[i])) return false;
      if (key == "items" && i >= first && !conforms(wanted, value[i])) return false;
    }
    return true;
  }

  static bool holds_number(const std::string& key, double wanted, const Json& value) {
    const double number = value.get<double>();
    if (key == "minimum") return number >= wanted;
    if (key == "maximum") return number <= wanted;
    if (key == "exclusiveMinimum") return number > wanted;
    if (key == "exclusiveMaximum") return number < wanted;
    return whole(number / wanted);
  }

  static bool holds_string(const std::string& key, const Json& wanted, const std::string& value) {
    // In characters.
    const auto length =
        static_cast<std::size_t>(std::count_if(value.begin(), value.end(), [](char c) {
          return (static_cast<unsigned char>(c) & 0xc0u) != 0x80u;
        }));
    if (key == "minLength") return length >= wanted.get<std::size_t>();
    if (key == "maxLength") return length <= wanted.get<std::size_t>();
    if (key == "pattern") return std::regex_search(value, std::regex(wanted.get<std::string>()));
    return key == "format" && of_format(wanted, value);
  }

  static bool of_format(const std::string& name, const std::string& value) {
    const char* expression = "(?!)";
    if (name == "date") expression = "\\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\\d|3[01])";
    if (name == "time") {
      expression =
          "([01]\\d|2[0-3]):[0-5]\\d:([0-5]\\d|60)(\\.\\d+)?([zZ]|[+-]([01]\\d|2[0-3]):[0-5]\\d)";
    }
    if (name == "uuid") {
      expression = "[0-9a-fA-F]{8}-([0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}";
    }
    if (name == "ipv4") {
      expression = "((25[0-5]|2[0-4]\\d|1?\\d?\\d)(\\.(?!$)|$)){4}";
    }
    return std::regex_match(value, std::regex(expression));
  }

  const Json root_;
};

}  // namespace drafthouse::test
