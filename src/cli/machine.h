#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/isa.h"

// What the operating system says about this machine. Missing files give empty or zero fields.

namespace drafthouse::cli {

struct IsaState {
  Isa isa = Isa::generic;
  bool usable = false;
  std::vector<std::string>
      missing;  // CPU features; empty though not usable: the system disables it
};

struct Machine {
  std::string cpu;                    // "AMD EPYC 9654 96-Core Processor"
  std::vector<std::string> features;  // those that matter to kernels, as /proc/cpuinfo spells them
  std::vector<IsaState> isas;         // built ones, weakest first
  unsigned cores_online = 0;
  unsigned cores_usable = 0;              // by this process
  std::uint64_t memory_total = 0;         // bytes, as are all below
  std::uint64_t memory_available = 0;     // with the limit of the control group
  std::string huge_pages;                 // "always", "madvise", "never"; "" when unknown
  std::uint64_t locked_memory_limit = 0;  // ~0: none
  std::uint64_t open_files_limit = 0;
};

Machine look_at_machine();

}  // namespace drafthouse::cli
