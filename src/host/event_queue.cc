#include "host/event_queue.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <utility>

namespace drafthouse {

EventQueue::EventQueue(std::size_t limit) : limit_(std::max<std::size_t>(1, limit)) {}

EventQueue::~EventQueue() {
  if (event_fd_ >= 0) close(event_fd_);
}

void EventQueue::push(Event event) {
  {
    const std::lock_guard<std::mutex> lock(lock_);
    if (ended_) return;
    ended_ = event.terminal();
    events_.push_back(std::move(event));
    if (event_fd_ >= 0 && events_.size() == 1) (void)eventfd_write(event_fd_, 1);
  }
  changed_.notify_one();
}

void EventQueue::started(const CacheReport& cache) {
  Event event;
  event.kind = Event::Kind::started;
  event.cache = cache;
  push(std::move(event));
}

void EventQueue::tokens(const AnswerPiece& piece, std::span<const std::uint32_t> ids,
                        std::uint32_t choice) {
  Event event;
  event.kind = Event::Kind::tokens;
  event.text = piece.text;
  event.reply = piece.reply;
  event.ids.assign(ids.begin(), ids.end());
  event.choice = choice;
  push(std::move(event));
}

bool EventQueue::ready() {
  const std::lock_guard<std::mutex> lock(lock_);
  was_full_ = events_.size() >= limit_;
  return !was_full_;
}

void EventQueue::ended(const Status& status, GenerateResult result) {
  Event event;
  event.kind = status.ok()                        ? Event::Kind::finished
               : status.code() == Code::cancelled ? Event::Kind::cancelled
                                                  : Event::Kind::failed;
  event.status = status;
  event.cache = result.cache;
  event.result = std::move(result);
  push(std::move(event));
  std::function<void()> on_end;
  {
    const std::lock_guard<std::mutex> lock(lock_);
    on_end = std::exchange(on_end_, nullptr);
  }
  if (on_end) on_end();
}

void EventQueue::set_on_end(std::function<void()> on_end) {
  const std::lock_guard<std::mutex> lock(lock_);
  on_end_ = std::move(on_end);
}

void EventQueue::set_on_room(std::function<void()> on_room) {
  const std::lock_guard<std::mutex> lock(lock_);
  on_room_ = std::move(on_room);
}

std::optional<Event> EventQueue::next(double timeout_s) {
  std::function<void()> on_room;
  std::optional<Event> event;
  {
    std::unique_lock<std::mutex> lock(lock_);
    if (over_) return std::nullopt;
    const auto there = [this] { return !events_.empty(); };
    // Longer than anybody waits, and short enough for the clock's arithmetic.
    const double wait = std::clamp(timeout_s, 0.0, 1e8);
    if (!changed_.wait_for(lock, std::chrono::duration<double>(wait), there)) return std::nullopt;
    event = std::move(events_.front());
    events_.pop_front();
    over_ = event->terminal();
    if (event_fd_ >= 0 && events_.empty() && !over_) {
      eventfd_t count = 0;
      (void)eventfd_read(event_fd_, &count);
    }
    if (was_full_ && events_.size() < limit_) {
      was_full_ = false;
      on_room = on_room_;
    }
  }
  if (on_room) on_room();
  return event;
}

bool EventQueue::over() const {
  const std::lock_guard<std::mutex> lock(lock_);
  return over_;
}

int EventQueue::event_fd() {
  const std::lock_guard<std::mutex> lock(lock_);
  if (event_fd_ < 0) {
    event_fd_ = eventfd(events_.empty() && !over_ ? 0 : 1, EFD_CLOEXEC | EFD_NONBLOCK);
  }
  return event_fd_;
}

}  // namespace drafthouse
