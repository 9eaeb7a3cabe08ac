#include <algorithm>
#include <cmath>

#include "capi/host_calls.h"
#include "capi/structs.h"

using namespace drafthouse;
using namespace drafthouse::capi;

namespace {

// The longest wait in one piece: a caller may ask for any number of seconds.
constexpr double kWaitMax_s = 3600;

std::optional<Event> next_within(Stream& stream, double timeout_s) {
  const bool for_ever = timeout_s < 0;
  for (double left = timeout_s; for_ever || left > 0 || left == timeout_s; left -= kWaitMax_s) {
    std::optional<Event> event = stream.next(for_ever ? kWaitMax_s : std::min(left, kWaitMax_s));
    if (event.has_value() || stream.over()) return event;
  }
  return std::nullopt;
}

// The event as the caller sees it: views into the handle.
dh_event view_of(StreamHandle& handle) {
  const Event& event = handle.event;
  dh_event seen = {};
  seen.size = sizeof seen;
  seen.kind = static_cast<std::int32_t>(event.kind);
  seen.code = static_cast<dh_code>(event.status.code());
  seen.message = as_string(event.status.message());
  seen.text = as_string(event.text);
  seen.ids = event.ids.data();
  seen.id_count = event.ids.size();
  seen.choice = event.choice;
  seen.reasoning = as_string(event.reply.reasoning);
  seen.content = as_string(event.reply.content);
  handle.calls = views(event.reply.calls);
  seen.tool_calls = handle.calls.data();
  seen.tool_call_count = handle.calls.size();
  if (event.kind == Event::Kind::tokens) return seen;
  handle.cache = view(event.terminal() ? event.result.cache : event.cache);
  seen.cache = &handle.cache;
  if (!event.terminal()) return seen;
  handle.result.set(event.result);
  seen.result = &handle.result.result();
  return seen;
}

dh_code take(StreamHandle& handle, double timeout_s, dh_event* out, dh_status* status) {
  const std::unique_lock<std::mutex> taking(handle.taking, std::try_to_lock);
  if (!taking.owns_lock()) {
    return answer(status, DH_BUSY, "another thread waits in dh_stream_next for this stream");
  }
  if (handle.stream->over()) return answer(status, DH_OVER, "");
  std::optional<Event> event = next_within(*handle.stream, timeout_s);
  if (handle.destroyed) return answer(status, no_handle(&handle, "stream"));
  if (!event.has_value()) {
    return answer(status, handle.stream->over() ? DH_OVER : DH_NO_EVENT, "");
  }
  handle.event = std::move(*event);
  return answer(status, write_struct("dh_event", view_of(handle), out));
}

}  // namespace

extern "C" {

dh_code dh_submit(dh_host* handle, const dh_submit_request* request, dh_stream** stream,
                  dh_status* status) {
  return in_host(handle, status, [&](Host& host) -> Status {
    if (stream == nullptr) return Status(Code::invalid_argument, "dh_submit: stream is null");
    *stream = nullptr;
    SubmitRequest wanted;
    if (Status read_in = read(request, wanted); !read_in.ok()) return read_in;
    Result<std::unique_ptr<Stream>> made = host.submit(wanted);
    if (!made.ok()) return made.status();
    auto kept = std::make_shared<StreamHandle>();
    kept->stream = std::move(made).value();
    *stream = streams().add(std::move(kept));
    return {};
  });
}

dh_code dh_stream_next(dh_stream* stream, double timeout_s, dh_event* event, dh_status* status) {
  return guarded(status, [&]() -> dh_code {
    const std::shared_ptr<StreamHandle> found = streams().find(stream);
    if (found == nullptr) return answer(status, no_handle(stream, "stream"));
    if (event == nullptr) return answer(status, DH_INVALID_ARGUMENT, "dh_event is null");
    const Status fits = check_size("dh_event", event->size);
    if (!fits.ok()) return answer(status, fits);
    if (std::isnan(timeout_s)) {
      return answer(status, DH_INVALID_ARGUMENT, "dh_stream_next: timeout_s is not a number");
    }
    return take(*found, timeout_s, event, status);
  });
}

dh_code dh_stream_cancel(dh_stream* stream, dh_status* status) {
  return answered(status, [&]() -> Status {
    const std::shared_ptr<StreamHandle> found = streams().find(stream);
    if (found == nullptr) return no_handle(stream, "stream");
    found->stream->cancel();
    return {};
  });
}

int32_t dh_stream_event_fd(dh_stream* stream) {
  int32_t descriptor = -1;
  static_cast<void>(answered(nullptr, [&]() -> Status {
    const std::shared_ptr<StreamHandle> found = streams().find(stream);
    if (found != nullptr) descriptor = found->stream->event_fd();
    return {};
  }));
  return descriptor;
}

void dh_stream_destroy(dh_stream* stream) {
  static_cast<void>(answered(nullptr, [&]() -> Status {
    const std::shared_ptr<StreamHandle> taken = streams().take(stream);
    if (taken == nullptr) return {};
    taken->destroyed = true;
    taken->stream->cancel();
    return {};
  }));
}
}
