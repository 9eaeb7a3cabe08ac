#include "engine/weight_store.h"

#include <fmt/format.h>
#include <sys/stat.h>

namespace drafthouse {
namespace {

template <class Map>
auto find_in(const Map& map, const std::string& key) -> decltype(map.begin()->second.lock()) {
  const auto place = map.find(key);
  return place == map.end() ? nullptr : place->second.lock();
}

template <class Map, class Weights>
void keep_in(Map& map, const std::string& key, const std::shared_ptr<Weights>& weights) {
  std::erase_if(map, [](const auto& each) { return each.second.expired(); });
  map[key] = weights;
}

}  // namespace

std::string weights_how(bool compute_fp32) { return compute_fp32 ? "fp32" : "auto"; }

std::string weights_key(const Checkpoint& checkpoint, std::string_view how) {
  std::string key(how);
  for (const std::string& file : checkpoint.files()) {
    struct stat info{};
    if (stat(file.c_str(), &info) != 0) return fmt::format("{} {}", how, checkpoint.path());
    key += fmt::format(" {}:{}:{}:{}.{}:{}.{}", info.st_dev, info.st_ino, info.st_size,
                       info.st_mtim.tv_sec, info.st_mtim.tv_nsec, info.st_ctim.tv_sec,
                       info.st_ctim.tv_nsec);
  }
  return key;
}

std::shared_ptr<TargetWeights> WeightStore::target(const std::string& key) const {
  const std::lock_guard<std::mutex> lock(lock_);
  return find_in(targets_, key);
}

std::shared_ptr<DraftWeights> WeightStore::draft(const std::string& key) const {
  const std::lock_guard<std::mutex> lock(lock_);
  return find_in(drafts_, key);
}

void WeightStore::keep(const std::string& key, const std::shared_ptr<TargetWeights>& weights) {
  const std::lock_guard<std::mutex> lock(lock_);
  keep_in(targets_, key, weights);
}

void WeightStore::keep(const std::string& key, const std::shared_ptr<DraftWeights>& weights) {
  const std::lock_guard<std::mutex> lock(lock_);
  keep_in(drafts_, key, weights);
}

}  // namespace drafthouse
