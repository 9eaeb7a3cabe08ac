#pragma once

#include <cassert>
#include <cstdint>
#include <string>
#include <utility>
#include <variant>

namespace drafthouse {

enum class Code : std::uint8_t {
  ok,
  invalid_argument,  // the caller sent something we will never accept
  context_overflow,  // prompt + max_tokens does not fit the sequence
  not_found,         // no such model, tensor, page, file
  busy,              // a queue is full; the same call may work later
  no_memory,         // the memory guard said no
  corrupt,           // bytes on disk are not what their format promises
  mismatch,          // a draft does not fit its target
  unsupported,       // a valid request or file for something that is not built yet
  conflict,          // two owners want one thing; the message names both
  closed,            // the handle's owner has gone
  cancelled,         // the caller left or the deadline passed
  internal,          // our bug, or a device error we cannot explain
};

// Success, or a code with one line for people: what, where, why and the next step.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Code code, std::string message) : code_(code), message_(std::move(message)) {
    assert(code != Code::ok);
  }
  bool ok() const { return code_ == Code::ok; }
  Code code() const { return code_; }
  const std::string& message() const { return message_; }

 private:
  Code code_ = Code::ok;
  std::string message_;
};

// A value or the Status that explains its absence. Never both, never neither.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  Result(Status why) : state_(std::in_place_index<1>, std::move(why)) { assert(!status().ok()); }
  bool ok() const { return state_.index() == 0; }
  const Status& status() const { return std::get<1>(state_); }
  T& value() & { return std::get<0>(state_); }
  const T& value() const& { return std::get<0>(state_); }
  T&& value() && { return std::get<0>(std::move(state_)); }

 private:
  std::variant<T, Status> state_;
};

}  // namespace drafthouse
