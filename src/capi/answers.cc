#include "capi/answers.h"

#include <cstdlib>
#include <cstring>

namespace drafthouse::capi {
namespace {

char* copy_or_null(std::string_view text) noexcept {
  char* copy = static_cast<char*>(std::malloc(text.size() + 1));
  if (copy == nullptr) return nullptr;
  if (!text.empty()) std::memcpy(copy, text.data(), text.size());
  copy[text.size()] = '\0';
  return copy;
}

}  // namespace

dh_code answer(dh_status* status, dh_code code, std::string_view message) noexcept {
  if (status == nullptr || status->size < sizeof(dh_status)) return code;
  dh_status_clear(status);
  status->code = code;
  if (!message.empty()) {
    status->message.data = copy_or_null(message);
    status->message.length = status->message.data != nullptr ? message.size() : 0;
  }
  return code;
}

dh_string owned_copy(std::string_view text) {
  char* copy = copy_or_null(text);
  if (copy == nullptr) throw std::bad_alloc();
  return {copy, text.size()};
}

}  // namespace drafthouse::capi

extern "C" {

void dh_string_free(dh_string string) { std::free(const_cast<char*>(string.data)); }

void dh_status_clear(dh_status* status) {
  if (status == nullptr || status->size < sizeof(dh_status)) return;
  dh_string_free(status->message);
  status->message = {};
  status->code = DH_OK;
}

const char* dh_code_name(dh_code code) {
  static constexpr const char* kNames[] = {
      "ok",        "invalid_argument", "context_overflow", "not_found",   "busy",
      "no_memory", "corrupt",          "mismatch",         "unsupported", "conflict",
      "closed",    "cancelled",        "internal"};
  static_assert(static_cast<int>(drafthouse::Code::internal) == DH_INTERNAL);
  static_assert(std::size(kNames) == DH_INTERNAL + 1);
  if (code >= 0 && code <= DH_INTERNAL) return kNames[code];
  if (code == DH_NO_EVENT) return "no_event";
  if (code == DH_OVER) return "over";
  return "unknown";
}

uint32_t dh_abi_version(void) { return DH_ABI_VERSION; }

const char* dh_version(void) { return DRAFTHOUSE_VERSION; }
}
