#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <set>

#include "engine/step_order.h"

namespace drafthouse {

// Makes engine threads wait for their turn on one device, in the order of a StepOrder. Thread-safe.
class StepGate {
 public:
  using Kind = StepOrder::Kind;
  using Member = StepOrder::Member;

  enum class Entry : std::uint8_t {
    granted,   // it is inside, until exit()
    step_due,  // its own streams come first: enter for a step instead of the chunk
    closed,    // after close()
  };

  Member join(double weight);
  // Requires that the member is not inside.
  void leave(Member member);
  // Whether streams of this member wait for its next step. Members that do not say so delay
  // nobody's chunks.
  void set_streaming(Member member, bool on);

  // Waits for its turn.
  Entry enter(Member member, Kind kind);
  // With the seconds that the device was used. The member is expected back at once; when it has
  // nothing to do it must rest(), or others wait for it.
  void exit(Member member, double seconds);
  void rest(Member member);
  // The member never enters again: whoever waits in enter() comes back, so that its thread can be
  // joined by somebody who is inside.
  void close(Member member);

 private:
  std::mutex lock_;
  std::condition_variable changed_;
  StepOrder order_;
  std::set<Member> closed_;
};

}  // namespace drafthouse
