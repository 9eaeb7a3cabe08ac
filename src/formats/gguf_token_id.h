#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "drafthouse/status.h"
#include "formats/gguf.h"

namespace drafthouse {

// The id of a special token in the metadata of the file at `path`: below `count`, the number of
// tokens that the model has. Nothing when the key is absent, or holds the "none" that some
// converters write (-1). corrupt, with the value, for everything else.
Result<std::optional<std::uint32_t>> gguf_token_id(const std::string& path,
                                                   const GgufMetadata& metadata,
                                                   std::string_view key, std::size_t count);

}  // namespace drafthouse
