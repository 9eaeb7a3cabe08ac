#pragma once

#include <string>

#include "cli/reply_flags.h"
#include "drafthouse/sampling.h"

// What the text side of a model (tokenizer, chat template) says about a request, before its weights
// are read. A model that has no text side or cannot be read passes: loading it tells why.

namespace drafthouse::cli {

// Whether the model's template asks for the options and its replies hold thoughts, where a budget
// of them is given. `templated`: the prompt goes through the template.
Status check_reply(const std::string& target, const ReadReply& reply, bool templated);
// Whether the grammar compiles.
Status check_grammar(const std::string& target, const GrammarSpec& grammar);

}  // namespace drafthouse::cli
