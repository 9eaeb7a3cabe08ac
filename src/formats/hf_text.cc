#include <fmt/format.h>

#include <cstddef>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "formats/file.h"
#include "formats/json_document.h"
#include "formats/limits.h"
#include "formats/stop_tokens.h"
#include "formats/tokenizer_files.h"

namespace drafthouse {
namespace {

bool is_stop(const HfText& text, std::string_view token) {
  return is_turn_end(token) || (text.source.eos_token && *text.source.eos_token == token);
}

// Finds the ids of stop tokens in tokenizer.json and leaves as soon as the list of added tokens
// ends: the vocabulary behind it has megabytes.
class AddedTokens final : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit AddedTokens(HfText& into) : into_(into) {}

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool number_unsigned(number_unsigned_t value) override {
    if (in_token() && key_ == "id") id_ = value;
    return true;
  }
  bool string(string_t& value) override {
    if (in_token() && key_ == "content") content_ = value;
    return true;
  }
  bool start_object(std::size_t) override {
    ++depth_;
    if (in_token()) {
      id_.reset();
      content_.clear();
    }
    return true;
  }
  bool key(string_t& name) override {
    key_ = name;
    if (depth_ == 1) in_list_ = name == "added_tokens";
    return true;
  }
  bool end_object() override {
    if (in_token() && id_ && *id_ <= std::numeric_limits<std::uint32_t>::max() &&
        is_stop(into_, content_) && into_.stops.size() < limits::kStopIdsMax) {
      into_.stops.push_back(static_cast<std::uint32_t>(*id_));
    }
    --depth_;
    return true;
  }
  bool start_array(std::size_t) override {
    ++depth_;
    return true;
  }
  bool end_array() override {
    --depth_;
    return !(in_list_ && depth_ == 1);
  }
  // The tokenizer itself reports what is wrong with its file.
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception&) override {
    return false;
  }

 private:
  bool in_token() const { return in_list_ && depth_ == 3; }

  HfText& into_;
  int depth_ = 0;
  bool in_list_ = false;
  std::string key_;
  std::optional<std::uint64_t> id_;
  std::string content_;
};

// A token is written as a string or as an object with its content.
std::optional<std::string> token_text(const JsonView value) {
  if (auto plain = value.text()) return plain;
  return value["content"].text();
}

// One template, or a list of {name, template} of which "default" is for plain chat.
std::optional<std::string> template_text(const JsonView value) {
  if (auto plain = value.text()) return plain;
  for (std::size_t i = 0; i < value.size(); ++i) {
    if (value.at(i)["name"].text() == "default") return value.at(i)["template"].text();
  }
  return std::nullopt;
}

Status add_template_json(const std::string& folder, TokenizerSource& source) {
  const std::string path = folder + "/chat_template.json";
  auto text = read_text_file(path, limits::kTextBytesMax);
  if (!text.ok()) return text.status();
  if (!text.value()) return Status();
  auto document = JsonDocument::parse(*text.value(), path);
  if (!document.ok()) return document.status();
  source.chat_template = template_text(document.value().root()["chat_template"]);
  if (source.chat_template) source.template_origin = path;
  return Status();
}

}  // namespace

void read_added_tokens(std::string_view tokenizer_json, HfText& into) {
  try {
    AddedTokens reader(into);
    (void)nlohmann::json::sax_parse(tokenizer_json, &reader);
  } catch (const std::exception&) {
    // As in parse_error: the tokenizer reads the same file and says what is wrong.
  }
}

Status read_tokenizer_config(const std::string& path, std::string_view text, HfText& into) {
  auto document = JsonDocument::parse(text, path);
  if (!document.ok()) return document.status();
  const JsonView root = document.value().root();
  if (!root.is_object()) return Status(Code::corrupt, path + ": is not a JSON object");
  if (!into.source.chat_template) {
    into.source.chat_template = template_text(root["chat_template"]);
    if (into.source.chat_template) into.source.template_origin = path;
  }
  into.source.bos_token = token_text(root["bos_token"]);
  into.source.eos_token = token_text(root["eos_token"]);
  return Status();
}

Result<HfText> read_hf_text(const std::string& folder) {
  HfText text;
  TokenizerSource& source = text.source;
  source.origin = folder + "/tokenizer.json";
  auto tokenizer = read_text_file(source.origin, limits::kTextBytesMax);
  if (!tokenizer.ok()) return tokenizer.status();
  source.tokenizer_json = std::move(tokenizer).value();

  const std::string jinja_path = folder + "/chat_template.jinja";
  auto jinja = read_text_file(jinja_path, limits::kTextBytesMax);
  if (!jinja.ok()) return jinja.status();
  source.chat_template = std::move(jinja).value();
  if (source.chat_template) source.template_origin = jinja_path;

  const std::string config_path = folder + "/tokenizer_config.json";
  auto config = read_text_file(config_path, limits::kTextBytesMax);
  if (!config.ok()) return config.status();
  if (config.value()) {
    auto read = read_tokenizer_config(config_path, *config.value(), text);
    if (!read.ok()) return read;
    source.tokenizer_config_json = std::move(config).value();
  }
  if (!source.chat_template) {
    if (auto read = add_template_json(folder, source); !read.ok()) return read;
  }
  if (source.tokenizer_json) read_added_tokens(*source.tokenizer_json, text);
  return text;
}

}  // namespace drafthouse
