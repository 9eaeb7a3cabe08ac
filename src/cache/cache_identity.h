#pragma once

#include <compare>
#include <string>

namespace drafthouse {

// Which models: the slot of a CacheRegistry. Ids are canonical (a resolved path, or hub id +
// revision). Everything else that matters for stored bytes is in the state digest, everything that
// can be set is in CacheConfig, and tenants are salts.
struct CacheIdentity {
  std::string target = {};
  std::string draft = {};  // empty: none
  std::string label = {};  // tells two engines of one pair apart

  // "target + draft [label]"
  std::string text() const {
    std::string text = target;
    if (!draft.empty()) text += " + " + draft;
    if (!label.empty()) text += " [" + label + "]";
    return text;
  }
  friend auto operator<=>(const CacheIdentity&, const CacheIdentity&) = default;
};

}  // namespace drafthouse
