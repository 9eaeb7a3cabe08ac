#pragma once

#include <cstdint>
#include <string>

#include "cli/conversation.h"

namespace drafthouse::cli {

// What chat says about an answer and about the model.

// "640 of 703 prompt tokens cached (ram), 3.28 tokens per turn, 481 tok/s, first token after 32 ms"
std::string figures_line(const ChatAnswer& answer);
// One JSON object on standard output. Returns the exit code.
int print_answer_json(std::uint32_t number, const ChatAnswer& answer);

// Several lines, each with its end. `last` may be null: there was no answer yet.
std::string stats_text(const HostStats& host, const ModelStats& model, const ChatAnswer* last);
int print_stats_json(const HostStats& host, const ModelStats& model);

}  // namespace drafthouse::cli
