#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "capi/handles.h"
#include "capi/test_host.h"

namespace drafthouse::capi {

inline std::string text_of(dh_string string) { return std::string(string.data, string.length); }

// The C interface over a host that notes what it was asked.
class Capi : public testing::Test {
 protected:
  ~Capi() override {
    dh_host_destroy(host);
    dh_status_clear(&why);
  }

  dh_stream* submit() {
    dh_submit_request request;
    dh_submit_request_init(&request, sizeof request);
    request.model = dh_str("chat");
    dh_stream* stream = nullptr;
    EXPECT_EQ(dh_submit(host, &request, &stream, &why), DH_OK) << text_of(why.message);
    return stream;
  }
  void give(Event event) {
    const std::lock_guard<std::mutex> lock(state->stream->lock);
    state->stream->events.push_back(std::move(event));
    state->stream->changed.notify_all();
  }
  void wait_for_next(int threads) {
    std::unique_lock<std::mutex> lock(state->stream->lock);
    state->stream->changed.wait(lock, [&] { return state->stream->waiting == threads; });
  }

  std::shared_ptr<FakeHost::State> state = std::make_shared<FakeHost::State>();
  dh_host* host = adopt(std::make_unique<FakeHost>(state));
  dh_status why = DH_STATUS_INIT;
};

}  // namespace drafthouse::capi
