#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "drafthouse/status.h"

// What a verb reads: whole files and standard input, as raw bytes. To be called before
// interrupt_flag(): reading does not look at it.

namespace drafthouse::cli {

// A prompt or a list of ids; models are read elsewhere. Turning so much text into tokens takes
// about 10 s and 2 GB, and is many times what a model's context holds.
inline constexpr std::size_t kInputBytesMax = std::size_t{16} << 20;

// What messages call it.
std::string input_name(const std::string& path);

// The bytes of a file, or of standard input for "-". At most kInputBytesMax.
Result<std::string> read_input(const std::string& path);

// A JSON list of token ids, or an object with one in "ids", as tokenize --json prints it. `origin`
// is the file, for messages, which also name the element.
Result<std::vector<std::uint32_t>> parse_ids(std::string_view text, std::string_view origin);

// Both in one: the ids in a file, or on standard input for "-".
Result<std::vector<std::uint32_t>> read_ids(const std::string& path);

}  // namespace drafthouse::cli
