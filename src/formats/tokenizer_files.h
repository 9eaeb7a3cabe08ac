#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "drafthouse/status.h"
#include "formats/gguf.h"
#include "formats/tokenizer_source.h"

namespace drafthouse {

// The text side of a Hugging Face folder. Missing files are no error, broken ones are.
struct HfText {
  TokenizerSource source;
  // Ids of the eos token and of turn-end tokens, as far as the files tell.
  std::vector<std::uint32_t> stops;
};
Result<HfText> read_hf_text(const std::string& folder);

// The same from the metadata of a GGUF file. Token counts and special ids are checked.
Result<TokenizerSource> gguf_text(const std::string& path, const GgufMetadata& metadata);

// Parts of read_hf_text that parse; from memory, for tests.
Status read_tokenizer_config(const std::string& path, std::string_view text, HfText& into);
void read_added_tokens(std::string_view tokenizer_json, HfText& into);

}  // namespace drafthouse
