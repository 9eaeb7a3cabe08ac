#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace drafthouse {

// A few threads for work that waits, such as reading files. Thread-safe.
class Background {
 public:
  explicit Background(unsigned threads);
  // Does what was posted, then ends.
  ~Background();
  Background(const Background&) = delete;
  Background& operator=(const Background&) = delete;

  void post(std::function<void()> work);

 private:
  void loop();

  std::mutex lock_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> queue_;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace drafthouse
