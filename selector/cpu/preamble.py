"""What emitted C stands on: types, helper functions, and the layer of tile instructions.

The same text is compiled for tile registers in hardware (``<immintrin.h>``) and, with
``-DSELECTOR_SOFTWARE_TILES``, for arrays that stand for them. A source holds only the helpers that
it calls. Sources: Intel Software Developer's Manual, volume 1 chapter 18 (tile configuration) and
volume 2 (LDTILECFG, TILELOADD, TILESTORED, TILEZERO, TDPBF16PS, TDPBSSD and its siblings).
"""

from __future__ import annotations

from selector.gpu.cuda.preamble import words

_HEAD = """\
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

typedef unsigned char u8; typedef unsigned short u16; typedef unsigned int u32;
typedef unsigned long u64;
typedef signed char s8; typedef short s16; typedef long s64;
typedef u16 bf16;  // the upper half of a float

// Iterations of the next loop do not depend on each other.
#if defined(__clang__)
#define INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define INDEPENDENT _Pragma("GCC ivdep")
#endif
"""

_HALF = """
#if !defined(__FLT16_MANT_DIG__)
#error "this compiler has no _Float16: use gcc 12 or clang 15, or newer"
#endif
typedef _Float16 f16;
"""

_SNIPPETS: dict[str, str] = {
    "to_f32": "",  # with the types: see ``_conversions``
    "to_bf16": """\
// To nearest, ties to even; NaN stays NaN.
static inline bf16 to_bf16(float v) {
  u32 bits;
  memcpy(&bits, &v, 4);
  const u32 rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
  return (bf16)((bits & 0x7fffffff) > 0x7f800000 ? (bits >> 16) | 0x40 : rounded);
}
""",
    "to_f16": "static inline f16 to_f16(float v) { return (f16)v; }\n",
    "f16_from_bits": """\
static inline f16 f16_from_bits(u16 bits) { f16 v; memcpy(&v, &bits, 2); return v; }
""",
    "min": """\
#define min(a, b) ({ __typeof__((a) + (b)) a_ = (a), b_ = (b); a_ < b_ ? a_ : b_; })
""",
    "max": """\
#define max(a, b) ({ __typeof__((a) + (b)) a_ = (a), b_ = (b); a_ > b_ ? a_ : b_; })
""",
    "abs": """\
#define abs(a) ({ __typeof__(a) v_ = (a); v_ < 0 ? -v_ : v_; })
""",
    "floor_div": """\
// Halide's division: the remainder is never negative, and by zero gives zero.
#define floor_div(a, b) ({ __typeof__((a) + (b)) n_ = (a), d_ = (b), q_ = d_ ? n_ / d_ : 0; \\
  d_ == 0 ? 0 : q_ - (n_ - q_ * d_ < 0 ? (d_ > 0 ? 1 : -1) : 0); })
""",
    "floor_mod": """\
#define floor_mod(a, b) ({ __typeof__((a) + (b)) n_ = (a), d_ = (b), r_ = d_ ? n_ % d_ : 0; \\
  r_ < 0 ? r_ + (d_ < 0 ? -d_ : d_) : r_; })
""",
    "shifted_left": """\
// Halide's shifts: by a negative amount they go the other way, and no amount is too large.
#define shifted_left(a, by) ({ __typeof__(a) v_ = (a); const s64 by_ = (by); \\
  const int bits_ = 8 * (int)sizeof(v_); \\
  by_ < 0 ? (by_ <= -bits_ ? (__typeof__(a))(v_ < 0 ? -1 : 0) : (__typeof__(a))(v_ >> -by_)) \\
          : (by_ >= bits_ ? (__typeof__(a))0 : (__typeof__(a))((u64)v_ << by_)); })
""",
    "shifted_right": """\
#define shifted_right(a, by) ({ __typeof__(a) v_ = (a); const s64 by_ = (by); \\
  const int bits_ = 8 * (int)sizeof(v_); \\
  by_ >= 0 ? (by_ >= bits_ ? (__typeof__(a))(v_ < 0 ? -1 : 0) : (__typeof__(a))(v_ >> by_)) \\
           : (by_ <= -bits_ ? (__typeof__(a))0 : (__typeof__(a))((u64)v_ << -by_)); })
""",
    "bits_as": """\
#define bits_as(to, v) ({ __typeof__(v) from_ = (v); to to_; memcpy(&to_, &from_, sizeof(to_)); \\
  to_; })
""",
    "saturate": """\
// A float as the nearest integer of a type, rounded towards zero.
#define saturate(to, v, low, high) ({ const double v_ = (v); \\
  v_ <= (double)(low) ? (to)(low) : v_ >= (double)(high) ? (to)(high) \\
  : v_ != v_ ? (to)0 : (to)v_; })
""",
    "memory_take": """\
// Memory for temporaries at multiples of 64 bytes. Blocks are kept from call to call, because the
// system makes new pages zero; the first 64 bytes of a block hold its size. Every thread looks for
// one at a place of its own first, so that blocks stay with the core that used them.
enum { KEPT_BLOCKS = 64, KEPT_BYTES = 1 << 28 };
static u8 *kept[KEPT_BLOCKS];
static u8 **kept_block(int i) {
  static int threads;
  static __thread int own = -1;
  if (own < 0) own = __atomic_fetch_add(&threads, 1, __ATOMIC_RELAXED) % KEPT_BLOCKS;
  return &kept[(own + i) % KEPT_BLOCKS];
}
static bool keep(u8 **place, u8 *block) {
  u8 *none = NULL;
  return __atomic_compare_exchange_n(place, &none, block, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
}
static void *memory_take(s64 size) {
  for (int i = 0; i < KEPT_BLOCKS; ++i) {
    u8 **place = kept_block(i), *block = __atomic_exchange_n(place, NULL, __ATOMIC_ACQ_REL);
    if (block == NULL) continue;
    if (*(s64 *)block >= size) return block + 64;
    if (!keep(place, block)) free(block);
  }
  u8 *block = aligned_alloc(64, ((u64)size + 127) / 64 * 64);
  if (block == NULL) return NULL;
  *(s64 *)block = size;
  return block + 64;
}
static void memory_give(void *memory) {
  u8 *block = (u8 *)memory - 64;
  for (int i = 0; i < KEPT_BLOCKS && *(s64 *)block <= KEPT_BYTES; ++i)
    if (keep(kept_block(i), block)) return;
  free(block);
}
static __attribute__((destructor)) void memory_end(void) {
  for (int i = 0; i < KEPT_BLOCKS; ++i) free(__atomic_exchange_n(&kept[i], NULL, __ATOMIC_ACQ_REL));
}
""",
    "inverse": "#define inverse(v) (1 / (v))\n",
    "inverse_sqrt": "#define inverse_sqrt(v) (1 / sqrt(v))\n",
    "inverse_sqrtf": "#define inverse_sqrtf(v) (1 / sqrtf(v))\n",
}

