// test for amx, made by tensor-selector.
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

#define TILE_BYTES(name, left, right) \
  SEPARATE void name(int c, int a, int b) { \
    tile_check(c, a, b); \
    for (int m = 0; m < tiles.shape.rows[c]; ++m) \
      for (int n = 0; n < tiles.shape.row_bytes[c] / 4; ++n) { \
        u32 sum; \
        memcpy(&sum, &tiles.data[c][m][4 * n], 4); \
        for (int k = 0; k < tiles.shape.row_bytes[a]; ++k) \
          sum += (u32)((left)tiles.data[a][m][k] * (right)tiles.data[b][k / 4][4 * n + k % 4]); \
        memcpy(&tiles.data[c][m][4 * n], &sum, 4); \
      } \
  }
TILE_BYTES(tile_dpbssd, s8, s8)
TILE_BYTES(tile_dpbsud, s8, u8)
TILE_BYTES(tile_dpbusd, u8, s8)
TILE_BYTES(tile_dpbuud, u8, u8)

#else

#include <immintrin.h>
// The compiler must not move stores to memory beyond the instruction that reads it.
#define tile_load(t, from, stride) \
  do { __asm__ volatile("" ::: "memory"); _tile_loadd(t, from, stride); } while (0)
#define tile_store(t, to, stride) _tile_stored(t, to, stride)
#define tile_zero(t) _tile_zero(t)
#define tile_configure(shape) \
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

static const tile_shapes shapes_0 = {.palette = 1, .row_bytes = {64, 64, 64, 64, 64, 64, 64, 64}, .rows = {16, 16, 16, 16, 16, 16, 16, 16}};

