// Requests that ask for odd things: each gives what it asks for or one clear error, the same at
// every width, and never less than plain decoding gives before an error.

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "tests/host_pairs.h"

namespace drafthouse {
namespace {

using namespace test;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct Odd {
  const char* name;
  std::function<void(SubmitRequest&)> change;
  std::string error = {};  // a part of it; empty: finishes
};

class OddRequests : public ::testing::Test {
 protected:
  void SetUp() override {
    host_ = make_host();
    ASSERT_TRUE(host_->load(nano_spec("nano")).ok());
  }

  struct Outcome {
    std::vector<std::uint32_t> ids;  // streamed
    std::string text;
    std::string finish_reason;
    Status status;
    std::size_t answers = 0;

    bool operator==(const Outcome& other) const {
      return ids == other.ids && text == other.text && finish_reason == other.finish_reason &&
             status.message() == other.status.message() && answers == other.answers;
    }
  };

  Outcome run(const Odd& odd, std::uint32_t width) {
    SubmitRequest wanted = request("nano", golden_prompt(0), 40, width);
    wanted.ignore_eos = false;
    wanted.sampling.seed = 5;
    odd.change(wanted);
    Outcome outcome;
    auto stream = host_->submit(wanted);
    if (!stream.ok()) {
      outcome.status = stream.status();
      return outcome;
    }
    for (;;) {
      const std::optional<Event> event = stream.value()->next(120);
      if (!event.has_value()) {
        ADD_FAILURE() << "no event within two minutes";
        return outcome;
      }
      if (event->choice == 0) {
        outcome.ids.insert(outcome.ids.end(), event->ids.begin(), event->ids.end());
        outcome.text += event->text;
      }
      if (!event->terminal()) continue;
      outcome.finish_reason = event->result.finish_reason;
      outcome.status = event->status;
      outcome.answers = 1 + event->result.more.size();
      return outcome;
    }
  }

  void expect(const std::vector<Odd>& all) {
    for (const Odd& odd : all) {
      SCOPED_TRACE(odd.name);
      const Outcome plain = run(odd, 1);
      if (odd.error.empty()) {
        EXPECT_TRUE(plain.status.ok()) << plain.status.message();
      } else {
        EXPECT_NE(plain.status.message().find(odd.error), std::string::npos)
            << plain.status.message();
      }
      for (const std::uint32_t width : {4u, 16u, 0u}) {
        SCOPED_TRACE("width " + std::to_string(width));
        const Outcome other = run(odd, width);
        EXPECT_EQ(other, plain) << other.text << "\n"
                                << plain.text << "\n"
                                << other.status.message();
      }
    }
  }

