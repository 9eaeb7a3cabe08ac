#include <cassert>

#include "kernels/cpu/isa_ops.h"
#include "kernels/cpu/kv_page.h"
#include "tensor/head_dim.h"

// What a query gets must not depend on the queries beside it. So a query alone decides which of
// its slots take part, each of its sums runs over units in ascending order in one accumulator, and
// the tile sizes below only choose which independent sums are computed side by side.

namespace drafthouse::DRAFTHOUSE_ISA {
namespace {

// Queries that share each loaded key or value, and the most accumulators at a time.
#if defined(__AVX512F__)
constexpr std::uint32_t kTileQueries = 4;
constexpr std::uint32_t kAccumulators = 16;
#elif defined(__AVX2__)
constexpr std::uint32_t kTileQueries = 4;
constexpr std::uint32_t kAccumulators = 4;
#else
constexpr std::uint32_t kTileQueries = 1;
constexpr std::uint32_t kAccumulators = 1;
#endif
constexpr std::uint32_t kPageVectors = kPagePositions / kLanes;
constexpr std::size_t kVectorBytes = kLanes * kUnitBytes;
constexpr std::size_t kPageRowBytes = kPagePositions * kUnitBytes;

// The widest run of vectors that so many queries take at once.
constexpr std::uint32_t run_of(std::uint32_t queries) {
  const std::uint32_t run = kAccumulators / queries;
  return run >= 8 ? 8 : run >= 4 ? 4 : run >= 2 ? 2 : 1;
}

struct TileQuery {
  const std::byte* factors;
  float* m;
  float* l;
  float* acc;
  std::uint32_t first;
  std::uint32_t last;
};

// Units that the queries of a tile see, some or all of them.
struct UnitRange {
  std::uint32_t begin;
  std::uint32_t common_begin;  // from here to common_end every query sees all of a unit
  std::uint32_t common_end;
  std::uint32_t end;
};

struct Tile {
  TileQuery query[kTileQueries];
  std::uint32_t queries;
  UnitRange range;
  alignas(64) float scores[kTileQueries][kPagePositions];
  alignas(64) std::byte weights[kTileQueries][kPagePositions * kUnitBytes];
  // What a query's earlier sums shrink by.
  alignas(64) float decay[kLanes];
};

inline std::uint32_t smaller(std::uint32_t a, std::uint32_t b) { return a < b ? a : b; }
inline std::uint32_t larger(std::uint32_t a, std::uint32_t b) { return a > b ? a : b; }

// Adds factor · unit for Q queries and V vectors of units.
template <class Page, std::uint32_t Q, std::uint32_t V>
inline void accumulate(const std::byte* units, const std::byte* const (&factors)[Q],
                       std::size_t factor, Vec (&acc)[Q][V]) {
  // The fewer of the two are kept in registers.
  if constexpr (V >= Q) {
    typename Page::Unit f[Q];
#pragma GCC unroll 8
    for (std::uint32_t q = 0; q < Q; ++q) f[q] = Page::factor(factors[q], factor);
#pragma GCC unroll 8
    for (std::uint32_t v = 0; v < V; ++v) {
      const typename Page::Unit x = Page::load(units + v * kVectorBytes);
#pragma GCC unroll 8
      for (std::uint32_t q = 0; q < Q; ++q) acc[q][v] = Page::dot(f[q], x, acc[q][v]);
    }
  } else {
    typename Page::Unit x[V];
#pragma GCC unroll 8
    for (std::uint32_t v = 0; v < V; ++v) x[v] = Page::load(units + v * kVectorBytes);
#pragma GCC unroll 8
    for (std::uint32_t q = 0; q < Q; ++q) {
      const typename Page::Unit f = Page::factor(factors[q], factor);
#pragma GCC unroll 8
      for (std::uint32_t v = 0; v < V; ++v) acc[q][v] = Page::dot(f, x[v], acc[q][v]);
    }
  }
}

// Scores, before scaling, of V vectors of positions.
template <class Page, std::uint32_t Q, std::uint32_t V>
inline void score_vectors(const AttendPageJob& job, Tile& tile, std::uint32_t vector) {
  Vec acc[Q][V];
  const std::byte* factors[Q];
#pragma GCC unroll 8
  for (std::uint32_t q = 0; q < Q; ++q) {
    factors[q] = tile.query[q].factors;
#pragma GCC unroll 8
    for (std::uint32_t v = 0; v < V; ++v) acc[q][v] = splat(0.0f);
  }
  const std::byte* key = job.k + vector * kVectorBytes;
  const std::size_t units = job.head_dim / Page::kUnitValues;
  for (std::size_t unit = 0; unit < units; ++unit, key += kPageRowBytes) {
    accumulate<Page, Q, V>(key, factors, unit, acc);
  }
#pragma GCC unroll 8
  for (std::uint32_t q = 0; q < Q; ++q) {
#pragma GCC unroll 8
    for (std::uint32_t v = 0; v < V; ++v) {
      store(tile.scores[q] + (vector + v) * kLanes, acc[q][v]);
    }
  }
}

template <class Page, std::uint32_t Q>
void score(const AttendPageJob& job, Tile& tile, std::uint32_t first, std::uint32_t last) {
  constexpr std::uint32_t kRun = run_of(Q) < kPageVectors ? run_of(Q) : kPageVectors;
  const std::uint32_t end = (last + kLanes - 1) / kLanes;
  std::uint32_t vector = first / kLanes;
  for (; vector + kRun <= end; vector += kRun) score_vectors<Page, Q, kRun>(job, tile, vector);
  for (; vector < end; ++vector) score_vectors<Page, Q, 1>(job, tile, vector);
}

// Scales a query's scores, hides what it may not see, and returns the largest.
inline float mask_scores(const TileQuery& query, float scale, float* scores) {
  const Vec lowest = splat(-__builtin_inff());
  const std::uint64_t visible =
      ~std::uint64_t{0} >> (kPagePositions - query.last) & ~std::uint64_t{0} << query.first;
  Vec s[kPageVectors];
#pragma GCC unroll 8
  for (std::uint32_t v = 0; v < kPageVectors; ++v) {
    const auto lanes = static_cast<std::uint32_t>(visible >> (v * kLanes) & 0xffffu);
    s[v] = lowest;
    // Scores of vectors without a visible slot were never written.
    if (lanes != 0) s[v] = mul(load(scores + v * kLanes), splat(scale));
    if (lanes != 0 && lanes != 0xffffu) s[v] = select(mask_of(lanes), s[v], lowest);
    store(scores + v * kLanes, s[v]);
  }
  return max_lane(max(max(s[0], s[1]), max(s[2], s[3])));
}

// Turns scores into weights and brings m and l up to date.
template <class Page, std::uint32_t Q>
void weigh(const AttendPageJob& job, Tile& tile) {
  alignas(64) float m[kLanes] = {};
  alignas(64) float top[kLanes] = {};
#pragma GCC unroll 8
  for (std::uint32_t q = 0; q < Q; ++q) {
    m[q] = *tile.query[q].m;
    top[q] = mask_scores(tile.query[q], job.scale, tile.scores[q]);
  }
  const Vec new_m = max(load(m), load(top));
  store(tile.decay, exp(sub(load(m), new_m)));
  store(m, new_m);

  float sums[Q];
#pragma GCC unroll 8
  for (std::uint32_t q = 0; q < Q; ++q) {
    Vec p[kPageVectors];
#pragma GCC unroll 8
    for (std::uint32_t v = 0; v < kPageVectors; ++v) {
      p[v] = exp(sub(load(tile.scores[q] + v * kLanes), splat(m[q])));
      Page::store_weights(tile.weights[q], v * kLanes, p[v]);
    }
    sums[q] = sum(add(add(p[0], p[1]), add(p[2], p[3])));
  }
#pragma GCC unroll 8
  for (std::uint32_t q = 0; q < Q; ++q) {
    *tile.query[q].m = m[q];
    *tile.query[q].l = __builtin_fmaf(*tile.query[q].l, tile.decay[q], sums[q]);
  }
}

// The bits of a unit of a value that the query may see.
template <class Page>
inline std::uint32_t visible_bits(const TileQuery& query, std::uint32_t unit) {
  const auto sees = [&query](std::uint32_t slot) {
    return query.first <= slot && slot < query.last;
  };
  if constexpr (Page::kUnitValues == 1) {
    return sees(unit) ? ~0u : 0u;
  } else {
    return (sees(unit * 2) ? 0x0000ffffu : 0u) | (sees(unit * 2 + 1) ? 0xffff0000u : 0u);
  }
}

// A unit that is not wholly visible to all of the tile: each query on its own.
template <class Page, std::uint32_t Q, std::uint32_t V>
inline void accumulate_ragged(const Tile& tile, const std::byte* value, std::uint32_t unit,
                              Vec (&acc)[Q][V]) {
#pragma GCC unroll 8
  for (std::uint32_t q = 0; q < Q; ++q) {
    const std::uint32_t bits = visible_bits<Page>(tile.query[q], unit);
    if (bits == 0) continue;
    const typename Page::Unit p = Page::factor(tile.weights[q], unit);
#pragma GCC unroll 8
    for (std::uint32_t v = 0; v < V; ++v) {
      acc[q][v] = Page::dot(p, Page::load_kept(value + v * kVectorBytes, bits), acc[q][v]);
    }
  }
}

template <class Page>
UnitRange units_of(const Tile& tile) {
  std::uint32_t first_min = kPagePositions;
  std::uint32_t first_max = 0;
  std::uint32_t last_min = kPagePositions;
  std::uint32_t last_max = 0;
  for (std::uint32_t q = 0; q < tile.queries; ++q) {
    first_min = smaller(first_min, tile.query[q].first);
    first_max = larger(first_max, tile.query[q].first);
    last_min = smaller(last_min, tile.query[q].last);
    last_max = larger(last_max, tile.query[q].last);
  }
  constexpr std::uint32_t kValues = Page::kUnitValues;
  UnitRange range;
  range.begin = first_min / kValues;
  range.end = (last_max + kValues - 1) / kValues;
  range.common_begin = smaller((first_max + kValues - 1) / kValues, range.end);
  range.common_end = larger(last_min / kValues, range.common_begin);
  return range;
}

// Adds the weighted values of V vectors of dimensions, from dimension `dim` on.
template <class Page, std::uint32_t Q, std::uint32_t V>
inline void add_values(const AttendPageJob& job, const Tile& tile, std::uint32_t dim) {
  const UnitRange& range = tile.range;
  Vec acc[Q][V];
  const std::byte* weights[Q];
#pragma GCC unroll 8
  for (std::uint32_t q = 0; q < Q; ++q) {
    weights[q] = tile.weights[q];
    const Vec decay = splat(tile.decay[q]);
#pragma GCC unroll 8
    for (std::uint32_t v = 0; v < V; ++v) {
      acc[q][v] = mul(load(tile.query[q].acc + dim + v * kLanes), decay);
    }
  }

  const std::size_t stride = job.head_dim * kUnitBytes;
  const std::byte* value = job.v + range.begin * stride + dim * kUnitBytes;
  std::uint32_t unit = range.begin;
  for (; unit < range.common_begin; ++unit, value += stride) {
    accumulate_ragged<Page, Q, V>(tile, value, unit, acc);
  }
  for (; unit < range.common_end; ++unit, value += stride) {
    accumulate<Page, Q, V>(value, weights, unit, acc);
  }
  for (; unit < range.end; ++unit, value += stride) {
    accumulate_ragged<Page, Q, V>(tile, value, unit, acc);
  }

#pragma GCC unroll 8
  for (std::uint32_t q = 0; q < Q; ++q) {
#pragma GCC unroll 8
    for (std::uint32_t v = 0; v < V; ++v) {
      store(tile.query[q].acc + dim + v * kLanes, acc[q][v]);
    }
  }
}

template <class Page, std::uint32_t Q>
void score_tile(const AttendPageJob& job, Tile& tile) {
  alignas(64) float widened[Page::kWidensQueries ? Q : 1][kHeadDimMax];
  if constexpr (Page::kWidensQueries) {
    assert(job.head_dim <= kHeadDimMax);
    for (std::uint32_t q = 0; q < Q; ++q) {
      for (std::uint32_t d = 0; d < job.head_dim; d += kLanes) {
        store(widened[q] + d, load_bf16(tile.query[q].factors + std::size_t{d} * 2));
      }
      tile.query[q].factors = reinterpret_cast<const std::byte*>(widened[q]);
    }
  }
  tile.range = units_of<Page>(tile);
  score<Page, Q>(job, tile, tile.range.begin * Page::kUnitValues,
                 tile.range.end * Page::kUnitValues);
}

template <class Page, std::uint32_t Q>
void add_tile_values(const AttendPageJob& job, Tile& tile) {
  constexpr std::uint32_t kRun = run_of(Q);
  std::uint32_t dim = 0;
  for (; dim + kRun * kLanes <= job.head_dim; dim += kRun * kLanes) {
    add_values<Page, Q, kRun>(job, tile, dim);
  }
  for (; dim < job.head_dim; dim += kLanes) add_values<Page, Q, 1>(job, tile, dim);
}

template <std::uint32_t Q>
struct Count {};

// Calls work(Count<queries>).
template <class Work>
inline void with_count(std::uint32_t queries, const Work& work) {
  if constexpr (kTileQueries == 1) {
    work(Count<1>{});
  } else {
    switch (queries) {
      case 1: return work(Count<1>{});
      case 2: return work(Count<2>{});
      case 3: return work(Count<3>{});
      default: return work(Count<4>{});
    }
  }
}

template <class Page>
void attend(const AttendPageJob& job) {
  const auto* queries = static_cast<const std::byte*>(job.q);
  const std::size_t query_bytes = job.head_dim / Page::kUnitValues * kUnitBytes;
  Tile tiles[kQueryTile / kTileQueries];
  std::uint32_t count = 0;
  for (std::uint32_t q = 0; q < job.queries; ++q) {
    if (job.first[q] >= job.last[q]) continue;
    Tile& tile = tiles[count / kTileQueries];
    tile.queries = count % kTileQueries + 1;
    tile.query[tile.queries - 1] = {queries + q * query_bytes,
                                    job.m + q,
                                    job.l + q,
                                    job.acc + std::size_t{q} * job.head_dim,
                                    job.first[q],
                                    job.last[q]};
    ++count;
  }
  // All tiles' scores before any values: the first level cache holds keys or values, not both.
  const std::uint32_t used = (count + kTileQueries - 1) / kTileQueries;
  for (std::uint32_t t = 0; t < used; ++t) {
    with_count(tiles[t].queries, [&]<std::uint32_t Q>(Count<Q>) {
      score_tile<Page, Q>(job, tiles[t]);
      weigh<Page, Q>(job, tiles[t]);
    });
  }
  for (std::uint32_t t = 0; t < used; ++t) {
    with_count(tiles[t].queries,
               [&]<std::uint32_t Q>(Count<Q>) { add_tile_values<Page, Q>(job, tiles[t]); });
  }
}

}  // namespace

void attend_page(const AttendPageJob& job) {
  if (job.kind == KvKind::bf16) {
    attend<Bf16Page>(job);
  } else {
    attend<F32Page>(job);
  }
}

}  // namespace drafthouse::DRAFTHOUSE_ISA
