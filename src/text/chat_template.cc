#include "text/chat_template.h"

#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "text/chat_options.h"
#include "text/crate.h"

namespace drafthouse {

using Json = nlohmann::ordered_json;

struct ChatTemplate::State {
  State(dht_template* library, std::string file) : handle(library), origin(std::move(file)) {}
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() { dht_template_free(handle); }

  dht_template* handle;
  std::string origin;
  std::string source;
  std::string specials_json;
  std::string end_of_turn;
};

namespace {

// Invalid UTF-8 becomes U+FFFD.
std::string text_of(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// transformers gives a template every special token that the tokenizer's configuration names.
std::string specials_of(const TokenizerSource& source) {
  Json specials = Json::object();
  if (source.tokenizer_config_json) {
    const Json config = Json::parse(*source.tokenizer_config_json, nullptr, false);
    for (const char* name : {"unk_token", "sep_token", "pad_token", "cls_token", "mask_token"}) {
      if (!config.is_object() || !config.contains(name)) continue;
      const Json& token = config.at(name);
      if (token.is_string()) specials[name] = token;
      if (token.is_object() && token.contains("content") && token.at("content").is_string()) {
        specials[name] = token.at("content");
      }
    }
  }
  if (source.bos_token) specials["bos_token"] = *source.bos_token;
  if (source.eos_token) specials["eos_token"] = *source.eos_token;
  return text_of(specials);
}

// A message as transformers' users write it. Names of a thought differ between families; each reads
// its own.
Result<Json> json_of(const ChatMessage& message, std::size_t index) {
  Json made = {{"role", message.role}, {"content", message.content}};
  if (!message.reasoning.empty()) {
    made["reasoning_content"] = message.reasoning;
    made["thinking"] = message.reasoning;
  }
  for (std::size_t i = 0; i < message.calls.size(); ++i) {
    const ToolCall& call = message.calls[i];
    Json arguments = Json(Json::value_t::discarded);
    if (!too_deep(call.arguments)) arguments = Json::parse(call.arguments, nullptr, false);
    if (!arguments.is_object()) {
      return Status(Code::invalid_argument,
                    fmt::format("messages[{}].calls[{}].arguments: not a JSON object; give one, "
                                "{{}} for none",
                                index, i));
    }
    Json one = {{"type", "function"},
                {"function", {{"name", call.name}, {"arguments", std::move(arguments)}}}};
    if (!call.id.empty()) one["id"] = call.id;
    made["tool_calls"].push_back(std::move(one));
  }
  if (!message.call_id.empty()) made["tool_call_id"] = message.call_id;
  if (!message.name.empty()) made["name"] = message.name;
  return made;
}

// Whatever a template does with an answer, it keeps a word like this.
constexpr std::string_view kProbe = "DrafthouseProbe7Q";

// "<|im_end|>" of "…DrafthouseProbe7Q<|im_end|>\n".
std::string ending_after_probe(std::string_view rendered) {
  const std::size_t at = rendered.rfind(kProbe);
  if (at == std::string_view::npos) return std::string();
  std::string_view rest = rendered.substr(at + kProbe.size());
  while (rest.starts_with(' ')) rest.remove_prefix(1);
  std::size_t end = std::min(rest.find_first_of(" \t\r\n"), rest.size());
  // Several markers in a row: the first one ends the turn.
  if (rest.starts_with('<')) end = std::min(end, rest.find('>') + 1);
  return std::string(rest.substr(0, end));
}

}  // namespace

ChatTemplate::ChatTemplate(std::unique_ptr<State> state) : state_(std::move(state)) {}
ChatTemplate::~ChatTemplate() = default;

Result<std::shared_ptr<const ChatTemplate>> ChatTemplate::create(const TokenizerSource& source) {
  if (!source.chat_template) {
    return Status(Code::not_found, source.origin + ": there is no chat template");
  }
  const std::string where = source.template_origin + ": chat template";
  dht_template* handle = nullptr;
  dht_text error{};
  const std::int32_t code =
      dht_template_create(crate::view(*source.chat_template), &handle, &error);
  if (code != DHT_OK) return crate::failure(code, error, where);

  auto state = std::make_unique<State>(handle, where);
  state->source = *source.chat_template;
  state->specials_json = specials_of(source);
  std::shared_ptr<ChatTemplate> made(new ChatTemplate(std::move(state)));

  const std::vector<ChatMessage> probe = {{"user", "Hi"}, {"assistant", std::string(kProbe)}};
  const Result<std::string> rendered = made->render(probe, false, {});
  if (rendered.ok()) made->state_->end_of_turn = ending_after_probe(rendered.value());
  return std::shared_ptr<const ChatTemplate>(std::move(made));
}

Result<std::string> ChatTemplate::variables(const ChatOptions& options) const {
  if (Status s = check_chat_options(options); !s.ok()) return s;
  Json all = Json::object();
  if (!options.variables.empty()) all = Json::parse(options.variables);
  if (!options.tools.empty()) all["tools"] = Json::parse(options.tools);
  if (!options.documents.empty()) all["documents"] = Json::parse(options.documents);
  for (const auto& [name, value] : all.items()) {
    if (template_names(state_->source, name)) continue;
    return Status(Code::unsupported,
                  fmt::format("{}: does not ask for \"{}\", which would change nothing; leave it "
                              "out, or use a model whose template has it",
                              state_->origin, name));
  }
  return text_of(all);
}

Status ChatTemplate::usable() const {
  if (state_->source.find_first_not_of(" \t\r\n") != std::string::npos) return {};
  return {Code::unsupported,
          state_->origin +
              " is empty, so no conversation becomes a prompt; put the model's own "
              "template there, or prompt with raw text"};
}

Result<std::string> ChatTemplate::render(std::span<const ChatMessage> messages,
                                         bool add_generation_prompt,
                                         const ChatOptions& options) const {
  if (Status s = usable(); !s.ok()) return s;
  Json list = Json::array();
  for (const ChatMessage& message : messages) {
    Result<Json> made = json_of(message, list.size());
    if (!made.ok()) return made.status();
    list.push_back(std::move(made).value());
  }
  const std::string messages_json = text_of(list);
  const Result<std::string> made = variables(options);
  if (!made.ok()) return made.status();
  const std::string& options_json = made.value();

  dht_render_input input{};
  input.messages = crate::view(messages_json);
  input.specials = crate::view(state_->specials_json);
  input.options = crate::view(options_json);
  input.add_generation_prompt = add_generation_prompt ? 1 : 0;
  input.now = static_cast<std::int64_t>(std::time(nullptr));
  dht_text text{};
  dht_text error{};
  const std::int32_t code = dht_template_render(state_->handle, &input, &text, &error);
  if (code != DHT_OK) return crate::failure(code, error, state_->origin);
  return crate::take(text);
}

const std::string& ChatTemplate::end_of_turn() const { return state_->end_of_turn; }

}  // namespace drafthouse
