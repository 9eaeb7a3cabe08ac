#include "base/thread_pool.h"

#include <sched.h>

namespace drafthouse {
namespace {

// Long enough to bridge the serial work between two jobs of a decode step, short enough that an
// idle engine leaves the core alone after about a millisecond.
constexpr unsigned kSpins = 20000;
// A caller that waits longer than this for the last chunk has probably lost a core to a neighbour.
constexpr unsigned kSpinsBeforeYield = 4000;

inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

unsigned available_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  const int count = CPU_COUNT(&set);
  return count > 0 ? static_cast<unsigned>(count) : 1u;
}

ThreadPool::ThreadPool(unsigned threads) {
  if (threads == 0) threads = available_cores();
  for (unsigned i = 1; i < threads; ++i) workers_.emplace_back([this, i] { worker_loop(i); });
}

ThreadPool::~ThreadPool() {
  stopping_.store(true);
  wake_.fetch_add(1);
  wake_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

bool ThreadPool::claim_and_run(unsigned thread) {
  std::uint64_t state = state_.load(std::memory_order_acquire);
  while (static_cast<std::uint32_t>(state) != 0) {
    if (state_.compare_exchange_weak(state, state - 1, std::memory_order_acquire)) {
      call_(work_, thread, chunks_ - static_cast<std::uint32_t>(state));
      finished_.fetch_add(1, std::memory_order_release);
      return true;
    }
  }
  return false;
}

void ThreadPool::worker_loop(unsigned thread) {
  unsigned idle = 0;
  while (!stopping_.load(std::memory_order_relaxed)) {
    if (claim_and_run(thread)) {
      idle = 0;
      continue;
    }
    if (++idle < kSpins) {
      relax();
      continue;
    }
    const std::uint32_t ticket = wake_.load();
    sleepers_.fetch_add(1);
    // The caller publishes a job, then looks for sleepers; we count ourselves, then look for a job.
    if (static_cast<std::uint32_t>(state_.load()) == 0 && !stopping_.load()) wake_.wait(ticket);
    sleepers_.fetch_sub(1);
    idle = 0;
  }
}

void ThreadPool::run_erased(std::uint32_t chunks, void* work, Call call) {
  if (chunks == 0) return;
  std::lock_guard<std::mutex> lock(one_job_);
  if (chunks == 1 || workers_.empty()) {
    for (std::uint32_t chunk = 0; chunk < chunks; ++chunk) call(work, 0, chunk);
    return;
  }
  work_ = work;
  call_ = call;
  chunks_ = chunks;
  finished_.store(0, std::memory_order_relaxed);
  const std::uint64_t job = (state_.load(std::memory_order_relaxed) >> 32) + 1;
  state_.store(job << 32 | chunks);
  if (sleepers_.load() != 0) {
    wake_.fetch_add(1);
    wake_.notify_all();
  }
  while (claim_and_run(0)) {
  }
  for (unsigned spins = 0; finished_.load(std::memory_order_acquire) != chunks; ++spins) {
    if (spins < kSpinsBeforeYield) {
      relax();
    } else {
      sched_yield();
    }
  }
}

}  // namespace drafthouse
