#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/memory.h"
#include "base/sha256.h"
#include "base/thread_pool.h"

namespace drafthouse {

// Weights as they are packed in memory, kept in files so that a later start maps them instead of
// reading and packing the model again. One file per model and set of tensors; a newer one takes the
// place of an older one. Anything in the folder may be deleted at any time.
//
// What is trusted, and why: a copy is believed because nobody but this user could have written it.
// The folder belongs to the user and lets no one else write, a file is regular, the user's, of mode
// 0600 and not linked elsewhere; all of it is looked at through handles, under a lock, before a
// byte is used. It is of this model if it names the same files by device, inode, size and times of
// change and the same bytes at their ends, and the same tensors; so the weights' own SHA-256, which
// takes seconds, is not computed again but taken from the copy. Damage is found by a checksum of
// every part (XXH3), which is no defence against somebody who can write as this user: who can, can
// replace the program as well. A copy that is anything else is left alone, with one line in the
// log, and the model is loaded as if there were none.
//
// Files are never changed once they have their name, so what is mapped stays as it is when a newer
// copy replaces it. Thread-safe.
class PackedCopies {
 public:
  using Log = std::function<void(std::string_view line)>;

  // Makes the folder when it is not there. invalid_argument: it is not this user's alone.
  static Result<std::unique_ptr<PackedCopies>> open(const std::string& folder, Log log);
  ~PackedCopies();
  PackedCopies(const PackedCopies&) = delete;
  PackedCopies& operator=(const PackedCopies&) = delete;

  // What a copy is of: `name` stays the same when the model's files are replaced, `content` does
  // not.
  struct Key {
    std::string name;
    std::string content;
    std::uint64_t bytes = 0;
  };
  struct Found {
    Buffer memory;  // read-only
    Sha256Digest weights{};
  };
  // The copy of these weights, mapped and checked; nothing when there is none or it cannot be used.
  // An error when the memory budget has no room for it.
  Result<std::optional<Found>> find(const Key& key, ThreadPool& pool, MemoryLedger& ledger) const;
  // Writes a copy of `memory`, key.bytes long. A failure is one line in the log.
  void keep(const Key& key, const Buffer& memory, const Sha256Digest& weights,
            ThreadPool& pool) const;

 private:
  PackedCopies(std::string folder, int descriptor, Log log);
  void say(std::string_view line) const {
    if (log_) log_(line);
  }

  std::string folder_;
  int descriptor_;
  Log log_;
};

}  // namespace drafthouse