int kernel_test(const bf16 *restrict A, const bf16 *restrict B, float *restrict C, const int A_extent_0, const int A_extent_1, const s64 A_stride_1, const int B_extent_1, const int B_extent_2, const s64 B_stride_2, const int C_extent_0, const int C_extent_1, const s64 C_stride_1) {
  const s64 A_size = A_extent_0 <= 0 || A_extent_1 <= 0 ? 0 : (s64)(A_extent_0 - 1) + (s64)(A_extent_1 - 1) * A_stride_1 + 1;
  const s64 B_size = B_extent_1 <= 0 || B_extent_2 <= 0 ? 0 : 1 + (s64)(B_extent_1 - 1) * 2 + (s64)(B_extent_2 - 1) * B_stride_2 + 1;
  {
    #pragma omp parallel
    {
      tile_configure(&shapes_0);
      #pragma omp for schedule(static)
      for (int y_2 = 0; y_2 < (C_extent_1 + 31) >> 5; ++y_2) {
        for (int x_2 = 0; x_2 < (C_extent_0 + 31) >> 5; ++x_2) {
          {
            // acc[0 ...], 32 x 32: tiles 0 1 2 3
            // operands of 16 x 64 bytes: tiles 4 5 6 7
            tile_zero(0);
            tile_zero(1);
            tile_zero(2);
            tile_zero(3);
            {
              int inside = (A_extent_0 + 31) >> 5, r_2 = 0;
              while (inside > 0 && !(A_stride_1 * y_2 * 32 + (inside - 1) * 32 + A_stride_1 * 31 + 31 < A_size && (inside - 1) * 32 + 31 < A_extent_0 && (inside - 1) * B_stride_2 * 16 + B_stride_2 * 15 + x_2 * 64 + 63 < B_size && (inside - 1) * 16 + 15 < B_extent_2)) --inside;
              const bf16 *const B_at = B + x_2 * 64;
              const bf16 *const A_at = A + A_stride_1 * y_2 * 32;
              const bf16 *const B_at_2 = B + x_2 * 64 + 32;
              const bf16 *const A_at_2 = A + A_stride_1 * y_2 * 32 + A_stride_1 * 16;
              for (; r_2 < inside; ++r_2) {
                tile_load(4, B_at + B_stride_2 * r_2 * 16, B_stride_2 * 2);
                tile_load(5, A_at + r_2 * 32, A_stride_1 * 2);
                tile_dpbf16ps(0, 5, 4);
                tile_load(6, B_at_2 + B_stride_2 * r_2 * 16, B_stride_2 * 2);
                tile_dpbf16ps(1, 5, 6);
                tile_load(7, A_at_2 + r_2 * 32, A_stride_1 * 2);
                tile_dpbf16ps(2, 7, 4);
                tile_dpbf16ps(3, 7, 6);
              }
              for (; r_2 < (A_extent_0 + 31) >> 5; ++r_2) {
                {
                  _Alignas(64) u8 scratch[1024];
                  const s64 rows = B_extent_2 - r_2 * 16;
                  s64 stride = B_stride_2 * 2;
                  const void *from = tile_rows(scratch, B, B_size * 2, B_stride_2 * r_2 * 32 + x_2 * 128, &stride, (int)(rows < 0 ? 0 : rows < 16 ? rows : 16), 64, B_stride_2 * r_2 * 32 + x_2 * 128, stride, B_size * 2);
                  tile_load(4, from, stride);
                }
                {
                  _Alignas(64) u8 scratch[1024];
                  s64 stride = A_stride_1 * 2;
                  const void *from = tile_rows(scratch, A, A_size * 2, A_stride_1 * y_2 * 64 + r_2 * 64, &stride, 16, 64, r_2 * 64, 0, A_extent_0 * 2);
                  tile_load(5, from, stride);
                }
                tile_dpbf16ps(0, 5, 4);
                {
                  _Alignas(64) u8 scratch[1024];
                  const s64 rows = B_extent_2 - r_2 * 16;
                  s64 stride = B_stride_2 * 2;
                  const void *from = tile_rows(scratch, B, B_size * 2, B_stride_2 * r_2 * 32 + x_2 * 128 + 64, &stride, (int)(rows < 0 ? 0 : rows < 16 ? rows : 16), 64, B_stride_2 * r_2 * 32 + x_2 * 128 + 64, stride, B_size * 2);
                  tile_load(6, from, stride);
                }
                tile_dpbf16ps(1, 5, 6);
                {
                  _Alignas(64) u8 scratch[1024];
                  s64 stride = A_stride_1 * 2;
                  const void *from = tile_rows(scratch, A, A_size * 2, A_stride_1 * y_2 * 64 + A_stride_1 * 32 + r_2 * 64, &stride, 16, 64, r_2 * 64, 0, A_extent_0 * 2);
                  tile_load(7, from, stride);
                }
                tile_dpbf16ps(2, 7, 4);
                tile_dpbf16ps(3, 7, 6);
              }
            }
            if (0 <= C_extent_0 - x_2 * 32 - 32 && 0 <= C_extent_1 - y_2 * 32 - 32) {
              tile_store(0, &C[C_stride_1 * y_2 * 32 + x_2 * 32], C_stride_1 * 4);
              tile_store(1, &C[C_stride_1 * y_2 * 32 + x_2 * 32 + 16], C_stride_1 * 4);
              tile_store(2, &C[C_stride_1 * y_2 * 32 + C_stride_1 * 16 + x_2 * 32], C_stride_1 * 4);
              tile_store(3, &C[C_stride_1 * y_2 * 32 + C_stride_1 * 16 + x_2 * 32 + 16], C_stride_1 * 4);
            }
            else
            {
              _Alignas(64) float acc_image[1024];
              tile_store(0, &acc_image[0], 128);
              tile_store(1, &acc_image[16], 128);
              tile_store(2, &acc_image[512], 128);
              tile_store(3, &acc_image[528], 128);
              {
                float *C_at = C + C_stride_1 * y_2 * 32 + x_2 * 32;
                INDEPENDENT
                for (int v1 = 0; v1 < 32; ++v1) {
                  INDEPENDENT
                  for (int v0 = 0; v0 < 32; ++v0) {
                    if (v0 + x_2 * 32 < C_extent_0 && v1 + y_2 * 32 < C_extent_1) {
                      C_at[v1 * C_stride_1 + v0] = acc_image[v0 + v1 * 32];
                    }
                  }
                }
              }
            }
          }
        }
      }
      tile_release();
    }
  }
  return 0;
}
