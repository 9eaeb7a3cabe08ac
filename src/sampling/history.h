#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace drafthouse {

// The ids of a text so far, counted for penalties. Those from `prompt_length` on are the answer's.
class History {
 public:
  // `vocabulary`: ids are below. `counted`: keeps counts; without it only the ids.
  History(std::uint32_t vocabulary, std::uint32_t prompt_length, bool counted);

  // Takes a text that begins with what it has, or begins again with another one.
  void sync(std::span<const std::uint32_t> ids);
  void push(std::uint32_t id);
  // Room for so many ids.
  void reserve(std::uint32_t length);

  std::uint32_t length() const { return static_cast<std::uint32_t>(ids_.size()); }
  std::uint32_t prompt_length() const { return prompt_length_; }
  std::span<const std::uint32_t> ids() const { return ids_; }
  // Each id of the text once.
  std::span<const std::uint32_t> distinct() const { return distinct_; }
  // How often the answer holds it. Requires counts.
  std::uint32_t in_answer(std::uint32_t id) const { return counts_[id] >> 1; }

 private:
  void count(std::uint32_t id);

  std::uint32_t prompt_length_;
  std::vector<std::uint32_t> ids_;
  // Per id: twice the times the answer holds it, + 1 once it is in distinct_; empty: not counted.
  std::vector<std::uint32_t> counts_;
  std::vector<std::uint32_t> distinct_;
};

}  // namespace drafthouse
