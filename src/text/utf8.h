#pragma once

#include <string>

namespace drafthouse {

// Moves the longest prefix of `bytes` that is settled out of it, as valid UTF-8: each maximal
// invalid part has become one U+FFFD, as String::from_utf8_lossy does in Rust. What stays (at most
// three bytes) is the beginning of a character.
std::string take_settled_utf8(std::string& bytes);

}  // namespace drafthouse
