#pragma once

#include <string_view>

namespace drafthouse {

// Tokens that end a turn. Several models' files name only the end of the whole text, so that a
// reader of those files alone would never stop.
constexpr bool is_turn_end(std::string_view token) {
  return token == "<|im_end|>" || token == "<turn|>" || token == "<|eot_id|>";
}

// What a generation_config.json lists besides, of families whose GGUF files have no such list: the
// end of a text, the end of a call (Harmony), where a tool's answer would begin (Gemma 4).
constexpr bool ends_generation(std::string_view token) {
  return is_turn_end(token) || token == "<|endoftext|>" || token == "<eos>" ||
         token == "<|return|>" || token == "<|call|>" || token == "<|tool_response>";
}

}  // namespace drafthouse
