#include "cache/disk/state_note.h"

#include <algorithm>
#include <cerrno>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>
#include <vector>

#include "cache/disk/digest_folder.h"
#include "cache/disk/names.h"
#include "cache/disk/run_record.h"

namespace drafthouse {
namespace {

// Rope divisors make a field of a few kB at most.
constexpr std::size_t kNoteBytesMax = std::size_t{256} << 10;

std::string temporary_name() { return std::string(kNoteName) + kTemporarySuffix; }

bool printable(const std::string& text) {
  return std::none_of(text.begin(), text.end(), [](char c) {
    return static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) == 0x7f;
  });
}

std::string encode(const StateNote& note) {
  nlohmann::ordered_json fields = nlohmann::ordered_json::array();
  for (const auto& [name, value] : note.fields) fields.push_back({name, value});
  // Paths need not be UTF-8.
  return nlohmann::ordered_json{{"models", note.models}, {"fields", fields}}.dump(
             1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) +
         "\n";
}

}  // namespace

std::optional<StateNote> read_state_note(DiskFolder& folder) {
  std::unique_ptr<DiskFile> file;
  FileStat stat;
  if (folder.open_file(kNoteName, OpenMode::read, file) != 0 || file->stat(stat) != 0 ||
      stat.bytes > kNoteBytesMax) {
    return std::nullopt;
  }
  std::string text(stat.bytes, '\0');
  std::size_t got = 0;
  if (file->read(0, std::as_writable_bytes(std::span(text)), got) != 0 || got != text.size()) {
    return std::nullopt;
  }
  const nlohmann::json found = nlohmann::json::parse(text, nullptr, false);
  if (!found.is_object() || !found.contains("models") || !found["models"].is_string() ||
      !found.contains("fields") || !found["fields"].is_array()) {
    return std::nullopt;
  }
  StateNote note{.models = found["models"]};
  for (const nlohmann::json& field : found["fields"]) {
    if (!field.is_array() || field.size() != 2 || !field[0].is_string() || !field[1].is_string()) {
      return std::nullopt;
    }
    note.fields.emplace_back(field[0], field[1]);
    if (!printable(note.fields.back().first) || !printable(note.fields.back().second)) {
      return std::nullopt;
    }
  }
  if (note.models.empty() || !printable(note.models)) return std::nullopt;
  return note;
}

Errno keep_state_note(DiskFolder& folder, const StateNote& note, DirectoryUsage::Change& change) {
  FileStat stat;
  Errno error = folder.stat_entry(kNoteName, stat);
  if (error == 0 && !read_state_note(folder).has_value()) {
    error = change.begin();
    if (error == 0) error = remove_counted(folder, kNoteName, change);
    if (error == 0) error = ENOENT;
  }
  if (error != ENOENT) return error;
  const std::string text = encode(note);
  if (text.size() > kNoteBytesMax) return 0;
  error = change.begin();
  if (error == 0) error = remove_counted(folder, temporary_name(), change);
  std::unique_ptr<DiskFile> file;
  if (error == 0) error = folder.open_file(temporary_name(), OpenMode::create, file);
  if (error != 0) return error;
  change.add(charged_bytes(text.size()));
  error = file->write(0, std::as_bytes(std::span(text)));
  if (error == 0) error = file->sync();
  if (error == 0) error = folder.rename(temporary_name(), folder, kNoteName);
  if (error != 0) static_cast<void>(remove_counted(folder, temporary_name(), change));
  return error;
}

void remove_state_note(DiskFolder& folder, DirectoryUsage::Change& change) {
  static_cast<void>(remove_counted(folder, temporary_name(), change));
  static_cast<void>(remove_counted(folder, kNoteName, change));
}

}  // namespace drafthouse
