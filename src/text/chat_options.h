#pragma once

#include <string_view>

#include "drafthouse/reply.h"
#include "drafthouse/status.h"

namespace drafthouse {

// Whether options have the form that ChatOptions wants; invalid_argument names what, where, why.
Status check_chat_options(const ChatOptions& options);
// Whether a JSON text is a list of tools.
Status check_tools(std::string_view tools_json);

// Whether values stand inside each other deeper than functions that call themselves can read.
bool too_deep(std::string_view json);

// Whether a template's source has a variable of this name, in an expression or a statement.
bool template_names(std::string_view source, std::string_view variable);

}  // namespace drafthouse
