#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "cache/disk/names.h"
#include "cache/state_digest.h"
#include "cache/state_layout.h"
#include "drafthouse/status.h"

namespace drafthouse {

inline constexpr std::uint32_t kRunPagesMax = 1u << 16;
inline constexpr std::uint32_t kRunGroupsMax = 256;
inline constexpr std::size_t kRunRecordBytesMax = std::size_t{64} << 20;

struct RunPage {
  std::uint32_t page = 0;  // position / kPageTokens
  std::uint64_t checksum = 0;
};

// The pages of one layer group that a run brings, in ascending order; their bytes stand in this
// order in one file. They need not be all of the run's pages.
struct RunGroup {
  std::uint64_t page_bytes = 0;
  std::vector<RunPage> pages = {};
};

// What a manifest says: consecutive pages of one prefix, the unit of writing and of eviction.
struct RunRecord {
  StateDigest digest = {};
  RootName root = {};
  RunId id = {};
  PageAddress parent = {};  // of the page before; zero when `first` is 0
  std::uint32_t first = 0;
  std::vector<std::uint32_t> tokens = {};  // of whole pages
  std::vector<std::uint32_t> tail = {};    // ids after the last page, recomputed when used
  std::vector<RunGroup> groups = {};

  std::uint32_t pages() const { return static_cast<std::uint32_t>(tokens.size()) / kPageTokens; }
  std::uint32_t end() const { return first + pages(); }
  std::span<const std::uint32_t> page_tokens(std::uint32_t page) const {
    return std::span(tokens).subspan(std::size_t{page - first} * kPageTokens, kPageTokens);
  }
};

// One record as it stands in a manifest and in the index log: magic, version, length, fields,
// checksum over all before it.
std::vector<std::byte> encode(const RunRecord& record);
std::size_t encoded_bytes(const RunRecord& record);

// The record that stands in the index log when a run has been removed.
std::vector<std::byte> encode_removal(const RootName& root, const RunId& run);

// Gives `record.id` its value: the same run always has the same.
void name_run(RunRecord& record);

// What stands at the start of `bytes`.
struct DecodedRecord {
  enum class Kind : std::uint8_t { run, removal, partial, damaged };
  Kind kind = Kind::damaged;
  std::size_t bytes = 0;  // to the next record; of partial ones: all that was there
  RunRecord run = {};     // for a removal: root and id only
  std::string why = {};   // of damage
};
DecodedRecord decode_record(std::span<const std::byte> bytes);

// A file of pages: a header of fixed size, then the pages.
inline constexpr std::size_t kPagesHeaderBytes = 128;
std::vector<std::byte> encode_pages_header(const RunRecord& record, std::uint32_t group);
inline std::uint64_t pages_file_bytes(const RunGroup& group) {
  return kPagesHeaderBytes + group.page_bytes * group.pages.size();
}

// What a file is charged with: whole blocks, as file systems give them.
inline std::uint64_t charged_bytes(std::uint64_t file_bytes) {
  return (file_bytes + 4095) / 4096 * 4096;
}
// Charged for manifest and pages.
std::uint64_t charged_bytes(const RunRecord& record);

}  // namespace drafthouse