  std::unique_ptr<Host> host_;
};

TEST_F(OddRequests, Numbers) {
  const auto set = [](auto member, auto value) {
    return [=](SubmitRequest& r) {
      r.sampling.temperature = 1;
      r.sampling.*member = value;
    };
  };
  using S = SamplingOptions;
  std::vector<Odd> all;
  for (const float wrong : {kNan, kInfinity, -kInfinity, -1.0f}) {
    all.push_back({"temperature", set(&S::temperature, wrong), "temperature is"});
    all.push_back({"top_p", set(&S::top_p, wrong), "top_p is"});
    all.push_back({"min_p", set(&S::min_p, wrong), "min_p is"});
    all.push_back({"typical_p", set(&S::typical_p, wrong), "typical_p is"});
    all.push_back({"xtc_probability", set(&S::xtc_probability, wrong), "xtc_probability is"});
    all.push_back({"xtc_threshold", set(&S::xtc_threshold, wrong), "xtc_threshold is"});
    all.push_back({"repetition", set(&S::repetition_penalty, wrong), "repetition_penalty is"});
    all.push_back({"dry_multiplier", set(&S::dry_multiplier, wrong), "dry_multiplier is"});
    all.push_back({"dry_base", set(&S::dry_base, wrong), "dry_base is"});
    if (wrong == -1.0f) continue;
    all.push_back({"presence", set(&S::presence_penalty, wrong), "presence_penalty is"});
    all.push_back({"frequency", set(&S::frequency_penalty, wrong), "frequency_penalty is"});
  }
  all.push_back({"top_p 0", set(&S::top_p, 0.0f), "top_p is 0"});
  // It would make logits infinite.
  all.push_back({"a tiny divisor", set(&S::repetition_penalty, 1e-38f), "repetition_penalty is"});
  all.push_back({"the smallest divisor", set(&S::repetition_penalty, 0.01f)});
  all.push_back({"the largest divisor", set(&S::repetition_penalty, 100.0f)});
  all.push_back({"top_p 1", set(&S::top_p, 1.0f)});
  all.push_back({"a tiny top_p", set(&S::top_p, 1e-44f)});
  all.push_back({"a tiny typical_p", set(&S::typical_p, 1e-44f)});
  all.push_back({"top_k of everything", set(&S::top_k, 0xffffffffu)});
  all.push_back({"the coldest", set(&S::temperature, 1e-4f)});
  all.push_back({"the hottest", set(&S::temperature, 100.0f)});
  all.push_back({"greedy with a negative zero", set(&S::temperature, -0.0f)});
  all.push_back({"greedy with filters", [](SubmitRequest& r) {
                   r.sampling.top_k = 3;
                   r.sampling.top_p = 0.5f;
                 }});
  all.push_back({"the strongest penalties", [](SubmitRequest& r) {
                   r.sampling.presence_penalty = 100;
                   r.sampling.frequency_penalty = 100;
                   r.sampling.dry_multiplier = 100;
                   r.sampling.dry_base = 100;
                   r.sampling.dry_allowed_length = 1;
                 }});
  all.push_back({"rewards", [](SubmitRequest& r) {
                   r.sampling.temperature = 1;
                   r.sampling.presence_penalty = -100;
                   r.sampling.frequency_penalty = -100;
                 }});
  all.push_back({"top choices always out", [](SubmitRequest& r) {
                   r.sampling.temperature = 1;
                   r.sampling.xtc_probability = 1;
                   r.sampling.xtc_threshold = 1e-30f;
                 }});
  for (const std::uint64_t seed : {std::uint64_t{0}, std::uint64_t{1} << 63, ~std::uint64_t{0}}) {
    all.push_back({"seed", [seed](SubmitRequest& r) {
                     r.sampling.temperature = 1;
                     r.sampling.seed = seed;
                   }});
  }
  expect(all);
}

TEST_F(OddRequests, Choices) {
  expect({
      {"an id allowed", [](SubmitRequest& r) { r.sampling.allow_ids = {65}; }},
      {"allowed and banned",
       [](SubmitRequest& r) {
         r.sampling.allow_ids = {65};
         r.sampling.ban_ids = {65};
       },
       "no id is left to choose"},
      {"everything banned",
       [](SubmitRequest& r) {
         for (std::uint32_t id = 0; id < 2048; ++id) r.sampling.ban_ids.push_back(id);
       },
       "no id is left to choose"},
      {"the only id would end it too early",
       [](SubmitRequest& r) {
         r.sampling.allow_ids = {65};
         r.stop_ids = {65};
         r.sampling.min_tokens = 4;
       },
       "no id is left to choose"},
      {"no such id", [](SubmitRequest& r) { r.sampling.ban_ids = {1u << 30}; }, "ban_ids holds id"},
      {"no such bias", [](SubmitRequest& r) { r.sampling.logit_bias = {{9999, 1}}; },
       "logit_bias holds id"},
      {"a bias that is no number", [](SubmitRequest& r) { r.sampling.logit_bias = {{1, kNan}}; },
       "logit_bias is"},
      {"the same bias often",
       [](SubmitRequest& r) { r.sampling.logit_bias.assign(10000, {70, 10000}); }},
      {"opposite biases",
       [](SubmitRequest& r) { r.sampling.logit_bias = {{70, 10000}, {70, -10000}}; }},
      {"min_tokens beyond max_tokens",
       [](SubmitRequest& r) { r.sampling.min_tokens = 0xffffffffu; }},
      {"no answers", [](SubmitRequest& r) { r.n = 0; }, "n is 0"},
      {"too many answers", [](SubmitRequest& r) { r.n = 17; }, "n is 17"},
      {"too many log-probabilities", [](SubmitRequest& r) { r.top_logprobs = 101; },
       "top_logprobs is 101"},
      {"an empty stop string", [](SubmitRequest& r) { r.stop = {""}; }, "stop string"},
      {"several answers of one token",
       [](SubmitRequest& r) {
         r.n = 16;
         r.max_tokens = 1;
         r.sampling.temperature = 1;
       }},
  });
}

TEST_F(OddRequests, Grammars) {
  const auto regex = [](const char* text, std::function<void(SubmitRequest&)> more = {}) {
    return [=](SubmitRequest& r) {
      r.grammar = {GrammarForm::regex, text};
      if (more) more(r);
    };
  };
  expect({
      {"a stop string inside", regex("[a-z]{4,40}", [](SubmitRequest& r) { r.stop = {"e"}; })},
      {"a stop id inside", regex("[a-z]{4,40}", [](SubmitRequest& r) { r.stop_ids = {68, 72}; })},
      {"nothing at all", regex("")},
      {"ids that it needs are banned",
       regex("[0-9]{5}",
             [](SubmitRequest& r) {
               for (std::uint32_t id = 0; id < 2000; ++id) r.sampling.ban_ids.push_back(id);
             }),
       "no id is left to choose"},
      {"its end is not allowed",
       regex("[a-z]{4}", [](SubmitRequest& r) { r.sampling.allow_ids = {65, 66}; }),
       "no id is left to choose"},
      {"min_tokens beyond its end",
       regex("[a-z]{4}", [](SubmitRequest& r) { r.sampling.min_tokens = 30; }),
       "no id is left to choose"},
      {"and ignore_eos", regex("[a-z]{4}", [](SubmitRequest& r) { r.ignore_eos = true; }),
       "ignore_eos and a grammar"},
      {"several answers with log-probabilities", regex("[a-z]{2,9}( [a-z]{2,9}){3}",
                                                       [](SubmitRequest& r) {
                                                         r.n = 4;
                                                         r.logprobs = true;
                                                         r.top_logprobs = 3;
                                                         r.sampling.temperature = 1;
                                                       })},
      {"that no text matches",
       [](SubmitRequest& r) { r.grammar = {GrammarForm::lark, "start: start\n"}; },
       "no text can match it"},
      {"a schema that refers to itself alone",
       [](SubmitRequest& r) { r.grammar = {GrammarForm::json_schema, R"({"$ref": "#"})"}; },
       "no text can match it"},
      {"a schema that nothing conforms to",
       [](SubmitRequest& r) { r.grammar = {GrammarForm::json_schema, "false"}; }, "Unsatisfiable"},
      // Proposals are no part of the work that a grammar may take.
      {"that reaches a limit",
       regex("((a{1,100}){1,100}){1,100}b",
             [](SubmitRequest& r) { r.sampling.logit_bias = {{64, 100}}; }),
       "the grammar cannot go on"},
      {"shortly before its limit", regex("((a{1,100}){1,100}){1,100}b",
                                         [](SubmitRequest& r) {
                                           r.sampling.logit_bias = {{64, 100}};
                                           r.max_tokens = 20;
                                         })},
  });
}

}  // namespace
}  // namespace drafthouse
