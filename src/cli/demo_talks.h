#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "drafthouse/host.h"

namespace drafthouse::cli {

// One answer of a model in the demonstration.
struct DemoReply {
  GenerateResult result = {};
  CacheReport cache = {};
};

// A conversation: `prompts` are said one after the other, replies come to stand between them.
struct DemoTalk {
  std::string model;
  std::vector<std::string> prompts;
  std::vector<DemoReply> replies = {};
};

struct DemoRequest {
  std::uint32_t max_tokens = 0;
  bool use_cache = true;
};

// Conversations of `rounds` messages with a model, like those of agents: all begin with the same
// long system prompt.
std::vector<DemoTalk> make_talks(const std::string& model, std::uint32_t count,
                                 std::uint32_t rounds);

// Round `round` of all talks, whose replies of the rounds before are `before`'s: one request each,
// all submitted before the first is waited for. Fills in the replies. cancelled when a signal came;
// the status of the first request that failed.
Status run_round(Host& host, std::vector<DemoTalk>& talks, const std::vector<DemoTalk>& before,
                 std::uint32_t round, const DemoRequest& request);

}  // namespace drafthouse::cli
