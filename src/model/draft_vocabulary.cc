#include "model/draft_vocabulary.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>

namespace drafthouse {
namespace {

Result<std::vector<std::int64_t>> read_map(const DraftConfig& config, const WeightSource& source) {
  const TensorInfo* map = source.find("d2t");
  if (map == nullptr) {
    return Status(
        Code::corrupt,
        fmt::format("{}: tensor d2t is missing; without it the ids of the draft's own head "
                    "are not known",
                    source.label()));
  }
  if (map->shape != std::vector<std::uint64_t>{config.draft_vocab_size}) {
    return Status(Code::mismatch,
                  fmt::format("{}: tensor d2t does not have one entry for each of the {} ids of "
                              "draft_vocab_size",
                              source.label(), config.draft_vocab_size));
  }
  if (map->dtype != Dtype::i64 && map->dtype != Dtype::i32) {
    return Status(Code::unsupported,
                  fmt::format("{}: tensor d2t is stored as {}; i64 or i32 expected", source.label(),
                              name_of(map->dtype)));
  }
  std::vector<std::byte> raw(map->bytes);
  if (Status s = source.read(*map, 0, raw); !s.ok()) return s;
  std::vector<std::int64_t> values(config.draft_vocab_size);
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (map->dtype == Dtype::i64) {
      std::memcpy(&values[i], raw.data() + i * 8, 8);
    } else {
      std::int32_t narrow;
      std::memcpy(&narrow, raw.data() + i * 4, 4);
      values[i] = narrow;
    }
  }
  return values;
}

Status check_flags(const DraftConfig& config, const WeightSource& source,
                   std::span<const std::uint32_t> ids) {
  const TensorInfo* flags = source.find("t2d");
  if (flags == nullptr) return {};
  if (flags->shape != std::vector<std::uint64_t>{config.vocab_size} ||
      layout_of(flags->dtype).block_bytes != 1) {
    return Status(Code::mismatch,
                  fmt::format("{}: tensor t2d is not one flag for each of the {} ids of vocab_size",
                              source.label(), config.vocab_size));
  }
  std::vector<std::byte> raw(flags->bytes);
  if (Status s = source.read(*flags, 0, raw); !s.ok()) return s;
  std::size_t at = 0;
  for (std::uint32_t id = 0; id < config.vocab_size; ++id) {
    const bool mapped = at < ids.size() && ids[at] == id;
    at += mapped;
    if (mapped == (raw[id] != std::byte{0})) continue;
    return Status(Code::mismatch,
                  fmt::format("{}: tensors d2t and t2d disagree about id {}; they are of different "
                              "drafts",
                              source.label(), id));
  }
  return {};
}

}  // namespace

Result<std::vector<std::uint32_t>> read_draft_ids(const DraftConfig& config,
                                                  const WeightSource& source) {
  std::vector<std::uint32_t> ids;
  if (config.draft_vocab_size == 0) return ids;
  Result<std::vector<std::int64_t>> map = read_map(config, source);
  if (!map.ok()) return map.status();
  std::int64_t before = -1;
  for (std::size_t i = 0; i < map.value().size(); ++i) {
    const std::int64_t value = map.value()[i];
    const std::int64_t limit = config.vocab_size;
    // An offset that is out of range by itself could overflow the sum.
    const bool small = value >= 0 && value < limit;
    const std::int64_t id =
        small && !config.id_map_is_absolute ? static_cast<std::int64_t>(i) + value : value;
    if (!small || id >= limit || id <= before) {
      return Status(
          Code::corrupt,
          fmt::format("{}: entry {} of tensor d2t is {}, which gives no ascending ids below "
                      "vocab_size {}",
                      source.label(), i, value, config.vocab_size));
    }
    before = id;
    ids.push_back(static_cast<std::uint32_t>(id));
  }
  if (Status s = check_flags(config, source, ids); !s.ok()) return s;
  return ids;
}

void spread_logits(std::span<const std::uint32_t> ids, std::span<float> row) {
  constexpr float kOut = -std::numeric_limits<float>::infinity();
  // From the end, so that nothing is overwritten before it has been moved.
  auto end = row.end();
  for (std::size_t i = ids.size(); i-- > 0;) {
    const float logit = row[i];
    const auto place = row.begin() + ids[i];
    std::fill(place + 1, end, kOut);
    *place = logit;
    end = place;
  }
  std::fill(row.begin(), end, kOut);
}

}  // namespace drafthouse
