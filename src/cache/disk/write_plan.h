#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "cache/disk/disk_index.h"
#include "cache/disk/run_record.h"
#include "cache/page_pool.h"
#include "cache/state_layout.h"

namespace drafthouse {

// The state of a prefix at a page boundary, as somebody offers it for storing.
struct DiskSnapshot {
  std::string salt = {};
  std::vector<std::uint32_t> tokens = {};        // of whole pages, and up to 63 ids after them
  std::vector<std::vector<PageRef>> pages = {};  // [group][page]; null where out of reach
  // Whether all of it is stored now. Called once if the offer was accepted, on the directory's
  // thread or where drive(), flush() or the end of the directory was called. Must not own the
  // section.
  std::function<void(bool stored)> done = {};

  std::uint32_t whole_pages() const {
    return static_cast<std::uint32_t>(tokens.size()) / kPageTokens;
  }
};

// One run to be written; checksums are still missing.
struct WritePlan {
  RunRecord record = {};
  std::vector<std::vector<PageRef>> pages = {};  // [group], like record.groups[group].pages
};

// What of a snapshot is to be written, where the tokens of its first `known` pages are stored.
struct MissingPart {
  std::uint32_t known = 0;
  std::vector<MissingPage> pages = {};  // in order of page
};

// Cuts what is missing of a snapshot into runs of about `run_bytes`, first pages first. A run
// hangs from a page that is known, so it brings the tokens of pages that none of it is stored of.
std::vector<WritePlan> plan_writes(const StateDigest& digest, const RootName& root,
                                   const StateLayout& layout, const DiskSnapshot& snapshot,
                                   const MissingPart& missing, std::size_t run_bytes);

}  // namespace drafthouse
