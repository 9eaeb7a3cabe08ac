#pragma once

#include <mutex>
#include <optional>
#include <shared_mutex>
#include <string>

#include "capi/answers.h"
#include "capi/handles.h"

namespace drafthouse::capi {

inline Status no_handle(const void* handle, const char* what) {
  if (handle == nullptr) {
    return Status(Code::invalid_argument, std::string("the ") + what + " is null");
  }
  return Status(Code::closed, std::string("this ") + what + " was destroyed: make a new one");
}

// Answers with body(Host&), and keeps the host until it returns.
template <class Body>
dh_code in_host(dh_host* handle, dh_status* status, Body&& body) noexcept {
  return answered(status, [&]() -> Status {
    const std::shared_ptr<HostHandle> found = hosts().find(handle);
    if (found == nullptr) return no_handle(handle, "host");
    const std::shared_lock<std::shared_mutex> lock(found->calls);
    if (found->host == nullptr) return no_handle(handle, "host");
    return body(*found->host);
  });
}

}  // namespace drafthouse::capi
