#pragma once

#include <span>
#include <string>
#include <string_view>

namespace drafthouse::cli {

// The candidate that `word` most likely meant, or "" when none is near.
std::string nearest(std::string_view word, std::span<const std::string> candidates);

}  // namespace drafthouse::cli
