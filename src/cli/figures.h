#pragma once

#include "drafthouse/engine.h"

namespace drafthouse::cli {

// Ids gained per turn, those past the answer's end among them; 0: there was no turn.
double acceptance(const GenerateResult& result);

// Ids per second of decoding: without the first, which comes from prefill. 0: there was no second.
double tokens_per_second(const GenerateResult& result);

}  // namespace drafthouse::cli
