#pragma once

#include <string_view>

#include "drafthouse/host.h"

namespace drafthouse {

// invalid_argument for what a request's form alone tells, before its model is there: the field, for
// a text the byte, and what is wrong.
Status check_form(const SubmitRequest& request);

// Whether a wait of so many seconds makes sense.
Status check_wait(std::string_view what, double seconds);

}  // namespace drafthouse
