#pragma once

#include <cstdint>

#include "drafthouse/sampling.h"
#include "drafthouse/status.h"

namespace drafthouse {

// invalid_argument, naming the field, for values that make no sense or ids outside the vocabulary.
Status check_sampling(const SamplingOptions& options, std::uint32_t vocabulary);

}  // namespace drafthouse
