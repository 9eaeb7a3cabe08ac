#include "text/chat_template.h"

#include <algorithm>
#include <ctime>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

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
  state->specials_json = specials_of(source);
  std::shared_ptr<ChatTemplate> made(new ChatTemplate(std::move(state)));

  const std::vector<ChatMessage> probe = {{"user", "Hi"}, {"assistant", std::string(kProbe)}};
  const Result<std::string> rendered = made->render(probe, false, "");
  if (rendered.ok()) made->state_->end_of_turn = ending_after_probe(rendered.value());
  return std::shared_ptr<const ChatTemplate>(std::move(made));
}

Result<std::string> ChatTemplate::render(std::span<const ChatMessage> messages,
                                         bool add_generation_prompt,
                                         const std::string& options_json) const {
  Json list = Json::array();
  for (const ChatMessage& message : messages) {
    list.push_back(Json{{"role", message.role}, {"content", message.content}});
  }
  const std::string messages_json = text_of(list);

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
