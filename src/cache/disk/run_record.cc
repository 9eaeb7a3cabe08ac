#include "cache/disk/run_record.h"

#include <fmt/format.h>

#include <cstring>

#include "cache/disk/hashing.h"

namespace drafthouse {
namespace {

constexpr std::uint32_t kRunMagic = 0x4e524844;      // DHRN
constexpr std::uint32_t kRemovalMagic = 0x4d524844;  // DHRM
constexpr std::uint32_t kPagesMagic = 0x47504844;    // DHPG
constexpr std::uint32_t kFormatVersion = 1;
constexpr std::size_t kFrameBytes = 16;  // magic, version, length of all
constexpr std::size_t kChecksumBytes = 8;
constexpr std::size_t kRunFixedBytes = 32 + 16 + 16 + 32 + 4 * 4;

class Writer {
 public:
  template <class T>
  void number(T value) {
    append(&value, sizeof value);
  }
  template <std::size_t kSize>
  void name(const HexName<kSize>& value) {
    append(value.bytes.data(), kSize);
  }
  void append(const void* data, std::size_t count) {
    if (count == 0) return;
    const std::size_t at = out.size();
    out.resize(at + count);
    std::memcpy(out.data() + at, data, count);
  }
  void frame(std::uint32_t magic) {
    number(magic);
    number(kFormatVersion);
    number(std::uint64_t{0});
  }
  std::vector<std::byte> finish() {
    const std::uint64_t length = out.size() + kChecksumBytes;
    std::memcpy(out.data() + 8, &length, sizeof length);
    number(checksum(std::span<const std::byte>(out)));
    return std::move(out);
  }

  std::vector<std::byte> out;
};

// Reads past the end leave `good` false and give zeros.
class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  template <class T>
  T number() {
    T value{};
    copy(&value, sizeof value);
    return value;
  }
  template <std::size_t kSize>
  void name(HexName<kSize>& value) {
    copy(value.bytes.data(), kSize);
  }
  void copy(void* into, std::size_t count) {
    if (count > bytes_.size()) {
      good = false;
      return;
    }
    if (count > 0) std::memcpy(into, bytes_.data(), count);
    bytes_ = bytes_.subspan(count);
  }
  void tokens(std::vector<std::uint32_t>& into, std::size_t count) {
    if (count * sizeof(std::uint32_t) > bytes_.size()) {
      good = false;
      return;
    }
    into.resize(count);
    copy(into.data(), count * sizeof(std::uint32_t));
  }
  std::size_t left() const { return bytes_.size(); }

  bool good = true;

 private:
  std::span<const std::byte> bytes_;
};

bool decode_groups(Reader& in, std::uint32_t count, RunRecord& run) {
  for (std::uint32_t g = 0; g < count; ++g) {
    RunGroup group;
    group.page_bytes = in.number<std::uint64_t>();
    const auto pages = in.number<std::uint64_t>();
    if (!in.good || pages > kRunPagesMax || pages * 16 > in.left()) return false;
    std::uint32_t next = run.first;
    for (std::uint64_t i = 0; i < pages; ++i) {
      RunPage page;
      page.page = static_cast<std::uint32_t>(in.number<std::uint64_t>());
      page.checksum = in.number<std::uint64_t>();
      if (page.page < next) return false;
      next = page.page + 1;
      group.pages.push_back(page);
    }
    run.groups.push_back(std::move(group));
  }
  return in.good;
}

// Empty when fine.
std::string decode_run(Reader& in, RunRecord& run) {
  in.copy(run.digest.bytes.data(), run.digest.bytes.size());
  in.name(run.root);
  in.name(run.id);
  in.name(run.parent);
  run.first = in.number<std::uint32_t>();
  const auto pages = in.number<std::uint32_t>();
  const auto tail = in.number<std::uint32_t>();
  const auto groups = in.number<std::uint32_t>();
  if (!in.good || pages == 0 || pages > kRunPagesMax || tail >= kPageTokens ||
      groups > kRunGroupsMax || run.first > (~0u / kPageTokens) - pages) {
    return "numbers out of range";
  }
  if (!decode_groups(in, groups, run)) return "list of pages is broken";
  in.tokens(run.tokens, std::size_t{pages} * kPageTokens);
  in.tokens(run.tail, tail);
  if (!in.good || in.left() != 0) return "length does not fit the numbers";
  for (const RunGroup& group : run.groups) {
    if (!group.pages.empty() && group.pages.back().page >= run.end()) return "page past the end";
    if (group.page_bytes > (std::uint64_t{1} << 40)) return "page size out of range";
  }
  if ((run.first == 0) != (run.parent == PageAddress{}))
    return "parent does not fit the first page";
  return {};
}

}  // namespace

