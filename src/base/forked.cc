#include "base/forked.h"

#include <pthread.h>

#include <atomic>

namespace drafthouse {
namespace {

std::atomic<bool> is_child{false};

}  // namespace

void watch_forks() {
  // A static's initialisation is the one lock here, and no child asks for it: see forked().
  static const int installed =
      pthread_atfork(nullptr, nullptr, [] { is_child.store(true, std::memory_order_relaxed); });
  static_cast<void>(installed);
}

bool forked() { return is_child.load(std::memory_order_relaxed); }

}  // namespace drafthouse
