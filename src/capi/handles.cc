#include "capi/handles.h"

namespace drafthouse::capi {

HandleTable<dh_host, HostHandle>& hosts() {
  static auto* table = new HandleTable<dh_host, HostHandle>;
  return *table;
}

HandleTable<dh_stream, StreamHandle>& streams() {
  static auto* table = new HandleTable<dh_stream, StreamHandle>;
  return *table;
}

dh_host* adopt(std::unique_ptr<Host> host) {
  auto handle = std::make_shared<HostHandle>();
  handle->host = std::move(host);
  return hosts().add(std::move(handle));
}

}  // namespace drafthouse::capi
