#pragma once

#include <exception>
#include <new>
#include <string>
#include <string_view>

#include "base/forked.h"
#include "drafthouse/drafthouse.h"
#include "drafthouse/status.h"

// How functions of the C ABI answer: as code and message, and never by an exception.

namespace drafthouse::capi {

// Replaces what `status` (may be null) holds. Returns the code.
dh_code answer(dh_status* status, dh_code code, std::string_view message) noexcept;
inline dh_code answer(dh_status* status, const Status& why) noexcept {
  return answer(status, static_cast<dh_code>(why.code()), why.message());
}

// A copy that belongs to the caller (dh_string_free). Throws std::bad_alloc.
dh_string owned_copy(std::string_view text);

// Runs `body`, which answers by itself and returns the code; closed in a forked child.
template <class Body>
dh_code guarded(dh_status* status, Body&& body) noexcept {
  if (forked()) return answer(status, DH_CLOSED, kForked);
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return answer(status, DH_NO_MEMORY, "the machine has no memory left for this call");
  } catch (const std::exception& error) {
    return answer(status, DH_INTERNAL, error.what());
  } catch (...) {
    return answer(status, DH_INTERNAL, "an exception of an unknown kind");
  }
}

// The same with a body that returns the Status to answer with.
template <class Body>
dh_code answered(dh_status* status, Body&& body) noexcept {
  return guarded(status, [&] { return answer(status, body()); });
}

}  // namespace drafthouse::capi
