#pragma once

#include <cstddef>
#include <span>

namespace drafthouse {

// Bytes that work needs for a while, straight from the system and back there at the end: the heap
// of a thread of the C library would keep them for ever once it has seen a few of this size. Not
// thread-safe.
class Staging {
 public:
  Staging() = default;
  ~Staging();
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  // What was there is lost when it grows. Throws std::bad_alloc.
  void resize(std::size_t bytes);
  std::byte* data() { return data_; }
  std::size_t size() const { return size_; }
  operator std::span<std::byte>() { return {data_, size_}; }  // NOLINT: it is one

 private:
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  std::size_t mapped_ = 0;
};

}  // namespace drafthouse
