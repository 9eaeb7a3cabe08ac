#pragma once

#include <cstddef>
#include <string>

namespace drafthouse {

// "512 B", "1.4 MiB", "2.1 GiB": for messages.
std::string human_bytes(std::size_t bytes);

}  // namespace drafthouse
