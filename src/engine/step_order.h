#pragma once

#include <cstdint>
#include <map>

namespace drafthouse {

// Who goes next on one device: the engines that share its compute threads run one step or one
// prefill chunk at a time.
//
// Members are served by weighted use of the device: whoever has used it least, by seconds ÷ weight,
// goes first. A member that has just been inside and comes back at once (see rest()) keeps its
// place meanwhile, else two busy members would only alternate. Time in which a member wanted
// nothing is not saved up.
//
// A chunk is let in only when every other member whose streams wait has had a step since the last
// foreign chunk, so between two steps of a stream at most one foreign chunk runs. A member that
// owes its own streams a step must take it before its next chunk (step_due()): two of them would
// otherwise wait for each other.
//
// Pure: decides, never waits. Not thread-safe.
class StepOrder {
 public:
  enum class Kind : std::uint8_t { step, chunk };
  using Member = std::uint64_t;

  Member join(double weight);
  // Requires that the member is not inside.
  void leave(Member member);
  // Whether streams of this member wait for its next step. Members that do not say so delay
  // nobody's chunks.
  void set_streaming(Member member, bool on);

  // It wants to enter, until it enters or withdraws.
  void ask(Member member, Kind kind);
  void withdraw(Member member);
  // It will not come back by itself: others need not keep its place.
  void rest(Member member);

  // The member that may enter now; 0: nobody, or one that has not asked again yet.
  Member next() const;
  // Whether the chunk that it asks for must give way to a step of its own streams.
  bool step_due(Member member) const;
  // Requires next() == member.
  void enter(Member member);
  // The device was used for these seconds.
  void exit(Member member, double seconds);

 private:
  struct State {
    double weight = 1;
    double used = 0;         // seconds ÷ weight
    std::uint64_t turn = 0;  // when it was last inside: among equals the one that waits longest
    bool streaming = false;
    bool owed = false;     // a foreign chunk ran since its last step
    bool present = false;  // asks, is inside, or comes back at once
    bool waiting = false;
    Kind kind = Kind::step;
  };

  bool blocked(Member member, const State& state) const;
  double floor() const;

  std::map<Member, State> members_;
  Member last_member_ = 0;
  Member inside_ = 0;
  std::uint64_t turns_ = 0;
  double last_used_ = 0;  // of whoever entered last, then
};

}  // namespace drafthouse
