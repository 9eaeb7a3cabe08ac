#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "drafthouse/status.h"

namespace drafthouse {

// What else decides which ids may follow in an answer, a grammar for example. It stands behind an
// answer's ids and goes on with them.
class Constraint {
 public:
  virtual ~Constraint() = default;

  // One bit per id, lowest first: which may come next.
  virtual Status mask(std::span<std::uint32_t> bits) = 0;
  // Goes on by one id; false, and nothing happens, where it may not come next.
  virtual Result<bool> consume(std::uint32_t id) = 0;
  // Takes the last ids back. Back to the beginning of the answer.
  virtual Status rollback(std::size_t ids) = 0;
  virtual Status reset() = 0;
  // Another one that stands at the same place. What is done to either leaves the other alone,
  // limits on the work of a grammar included.
  virtual Result<std::shared_ptr<Constraint>> clone() const = 0;
};

}  // namespace drafthouse
