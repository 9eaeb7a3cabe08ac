#pragma once

#include <string_view>

namespace drafthouse {

// Tokens that end a turn. Several models' files name only the end of the whole text, so that a
// reader of those files alone would never stop.
constexpr bool is_turn_end(std::string_view token) {
  return token == "<|im_end|>" || token == "<turn|>" || token == "<|eot_id|>";
}

}  // namespace drafthouse
