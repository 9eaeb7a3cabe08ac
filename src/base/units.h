#pragma once

#include <cstddef>
#include <string>

namespace drafthouse {

// "512 B", "1.4 MiB", "2.1 GiB": for messages.
std::string human_bytes(std::size_t bytes);

// One unit for several numbers of a sentence: "2.1 GiB: weights 1.6, pages 0.4".
struct ByteUnit {
  double bytes = 1;
  const char* name = "B";
  // One digit behind the point, none when it is 0: "1.6", "8"; two for less than 0.1.
  std::string number(std::size_t of) const;
};
// The unit in which human_bytes() writes this many.
ByteUnit byte_unit(std::size_t bytes);

}  // namespace drafthouse
