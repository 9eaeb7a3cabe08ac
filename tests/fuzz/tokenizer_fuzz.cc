#include <string>

#include "formats/tokenizer_files.h"
#include "formats/tokenizer_source.h"
#include "input.h"
#include "text/tokenizer.h"

// tokenizer.json and tokenizer_config.json, separated by a zero byte. A tokenizer that loads must
// survive text; what it makes of the text is up to its file.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace drafthouse;
  const auto parts = fuzz::split(fuzz::as_text(data, size), 2);
  HfText text;
  read_added_tokens(parts[0], text);
  TokenizerSource& source = text.source;
  source.origin = "tokenizer.json";
  source.tokenizer_json = std::string(parts[0]);
  if (!parts[1].empty()) source.tokenizer_config_json = std::string(parts[1]);
  const auto tokenizer = Tokenizer::create(source);
  if (!tokenizer.ok()) return 0;
  const auto ids = tokenizer.value()->encode("Hello, w\xC3\xB6rld! 12\xFF <|im_end|>\n", true);
  if (!ids.ok()) return 0;
  (void)tokenizer.value()->decode(ids.value(), false);
  for (const TokenId id : ids.value()) {
    (void)tokenizer.value()->bytes_of(id);
    (void)tokenizer.value()->is_special(id);
  }
  return 0;
}
