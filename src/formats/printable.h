#pragma once

#include <string>
#include <string_view>

namespace drafthouse {

// A string from an untrusted file as it may stand in a one-line message: control characters and
// bytes above ASCII escaped, cut to about 120 characters.
std::string printable(std::string_view text);

}  // namespace drafthouse
