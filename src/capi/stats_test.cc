#include <nlohmann/json.hpp>

#include "capi/test_capi.h"

namespace drafthouse::capi {
namespace {

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

}  // namespace
}  // namespace drafthouse::capi
