#include <cmath>
#include <thread>

#include "capi/test_capi.h"

namespace drafthouse::capi {
namespace {

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

}  // namespace
}  // namespace drafthouse::capi
