#include "formats/config_fields.h"

#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "formats/limits.h"
#include "formats/printable.h"

namespace drafthouse {

ConfigFields::ConfigFields(std::string file, std::vector<JsonView> scopes)
    : file_(std::move(file)), scopes_(std::move(scopes)) {}

ConfigFields::ConfigFields(std::string file, const GgufMetadata& metadata, std::string prefix)
    : file_(std::move(file)), metadata_(&metadata), prefix_(std::move(prefix)) {}

JsonView ConfigFields::json(std::string_view key) const {
  for (const JsonView& scope : scopes_) {
    if (const JsonView value = scope[key]) return value;
  }
  return JsonView();
}

bool ConfigFields::has(std::string_view key) const {
  return metadata_ != nullptr ? metadata_->has(full(key)) : static_cast<bool>(json(key));
}

void ConfigFields::refuse(Code code, std::string_view key, std::string_view why) {
  if (status_.ok()) status_ = Status(code, fmt::format("{}: {} {}", file_, full(key), why));
}

std::uint32_t ConfigFields::count(std::string_view key, CountRange range,
                                  std::optional<std::uint32_t> absent) {
  if (!has(key)) {
    if (!absent) refuse(Code::invalid_argument, key, "is missing");
    return absent.value_or(range.least);
  }
  const auto value = metadata_ != nullptr ? metadata_->whole(full(key)) : json(key).whole();
  if (!value) {
    refuse(Code::invalid_argument, key, "is not a whole number");
    return range.least;
  }
  if (*value < range.least || *value > range.most) {
    refuse(Code::invalid_argument, key,
           fmt::format("is {}; it must be {} to {}", *value, range.least, range.most));
    return range.least;
  }
  return static_cast<std::uint32_t>(*value);
}

std::vector<std::uint32_t> ConfigFields::counts(std::string_view key, CountRange range,
                                                std::uint32_t layers,
                                                std::optional<std::uint32_t> absent) {
  const bool list =
      metadata_ != nullptr ? metadata_->wholes(full(key)) != nullptr : json(key).is_array();
  if (!list) return std::vector<std::uint32_t>(layers, count(key, range, absent));
  const auto given = wholes(key, limits::kLayersMax).value_or(std::vector<std::int64_t>());
  std::vector<std::uint32_t> values(layers, range.least);
  // Layers behind the last, which propose ids, have entries too.
  if (given.size() < layers) {
    refuse(Code::invalid_argument, key,
           fmt::format("has {} entries for {} layers", given.size(), layers));
    return values;
  }
  for (std::uint32_t i = 0; i < layers; ++i) {
    if (given[i] >= range.least && given[i] <= range.most) {
      values[i] = static_cast<std::uint32_t>(given[i]);
    } else {
      refuse(Code::invalid_argument, key,
             fmt::format("holds {}; it must be {} to {}", given[i], range.least, range.most));
    }
  }
  return values;
}

std::optional<double> ConfigFields::maybe_positive(std::string_view key) {
  if (!has(key)) return std::nullopt;
  const auto value = metadata_ != nullptr ? metadata_->number(full(key)) : json(key).number();
  if (!value || !std::isfinite(*value) || *value <= 0) {
    refuse(Code::invalid_argument, key, "is not a number above 0");
    return std::nullopt;
  }
  return value;
}

double ConfigFields::positive(std::string_view key, std::optional<double> absent) {
  if (!has(key) && !absent) refuse(Code::invalid_argument, key, "is missing");
  return maybe_positive(key).value_or(absent.value_or(1.0));
}

std::optional<bool> ConfigFields::maybe_flag(std::string_view key) {
  if (!has(key)) return std::nullopt;
  const auto value = metadata_ != nullptr ? metadata_->flag(full(key)) : json(key).flag();
  if (!value) refuse(Code::invalid_argument, key, "is not true or false");
  return value;
}

bool ConfigFields::flag(std::string_view key, bool absent) {
  return maybe_flag(key).value_or(absent);
}

std::optional<std::string> ConfigFields::text(std::string_view key) {
  if (!has(key)) return std::nullopt;
  auto value = metadata_ != nullptr ? metadata_->text(full(key)) : json(key).text();
  if (!value) refuse(Code::invalid_argument, key, "is not a string");
  return value;
}

std::optional<std::vector<std::int64_t>> ConfigFields::wholes(std::string_view key,
                                                              std::size_t count_max) {
  if (!has(key)) return std::nullopt;
  std::vector<std::int64_t> values;
  if (metadata_ != nullptr) {
    const auto* found = metadata_->wholes(full(key));
    if (found == nullptr) {
      refuse(Code::invalid_argument, key, "is not a list of whole numbers");
      return std::nullopt;
    }
    values = *found;
  } else {
    const JsonView list = json(key);
    if (!list.is_array()) refuse(Code::invalid_argument, key, "is not a list");
    for (std::size_t i = 0; i < list.size(); ++i) {
      const auto value = list.at(i).integer();
      if (!value) refuse(Code::invalid_argument, key, "is not a list of whole numbers");
      values.push_back(value.value_or(0));
    }
  }
  if (values.size() > count_max) {
    refuse(Code::invalid_argument, key,
           fmt::format("has {} entries; at most {} are read", values.size(), count_max));
  }
  return values;
}

}  // namespace drafthouse
