#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cache/cache_identity.h"
#include "cache/disk/disk_match.h"
#include "cache/disk/disk_section.h"
#include "cache/page_store.h"
#include "cache/prefix_index.h"
#include "cache/state_spec.h"
#include "drafthouse/status.h"

namespace drafthouse {

// The disk side of one pair's prefix cache: a section for the target's digest and one for the
// draft's, seen as one list of layer groups. Thread-safe; holds no lock of its own while files are
// read.
class DiskTier {
 public:
  // What is stored of a prompt. Kept from eviction while it lives.
  struct Found {
    std::uint32_t pages = 0;        // of all target groups, in reach
    std::uint32_t draft_pages = 0;  // whose tokens stand with draft pages
    std::string why_not_more = {};
    DiskMatch target = {};
    DiskMatch draft = {};
  };

  static Result<std::unique_ptr<DiskTier>> open(std::shared_ptr<DiskDirectory> directory,
                                                const CacheIdentity& identity,
                                                const StateSpec& spec);

  Found find(std::string_view salt, std::span<const std::uint32_t> tokens) const;
  bool has(const Found& found, std::uint32_t group, std::uint32_t page) const;
  Status read(const Found& found, std::uint32_t group, std::uint32_t page,
              std::span<std::byte> into) const;
  // Queues what is missing. With recurrent layers a prefix is of use where it has their states, so
  // it is stored up to each of those.
  void offer(std::string_view salt, std::span<const std::uint32_t> tokens,
             const PrefixPages& pages);
  Status clear(std::string_view salt);
  Status clear_all();
  bool writable() const { return target_->writable(); }
  std::string why_read_only() const { return target_->why_read_only(); }
  DiskDirectory& directory() const { return *directory_; }

 private:
  DiskTier(std::shared_ptr<DiskDirectory> directory, const StateLayout& layout);

  std::shared_ptr<DiskDirectory> directory_;
  std::uint32_t target_groups_ = 0;
  std::vector<std::size_t> recurrent_;  // groups of states
  std::shared_ptr<DiskSection> target_;
  std::shared_ptr<DiskSection> draft_;  // null without a draft
};

}  // namespace drafthouse
