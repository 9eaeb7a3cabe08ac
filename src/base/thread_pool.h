#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <type_traits>
#include <vector>

namespace drafthouse {

// The compute threads of one device. Work is cut into chunks that the threads, the caller among
// them, claim from one counter, so a thread that the machine slows down simply takes fewer.
//
// Workers spin for a while after each job (a decode step has hundreds of them) and then sleep.
// run() may be called from several threads; one job runs at a time.
class ThreadPool {
 public:
  // `threads` counts the caller; 0 means one per available core.
  explicit ThreadPool(unsigned threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  unsigned threads() const { return static_cast<unsigned>(workers_.size()) + 1; }

  // Calls work(thread, chunk) once for every chunk in [0, chunks); thread < threads(). Returns when
  // all are done. `work` must not throw and must not call run().
  template <class Work>
  void run(std::uint32_t chunks, Work&& work) {
    using Plain = std::remove_reference_t<Work>;
    run_erased(chunks, const_cast<void*>(static_cast<const void*>(&work)),
               [](void* self, unsigned thread, std::uint32_t chunk) {
                 (*static_cast<Plain*>(self))(thread, chunk);
               });
  }

 private:
  using Call = void (*)(void* work, unsigned thread, std::uint32_t chunk);

  void run_erased(std::uint32_t chunks, void* work, Call call);
  void worker_loop(unsigned thread);
  bool claim_and_run(unsigned thread);

  // A job's fields are written only while no chunk of it can be claimed, and read only after a
  // chunk was claimed; the unclaimed count in the low half of state_ is what publishes them.
  void* work_ = nullptr;
  Call call_ = nullptr;
  std::uint32_t chunks_ = 0;
  alignas(64) std::atomic<std::uint64_t> state_{0};  // job number << 32 | chunks not yet claimed
  alignas(64) std::atomic<std::uint32_t> finished_{0};
  alignas(64) std::atomic<std::uint32_t> sleepers_{0};
  std::atomic<std::uint32_t> wake_{0};
  std::atomic<bool> stopping_{false};
  std::mutex one_job_;
  std::vector<std::thread> workers_;
};

// Cores this process may run on (its affinity mask), at least 1.
unsigned available_cores();

}  // namespace drafthouse
