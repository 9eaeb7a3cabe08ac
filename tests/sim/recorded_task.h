#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/task.h"

namespace drafthouse {

// Keeps what a scheduler told about one task. Confined to one thread.
class RecordedEvents final : public TaskEvents {
 public:
  int starts = 0;
  int ends = 0;
  CacheReport cache = {};
  std::vector<std::uint32_t> ids = {};
  Status status = {};
  GenerateResult result = {};
  bool taken = true;                     // what ready() says
  std::function<void()> on_tokens = {};  // may be empty
  std::function<void()> on_end = {};

  void started(const CacheReport& report) override {
    ++starts;
    cache = report;
  }
  void tokens(const AnswerPiece&, std::span<const std::uint32_t> more,
              std::uint32_t choice) override {
    if (choice == 0) ids.insert(ids.end(), more.begin(), more.end());
    if (on_tokens) on_tokens();
  }
  bool ready() override { return taken; }
  void ended(const Status& why, GenerateResult whole) override {
    ++ends;
    status = why;
    result = std::move(whole);
    if (on_end) on_end();
  }
};

inline std::shared_ptr<Task> recorded_task(std::vector<std::uint32_t> prompt,
                                           std::uint32_t max_tokens, std::uint32_t width,
                                           std::shared_ptr<RecordedEvents> events) {
  auto task = std::make_shared<Task>();
  task->request.prompt_ids = std::move(prompt);
  task->request.max_tokens = max_tokens;
  task->request.width = width;
  task->events = std::move(events);
  return task;
}

}  // namespace drafthouse
