#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

// How the fuzzers read their inputs. make_seeds.py writes seeds in the same form.
namespace drafthouse::fuzz {

inline std::string_view as_text(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

// The head of a file and how long the file claims to be: the last six bytes of the input, so that
// a header alone, without the gigabytes it describes, is a whole file to the parser.
struct FileHead {
  FileHead(const std::uint8_t* data, std::size_t bytes) {
    const std::size_t tail = bytes < 6 ? bytes : 6;
    head = std::as_bytes(std::span(data, bytes - tail));
    for (std::size_t i = 0; i < tail; ++i) size = size << 8 | data[bytes - 1 - i];
    if (size < head.size()) size = head.size();
  }

  std::span<const std::byte> head;
  std::uint64_t size = 0;
};

// The parts of an input that holds several texts, separated by zero bytes; at least `count`.
inline std::vector<std::string_view> split(std::string_view input, std::size_t count) {
  std::vector<std::string_view> parts;
  while (parts.size() + 1 < count) {
    const std::size_t end = input.find('\0');
    parts.push_back(input.substr(0, end));
    input = end == std::string_view::npos ? std::string_view() : input.substr(end + 1);
  }
  parts.push_back(input);
  return parts;
}

}  // namespace drafthouse::fuzz