SNIPPET_NAMES = frozenset(_SNIPPETS)

_BF16_TO_F32 = """\
static inline float bf16_to_f32(bf16 v) {
  const u32 bits = (u32)v << 16;
  float f;
  memcpy(&f, &bits, 4);
  return f;
}
"""

_TILES = """
// Tiles: eight registers of up to 16 rows of up to 64 bytes, of the shapes that a configuration
// gives them. Register numbers are literals.
#define SEPARATE static __attribute__((noinline, unused))
typedef struct { u8 palette, start_row, unused[14]; u16 row_bytes[16]; u8 rows[16]; } tile_shapes;

#if defined(SELECTOR_SOFTWARE_TILES)

typedef struct { tile_shapes shape; _Alignas(64) u8 data[8][16][64]; } tile_file;
static __thread tile_file tiles;

SEPARATE void tile_configure(const tile_shapes *shape) {
  tiles.shape = *shape;
  memset(tiles.data, 0, sizeof tiles.data);
}
static inline void tile_release(void) { memset(&tiles, 0, sizeof tiles); }
static inline void tile_zero(int t) { memset(tiles.data[t], 0, sizeof tiles.data[t]); }
SEPARATE void tile_load(int t, const void *from, s64 stride) {
  tile_zero(t);
  for (int i = 0; i < tiles.shape.rows[t]; ++i)
    memcpy(tiles.data[t][i], (const u8 *)from + i * stride, tiles.shape.row_bytes[t]);
}
SEPARATE void tile_store(int t, void *to, s64 stride) {
  for (int i = 0; i < tiles.shape.rows[t]; ++i)
    memcpy((u8 *)to + i * stride, tiles.data[t][i], tiles.shape.row_bytes[t]);
}

// What the processor faults on, this stops at.
static inline void tile_check(int c, int a, int b) {
  const tile_shapes *s = &tiles.shape;
  if (s->palette != 1 || s->rows[c] != s->rows[a] || s->row_bytes[c] != s->row_bytes[b] ||
      s->row_bytes[a] != 4 * s->rows[b] || s->row_bytes[c] % 4)
    abort();
}

// Subnormal numbers count as zero, as operands and as results.
static inline float tile_flush(float v) { return fabsf(v) < 0x1p-126f ? 0 * v : v; }
static inline float tile_bf16(const u8 *at) {
  u32 bits = (u32)at[0] << 16 | (u32)at[1] << 24;
  float v;
  memcpy(&v, &bits, 4);
  return tile_flush(v);
}

SEPARATE void tile_dpbf16ps(int c, int a, int b) {
  tile_check(c, a, b);
  const int columns = tiles.shape.row_bytes[c] / 4;
  for (int m = 0; m < tiles.shape.rows[c]; ++m) {
    float even[16] = {0}, odd[16] = {0}, row[16];
    for (int k = 0; k < tiles.shape.rows[b]; ++k) {
      const float left = tile_bf16(&tiles.data[a][m][4 * k]);
      const float right = tile_bf16(&tiles.data[a][m][4 * k + 2]);
      for (int n = 0; n < columns; ++n) {
        even[n] = tile_flush(even[n] + left * tile_bf16(&tiles.data[b][k][4 * n]));
        odd[n] = tile_flush(odd[n] + right * tile_bf16(&tiles.data[b][k][4 * n + 2]));
      }
    }
    memcpy(row, tiles.data[c][m], sizeof row);
    for (int n = 0; n < columns; ++n)
      row[n] = tile_flush(tile_flush(row[n]) + tile_flush(even[n] + odd[n]));
    memcpy(tiles.data[c][m], row, sizeof row);
  }
}

#define TILE_BYTES(name, left, right) \\
  SEPARATE void name(int c, int a, int b) { \\
    tile_check(c, a, b); \\
    for (int m = 0; m < tiles.shape.rows[c]; ++m) \\
      for (int n = 0; n < tiles.shape.row_bytes[c] / 4; ++n) { \\
        u32 sum; \\
        memcpy(&sum, &tiles.data[c][m][4 * n], 4); \\
        for (int k = 0; k < tiles.shape.row_bytes[a]; ++k) \\
          sum += (u32)((left)tiles.data[a][m][k] * (right)tiles.data[b][k / 4][4 * n + k % 4]); \\
        memcpy(&tiles.data[c][m][4 * n], &sum, 4); \\
      } \\
  }
TILE_BYTES(tile_dpbssd, s8, s8)
TILE_BYTES(tile_dpbsud, s8, u8)
TILE_BYTES(tile_dpbusd, u8, s8)
TILE_BYTES(tile_dpbuud, u8, u8)

#else

#include <immintrin.h>
// The compiler must not move stores to memory beyond the instruction that reads it.
#define tile_load(t, from, stride) \\
  do { __asm__ volatile("" ::: "memory"); _tile_loadd(t, from, stride); } while (0)
#define tile_store(t, to, stride) _tile_stored(t, to, stride)
#define tile_zero(t) _tile_zero(t)
#define tile_configure(shape) \\
  do { __asm__ volatile("" ::: "memory"); _tile_loadconfig(shape); } while (0)
#define tile_release() _tile_release()
#define tile_dpbf16ps(c, a, b) _tile_dpbf16ps(c, a, b)
#define tile_dpbssd(c, a, b) _tile_dpbssd(c, a, b)
#define tile_dpbsud(c, a, b) _tile_dpbsud(c, a, b)
#define tile_dpbusd(c, a, b) _tile_dpbusd(c, a, b)
#define tile_dpbuud(c, a, b) _tile_dpbuud(c, a, b)

#endif

// Rows of a matrix at byte ``offset`` of a buffer of ``size`` bytes, as a tile of 16 rows of 64
// bytes: zero beyond the matrix, outside the buffer, and outside of rows of ``length`` bytes of it,
// in which each begins ``shift`` bytes further than the one before, the first at ``column``.
SEPARATE const void *tile_copy(u8 *to, const void *buffer, s64 size, s64 offset, s64 stride,
                               int rows, int bytes, s64 column, s64 shift, s64 length) {
  memset(to, 0, 1024);
  for (int i = 0; i < rows; ++i, offset += stride, column += shift) {
    const s64 before = offset < column ? -offset : -column, room = size - offset;
    const s64 left = room < length - column ? room : length - column;
    const s64 first = before > 0 ? before : 0, last = left < bytes ? left : bytes;
    if (first < last)
      memcpy(to + 64 * i + first, (const u8 *)buffer + offset + first, (size_t)(last - first));
  }
  return to;
}

// The same, in place where all of it lies inside; ``*stride`` becomes that of the rows.
static inline const void *tile_rows(u8 *to, const void *buffer, s64 size, s64 offset, s64 *stride,
                                    int rows, int bytes, s64 column, s64 shift, s64 length) {
  if (offset >= 0 && *stride >= 0 && offset + (rows - 1) * *stride + bytes <= size &&
      column >= 0 && shift >= 0 && column + (rows - 1) * shift + bytes <= length)
    return (const u8 *)buffer + offset;
  const s64 step = *stride;
  *stride = 64;
  return tile_copy(to, buffer, size, offset, step, rows, bytes, column, shift, length);
}
"""


