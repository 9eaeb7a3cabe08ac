#include "kernels/cpu/isa_ops.h"
#include "kernels/cpu/kv_page.h"

// What a query gets must not depend on the queries beside it. So a query alone decides which of
// its slots take part, each of its sums runs over units in ascending order in one accumulator, and
// the tile sizes below only choose which independent sums are computed side by side.

namespace drafthouse::DRAFTHOUSE_ISA {
namespace {

// Queries that share each loaded key or value, and the largest number of accumulators.
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
constexpr std::size_t kUnitBytes = 4;
constexpr std::size_t kVectorBytes = kLanes * kUnitBytes;
constexpr std::size_t kPageRowBytes = kPagePositions * kUnitBytes;

// The widest run of vectors that Q queries take at once.
constexpr std::uint32_t run_of(std::uint32_t queries) {
  const std::uint32_t run = kAccumulators / queries;
  return run >= 8 ? 8 : run >= 4 ? 4 : run >= 2 ? 2 : 1;
}

struct TileQuery {
  const std::byte* q;
  float* m;
  float* l;
  float* acc;
  std::uint32_t first;
  std::uint32_t last;
};

struct Tile {
  TileQuery query[kTileQueries];
  std::uint32_t queries;
  alignas(64) float scores[kTileQueries][kPagePositions];
  // exp(s − m), rounded as the page's kind wants, in units.
  alignas(64) std::byte weights[kTileQueries][kPagePositions * kUnitBytes];
  alignas(64) float decay[kLanes];
};

inline std::uint32_t smaller(std::uint32_t a, std::uint32_t b) { return a < b ? a : b; }
inline std::uint32_t larger(std::uint32_t a, std::uint32_t b) { return a > b ? a : b; }

inline Mask visible_lanes(const TileQuery& query, std::uint32_t vector) {
  const std::uint64_t below_last = ~std::uint64_t{0} >> (kPagePositions - query.last);
  const std::uint64_t from_first = ~std::uint64_t{0} << query.first;
  const std::uint64_t lanes = (below_last & from_first) >> (vector * kLanes);
  return mask_of(static_cast<std::uint32_t>(lanes & 0xffffu));
}

// Scores, before scaling, of V vectors of positions.
template <class Page, std::uint32_t Q, std::uint32_t V>
inline void score_vectors(const AttendPageJob& job, Tile& tile, std::uint32_t vector) {
  Vec acc[Q][V];
#pragma GCC unroll 8
  for (std::uint32_t q = 0; q < Q; ++q) {
#pragma GCC unroll 8
    for (std::uint32_t v = 0; v < V; ++v) acc[q][v] = splat(0.0f);
  }
  const std::byte* key = job.k + vector * kVectorBytes;
  const std::size_t bytes = job.head_dim / Page::kUnitValues * kUnitBytes;
  for (std::size_t at = 0; at < bytes; at += kUnitBytes, key += kPageRowBytes) {
    typename Page::Unit k[V];
#pragma GCC unroll 8
    for (std::uint32_t v = 0; v < V; ++v) k[v] = Page::load(key + v * kVectorBytes);
#pragma GCC unroll 8
    for (std::uint32_t q = 0; q < Q; ++q) {
      const typename Page::Unit unit = Page::splat(tile.query[q].q + at);
#pragma GCC unroll 8
      for (std::uint32_t v = 0; v < V; ++v) acc[q][v] = Page::dot(unit, k[v], acc[q][v]);
    }
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

// Turns scores into weights and brings m and l up to date; decay is what earlier sums shrink by.
template <class Page>
void weigh(const AttendPageJob& job, Tile& tile) {
  const Vec scale = splat(job.scale);
  const Vec lowest = splat(-__builtin_inff());
  alignas(64) float sums[kTileQueries];
  for (std::uint32_t i = 0; i < kLanes; ++i) tile.decay[i] = 0.0f;

  for (std::uint32_t q = 0; q < tile.queries; ++q) {
    const TileQuery& query = tile.query[q];
    Vec s[kPageVectors];
    Mask visible[kPageVectors];
    for (std::uint32_t v = 0; v < kPageVectors; ++v) {
      visible[v] = visible_lanes(query, v);
      // Memory of vectors without a visible slot was never written.
      const bool any = query.first < (v + 1) * kLanes && query.last > v * kLanes;
      s[v] =
          any ? select(visible[v], mul(load(tile.scores[q] + v * kLanes), scale), lowest) : lowest;
    }
    const float top = max_lane(max(max(s[0], s[1]), max(s[2], s[3])));
    const float m = *query.m > top ? *query.m : top;
    for (std::uint32_t v = 0; v < kPageVectors; ++v) {
      s[v] = select(visible[v], exp(sub(s[v], splat(m))), splat(0.0f));
      Page::store_weights(tile.weights[q], v * kLanes, s[v]);
    }
    sums[q] = sum(add(add(s[0], s[1]), add(s[2], s[3])));
    tile.decay[q] = *query.m - m;
    *query.m = m;
  }

  store(tile.decay, exp(load(tile.decay)));
  for (std::uint32_t q = 0; q < tile.queries; ++q) {
    float* l = tile.query[q].l;
    *l = __builtin_fmaf(*l, tile.decay[q], sums[q]);
  }
}

// The bits of a unit of a value that the query may see.
template <class Page>
inline std::uint32_t visible_bits(const TileQuery& query, std::uint32_t unit) {
  if constexpr (Page::kUnitValues == 1) {
    return query.first <= unit && unit < query.last ? ~0u : 0u;
  } else {
    const std::uint32_t even = unit * 2;
    const std::uint32_t odd = even + 1;
    return (query.first <= even && even < query.last ? 0x0000ffffu : 0u) |
           (query.first <= odd && odd < query.last ? 0xffff0000u : 0u);
  }
}

// A unit that is not wholly visible to all of the tile: each query on its own.
template <class Page, std::uint32_t Q, std::uint32_t V>
inline void add_ragged_unit(const Tile& tile, const std::byte* value, std::uint32_t unit,
                            Vec (&acc)[Q][V]) {
#pragma GCC unroll 8
  for (std::uint32_t q = 0; q < Q; ++q) {
    const std::uint32_t bits = visible_bits<Page>(tile.query[q], unit);
    if (bits == 0) continue;
    const typename Page::Unit p = Page::splat(tile.weights[q] + unit * kUnitBytes);
#pragma GCC unroll 8
    for (std::uint32_t v = 0; v < V; ++v) {
      acc[q][v] = Page::dot(p, Page::load_kept(value + v * kVectorBytes, bits), acc[q][v]);
    }
  }
}

struct UnitRange {
  std::uint32_t begin;
  std::uint32_t common_begin;  // from here to common_end every query sees all of a unit
  std::uint32_t common_end;
  std::uint32_t end;
};

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
inline void add_values(const AttendPageJob& job, const Tile& tile, const UnitRange& range,
                       std::uint32_t dim) {
  Vec acc[Q][V];
#pragma GCC unroll 8
  for (std::uint32_t q = 0; q < Q; ++q) {
    const Vec decay = splat(tile.decay[q]);
#pragma GCC unroll 8
    for (std::uint32_t v = 0; v < V; ++v) {
      acc[q][v] = mul(load(tile.query[q].acc + dim + v * kLanes), decay);
    }
  }

  const std::size_t stride = job.head_dim * kUnitBytes;
  const std::byte* values = job.v + dim * kUnitBytes;
  std::uint32_t unit = range.begin;
  for (; unit < range.common_begin; ++unit) {
    add_ragged_unit<Page, Q, V>(tile, values + unit * stride, unit, acc);
  }
  for (; unit < range.common_end; ++unit) {
    const std::byte* value = values + unit * stride;
    typename Page::Unit x[V];
#pragma GCC unroll 8
    for (std::uint32_t v = 0; v < V; ++v) x[v] = Page::load(value + v * kVectorBytes);
#pragma GCC unroll 8
    for (std::uint32_t q = 0; q < Q; ++q) {
      const typename Page::Unit p = Page::splat(tile.weights[q] + unit * kUnitBytes);
#pragma GCC unroll 8
      for (std::uint32_t v = 0; v < V; ++v) acc[q][v] = Page::dot(p, x[v], acc[q][v]);
    }
  }
  for (; unit < range.end; ++unit) {
    add_ragged_unit<Page, Q, V>(tile, values + unit * stride, unit, acc);
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
void attend_tile(const AttendPageJob& job, Tile& tile) {
  const UnitRange range = units_of<Page>(tile);
  score<Page, Q>(job, tile, range.begin * Page::kUnitValues, range.end * Page::kUnitValues);
  weigh<Page>(job, tile);

  constexpr std::uint32_t kRun = run_of(Q);
  std::uint32_t dim = 0;
  for (; dim + kRun * kLanes <= job.head_dim; dim += kRun * kLanes) {
    add_values<Page, Q, kRun>(job, tile, range, dim);
  }
  for (; dim < job.head_dim; dim += kLanes) add_values<Page, Q, 1>(job, tile, range, dim);
}

template <class Page>
void attend_queries(const AttendPageJob& job, Tile& tile) {
  switch (tile.queries) {
    case 1:
      return attend_tile<Page, 1>(job, tile);
#if defined(__AVX2__)
    case 2:
      return attend_tile<Page, 2>(job, tile);
    case 3:
      return attend_tile<Page, 3>(job, tile);
    case 4:
      return attend_tile<Page, 4>(job, tile);
#endif
    default:
      return;
  }
}

template <class Page>
void attend(const AttendPageJob& job) {
  const auto* queries = static_cast<const std::byte*>(job.q);
  const std::size_t query_bytes = job.head_dim / Page::kUnitValues * kUnitBytes;
  Tile tile;
  tile.queries = 0;
  for (std::uint32_t q = 0; q < job.queries; ++q) {
    if (job.first[q] < job.last[q]) {
      tile.query[tile.queries++] = {queries + q * query_bytes,
                                    job.m + q,
                                    job.l + q,
                                    job.acc + std::size_t{q} * job.head_dim,
                                    job.first[q],
                                    job.last[q]};
    }
    if (tile.queries == kTileQueries || (q + 1 == job.queries && tile.queries > 0)) {
      attend_queries<Page>(job, tile);
      tile.queries = 0;
    }
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
