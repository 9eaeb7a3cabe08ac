#include <string>
#include <vector>

#include "formats/tokenizer_source.h"
#include "input.h"
#include "text/chat_template.h"

// A chat template and options as JSON, separated by a zero byte.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace drafthouse;
  const auto parts = fuzz::split(fuzz::as_text(data, size), 2);
  TokenizerSource source;
  source.template_origin = "chat_template.jinja";
  source.chat_template = std::string(parts[0]);
  source.bos_token = "<s>";
  source.eos_token = "</s>";
  const auto chat = ChatTemplate::create(source);
  if (!chat.ok()) return 0;
  const std::vector<ChatMessage> messages = {{"system", "Be brief."},
                                             {"user", "Hello"},
                                             {"assistant", "<think>\n</think>Hi"},
                                             {"user", "?"}};
  (void)chat.value()->render(messages, true, {.variables = std::string(parts[1])});
  return 0;
}
