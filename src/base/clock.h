#pragma once

namespace drafthouse {

// Steady time in seconds since some fixed moment. Thread-safe. Tests bring their own.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual double now_s() const = 0;
};

// The machine's steady clock; lives as long as the process.
const Clock& system_clock();

}  // namespace drafthouse
