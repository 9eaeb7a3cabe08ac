#include "formats/json_document.h"

#include <fmt/format.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "formats/limits.h"
#include "formats/printable.h"

namespace drafthouse {
namespace {

using nlohmann::json;

const json* as_json(const void* node) { return static_cast<const json*>(node); }

// Thrown through the library's parser, which has no other way to be stopped from a callback.
struct Refused {
  std::string why;
};

class Guard {
 public:
  bool operator()(int depth, json::parse_event_t event, json& parsed) {
    if (static_cast<std::size_t>(depth) > limits::kJsonDepthMax) throw Refused{"nested too deeply"};
    if (++nodes_ > limits::kJsonNodesMax) throw Refused{"has too many values"};
    switch (event) {
      case json::parse_event_t::object_start: keys_.emplace_back(); break;
      case json::parse_event_t::object_end: keys_.pop_back(); break;
      case json::parse_event_t::key:
        if (!keys_.back().insert(parsed.get_ref<const std::string&>()).second) {
          throw Refused{fmt::format("has the key \"{}\" twice in one object",
                                    printable(parsed.get_ref<const std::string&>()))};
        }
        break;
      default: break;
    }
    return true;
  }

 private:
  std::size_t nodes_ = 0;
  std::vector<std::set<std::string>> keys_;
};

// The library's text without its "[json.exception...]" prefix, on one line.
std::string parse_reason(std::string_view what) {
  const auto bracket = what.find("] ");
  return printable(bracket == std::string_view::npos ? what : what.substr(bracket + 2));
}

}  // namespace

struct JsonDocument::Tree {
  json root;
};

JsonDocument::JsonDocument() = default;
JsonDocument::JsonDocument(JsonDocument&&) noexcept = default;
JsonDocument& JsonDocument::operator=(JsonDocument&&) noexcept = default;
JsonDocument::~JsonDocument() = default;

Result<JsonDocument> JsonDocument::parse(std::string_view text, const std::string& name) {
  JsonDocument document;
  try {
    document.tree_ = std::make_unique<Tree>();
    // By reference: the library copies its callback.
    Guard guard;
    document.tree_->root =
        json::parse(text, [&guard](int depth, json::parse_event_t event, json& parsed) {
          return guard(depth, event, parsed);
        });
  } catch (const Refused& refused) {
    return Status(Code::corrupt, fmt::format("{}: {}", name, refused.why));
  } catch (const std::exception& error) {
    return Status(Code::corrupt,
                  fmt::format("{}: not valid JSON: {}", name, parse_reason(error.what())));
  }
  return document;
}

JsonView JsonDocument::root() const { return JsonView(tree_ ? &tree_->root : nullptr); }

JsonView::operator bool() const { return node_ != nullptr && !as_json(node_)->is_null(); }
bool JsonView::is_object() const { return node_ != nullptr && as_json(node_)->is_object(); }
bool JsonView::is_array() const { return node_ != nullptr && as_json(node_)->is_array(); }

JsonView JsonView::operator[](std::string_view key) const {
  if (!is_object()) return JsonView();
  const auto found = as_json(node_)->find(key);
  return found == as_json(node_)->end() ? JsonView() : JsonView(&*found);
}

std::size_t JsonView::size() const {
  return is_object() || is_array() ? as_json(node_)->size() : 0;
}

JsonView JsonView::at(std::size_t index) const {
  return is_array() && index < size() ? JsonView(&(*as_json(node_))[index]) : JsonView();
}

std::vector<std::string> JsonView::keys() const {
  std::vector<std::string> names;
  if (!is_object()) return names;
  for (const auto& item : as_json(node_)->items()) names.push_back(item.key());
  return names;
}

std::optional<std::string> JsonView::text() const {
  if (node_ == nullptr || !as_json(node_)->is_string()) return std::nullopt;
  return as_json(node_)->get<std::string>();
}

std::optional<std::uint64_t> JsonView::whole() const {
  if (node_ == nullptr || !as_json(node_)->is_number_unsigned()) return std::nullopt;
  return as_json(node_)->get<std::uint64_t>();
}

std::optional<std::int64_t> JsonView::integer() const {
  if (node_ == nullptr || !as_json(node_)->is_number_integer()) return std::nullopt;
  if (as_json(node_)->is_number_unsigned() &&
      as_json(node_)->get<std::uint64_t>() >
          static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
    return std::nullopt;
  }
  return as_json(node_)->get<std::int64_t>();
}

std::optional<double> JsonView::number() const {
  if (node_ == nullptr || !as_json(node_)->is_number()) return std::nullopt;
  return as_json(node_)->get<double>();
}

std::string JsonView::shown() const {
  if (node_ == nullptr) return "nothing";
  return printable(as_json(node_)->dump(-1, ' ', true, json::error_handler_t::replace));
}

std::optional<bool> JsonView::flag() const {
  if (node_ == nullptr || !as_json(node_)->is_boolean()) return std::nullopt;
  return as_json(node_)->get<bool>();
}

}  // namespace drafthouse
