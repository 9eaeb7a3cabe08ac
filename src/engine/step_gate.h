#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>

namespace drafthouse {

// Whose turn it is on one device: the engines that share its compute threads run one step or one
// prefill chunk at a time.
//
// Members are served by weighted use of the device: whoever has used it least, by seconds ÷ weight,
// goes first. A chunk is let in only when every member whose streams wait has had a step since the
// last chunk, so between two steps of a stream at most one foreign chunk runs. Thread-safe.
class StepGate {
 public:
  enum class Kind : std::uint8_t { step, chunk };
  using Member = std::uint64_t;

  Member join(double weight);
  // Requires that the member is not inside.
  void leave(Member member);
  // Whether streams of this member wait for its next step. Members that do not say so delay nobody.
  void set_streaming(Member member, bool on);

  // Waits for its turn. Every enter() needs an exit(), with the seconds that the device was used.
  void enter(Member member, Kind kind);
  void exit(Member member, double seconds);

 private:
  struct State {
    double weight = 1;
    double used = 0;  // seconds ÷ weight
    bool streaming = false;
    bool owed = false;  // a foreign chunk ran since its last step
    bool waiting = false;
    Kind kind = Kind::step;
  };

  // The member that may enter now; 0: nobody.
  Member choose() const;
  double least_used() const;

  std::mutex lock_;
  std::condition_variable changed_;
  std::map<Member, State> members_;
  Member last_member_ = 0;
  Member inside_ = 0;
};

}  // namespace drafthouse
