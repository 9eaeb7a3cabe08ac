#ifndef DRAFTHOUSE_HOOKS_H
#define DRAFTHOUSE_HOOKS_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/*
 * Hooks: replacing an operation of the CPU engines by a plugin's own. C11 and C++.
 *
 * A plugin is a shared library that exports dh_hook_plugin(). It is loaded from an absolute path
 * that the embedder or a flag gives, and never found by itself. docs/HOOKS.md has a whole one.
 *
 * A slot is one operation, for matmul of one format of weights and inputs, for attention of one
 * format of pages. It has one owner: a name, a version and a function. Another owner, or the same
 * name with another function or version, is refused with a conflict that names both. All hooks of
 * a plugin are installed or none. Engines take what is installed when they load, and keep it
 * until they go.
 *
 * A hook makes a promise, and the gate tests it before anything is installed:
 *   exact        the same bits as the built-in kernel. May serve some widths only. Only where all
 *                instruction sets of the host give the same bits (all but bf16 × bf16 products and
 *                attention over bf16 pages), so that the verdict is the same on every machine.
 *   approximate  within error_bound of the operation's formula; serves every width and gives each
 *                row the same bits at every width. Its name and version become part of the state
 *                digest, so that cached state of other arithmetic is never used.
 *
 * A function is called from many threads at once, each with a part of the work. It keeps no
 * state, does not allocate, lock, log or throw, writes nothing but its outputs, and depends on
 * its job alone. The job and everything it points to belong to the host and are valid during the
 * call.
 */

