#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace drafthouse {

// Moves the longest prefix of `bytes` that is settled out of it, as valid UTF-8: each maximal
// invalid part has become one U+FFFD, as String::from_utf8_lossy does in Rust. What stays (at most
// three bytes) is the beginning of a character.
std::string take_settled_utf8(std::string& bytes);

// The first byte that belongs to no character of valid UTF-8; npos: all of it is valid.
std::size_t first_invalid_utf8(std::string_view bytes);

}  // namespace drafthouse
