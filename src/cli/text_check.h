#pragma once

#include <string>

#include "cli/reply_flags.h"
#include "drafthouse/sampling.h"
#include "engine/internals.h"

// What the text side of a model (tokenizer, chat template) says about a request, before its weights
// are read.

namespace drafthouse::cli {

// Whether the model's template can be used and asks for the options, and its replies hold thoughts,
// where a budget of them is given. `templated`: the prompt goes through the template.
Status check_reply(const OpenedTarget& target, const ReadReply& reply, bool templated);
// The same for a target that is opened again later, where there is something to check. One that
// cannot be opened passes: loading it tells why.
Status check_reply(const std::string& target, const ReadReply& reply, bool templated);
// Whether the grammar compiles.
Status check_grammar(const OpenedTarget& target, const GrammarSpec& grammar);

}  // namespace drafthouse::cli