#ifdef __cplusplus
extern "C" {
#endif

#define DH_HOOK_ABI_VERSION 1u

/* What error_bound may be. */
#define DH_HOOK_ERROR_BOUND_MIN 0x1p-16
#define DH_HOOK_ERROR_BOUND_MAX 0x1p-8

/* Rows that a width list may name: 1 to this. A hook for all widths leaves the list empty. */
#define DH_HOOK_WIDTH_MAX 62u

enum dh_hook_operation {
  DH_HOOK_MATMUL = 1,      /* dh_hook_matmul_job; exact or approximate; width: rows */
  DH_HOOK_ATTEND_PAGE = 2, /* dh_hook_attend_page_job; exact or approximate; width: queries */
  DH_HOOK_RMS_NORM = 3,    /* dh_hook_rms_norm_job; exact or approximate; one row, so no widths */
  DH_HOOK_SILU_MUL = 4,    /* dh_hook_silu_mul_job; the same */
  DH_HOOK_ROPE = 5,        /* dh_hook_rope_job; the same */
  DH_HOOK_WRITE_KV = 6,    /* dh_hook_write_kv_job; exact; one row */
  DH_HOOK_ARGMAX = 7,      /* dh_hook_argmax_job; exact; one row */
  DH_HOOK_CAPTURE_TAP = 8  /* dh_hook_capture_tap_job; exact; width: rows */
};

/* Number formats. Weights: F32 to Q4_1. Inputs of a product: F32, BF16, INT8. Pages: F32, BF16. */
enum dh_hook_format {
  DH_HOOK_F32 = 1,
  DH_HOOK_F16 = 2,
  DH_HOOK_BF16 = 3,
  DH_HOOK_Q8_0 = 4,
  DH_HOOK_Q4_0 = 5,
  DH_HOOK_Q4_1 = 6,
  DH_HOOK_INT8 = 7
};

enum dh_hook_promise { DH_HOOK_EXACT = 1, DH_HOOK_APPROXIMATE = 2 };

/* Bytes that need no zero at the end. */
typedef struct dh_hook_text {
  const char* data;
  size_t length;
} dh_hook_text;

/* `job` points to the struct of the operation. Read no field past job->size. */
typedef void (*dh_hook_function)(const void* job);

typedef struct dh_hook {
  size_t size;            /* sizeof(dh_hook) */
  int32_t operation;      /* dh_hook_operation */
  int32_t weights;        /* matmul: dh_hook_format; otherwise 0 */
  int32_t inputs;         /* matmul: dh_hook_format; otherwise 0 */
  int32_t pages;          /* attend_page, write_kv: dh_hook_format; otherwise 0 */
  int32_t promise;        /* dh_hook_promise */
  const uint32_t* widths; /* exact hooks that do not serve all widths: those they serve */
  size_t width_count;     /* 0: all */
  double error_bound;     /* approximate: what it keeps, in the operation's measure; exact: 0 */
  dh_hook_function function;
} dh_hook;

/* Belongs to the plugin and stays as it is while the library is loaded. */
typedef struct dh_hook_plugin_info {
  size_t size;          /* sizeof(dh_hook_plugin_info) */
  uint32_t abi_version; /* DH_HOOK_ABI_VERSION */
  dh_hook_text name;    /* 1 to 64 letters, digits, '.', '_', '-', '+' */
  dh_hook_text version; /* the same; another result of any function is another version */
  const dh_hook* const* hooks;
  size_t hook_count;
} dh_hook_plugin_info;

/*
 * What the plugin exports, and the host calls once after loading it. Null: it does not run with
 * this host or on this machine.
 */
#if defined(_WIN32)
#define DH_HOOK_EXPORT
#else
#define DH_HOOK_EXPORT __attribute__((visibility("default")))
#endif
DH_HOOK_EXPORT const dh_hook_plugin_info* dh_hook_plugin(uint32_t host_abi_version);

/*
 * Matrix product: out[r][o] = Σ_k x[r][k] · w[o][k], or out[r][o] += that sum, for the outputs of
 * the column blocks [block_begin, block_end) that exist (o < outputs), o = block × 16 + column.
 * Row r of out starts at out + r × out_stride. Bits of the built-in kernels, k and groups
 * ascending:
 *   f32 inputs   acc = fma(x, w, acc)
 *   bf16 inputs  as f32 inputs, or pairs by VDPBF16PS: not the same everywhere
 *   int8 inputs  per group of 32 the exact integer sum s of code products; then
 *                acc = fma(s, scale_w × scale_x, acc); q4_1 then also
 *                acc = fma(min_w, scale_x × sum of the group's x codes, acc)
 * Error measure of approximate hooks: |error| <= error_bound × Σ_k |x · w| + 1e-37.
 *
 * Weights are packed in column blocks of 16 outputs over all inputs, which are padded with zeros
 * to a multiple of 64; everything is little-endian, blocks are 64-byte aligned:
 *   f32, f16   per input k: 16 values
 *   bf16       per pair of inputs k, k+1: 16 × (value k, value k+1)
 *   q8_0       per 64 inputs: 2 × 16 half scales (one per group of 32), then for both groups
 *              [8 quads of 4 inputs][16 outputs][4 inputs] bytes, code + 128
 *   q4_0,q4_1  per 64 inputs: 2 × 16 half scales; q4_1: 2 × 16 half minima; then for both groups
 *              [4][16 outputs][4 inputs] bytes: low nibbles are quad 2i, high nibbles quad 2i + 1;
 *              q4_0: value = scale × (nibble − 8), q4_1: value = scale × nibble + minimum
 * Inputs are packed in tiles of 16 rows, the last tile smaller. In a tile of R rows, units of 4
 * bytes (one float, two bf16 k and k+1, four int8 k to k+3) of one k stand side by side:
 *   f32, bf16  unit u of row r at (u × R + r) × 4
 *   int8       per group of 32 inputs 10 × R units: 8 × R of codes, R scales (float), R sums of the
 *              group's codes (int32)
 * Tile t starts at t × dh_hook_tile_bytes().
 */
typedef struct dh_hook_matmul_job {
  size_t size;
  int32_t weights; /* dh_hook_format */
  int32_t inputs;  /* dh_hook_format */
  uint32_t output_count;
  uint32_t input_count;
  const void* weight_data;
  uint32_t block_begin;
  uint32_t block_end;
  const void* x;
  uint32_t rows;
  int32_t accumulate; /* 0 or 1 */
  float* out;
  size_t out_stride;
} dh_hook_matmul_job;

/*
 * Attention of up to 16 queries of one key/value head over one page of 64 positions. Running
 * softmax, per query over its visible slots [first[q], last[q]): s = scale × q·k, then
 *   m' = max(m, max s); c = exp(m − m'); p = exp(s − m'); l' = l × c + Σ p; acc' = acc × c + Σ p v
 * The first page has m = −infinity, l = 0, acc = 0. A query with first >= last stays as it is,
 * bit for bit; slots outside are never read as numbers (they may hold anything). With bf16 pages
 * p is rounded to bf16 for Σ p v; Σ p sums it unrounded.
 *   bf16  q [queries][head_dim] bf16;  K [head_dim/2][64][2];  V [32 pairs of slots][head_dim][2]
 *   f32   q [queries][head_dim] float; K [head_dim][64];       V [64][head_dim]
 * Exact hooks: f32 pages only, bits of the built-in kernel (its exp is a polynomial of its own,
 * so call it exact only if you mean that one). Error measure of approximate ones, after the page:
 * |acc/l − exact| <= error_bound × max |v|, |m + ln l − exact| <= error_bound × (1 + max |s|).
 * Exact is without rounding p; rounding it to bf16 alone takes up to 2^-9.
 */
typedef struct dh_hook_attend_page_job {
  size_t size;
  int32_t pages;     /* dh_hook_format */
  uint32_t head_dim; /* a multiple of 16 */
  uint32_t queries;
  float scale;
  const void* q;
  const void* k;
  const void* v;
  const uint8_t* first; /* [queries] */
  const uint8_t* last;  /* [queries], at most 64 */
  float* m;             /* [queries] */
  float* l;             /* [queries] */
  float* acc;           /* [queries][head_dim] */
} dh_hook_attend_page_job;

/*
 * out[i] = in[i] × rsqrt(mean(in²) + eps) × gain[i]; out may be in. Exact: squares go into 16
 * lanes of two accumulators (vectors of 16 in turn), acc = fma(a, a, acc); the two are added,
 * then lanes i and i + 8, i + 4, i + 2, i + 1; scale = 1 / sqrtf(sum / width + eps); out = (in ×
 * scale) × gain. Error measure: |error| <= error_bound × |exact|.
 */
typedef struct dh_hook_rms_norm_job {
  size_t size;
  float* out;
  const float* in;
  const float* gain;
  uint32_t width;
  float eps;
} dh_hook_rms_norm_job;

/* out[i] = silu(gate[i]) × up[i]. Error measure: |error| <= error_bound × |gate × up|. */
typedef struct dh_hook_silu_mul_job {
  size_t size;
  float* out;
  const float* gate;
  const float* up;
  uint32_t width;
} dh_hook_silu_mul_job;

/*
 * Rotates pairs (a, b) = (head[i], head[i + half]) in place: head[i] = fma(a, cos[i], −(b ×
 * sin[i])), head[i + half] = fma(b, cos[i], a × sin[i]). Error measure: |error| <= error_bound ×
 * (|a| + |b|).
 */
typedef struct dh_hook_rope_job {
  size_t size;
  float* head;
  const float* cos;
  const float* sin;
  uint32_t half;
} dh_hook_rope_job;

/* Stores one position's key and value of one head in slot `slot` of a page (layout: attend_page),
 * rounded to nearest, ties to even, NaN stays NaN. Touches no other slot. */
typedef struct dh_hook_write_kv_job {
  size_t size;
  int32_t pages; /* dh_hook_format */
  uint32_t head_dim;
  uint32_t slot;
  const float* k; /* [head_dim] */
  const float* v;
  void* k_page;
  void* v_page;
} dh_hook_write_kv_job;

/* *index = that of the largest value, the lowest among equals; NaN is never chosen (0 if all are).
 */
typedef struct dh_hook_argmax_job {
  size_t size;
  const float* values;
  uint32_t count;
  uint32_t* index;
} dh_hook_argmax_job;

/* Keeps the target's residual stream after a tapped layer for the draft: out[r][i] = stream[r][i],
 * i < width, bit for bit. */
typedef struct dh_hook_capture_tap_job {
  size_t size;
  const float* stream;
  size_t stream_stride; /* floats between rows */
  uint32_t rows;
  uint32_t width;
  float* out;
  size_t out_stride;
} dh_hook_capture_tap_job;

/*
 * Where things are: plain functions for reading packed data one number at a time. A fast hook
 * walks the layouts above; these are to start with, and to check it.
 */
static inline float dh_hook_bf16_to_float(uint16_t bits) {
  const uint32_t word = (uint32_t)bits << 16;
  float value;
  memcpy(&value, &word, sizeof value);
  return value;
}

/* To nearest, ties to even. */
static inline uint16_t dh_hook_float_to_bf16(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  if (value != value) return (uint16_t)((bits >> 16) | 0x40u);
  return (uint16_t)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

static inline float dh_hook_half_to_float(uint16_t half) {
  const uint32_t sign = (uint32_t)(half & 0x8000u) << 16;
  const uint32_t exponent = (half >> 10) & 31u;
  const uint32_t fraction = half & 1023u;
  uint32_t bits = sign | ((exponent + 112u) << 23) | (fraction << 13);
  float value;
  if (exponent == 31u) bits = sign | 0x7f800000u | (fraction << 13);
  if (exponent == 0u) { /* fraction × 2^-24, which a float holds exactly */
    value = (float)fraction * 0x1p-24f;
    memcpy(&bits, &value, sizeof bits);
    bits |= sign;
  }
  memcpy(&value, &bits, sizeof value);
  return value;
}

static inline uint32_t dh_hook_padded_inputs(uint32_t inputs) { return (inputs + 63u) / 64u * 64u; }

/* Bytes of one column block of 16 outputs. */
static inline size_t dh_hook_block_bytes(int32_t weights, uint32_t inputs) {
  const size_t k = dh_hook_padded_inputs(inputs);
  switch (weights) {
    case DH_HOOK_F32: return k * 64;
    case DH_HOOK_F16: return k * 32;
    case DH_HOOK_BF16: return k * 32;
    case DH_HOOK_Q8_0: return k / 64 * 1088;
    case DH_HOOK_Q4_0: return k / 64 * 576;
    case DH_HOOK_Q4_1: return k / 64 * 640;
    default: return 0;
  }
}

/* Bytes from one tile of inputs to the next. */
static inline size_t dh_hook_tile_bytes(int32_t format, uint32_t inputs) {
  const size_t k = dh_hook_padded_inputs(inputs);
  switch (format) {
    case DH_HOOK_F32: return k * 64;
    case DH_HOOK_BF16: return k * 32;
    case DH_HOOK_INT8: return k / 32 * 640;
    default: return 0;
  }
}

static inline uint16_t dh_hook_load16(const unsigned char* from) {
  uint16_t bits;
  memcpy(&bits, from, sizeof bits);
  return bits;
}

static inline const unsigned char* dh_hook_block_of(const dh_hook_matmul_job* job,
                                                    uint32_t output) {
  return (const unsigned char*)job->weight_data +
         output / 16u * dh_hook_block_bytes(job->weights, job->input_count);
}

/* Quantised weights. The stored code: −128 to 127 of q8_0, −8 to 7 of q4_0, 0 to 15 of q4_1. */
static inline int32_t dh_hook_weight_code(const dh_hook_matmul_job* job, uint32_t output,
                                          uint32_t input) {
  const unsigned char* unit =
      dh_hook_block_of(job, output) + input / 64u * dh_hook_block_bytes(job->weights, 64);
  const uint32_t group = input / 32u % 2u;
  const uint32_t quad = input % 32u / 4u;
  const uint32_t at = output % 16u * 4u + input % 4u;
  int32_t code;
  if (job->weights == DH_HOOK_Q8_0) {
    return (int32_t)unit[64u + group * 512u + quad * 64u + at] - 128;
  }
  unit += job->weights == DH_HOOK_Q4_1 ? 128 : 64;
  code = unit[group * 256u + quad / 2u * 64u + at];
  code = quad % 2u == 0u ? code & 15 : code >> 4;
  return job->weights == DH_HOOK_Q4_0 ? code - 8 : code;
}

/* Quantised weights. Scale of a group of 32 inputs (group = input / 32). */
static inline float dh_hook_weight_scale(const dh_hook_matmul_job* job, uint32_t output,
                                         uint32_t group) {
  return dh_hook_half_to_float(dh_hook_load16(dh_hook_block_of(job, output) +
                                              group / 2u * dh_hook_block_bytes(job->weights, 64) +
                                              group % 2u * 32u + output % 16u * 2u));
}

/* q4_1. Minimum of a group of 32 inputs. */
static inline float dh_hook_weight_minimum(const dh_hook_matmul_job* job, uint32_t output,
                                           uint32_t group) {
  return dh_hook_half_to_float(dh_hook_load16(dh_hook_block_of(job, output) +
                                              group / 2u * dh_hook_block_bytes(job->weights, 64) +
                                              64u + group % 2u * 32u + output % 16u * 2u));
}

/* Any weight as a number, as products with f32 inputs see it. */
static inline float dh_hook_weight(const dh_hook_matmul_job* job, uint32_t output, uint32_t input) {
  const unsigned char* block = dh_hook_block_of(job, output);
  const uint32_t column = output % 16u;
  float value;
  switch (job->weights) {
    case DH_HOOK_F32:
      memcpy(&value, block + ((size_t)input * 16u + column) * 4u, sizeof value);
      return value;
    case DH_HOOK_F16:
      return dh_hook_half_to_float(dh_hook_load16(block + ((size_t)input * 16u + column) * 2u));
    case DH_HOOK_BF16:
      return dh_hook_bf16_to_float(
          dh_hook_load16(block + ((size_t)(input / 2u) * 16u + column) * 4u + input % 2u * 2u));
    default:
      value = dh_hook_weight_scale(job, output, input / 32u) *
              (float)dh_hook_weight_code(job, output, input);
      if (job->weights != DH_HOOK_Q4_1) return value;
      return value + dh_hook_weight_minimum(job, output, input / 32u);
  }
}

/* Unit `unit` of row `row` in its tile. */
static inline const unsigned char* dh_hook_input_unit(const dh_hook_matmul_job* job, uint32_t row,
                                                      size_t unit) {
  const uint32_t tile = row / 16u;
  const uint32_t left = job->rows - tile * 16u;
  const uint32_t rows = left < 16u ? left : 16u;
  return (const unsigned char*)job->x + tile * dh_hook_tile_bytes(job->inputs, job->input_count) +
         (unit * rows + row % 16u) * 4u;
}

/* f32 and bf16 inputs. */
static inline float dh_hook_input(const dh_hook_matmul_job* job, uint32_t row, uint32_t input) {
  float value;
  if (job->inputs == DH_HOOK_BF16) {
    return dh_hook_bf16_to_float(
        dh_hook_load16(dh_hook_input_unit(job, row, input / 2u) + input % 2u * 2u));
  }
  memcpy(&value, dh_hook_input_unit(job, row, input), sizeof value);
  return value;
}

/* int8 inputs: value = code × scale of its group. */
static inline int32_t dh_hook_input_code(const dh_hook_matmul_job* job, uint32_t row,
                                         uint32_t input) {
  const unsigned char* unit =
      dh_hook_input_unit(job, row, (size_t)(input / 32u) * 10u + input % 32u / 4u);
  return (int32_t)(int8_t)unit[input % 4u];
}
static inline float dh_hook_input_scale(const dh_hook_matmul_job* job, uint32_t row,
                                        uint32_t group) {
  float scale;
  memcpy(&scale, dh_hook_input_unit(job, row, (size_t)group * 10u + 8u), sizeof scale);
  return scale;
}
static inline int32_t dh_hook_input_code_sum(const dh_hook_matmul_job* job, uint32_t row,
                                             uint32_t group) {
  int32_t sum;
  memcpy(&sum, dh_hook_input_unit(job, row, (size_t)group * 10u + 9u), sizeof sum);
  return sum;
}

/* Number i of a bf16 or f32 array. */
static inline float dh_hook_page_number(int32_t pages, const void* data, size_t i) {
  float value;
  if (pages == DH_HOOK_BF16) {
    return dh_hook_bf16_to_float(dh_hook_load16((const unsigned char*)data + i * 2u));
  }
  memcpy(&value, (const unsigned char*)data + i * 4u, sizeof value);
  return value;
}
static inline float dh_hook_query(const dh_hook_attend_page_job* job, uint32_t query,
                                  uint32_t dim) {
  return dh_hook_page_number(job->pages, job->q, (size_t)query * job->head_dim + dim);
}
static inline float dh_hook_key(const dh_hook_attend_page_job* job, uint32_t slot, uint32_t dim) {
  return dh_hook_page_number(job->pages, job->k,
                             job->pages == DH_HOOK_BF16
                                 ? ((size_t)(dim / 2u) * 64u + slot) * 2u + dim % 2u
                                 : (size_t)dim * 64u + slot);
}
static inline float dh_hook_value(const dh_hook_attend_page_job* job, uint32_t slot, uint32_t dim) {
  return dh_hook_page_number(job->pages, job->v,
                             job->pages == DH_HOOK_BF16
                                 ? ((size_t)(slot / 2u) * job->head_dim + dim) * 2u + slot % 2u
                                 : (size_t)slot * job->head_dim + dim);
}

#ifdef __cplusplus
}
#endif

#endif
