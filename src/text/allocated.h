#pragma once

#include <cstdint>

namespace drafthouse {

// Bytes that tokenizers and chat templates of this process hold now. Thread-safe.
std::uint64_t text_allocated_bytes();

}  // namespace drafthouse
