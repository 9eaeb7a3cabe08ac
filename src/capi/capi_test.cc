#include <gtest/gtest.h>
#include <sys/wait.h>

#include <nlohmann/json.hpp>
#include <stdexcept>
#include <thread>

#include "base/forked.h"
#include "capi/handles.h"
#include "capi/structs.h"
#include "capi/test_host.h"

extern "C" int dh_header_test_has_field(const dh_event* event);
extern "C" dh_string dh_header_test_string(const char* text);

namespace drafthouse::capi {
namespace {

std::string text_of(dh_string string) { return std::string(string.data, string.length); }

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

TEST_F(Capi, ModelsAndRequestsArriveWhole) {
  dh_cache_config cache;
  dh_cache_config_init(&cache, sizeof cache);
  cache.ram_bytes = 1;
  cache.ram_floor_bytes = 2;
  cache.disk_directory = dh_str("/cache");
  cache.disk_bytes = 3;
  cache.disk_free_bytes = 4;
  cache.disk_queue_bytes = 5;
  cache.snapshot_tokens = 6;
  cache.enabled = 0;
  cache.trace = 1;
  dh_model_spec spec;
  dh_model_spec_init(&spec, sizeof spec);
  spec.name = dh_str("chat");
  spec.target = dh_str("target");
  spec.draft = dh_str("draft");
  spec.label = dh_str("label");
  spec.isa = dh_str("generic");
  spec.cache = &cache;
  spec.weight = 0.5;
  spec.context = 7;
  spec.sequences = 8;
  spec.queue = 9;
  spec.compute_fp32 = 1;
  spec.pinned = 1;
  spec.draft_window = 512;
  spec.draft_sink = 128;
  spec.packed_directory = dh_str("/packed");
  ASSERT_EQ(dh_model_add(host, &spec, &why), DH_OK);
  const ModelSpec& got = state->spec;
  EXPECT_EQ(got.name + got.target + got.draft + got.label + got.isa, "chattargetdraftlabelgeneric");
  EXPECT_EQ(got.weight, 0.5);
  EXPECT_EQ(got.context + got.sequences + got.queue, 24u);
  EXPECT_TRUE(got.compute_fp32 && got.pinned);
  EXPECT_EQ(got.draft_window, 512u);
  EXPECT_EQ(got.draft_sink, 128u);
  EXPECT_EQ(got.packed_directory, "/packed");
  CacheConfig expected = {.enabled = false,
                          .ram_bytes = 1,
                          .ram_floor_bytes = 2,
                          .disk_directory = "/cache",
                          .disk_bytes = 3,
                          .disk_free_bytes = 4,
                          .disk_queue_bytes = 5,
                          .snapshot_tokens = 6,
                          .trace = true};
  EXPECT_EQ(got.cache, expected);
  ASSERT_EQ(dh_model_reconfigure(host, dh_str("chat"), &cache, &why), DH_OK);
  EXPECT_EQ(state->cache, expected);
  EXPECT_EQ(dh_model_reconfigure(host, dh_str("chat"), nullptr, &why), DH_INVALID_ARGUMENT);

  dh_unload_options unload;
  dh_unload_options_init(&unload, sizeof unload);
  unload.deadline_s = 3;
  unload.keep_cache = 1;
  ASSERT_EQ(dh_model_unload(host, dh_str("chat"), &unload, &why), DH_OK);
  EXPECT_TRUE(state->unload.deadline_s == 3 && state->unload.keep_cache);

  const dh_tool_call call = {sizeof(dh_tool_call), dh_str("f"), dh_str("{}"), dh_str("c1")};
  dh_chat_turn turns[2] = {};
  turns[0].size = turns[1].size = sizeof(dh_chat_turn);
  turns[0].role = dh_str("assistant");
  turns[0].reasoning = dh_str("hm");
  turns[0].tool_calls = &call;
  turns[0].tool_call_count = 1;
  turns[1].role = dh_str("user");
  turns[1].content = dh_str("Hello");
  turns[1].tool_call_id = dh_str("c1");
  turns[1].name = dh_str("f");
  const std::uint32_t ids[] = {1, 2, 3};
  const dh_string stops[] = {dh_str("a"), {"b\0c", 3}};
  dh_submit_request request;
  dh_submit_request_init(&request, sizeof request);
  request.model = dh_str("chat");
  request.messages = turns;
  request.message_count = 2;
  request.prompt = dh_str("text");
  request.prompt_ids = ids;
  request.prompt_id_count = 3;
  request.stop = stops;
  request.stop_count = 2;
  request.salt = dh_str("tenant");
  request.timeout_s = 1.5;
  request.event_queue = 10;
  request.max_tokens = 11;
  request.width = 12;
  request.ignore_eos = 1;
  request.use_cache = 0;
  request.priority = -3;
  request.stop_ids = ids;
  request.stop_id_count = 2;
  const dh_logit_bias biases[] = {{4, 1.5f}};
  dh_sampling sampling;
  dh_sampling_init(&sampling, sizeof sampling);
  sampling.temperature = 0.7f;
  sampling.top_k = 40;
  sampling.seed = 9;
  sampling.has_seed = 1;
  sampling.logit_bias = biases;
  sampling.logit_bias_count = 1;
  sampling.ban_ids = ids + 1;
  sampling.ban_id_count = 1;
  request.sampling = &sampling;
  request.grammar = dh_str("a+");
  request.grammar_form = DH_GRAMMAR_REGEX;
  request.n = 3;
  request.template_options = dh_str("{\"a\": 1}");
  request.tools = dh_str("[]");
  request.documents = dh_str("[{}]");
  request.reply_format = DH_REPLY_HARMONY;
  request.has_thinking_budget = 1;
  request.thinking_budget = 21;
  request.logprobs = 1;
  request.top_logprobs = 5;
  request.prompt_logprobs = 1;
  dh_stream* stream = nullptr;
  ASSERT_EQ(dh_submit(host, &request, &stream, &why), DH_OK);
  const SubmitRequest& sent = state->request;
  ASSERT_EQ(sent.messages.size(), 2u);
  EXPECT_EQ(sent.messages[1].role + sent.messages[1].content, "userHello");
  EXPECT_EQ(sent.model + sent.prompt + sent.salt, "chattexttenant");
  EXPECT_EQ(sent.prompt_ids, (std::vector<std::uint32_t>{1, 2, 3}));
  EXPECT_EQ(sent.stop, (std::vector<std::string>{"a", std::string("b\0c", 3)}));
  EXPECT_EQ(sent.timeout_s, 1.5);
  EXPECT_EQ(sent.event_queue, 10u);
  EXPECT_EQ(sent.max_tokens + sent.width, 23u);
  EXPECT_TRUE(sent.ignore_eos && !sent.use_cache && sent.priority == -3);
  EXPECT_EQ(sent.grammar.form, GrammarForm::regex);
  EXPECT_EQ(sent.grammar.text, "a+");
  EXPECT_EQ(sent.n, 3u);
  EXPECT_EQ(sent.stop_ids, (std::vector<std::uint32_t>{1, 2}));
  EXPECT_EQ(sent.sampling.temperature, 0.7f);
  EXPECT_EQ(sent.sampling.top_k, 40u);
  EXPECT_EQ(sent.sampling.top_p, 1.0f);
  EXPECT_EQ(sent.sampling.seed, std::uint64_t{9});
  ASSERT_EQ(sent.sampling.logit_bias.size(), 1u);
  EXPECT_EQ(sent.sampling.logit_bias[0].bias, 1.5f);
  EXPECT_EQ(sent.sampling.ban_ids, (std::vector<std::uint32_t>{2}));
  EXPECT_EQ(sent.messages[0].reasoning + sent.messages[1].call_id + sent.messages[1].name, "hmc1f");
  EXPECT_EQ(sent.messages[0].calls, (std::vector<ToolCall>{{"f", "{}", "c1"}}));
  EXPECT_EQ(sent.chat.variables + sent.chat.tools + sent.chat.documents, "{\"a\": 1}[][{}]");
  EXPECT_EQ(sent.reply.format, ReplyFormat::harmony);
  EXPECT_EQ(sent.reply.thinking_budget, 21u);
  EXPECT_TRUE(sent.logprobs && sent.prompt_logprobs && sent.top_logprobs == 5);
  dh_stream_destroy(stream);
}

TEST_F(Capi, ResultsHoldRepliesLogProbabilitiesAndMoreAnswers) {
  dh_stream* stream = submit();
  Event tokens;
  tokens.reply = {.reasoning = "hm", .content = "Hi", .calls = {{.name = "f", .arguments = "{}"}}};
  give(tokens);
  dh_event event = {};
  event.size = sizeof event;
  ASSERT_EQ(dh_stream_next(stream, 1, &event, &why), DH_OK);
  EXPECT_EQ(text_of(event.reasoning) + text_of(event.content), "hmHi");
  ASSERT_EQ(event.tool_call_count, 1u);
  EXPECT_EQ(text_of(event.tool_calls[0].name) + text_of(event.tool_calls[0].arguments), "f{}");

  Event last;
  last.kind = Event::Kind::finished;
  GenerateResult& result = last.result;
  result.reply = tokens.reply;
  result.reasoning_tokens = 4;
  result.prompt_tokens = 9;
  result.logprobs = {{.id = 7, .logprob = -0.5, .top = {{7, -0.5}, {3, -2}}},
                     {.id = 8, .logprob = -1}};
  result.prompt_logprobs = {{.id = 1, .logprob = -3}};
  result.more.resize(2);
  result.more[1].text = "other";
  result.more[1].ids = {5, 6};
  result.more[1].logprobs = {{.id = 5, .logprob = -4, .top = {{5, -4}}}};
  give(last);
  ASSERT_EQ(dh_stream_next(stream, 1, &event, &why), DH_OK);
  const dh_result& seen = *event.result;
  EXPECT_EQ(text_of(seen.reasoning) + text_of(seen.content), "hmHi");
  EXPECT_EQ(seen.tool_call_count, 1u);
  EXPECT_EQ(seen.reasoning_tokens + seen.prompt_tokens, 13u);
  ASSERT_EQ(seen.logprob_count, 2u);
  ASSERT_EQ(seen.logprobs[0].top_count, 2u);
  EXPECT_EQ(seen.logprobs[0].top[1].id, 3u);
  EXPECT_EQ(seen.logprobs[0].top[1].logprob, -2);
  EXPECT_EQ(seen.logprobs[1].logprob, -1);
  ASSERT_EQ(seen.prompt_logprob_count, 1u);
  EXPECT_EQ(seen.prompt_logprobs[0].id, 1u);
  ASSERT_EQ(seen.more_count, 2u);
  EXPECT_EQ(text_of(seen.more[1].text), "other");
  EXPECT_EQ(seen.more[1].ids[1], 6u);
  EXPECT_EQ(seen.more[1].logprobs[0].top[0].logprob, -4);
  dh_stream_destroy(stream);
}

TEST_F(Capi, DefaultsAreThoseOfTheHost) {
  dh_host_options options;
  dh_host_options_init(&options, sizeof options);
  HostOptions host_options;
  host_options.threads = 99;
  ASSERT_TRUE(read(&options, host_options).ok());
  EXPECT_EQ(host_options.threads, HostOptions().threads);
  EXPECT_EQ(host_options.load_cooldown_s, HostOptions().load_cooldown_s);
  EXPECT_EQ(host_options.switch_after_s, HostOptions().switch_after_s);

  dh_cache_config cache;
  dh_cache_config_init(&cache, sizeof cache);
  CacheConfig config = {.enabled = false, .ram_bytes = 1, .disk_bytes = 1, .snapshot_tokens = 1};
  ASSERT_TRUE(read(&cache, config).ok());
  EXPECT_EQ(config, CacheConfig());

  // A struct that holds its size alone: all the rest is default.
  dh_submit_request bare;
  std::memset(&bare, 0xff, sizeof bare);
  bare.size = sizeof bare.size;
  SubmitRequest request;
  ASSERT_TRUE(read(&bare, request).ok());
  EXPECT_TRUE(request.use_cache && request.event_queue == SubmitRequest().event_queue);
  dh_model_spec spec;
  std::memset(&spec, 0xff, sizeof spec);
  spec.size = sizeof spec.size;
  ModelSpec model;
  ASSERT_TRUE(read(&spec, model).ok());
  EXPECT_EQ(model.sequences, ModelSpec().sequences);
}

TEST_F(Capi, StructsOfOtherVersions) {
  struct Newer {
    dh_unload_options known;
    std::uint64_t unknown[4];
  } newer;
  std::memset(&newer, 0xff, sizeof newer);
  dh_unload_options_init(&newer.known, sizeof newer);
  EXPECT_EQ(newer.known.size, sizeof newer);
  EXPECT_EQ(newer.unknown[3], 0u);
  newer.known.deadline_s = 2;
  EXPECT_EQ(dh_model_unload(host, dh_str("chat"), &newer.known, &why), DH_OK);
  EXPECT_EQ(state->unload.deadline_s, 2);
  newer.unknown[2] = 1;
  EXPECT_EQ(dh_model_unload(host, dh_str("chat"), &newer.known, &why), DH_UNSUPPORTED);
  EXPECT_NE(text_of(why.message).find("newer version"), std::string::npos);

  newer.known.size = 0;
  EXPECT_EQ(dh_model_unload(host, dh_str("chat"), &newer.known, &why), DH_INVALID_ARGUMENT);
  EXPECT_NE(text_of(why.message).find("sizeof(dh_unload_options)"), std::string::npos);
  newer.known.size = SIZE_MAX;
  EXPECT_EQ(dh_model_unload(host, dh_str("chat"), &newer.known, &why), DH_INVALID_ARGUMENT);
  dh_unload_options_init(&newer.known, sizeof newer.known);
  newer.known.reserved = 1;
  EXPECT_EQ(dh_model_unload(host, dh_str("chat"), &newer.known, &why), DH_INVALID_ARGUMENT);

  // Turns of a newer version, one after the other.
  struct NewerTurn {
    dh_chat_turn known;
    std::uint64_t unknown;
  } turns[2] = {};
  turns[0].known.size = turns[1].known.size = sizeof(NewerTurn);
  turns[0].known.role = dh_str("user");
  turns[1].known.role = dh_str("assistant");
  turns[1].known.content = dh_str("two");
  dh_submit_request request;
  dh_submit_request_init(&request, sizeof request);
  request.messages = &turns[0].known;
  request.message_count = 2;
  SubmitRequest got;
  ASSERT_TRUE(read(&request, got).ok());
  EXPECT_EQ(got.messages[1].content, "two");

  // An old caller's event ends before what we know; a newer one's is filled with zero.
  dh_stream* stream = submit();
  give({.text = "ab"});
  give({.text = "cd"});
  dh_event old;
  std::memset(&old, 0x55, sizeof old);
  old.size = offsetof(dh_event, text);
  ASSERT_EQ(dh_stream_next(stream, 0, &old, &why), DH_OK);
  EXPECT_EQ(old.kind, DH_EVENT_TOKENS);
  EXPECT_EQ(old.size, offsetof(dh_event, text));
  EXPECT_EQ(old.text.length, 0x5555555555555555u);
  EXPECT_FALSE(dh_header_test_has_field(&old));
  struct NewerEvent {
    dh_event known;
    std::uint64_t unknown;
  } event = {};
  event.known.size = sizeof event;
  event.unknown = 7;
  ASSERT_EQ(dh_stream_next(stream, 0, &event.known, &why), DH_OK);
  EXPECT_EQ(text_of(event.known.text), "cd");
  EXPECT_EQ(event.unknown, 0u);
  EXPECT_TRUE(dh_header_test_has_field(&event.known));
  dh_stream_destroy(stream);
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

TEST_F(Capi, EventsOfARequest) {
  dh_stream* stream = submit();
  EXPECT_GE(dh_stream_event_fd(stream), 0);
  dh_event event = {};
  event.size = sizeof event;
  EXPECT_EQ(dh_stream_next(stream, 0, &event, &why), DH_NO_EVENT);
  EXPECT_EQ(why.code, DH_NO_EVENT);
  EXPECT_EQ(dh_stream_next(stream, std::nan(""), &event, &why), DH_INVALID_ARGUMENT);
  EXPECT_EQ(dh_stream_next(stream, 0, nullptr, &why), DH_INVALID_ARGUMENT);

  give({.kind = Event::Kind::started,
        .cache = {.matched_tokens = 64, .tier = "ram", .reason = "too short"}});
  ASSERT_EQ(dh_stream_next(stream, -1, &event, &why), DH_OK);
  EXPECT_EQ(event.kind, DH_EVENT_STARTED);
  ASSERT_NE(event.cache, nullptr);
  EXPECT_EQ(event.cache->matched_tokens, 64u);
  EXPECT_EQ(text_of(event.cache->tier) + text_of(event.cache->reason), "ramtoo short");
  EXPECT_EQ(event.result, nullptr);

  give({.text = "Hi", .ids = {5, 6}});
  ASSERT_EQ(dh_stream_next(stream, 1e300, &event, &why), DH_OK);
  EXPECT_EQ(event.kind, DH_EVENT_TOKENS);
  EXPECT_EQ(text_of(event.text), "Hi");
  EXPECT_EQ(event.text.data[event.text.length], '\0');
  EXPECT_EQ(std::vector<std::uint32_t>(event.ids, event.ids + event.id_count),
            (std::vector<std::uint32_t>{5, 6}));
  EXPECT_EQ(event.cache, nullptr);

  Event last = {.kind = Event::Kind::failed, .status = Status(Code::closed, "unloading")};
  last.result.ids = {5, 6, 7};
  last.result.text = "Hi!";
  last.result.finish_reason = "cancelled";
  last.result.accepted_per_turn = {2};
  last.result.width_per_turn = {4};
  last.result.mode = "dflash";
  last.result.timings.verify_s = 0.25;
  last.result.cache = {.matched_tokens = 64, .tier = "disk", .stored_pages = 3};
  give(last);
  ASSERT_EQ(dh_stream_next(stream, 1, &event, &why), DH_OK);
  EXPECT_EQ(event.kind, DH_EVENT_FAILED);
  EXPECT_EQ(event.code, DH_CLOSED);
  EXPECT_EQ(text_of(event.message), "unloading");
  ASSERT_NE(event.result, nullptr);
  EXPECT_EQ(text_of(event.result->text) + text_of(event.result->finish_reason), "Hi!cancelled");
  EXPECT_EQ(text_of(event.result->mode), "dflash");
  EXPECT_EQ(event.result->id_count, 3u);
  EXPECT_EQ(event.result->accepted_per_turn[0], 2u);
  EXPECT_EQ(event.result->width_per_turn[0], 4u);
  EXPECT_TRUE(DH_HAS(event.result, verify_s));
  EXPECT_EQ(event.result->verify_s, 0.25);
  EXPECT_EQ(event.cache->stored_pages, 3u);
  EXPECT_EQ(dh_stream_next(stream, -1, &event, &why), DH_OVER);
  EXPECT_EQ(dh_stream_next(stream, 0, &event, nullptr), DH_OVER);
  dh_stream_destroy(stream);
}

TEST_F(Capi, OneThreadAtATimeTakesEvents) {
  dh_stream* stream = submit();
  dh_code code = DH_OK;
  std::thread other([&] {
    dh_event event = {};
    event.size = sizeof event;
    code = dh_stream_next(stream, -1, &event, nullptr);
  });
  wait_for_next(1);
  dh_event event = {};
  event.size = sizeof event;
  EXPECT_EQ(dh_stream_next(stream, 0, &event, &why), DH_BUSY);
  dh_stream_destroy(stream);
  other.join();
  EXPECT_EQ(code, DH_CLOSED);
}

TEST_F(Capi, FiguresAsJsonAndAsNumbers) {
  state->stats.memory_limit = 100;
  state->stats.models.push_back(
      {.name = "a\xff\"b", .state = ModelState::failed, .why = "no file"});
  state->stats.models.push_back({.name = "chat",
                                 .state = ModelState::ready,
                                 .requests = 7,
                                 .cache_bytes = std::uint64_t{1} << 40});
  state->stats.models.back().info.family = "qwen3";
  dh_string json = {};
  ASSERT_EQ(dh_stats(host, &json, &why), DH_OK);
  EXPECT_EQ(json.data[json.length], '\0');
  const auto stats = nlohmann::json::parse(text_of(json));
  dh_string_free(json);
  EXPECT_EQ(stats["memory"]["limit"], 100);
  EXPECT_EQ(stats["models"]["chat"]["requests"], 7);
  EXPECT_EQ(stats["models"]["chat"]["info"]["family"], "qwen3");
  EXPECT_EQ(stats["models"]["a\xef\xbf\xbd\"b"]["why"], "no file");

  dh_model_stats model = {};
  model.size = sizeof model;
  ASSERT_EQ(dh_model_stats_get(host, dh_str("chat"), &model, &why), DH_OK);
  EXPECT_EQ(model.state, DH_MODEL_READY);
  EXPECT_EQ(model.requests, 7u);
  EXPECT_EQ(model.cache_bytes, std::uint64_t{1} << 40);
  EXPECT_EQ(dh_model_stats_get(host, dh_str("other"), &model, &why), DH_NOT_FOUND);
  EXPECT_EQ(dh_model_stats_get(host, dh_str("chat"), nullptr, &why), DH_INVALID_ARGUMENT);

  state->ledger = {{"", "text", 1}, {"chat", "weights", 2}};
  ASSERT_EQ(dh_ledger(host, &json, &why), DH_OK);
  const auto ledger = nlohmann::json::parse(text_of(json));
  dh_string_free(json);
  ASSERT_EQ(ledger.size(), 2u);
  EXPECT_EQ(ledger[1]["tag"], "weights");
  EXPECT_EQ(ledger[1]["bytes"], 2);
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