_RESERVED = """
restrict inline typeof asm _Bool INDEPENDENT SEPARATE TILE_BYTES NULL NAN INFINITY HUGE_VAL
RAND_MAX EXIT_FAILURE EXIT_SUCCESS KEPT_BLOCKS KEPT_BYTES kept kept_block keep memory_give
memory_end linux unix i386 errno memcpy memset abort free malloc aligned_alloc sqrt sqrtf failed
configured tiles scratch tile_shapes tile_file tile_configure tile_release tile_zero tile_load
tile_store tile_check tile_flush tile_bf16 tile_dpbf16ps tile_dpbssd tile_dpbsud tile_dpbusd
tile_dpbuud tile_copy tile_rows bf16_to_f32 f16_to_f32 saturate inverse inverse_sqrt inverse_sqrtf
f16_from_bits omp
"""
RESERVED = frozenset(_RESERVED.split())
"""Words that no variable of emitted C may be called, besides those of CUDA."""


def preamble(body: str) -> str:
    """Types, the helpers whose names occur in ``body``, and the tile layer if it has tiles."""
    used = words(body)
    parts = [_HEAD]
    if used & {"f16", "to_f16", "f16_from_bits"}:
        parts.append(_HALF)
    parts.append("\n")
    if "to_f32" in used:
        parts.append(_conversions("f16" in used or "to_f16" in used))
    parts += [text for name, text in _SNIPPETS.items() if name in used]
    if any(name.startswith("tile_") for name in used):
        parts.append(_TILES)
    return "".join(parts)


def _conversions(half: bool) -> str:
    if not half:
        return f"{_BF16_TO_F32}#define to_f32(v) bf16_to_f32(v)\n"
    return (
        f"{_BF16_TO_F32}static inline float f16_to_f32(f16 v) {{ return (float)v; }}\n"
        "#define to_f32(v) _Generic((v), f16: f16_to_f32, default: bf16_to_f32)(v)\n"
    )
