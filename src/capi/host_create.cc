#include "capi/answers.h"
#include "capi/handles.h"
#include "capi/structs.h"

using namespace drafthouse;
using namespace drafthouse::capi;

extern "C" dh_code dh_host_create(const dh_host_options* options, dh_host** host,
                                  dh_status* status) {
  return answered(status, [&]() -> Status {
    if (host == nullptr) return Status(Code::invalid_argument, "dh_host_create: host is null");
    *host = nullptr;
    HostOptions wanted;
    if (Status read_in = read(options, wanted); !read_in.ok()) return read_in;
    Result<std::unique_ptr<Host>> made = Host::create(wanted);
    if (!made.ok()) return made.status();
    *host = adopt(std::move(made).value());
    return {};
  });
}
