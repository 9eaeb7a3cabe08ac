#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "drafthouse/drafthouse.h"
#include "drafthouse/host.h"

// Structs of the C ABI, which may be shorter or longer than ours, to and from the C++ ones.

namespace drafthouse::capi {

// No struct of any version is larger; a larger `size` was never set.
inline constexpr std::size_t kStructBytesMax = 4096;

Status check_size(std::string_view name, std::size_t size);
// Bytes of a newer struct that this library does not know must be zero.
Status check_rest(std::string_view name, const void* from, std::size_t known, std::size_t size);

// Puts what the caller set over the defaults in `out`.
template <class T>
Status read_struct(std::string_view name, const T* in, T& out) {
  if (in == nullptr) return Status(Code::invalid_argument, std::string(name) + " is null");
  const std::size_t size = in->size;
  if (Status status = check_size(name, size); !status.ok()) return status;
  std::memcpy(&out, in, std::min(size, sizeof(T)));
  out.size = sizeof(T);
  return check_rest(name, in, sizeof(T), size);
}

// Writes as much as the caller's struct holds, and zero into what it has beyond ours.
template <class T>
Status write_struct(std::string_view name, T value, T* out) {
  if (out == nullptr) return Status(Code::invalid_argument, std::string(name) + " is null");
  const std::size_t size = out->size;
  if (Status status = check_size(name, size); !status.ok()) return status;
  value.size = size;
  std::memcpy(out, &value, std::min(size, sizeof(T)));
  if (size > sizeof(T)) std::memset(reinterpret_cast<char*>(out) + sizeof(T), 0, size - sizeof(T));
  return {};
}

Status read_string(std::string_view name, dh_string in, std::string& out);
Status read_strings(std::string_view name, const dh_string* in, std::size_t count,
                    std::vector<std::string>& out);
inline dh_string as_string(std::string_view text) { return {text.data(), text.size()}; }

dh_host_options default_host_options();
dh_cache_config default_cache_config();
dh_model_spec default_model_spec();
dh_unload_options default_unload_options();
dh_submit_request default_submit_request();
dh_sampling default_sampling();

// `in` may be null where the header says so: the defaults.
Status read(const dh_host_options* in, HostOptions& out);
Status read(const dh_cache_config* in, CacheConfig& out);
Status read(const dh_model_spec* in, ModelSpec& out);
Status read(const dh_unload_options* in, UnloadOptions& out);
Status read(const dh_submit_request* in, SubmitRequest& out);
Status read(const dh_sampling* in, SamplingOptions& out);

// A view into `from`.
dh_cache_report view(const CacheReport& from);

}  // namespace drafthouse::capi
