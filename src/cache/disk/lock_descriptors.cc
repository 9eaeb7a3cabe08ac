#include "cache/disk/lock_descriptors.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <mutex>
#include <vector>

namespace drafthouse {
namespace {

struct Descriptors {
  std::mutex lock;
  std::vector<int> open;
};

// Never destroyed: a child may be forked while the process ends.
Descriptors& descriptors() {
  static Descriptors* all = [] {
    auto* made = new Descriptors;
    pthread_atfork([] { descriptors().lock.lock(); }, [] { descriptors().lock.unlock(); },
                   [] {
                     for (const int descriptor : descriptors().open) close(descriptor);
                     descriptors().open.clear();
                     descriptors().lock.unlock();
                   });
    return made;
  }();
  return *all;
}

}  // namespace

void remember_lock_descriptor(int descriptor) {
  Descriptors& all = descriptors();
  const std::lock_guard<std::mutex> lock(all.lock);
  all.open.push_back(descriptor);
}

void forget_lock_descriptor(int descriptor) {
  Descriptors& all = descriptors();
  const std::lock_guard<std::mutex> lock(all.lock);
  all.open.erase(std::remove(all.open.begin(), all.open.end(), descriptor), all.open.end());
}

}  // namespace drafthouse
