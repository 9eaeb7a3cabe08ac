#include "capi/structs.h"

#include "capi/test_capi.h"

extern "C" int dh_header_test_has_field(const dh_event* event);

namespace drafthouse::capi {
namespace {

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

}  // namespace
}  // namespace drafthouse::capi
