#pragma once

#include <optional>
#include <string>

#include "cache/disk/directory_usage.h"
#include "cache/disk/file_system.h"
#include "cache/state_digest.h"

namespace drafthouse {

// What a digest was made of, beside its pages: so that a later process can name the field that
// differs from its own, and people see whose pages they are. Nothing that is used depends on it.
struct StateNote {
  std::string models = {};  // empty: no note
  StateFields fields = {};
};

// The note in a digest's folder. Anybody may have written the file: nothing unless it is whole, of
// this form, not larger than a note can be, and free of control characters.
std::optional<StateNote> read_state_note(DiskFolder& folder);
// Writes the note unless there is one that can be read. For the holder of the folder's lock.
Errno keep_state_note(DiskFolder& folder, const StateNote& note, DirectoryUsage::Change& change);
void remove_state_note(DiskFolder& folder, DirectoryUsage::Change& change);

}  // namespace drafthouse
