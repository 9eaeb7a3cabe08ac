#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "drafthouse/status.h"
#include "formats/checkpoint.h"
#include "formats/file.h"

namespace drafthouse {

// Whole rows of a tensor whose parts lie apart, put together: bytes [offset, offset + out.size())
// of it. `weights`: the checkpoint's files.
Status read_parts(const std::vector<File>& weights, const TensorInfo& tensor, std::uint64_t offset,
                  std::span<std::byte> out);

}  // namespace drafthouse
