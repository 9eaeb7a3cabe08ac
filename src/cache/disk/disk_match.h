#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace drafthouse {

// The leading pages of a prefix that can be read back from disk. What it names is not evicted by
// this process while the match lives. Copies share. One match may be read from several threads.
class DiskMatch {
 public:
  DiskMatch() = default;

  std::uint32_t pages() const;
  // Whether the page of the group is stored; false where out of reach.
  bool has(std::uint32_t group, std::uint32_t page) const;
  // Empty when all whole pages were found, else for people: why not more.
  const std::string& why_not_more() const;

 private:
  friend class SectionCore;
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace drafthouse
