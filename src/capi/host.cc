#include <limits>

#include "capi/host_calls.h"
#include "capi/structs.h"

using namespace drafthouse;
using namespace drafthouse::capi;

namespace {

// Body(Host&, const std::string& name).
template <class Body>
dh_code in_model(dh_host* handle, dh_string name, dh_status* status, Body&& body) noexcept {
  return in_host(handle, status, [&](Host& host) -> Status {
    std::string model;
    if (Status read_in = read_string("the model's name", name, model); !read_in.ok())
      return read_in;
    return body(host, model);
  });
}

template <class T>
void write_defaults(T defaults, T* out, std::size_t size) {
  if (out == nullptr || size < sizeof(std::size_t)) return;
  out->size = size;
  static_cast<void>(write_struct("defaults", defaults, out));
}

}  // namespace

extern "C" {

void dh_host_options_init(dh_host_options* options, size_t size) {
  write_defaults(default_host_options(), options, size);
}
void dh_cache_config_init(dh_cache_config* config, size_t size) {
  write_defaults(default_cache_config(), config, size);
}
void dh_model_spec_init(dh_model_spec* spec, size_t size) {
  write_defaults(default_model_spec(), spec, size);
}
void dh_unload_options_init(dh_unload_options* options, size_t size) {
  write_defaults(default_unload_options(), options, size);
}
void dh_submit_request_init(dh_submit_request* request, size_t size) {
  write_defaults(default_submit_request(), request, size);
}

void dh_sampling_init(dh_sampling* sampling, size_t size) {
  write_defaults(default_sampling(), sampling, size);
}

void dh_host_destroy(dh_host* host) {
  if (forked()) return;
  static_cast<void>(answered(nullptr, [&]() -> Status {
    const std::shared_ptr<HostHandle> handle = hosts().take(host);
    if (handle == nullptr) return {};
    std::unique_lock<std::shared_mutex> alone(handle->calls, std::try_to_lock);
    if (!alone.owns_lock()) {
      // Calls that wait for requests end sooner when these do. New calls find no handle any more.
      {
        const std::shared_lock<std::shared_mutex> among(handle->calls);
        if (handle->host != nullptr) static_cast<void>(handle->host->drain(0));
      }
      alone.lock();
    }
    handle->host.reset();
    return {};
  }));
}

dh_code dh_model_add(dh_host* handle, const dh_model_spec* spec, dh_status* status) {
  return in_host(handle, status, [&](Host& host) -> Status {
    ModelSpec wanted;
    if (Status read_in = read(spec, wanted); !read_in.ok()) return read_in;
    return host.add(wanted);
  });
}

dh_code dh_model_load(dh_host* handle, dh_string name, dh_status* status) {
  return in_model(handle, name, status,
                  [](Host& host, const std::string& model) { return host.load(model); });
}

dh_code dh_model_load_new(dh_host* handle, const dh_model_spec* spec, dh_status* status) {
  return in_host(handle, status, [&](Host& host) -> Status {
    ModelSpec wanted;
    if (Status read_in = read(spec, wanted); !read_in.ok()) return read_in;
    return host.load(wanted);
  });
}

dh_code dh_model_unload(dh_host* handle, dh_string name, const dh_unload_options* options,
                        dh_status* status) {
  return in_model(handle, name, status, [&](Host& host, const std::string& model) -> Status {
    UnloadOptions how;
    if (Status read_in = read(options, how); !read_in.ok()) return read_in;
    return host.unload(model, how);
  });
}

dh_code dh_model_remove(dh_host* handle, dh_string name, const dh_unload_options* options,
                        dh_status* status) {
  return in_model(handle, name, status, [&](Host& host, const std::string& model) -> Status {
    UnloadOptions how;
    if (Status read_in = read(options, how); !read_in.ok()) return read_in;
    return host.remove(model, how);
  });
}

dh_code dh_model_reconfigure(dh_host* handle, dh_string name, const dh_cache_config* cache,
                             dh_status* status) {
  return in_model(handle, name, status, [&](Host& host, const std::string& model) -> Status {
    if (cache == nullptr) return Status(Code::invalid_argument, "dh_cache_config is null");
    CacheConfig wanted;
    if (Status read_in = read(cache, wanted); !read_in.ok()) return read_in;
    return host.reconfigure(model, wanted);
  });
}

dh_code dh_model_pin(dh_host* handle, dh_string name, int32_t on, dh_status* status) {
  return in_model(handle, name, status,
                  [&](Host& host, const std::string& model) { return host.pin(model, on != 0); });
}

dh_code dh_cache_clear(dh_host* handle, dh_string name, const dh_string* salt, uint64_t* bytes,
                       dh_status* status) {
  if (bytes != nullptr) *bytes = 0;
  return in_model(handle, name, status, [&](Host& host, const std::string& model) -> Status {
    std::optional<std::string> root;
    if (salt != nullptr) {
      if (Status read_in = read_string("salt", *salt, root.emplace()); !read_in.ok())
        return read_in;
    }
    const Result<std::size_t> dropped = host.clear_cache(model, root);
    if (!dropped.ok()) return dropped.status();
    if (bytes != nullptr) *bytes = dropped.value();
    return {};
  });
}

dh_code dh_cache_flush(dh_host* handle, double deadline_s, dh_status* status) {
  return in_host(handle, status, [&](Host& host) { return host.flush_cache(deadline_s); });
}

dh_code dh_drain(dh_host* handle, double deadline_s, dh_status* status) {
  return in_host(handle, status, [&](Host& host) { return host.drain(deadline_s); });
}
}
