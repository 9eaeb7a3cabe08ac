#include <sys/wait.h>

#include <functional>
#include <stdexcept>
#include <thread>
#include <vector>

#include "base/forked.h"
#include "capi/structs.h"
#include "capi/test_capi.h"

extern "C" dh_string dh_header_test_string(const char* text);

namespace drafthouse::capi {
namespace {

// Every function that goes through the host, with valid arguments.
std::vector<std::pair<std::string, std::function<dh_code(dh_host*, dh_status*)>>> host_functions() {
  static const dh_string name = dh_str("chat");
  const auto spec = [] {
    dh_model_spec made;
    dh_model_spec_init(&made, sizeof made);
    made.name = name;
    return made;
  };
  return {
      {"add chat",
       [=](auto* h, auto* s) {
         auto m = spec();
         return dh_model_add(h, &m, s);
       }},
      {"load new chat",
       [=](auto* h, auto* s) {
         auto m = spec();
         return dh_model_load_new(h, &m, s);
       }},
      {"load chat", [](auto* h, auto* s) { return dh_model_load(h, name, s); }},
      {"unload chat", [](auto* h, auto* s) { return dh_model_unload(h, name, nullptr, s); }},
      {"remove chat", [](auto* h, auto* s) { return dh_model_remove(h, name, nullptr, s); }},
      {"reconfigure chat",
       [](auto* h, auto* s) {
         dh_cache_config config;
         dh_cache_config_init(&config, sizeof config);
         return dh_model_reconfigure(h, name, &config, s);
       }},
      {"pin chat", [](auto* h, auto* s) { return dh_model_pin(h, name, 1, s); }},
      {"submit chat",
       [](auto* h, auto* s) {
         dh_submit_request request;
         dh_submit_request_init(&request, sizeof request);
         request.model = name;
         dh_stream* stream = nullptr;
         const dh_code code = dh_submit(h, &request, &stream, s);
         dh_stream_destroy(stream);
         return code;
       }},
      {"clear chat", [](auto* h, auto* s) { return dh_cache_clear(h, name, nullptr, nullptr, s); }},
      {"flush", [](auto* h, auto* s) { return dh_cache_flush(h, 1, s); }},
      {"drain", [](auto* h, auto* s) { return dh_drain(h, 1, s); }},
  };
}

TEST_F(Capi, EveryCallReachesTheHostAndGivesItsAnswer) {
  for (const auto& [name, call] : host_functions()) {
    state->answer = {};
    EXPECT_EQ(call(host, &why), DH_OK) << name;
    EXPECT_EQ(state->calls.back(), name);
    EXPECT_EQ(why.message.length, 0u);
    state->answer = Status(Code::conflict, "it is said why");
    EXPECT_EQ(call(host, &why), DH_CONFLICT) << name;
    EXPECT_EQ(text_of(why.message), "it is said why");
    EXPECT_EQ(call(host, nullptr), DH_CONFLICT) << name;
  }
}

TEST_F(Capi, NoExceptionLeaves) {
  for (const auto& [name, call] : host_functions()) {
    state->before = [] { throw std::runtime_error("thrown"); };
    EXPECT_EQ(call(host, &why), DH_INTERNAL) << name;
    EXPECT_EQ(text_of(why.message), "thrown");
    state->before = [] { throw std::bad_alloc(); };
    EXPECT_EQ(call(host, &why), DH_NO_MEMORY) << name;
    state->before = [] { throw 7; };
    EXPECT_EQ(call(host, &why), DH_INTERNAL) << name;
  }
  state->before = {};
}

TEST_F(Capi, OldHandlesAnswerClosed) {
  dh_stream* stream = submit();
  dh_host_destroy(host);
  EXPECT_EQ(state->calls.back(), "destroyed");
  for (const auto& [name, call] : host_functions()) {
    EXPECT_EQ(call(host, &why), DH_CLOSED) << name;
    EXPECT_NE(text_of(why.message).find("host was destroyed"), std::string::npos);
    EXPECT_EQ(call(nullptr, &why), DH_INVALID_ARGUMENT) << name;
  }
  dh_string json = {};
  EXPECT_EQ(dh_stats(host, &json, &why), DH_CLOSED);
  EXPECT_EQ(dh_ledger(host, &json, &why), DH_CLOSED);
  dh_host_destroy(host);
  dh_host_destroy(nullptr);
  // A later host never gets an old one's handle.
  dh_host* later = adopt(std::make_unique<FakeHost>(state));
  EXPECT_NE(later, host);
  EXPECT_EQ(dh_drain(host, 0, nullptr), DH_CLOSED);
  dh_host_destroy(later);

  // The stream outlives its host.
  dh_event event = {};
  event.size = sizeof event;
  EXPECT_EQ(dh_stream_next(stream, 0, &event, &why), DH_NO_EVENT);
  EXPECT_EQ(dh_stream_cancel(stream, &why), DH_OK);
  EXPECT_EQ(dh_stream_next(stream, 0, &event, &why), DH_OK);
  EXPECT_EQ(event.kind, DH_EVENT_CANCELLED);
  dh_stream_destroy(stream);
  dh_stream_destroy(stream);
  EXPECT_EQ(dh_stream_next(stream, 0, &event, &why), DH_CLOSED);
  EXPECT_EQ(dh_stream_cancel(stream, &why), DH_CLOSED);
  EXPECT_EQ(dh_stream_event_fd(stream), -1);
  EXPECT_EQ(dh_stream_next(nullptr, 0, &event, &why), DH_INVALID_ARGUMENT);
}

TEST_F(Capi, DestroyEndsTheCallsOfOthers) {
  state->load_waits = true;
  dh_code code = DH_OK;
  std::thread other([&] { code = dh_model_load(host, dh_str("chat"), nullptr); });
  {
    std::unique_lock<std::mutex> lock(state->lock);
    state->changed.wait(lock, [&] { return state->loading == 1; });
  }
  dh_host_destroy(host);
  EXPECT_EQ(state->calls, (std::vector<std::string>{"drain", "destroyed"}));
  other.join();
  EXPECT_EQ(code, DH_CLOSED);
}

TEST_F(Capi, ImpossibleArgumentsAreRefused) {
  dh_submit_request request;
  const auto refused = [&](auto&& change) {
    dh_submit_request_init(&request, sizeof request);
    change();
    dh_stream* stream = nullptr;
    return dh_submit(host, &request, &stream, &why) == DH_INVALID_ARGUMENT && stream == nullptr;
  };
  EXPECT_TRUE(refused([&] { request.model.length = 1; }));
  EXPECT_TRUE(refused([&] { request.stop_count = 1; }));
  EXPECT_TRUE(refused([&] { request.prompt_id_count = 1; }));
  EXPECT_TRUE(refused([&] { request.message_count = 1; }));
  EXPECT_EQ(dh_submit(host, &request, nullptr, &why), DH_INVALID_ARGUMENT);
  dh_stream* stream = nullptr;
  EXPECT_EQ(dh_submit(host, nullptr, &stream, &why), DH_INVALID_ARGUMENT);
  EXPECT_EQ(dh_model_add(host, nullptr, &why), DH_INVALID_ARGUMENT);
  EXPECT_EQ(dh_stats(host, nullptr, &why), DH_INVALID_ARGUMENT);
  EXPECT_EQ(dh_model_load(host, {nullptr, 5}, &why), DH_INVALID_ARGUMENT);
  EXPECT_TRUE(state->calls.empty());
}

TEST_F(Capi, CacheOfOneSaltOrAll) {
  std::uint64_t bytes = 0;
  const dh_string salt = dh_header_test_string("tenant");
  ASSERT_EQ(dh_cache_clear(host, dh_str("chat"), &salt, &bytes, &why), DH_OK);
  EXPECT_EQ(bytes, 4096u);
  EXPECT_EQ(state->salt, "tenant");
  ASSERT_EQ(dh_cache_clear(host, dh_str("chat"), nullptr, nullptr, &why), DH_OK);
  EXPECT_EQ(state->salt, std::nullopt);
  const dh_string empty = dh_header_test_string(nullptr);
  ASSERT_EQ(dh_cache_clear(host, dh_str("chat"), &empty, &bytes, &why), DH_OK);
  EXPECT_EQ(state->salt, "");
}

TEST_F(Capi, LogLinesGoToTheCallersFunction) {
  std::vector<std::string> lines;
  dh_host_options options;
  dh_host_options_init(&options, sizeof options);
  options.log = [](void* context, std::int32_t level, const char* line, std::size_t length) {
    static_cast<std::vector<std::string>*>(context)->push_back(std::to_string(level) +
                                                               std::string(line, length));
    throw 1;
  };
  options.log_context = &lines;
  HostOptions made;
  ASSERT_TRUE(read(&options, made).ok());
  made.log(LogLevel::warning, "a line");
  EXPECT_EQ(lines, std::vector<std::string>{"1a line"});
}

TEST_F(Capi, AForkedChildGetsClosed) {
  watch_forks();
  dh_stream* stream = submit();
  const pid_t child = fork();
  if (child == 0) {
    int wrong = 0;
    for (const auto& [name, call] : host_functions()) wrong += call(host, &why) != DH_CLOSED;
    wrong += std::string_view(why.message.data, why.message.length).substr(0, 6) != "Forked";
    dh_event event = {};
    event.size = sizeof event;
    wrong += dh_stream_next(stream, -1, &event, &why) != DH_CLOSED;
    wrong += dh_stream_cancel(stream, &why) != DH_CLOSED;
    wrong += dh_stream_event_fd(stream) != -1;
    dh_stream_destroy(stream);
    dh_host_destroy(host);
    _exit(wrong);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  EXPECT_EQ(dh_drain(host, 0, &why), DH_OK);
  dh_stream_destroy(stream);
}

TEST(CapiNames, CodesAndVersions) {
  EXPECT_STREQ(dh_code_name(DH_OK), "ok");
  EXPECT_STREQ(dh_code_name(DH_NO_MEMORY), "no_memory");
  EXPECT_STREQ(dh_code_name(DH_INTERNAL), "internal");
  EXPECT_STREQ(dh_code_name(DH_OVER), "over");
  EXPECT_STREQ(dh_code_name(-5), "unknown");
  EXPECT_EQ(dh_abi_version(), DH_ABI_VERSION);
  EXPECT_NE(std::string(dh_version()), "");
  EXPECT_EQ(static_cast<int>(Event::Kind::failed), DH_EVENT_FAILED);
  EXPECT_EQ(static_cast<int>(ModelState::failed), DH_MODEL_FAILED);
  EXPECT_EQ(static_cast<int>(LogLevel::error), DH_LOG_ERROR);
  dh_string_free({nullptr, 0});
  dh_status_clear(nullptr);
}

}  // namespace
}  // namespace drafthouse::capi
