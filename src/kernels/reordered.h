#pragma once

#include <cstdint>

#include "kernels/packed.h"

namespace drafthouse {

// pack_block() of a kind with groups, whose inputs come in another order than the file's: order[g]
// is the file's group of the packed group g of 32 inputs. The order must keep can_reorder(from,
// unit): `unit` inputs stay together.
void pack_reordered(const RowFormat& from, std::uint32_t inputs,
                    const std::byte* const rows[kBlockOutputs], const std::uint32_t* order,
                    std::byte* block);

// Whether the kind that holds `from` can have its inputs in another order that keeps every `unit`
// of them together: what a packed pair of groups shares must be the same for both.
bool can_reorder(const RowFormat& from, std::uint32_t unit);

}  // namespace drafthouse