std::vector<std::byte> encode(const RunRecord& record) {
  Writer out;
  out.out.reserve(encoded_bytes(record));
  out.frame(kRunMagic);
  out.append(record.digest.bytes.data(), record.digest.bytes.size());
  out.name(record.root);
  out.name(record.id);
  out.name(record.parent);
  out.number(record.first);
  out.number(record.pages());
  out.number(static_cast<std::uint32_t>(record.tail.size()));
  out.number(static_cast<std::uint32_t>(record.groups.size()));
  for (const RunGroup& group : record.groups) {
    out.number(group.page_bytes);
    out.number(std::uint64_t{group.pages.size()});
    for (const RunPage& page : group.pages) {
      out.number(std::uint64_t{page.page});
      out.number(page.checksum);
    }
  }
  out.append(record.tokens.data(), record.tokens.size() * sizeof(std::uint32_t));
  out.append(record.tail.data(), record.tail.size() * sizeof(std::uint32_t));
  return out.finish();
}

std::size_t encoded_bytes(const RunRecord& record) {
  std::size_t bytes = kFrameBytes + kRunFixedBytes + kChecksumBytes;
  for (const RunGroup& group : record.groups) bytes += 16 + 16 * group.pages.size();
  return bytes + (record.tokens.size() + record.tail.size()) * sizeof(std::uint32_t);
}

std::vector<std::byte> encode_removal(const RootName& root, const RunId& run) {
  Writer out;
  out.frame(kRemovalMagic);
  out.name(root);
  out.name(run);
  return out.finish();
}

void name_run(RunRecord& record) {
  RunRecord bare = record;
  bare.id = {};
  bare.tail.clear();
  for (RunGroup& group : bare.groups) {
    for (RunPage& page : group.pages) page.checksum = 0;
  }
  record.id = run_id(encode(bare));
}

DecodedRecord decode_record(std::span<const std::byte> bytes) {
  DecodedRecord out;
  out.bytes = bytes.size();
  if (bytes.size() < kFrameBytes) {
    out.kind = DecodedRecord::Kind::partial;
    return out;
  }
  Reader frame(bytes);
  const auto magic = frame.number<std::uint32_t>();
  const auto version = frame.number<std::uint32_t>();
  const auto length = frame.number<std::uint64_t>();
  if (magic != kRunMagic && magic != kRemovalMagic) {
    out.why = "it does not begin like a record";
    return out;
  }
  if (version != kFormatVersion) {
    out.why = fmt::format("it has version {}, this program reads {}", version, kFormatVersion);
    return out;
  }
  if (length < kFrameBytes + kChecksumBytes || length > kRunRecordBytesMax) {
    out.why = fmt::format("its length {} is out of range", length);
    return out;
  }
  if (length > bytes.size()) {
    out.kind = DecodedRecord::Kind::partial;
    return out;
  }
  const std::span<const std::byte> body = bytes.first(length - kChecksumBytes);
  std::uint64_t sum = 0;
  std::memcpy(&sum, bytes.data() + body.size(), sizeof sum);
  if (sum != checksum(body)) {
    out.why = "its checksum does not fit";
    return out;
  }
  Reader in(body.subspan(kFrameBytes));
  if (magic == kRemovalMagic) {
    in.name(out.run.root);
    in.name(out.run.id);
    if (!in.good || in.left() != 0) {
      out.why = "length does not fit";
      return out;
    }
    out.kind = DecodedRecord::Kind::removal;
  } else {
    out.why = decode_run(in, out.run);
    if (!out.why.empty()) return out;
    out.kind = DecodedRecord::Kind::run;
  }
  out.bytes = length;
  return out;
}

std::vector<std::byte> encode_pages_header(const RunRecord& record, std::uint32_t group) {
  Writer out;
  out.frame(kPagesMagic);
  out.append(record.digest.bytes.data(), record.digest.bytes.size());
  out.name(record.id);
  out.number(group);
  out.number(static_cast<std::uint32_t>(record.groups[group].pages.size()));
  out.number(record.groups[group].page_bytes);
  out.out.resize(kPagesHeaderBytes - kChecksumBytes);
  return out.finish();
}

std::uint64_t charged_bytes(const RunRecord& record) {
  std::uint64_t bytes = charged_bytes(std::uint64_t{encoded_bytes(record)});
  for (const RunGroup& group : record.groups) {
    if (!group.pages.empty()) bytes += charged_bytes(pages_file_bytes(group));
  }
  return bytes;
}

}  // namespace drafthouse
