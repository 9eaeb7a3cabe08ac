#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cache/cache_manager.h"
#include "drafthouse/engine.h"
#include "drafthouse/status.h"
#include "sampling/constraint.h"

namespace drafthouse {

// Text that is complete so far, and what became certain of the reply.
struct AnswerPiece {
  std::string text = {};
  ReplyPart reply = {};

  bool empty() const { return text.empty() && reply.empty(); }
};

// What an engine tells about a task. Called on the engine's thread: started() at most once, then
// tokens(), and ended() exactly once, whatever happened before. Nothing may call back into the
// scheduler.
class TaskEvents {
 public:
  virtual ~TaskEvents() = default;
  // The lookup is done and computing begins.
  virtual void started(const CacheReport& cache) = 0;
  // What came of answer `choice` (of request.n).
  virtual void tokens(const AnswerPiece& piece, std::span<const std::uint32_t> ids,
                      std::uint32_t choice) = 0;
  // Whether another tokens() finds room. While it does not, the task's sequence is paused.
  virtual bool ready() = 0;
  // ok: `result` is whole (finish_reason "stop" or "length"). cancelled, or what made it fail: it
  // holds what there was.
  virtual void ended(const Status& status, GenerateResult result) = 0;
};

// One request in an engine. Immutable once submitted, but for the flag.
struct Task {
  GenerateRequest request = {};
  // The cache that this request uses from begin to end; null: none.
  std::shared_ptr<CacheManager> cache = {};
  std::string salt = {};
  int priority = 0;       // higher first
  double deadline_s = 0;  // on the engine's clock; 0: none
  std::shared_ptr<TaskEvents> events = {};
  // Of request.grammar, one per answer; made by Scheduler::prepare.
  std::vector<std::shared_ptr<Constraint>> constraints = {};
  std::atomic<bool> cancelled{false};  // set through Scheduler::interrupt or by the owner
};

}  // namespace drafthouse
