#include "base/background.h"

#include <utility>

namespace drafthouse {

Background::Background(unsigned threads) {
  for (unsigned i = 0; i < threads; ++i) threads_.emplace_back([this] { loop(); });
}

Background::~Background() {
  {
    const std::lock_guard<std::mutex> lock(lock_);
    stopping_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void Background::post(std::function<void()> work) {
  {
    const std::lock_guard<std::mutex> lock(lock_);
    queue_.push_back(std::move(work));
  }
  changed_.notify_one();
}

void Background::loop() {
  std::unique_lock<std::mutex> lock(lock_);
  while (true) {
    changed_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
    if (queue_.empty()) return;
    std::function<void()> work = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    work();
    work = nullptr;
    lock.lock();
  }
}

}  // namespace drafthouse
