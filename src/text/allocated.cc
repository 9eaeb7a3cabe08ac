#include "text/allocated.h"

#include "drafthouse_text.h"

namespace drafthouse {

std::uint64_t text_allocated_bytes() { return dht_allocated_bytes(); }

}  // namespace drafthouse
