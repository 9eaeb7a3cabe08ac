#include "cli/machine.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <limits>
#include <optional>
#include <set>
#include <sstream>

#include "base/thread_pool.h"

namespace drafthouse::cli {
namespace {

constexpr const char* kKernelFeatures[] = {
    "fma",      "f16c",        "avx2",        "avx_vnni",    "avx512f",  "avx512dq", "avx512bw",
    "avx512vl", "avx512_vnni", "avx512_bf16", "avx512_fp16", "amx_tile", "amx_int8", "amx_bf16",
};

// The same sets that kernels/cpu/isa.cc looks for.
std::vector<std::string> needs(Isa isa) {
  std::vector<std::string> list;
  if (isa == Isa::generic) return list;
  list = {"fma", "f16c", "avx2"};
  if (isa == Isa::avxvnni) list.emplace_back("avx_vnni");
  if (isa == Isa::avx512 || isa == Isa::avx512bf16) {
    for (const char* feature : {"avx512f", "avx512dq", "avx512bw", "avx512vl", "avx512_vnni"}) {
      list.emplace_back(feature);
    }
  }
  if (isa == Isa::avx512bf16) list.emplace_back("avx512_bf16");
  return list;
}

// The value of the first line "name : value".
std::string line_value(const char* path, std::string_view name) {
  std::ifstream file(path);
  std::string line;
  while (std::getline(file, line)) {
    if (!line.starts_with(name)) continue;
    const std::size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    const std::size_t begin = line.find_first_not_of(" \t", colon + 1);
    return begin == std::string::npos ? "" : line.substr(begin);
  }
  return "";
}

std::optional<std::uint64_t> number_at_start(std::string_view text) {
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc()) return std::nullopt;
  return number;
}

std::uint64_t meminfo(std::string_view name) {
  return number_at_start(line_value("/proc/meminfo", name)).value_or(0) * 1024;
}

// What the control group leaves, where it has a limit (version 2; containers see their own at the
// root).
std::optional<std::uint64_t> control_group_room() {
  const auto first_line = [](const char* path) {
    std::ifstream file(path);
    std::string line;
    std::getline(file, line);
    return number_at_start(line);
  };
  const auto limit = first_line("/sys/fs/cgroup/memory.max");
  const auto used = first_line("/sys/fs/cgroup/memory.current");
  if (!limit.has_value() || !used.has_value()) return std::nullopt;
  return *limit - std::min(*limit, *used);
}

// "always [madvise] never" → "madvise".
std::string huge_page_setting() {
  std::ifstream file("/sys/kernel/mm/transparent_hugepage/enabled");
  std::string line;
  std::getline(file, line);
  const std::size_t open = line.find('[');
  const std::size_t close = line.find(']');
  if (open == std::string::npos || close == std::string::npos || close < open) return "";
  return line.substr(open + 1, close - open - 1);
}

std::uint64_t limit_of(__rlimit_resource resource) {
  rlimit limit = {};
  if (::getrlimit(resource, &limit) != 0) return 0;
  return limit.rlim_cur == RLIM_INFINITY ? std::numeric_limits<std::uint64_t>::max()
                                         : limit.rlim_cur;
}

}  // namespace

Machine look_at_machine() {
  Machine machine;
  machine.cpu = line_value("/proc/cpuinfo", "model name");
  std::istringstream words(line_value("/proc/cpuinfo", "flags"));
  std::set<std::string> flags;
  for (std::string word; words >> word;) flags.insert(word);
  for (const char* feature : kKernelFeatures) {
    if (flags.contains(feature)) machine.features.emplace_back(feature);
  }
  for (const Isa isa : built_isas()) {
    IsaState state{.isa = isa, .usable = cpu_has(isa), .missing = {}};
    if (!state.usable) {
      for (const std::string& feature : needs(isa)) {
        if (!flags.contains(feature)) state.missing.push_back(feature);
      }
    }
    machine.isas.push_back(std::move(state));
  }
  machine.cores_online = static_cast<unsigned>(std::max(1L, ::sysconf(_SC_NPROCESSORS_ONLN)));
  machine.cores_usable = available_cores();
  machine.memory_total = meminfo("MemTotal");
  machine.memory_available = meminfo("MemAvailable");
  if (const auto room = control_group_room(); room.has_value()) {
    machine.memory_available = std::min(machine.memory_available, *room);
  }
  machine.huge_pages = huge_page_setting();
  machine.locked_memory_limit = limit_of(RLIMIT_MEMLOCK);
  machine.open_files_limit = limit_of(RLIMIT_NOFILE);
  return machine;
}

}  // namespace drafthouse::cli
