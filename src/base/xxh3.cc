#include "base/xxh3.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace drafthouse {

std::uint64_t xxh3(std::span<const std::byte> bytes) {
  return XXH3_64bits(bytes.data(), bytes.size());
}

}  // namespace drafthouse
