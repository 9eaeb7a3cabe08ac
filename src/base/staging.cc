#include "base/staging.h"

#include <sys/mman.h>

#include <new>

namespace drafthouse {

Staging::~Staging() {
  if (data_ != nullptr) munmap(data_, mapped_);
}

void Staging::resize(std::size_t bytes) {
  if (bytes > mapped_) {
    if (data_ != nullptr) munmap(data_, mapped_);
    data_ = nullptr;
    mapped_ = size_ = 0;
    void* base = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED) throw std::bad_alloc();
    data_ = static_cast<std::byte*>(base);
    mapped_ = bytes;
  }
  size_ = bytes;
}

}  // namespace drafthouse
