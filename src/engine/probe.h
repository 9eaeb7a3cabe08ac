#pragma once

#include "base/memory.h"
#include "base/thread_pool.h"
#include "drafthouse/status.h"
#include "kernels/kernels.h"

namespace drafthouse {

// What this machine does at best, for benches to divide by. All threads of the pool work at once.
// Each call takes about a fifth of a second and is a sample: neighbours on the same host move it.

// Memory for read_bandwidth_gbps, written once so that no two pages are the same one. Larger than
// the caches of most machines.
Result<Buffer> make_probe_memory(ThreadPool& pool, MemoryLedger& ledger);

// Bytes read per second, in units of 10^9: the best of some passes of 25 ms over `memory`, each
// going on where the last one stopped. Requires a size that is a multiple of 1 MiB.
double read_bandwidth_gbps(ThreadPool& pool, const Kernels& kernels, const Buffer& memory,
                           int passes = 7);

// 10^9 operations per second of the register-only loops that `kernels` brings: the best of some
// passes of 25 ms.
constexpr int kPeakPasses = 7;
double peak_float_gops(ThreadPool& pool, const Kernels& kernels, int passes = kPeakPasses);
double peak_int8_gops(ThreadPool& pool, const Kernels& kernels, int passes = kPeakPasses);

}  // namespace drafthouse
