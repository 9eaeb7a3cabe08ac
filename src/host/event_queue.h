#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>

#include "drafthouse/host.h"
#include "engine/task.h"

namespace drafthouse {

// The events of one request on their way from the engine's thread to the client's. Thread-safe.
class EventQueue final : public TaskEvents {
 public:
  explicit EventQueue(std::size_t limit);
  ~EventQueue() override;

  // Engine side.
  void started(const CacheReport& cache) override;
  void tokens(const AnswerPiece& piece, std::span<const std::uint32_t> ids,
              std::uint32_t choice) override;
  bool ready() override;
  void ended(const Status& status, GenerateResult result) override;
  // Called (on the engine's side, outside the lock) after the terminal event was queued.
  void set_on_end(std::function<void()> on_end);

  // Client side.
  std::optional<Event> next(double timeout_s);
  bool over() const;
  int event_fd();
  // Called when a full queue has room again.
  void set_on_room(std::function<void()> on_room);

 private:
  void push(Event event);

  mutable std::mutex lock_;
  std::condition_variable changed_;
  std::deque<Event> events_;
  std::size_t limit_;
  bool ended_ = false;  // the terminal event is queued or taken
  bool over_ = false;   // it is taken
  bool was_full_ = false;
  int event_fd_ = -1;
  std::function<void()> on_room_;
  std::function<void()> on_end_;
};

}  // namespace drafthouse
