#pragma once

#include <string>
#include <vector>

#include "device/hook_registry.h"
#include "tests/sim/random.h"

namespace drafthouse {

// Owners who claim, repeat and give back hooks of one registry at random while engines bind them,
// and what the registry must show for it.
class HookPlay {
 public:
  explicit HookPlay(Random& random) : random_(random) {}

  // A claim or a release. Returns what went wrong, or nothing.
  std::string act();
  // What an engine takes when it is loaded.
  HookBinding bind() { return registry_.bind(); }
  // `bound`: the bindings of all engines.
  std::string check(const std::vector<const HookBinding*>& bound) const;
  // Gives everything back. Returns what was left.
  std::string close();

  std::uint64_t conflicts() const { return conflicts_; }
  std::uint64_t busy() const { return busy_; }

 private:
  struct Held {
    std::string owner;
    std::vector<HookSlot> slots;
    HookClaim claim;
  };

  std::string claim();
  std::string give_back();
  const InstalledHook* owner_of(const std::vector<InstalledHook>& all, HookSlot slot) const;

  Random& random_;
  HookRegistry registry_;
  std::vector<Held> held_;
  std::uint64_t conflicts_ = 0;
  std::uint64_t busy_ = 0;
};

}  // namespace drafthouse
