"""Stores of several elements at once.

Source: CUDA C++, vector types.
"""

from __future__ import annotations

from selector.gpu.cuda.snippets.swizzles import turn
from selector.gpu.ir.layouts import Swizzle

_TURN = f"row_bytes == 128 ? {turn('r', Swizzle(128))} : {turn('r', Swizzle(64))}"

STORES: dict[str, str] = {
    "store_rows": f"""\
// A box of 16 rows in shared memory, swizzled as the copy engine reads it, in runs of `run`, which
// are `above` elements apart; `rows` of each, `runs` and `columns` lie inside the array.
// Neighbouring lanes store neighbours, as many at once as all rows begin and end at.
template <class W, int row_bytes, int run, class T> __device__ __forceinline__ void store_parts(
    T* to, const unsigned char* box, int lane, int stride, int above, int rows, int runs,
    int columns) {{
  const int width = row_bytes / sizeof(W);
  #pragma unroll (sizeof(T) < 4 ? 2 : 4)
  for (int i = lane; i < 16 * width; i += 32) {{
    const int r = i / width, at = i % width * (int)sizeof(W), c = at / (int)sizeof(T);
    const int turn = {_TURN};
    const W value = *(const W*)(box + r * row_bytes + ((at >> 4) ^ turn) * 16 + (at & 15));
    const int inner = run < 16 ? r % run : r, outer = run < 16 ? r / run : 0;
    if (inner < rows && outer < runs && c < columns)
      *(W*)(to + (inner * stride + outer * above + c)) = value;
  }}
}}
template <int row_bytes, int run, class T> __device__ __forceinline__ void store_rows(
    T* to, const unsigned char* box, int lane, int stride, int above, int rows, int runs,
    int columns) {{
  const int width = row_bytes / sizeof(T), end = columns < width ? columns : width;
  const u32 odd = (u32)(u64)to | (u32)(stride | above | end) * (u32)sizeof(T);
  if (sizeof(T) < 4 && odd % 8 == 0)
    store_parts<u64, row_bytes, run>(to, box, lane, stride, above, rows, runs, columns);
  else if (sizeof(T) < 4 && odd % 4 == 0)
    store_parts<u32, row_bytes, run>(to, box, lane, stride, above, rows, runs, columns);
  else
    store_parts<T, row_bytes, run>(to, box, lane, stride, above, rows, runs, columns);
}}
""",
    "store4_of_two": """\
// Lanes 2i and 2i+1 hold elements a, b of two 8-column tiles that lie side by side; p: where a of
// this lane belongs, a multiple of 16 bytes for the even lane. Each stores four neighbours.
template <class T, class U>
__device__ __forceinline__ void store4_of_two(T* p, int q, U a0, U a1, U b0, U b1) {
  struct alignas(16) Quad { T x[4]; };
  const bool odd = q & 1;
  const U c0 = __shfl_xor_sync(0xffffffffu, odd ? a0 : b0, 1);
  const U c1 = __shfl_xor_sync(0xffffffffu, odd ? a1 : b1, 1);
  *(Quad*)(p + (odd ? 6 : 0)) =
      odd ? Quad{{(T)c0, (T)c1, (T)b0, (T)b1}} : Quad{{(T)a0, (T)a1, (T)c0, (T)c1}};
}
""",
    "store8_of_four": """\
// Lanes 4i ... 4i + 3 hold pairs a, b of two 8-column tiles that lie side by side, and c, d of both
// in a row below; to, below: where a and c of this lane belong. Each stores eight neighbours.
template <class T>
__device__ __forceinline__ void store8_of_four(
    T* to, T* below, int q, u32 a, u32 b, u32 c, u32 d) {
  const bool odd = q & 1, high = q & 2;
  const u32 e = __shfl_xor_sync(0xffffffffu, odd ? a : b, 1);
  const u32 f = __shfl_xor_sync(0xffffffffu, odd ? c : d, 1);
  const u32 a0 = odd ? e : a, a1 = odd ? b : e, c0 = odd ? f : c, c1 = odd ? d : f;
  const u32 x = __shfl_xor_sync(0xffffffffu, high ? a0 : c0, 2);
  const u32 y = __shfl_xor_sync(0xffffffffu, high ? a1 : c1, 2);
  T* const p = (high ? below : to) + (odd ? 8 : 0) - q * 2;
  *(uint4*)p = high ? make_uint4(x, y, c0, c1) : make_uint4(a0, a1, x, y);
}
""",
    "store_run": """\
// Pairs of 16 bits, of which so many lanes hold one each of pieces that follow each other, from any
// element on; to: this lane's first. Behind an odd element, a lane stores its second one and the
// first of the lane behind it at once.
template <int lanes, class T, class... Pairs>
__device__ __forceinline__ void store_run(T* to, int lane, Pairs... pairs) {
  constexpr int count = sizeof...(Pairs);
  const u32 held[] = {pairs..., 0};
  const int own = lane % lanes, behind = lane - own + (own + 1) % lanes;
  const bool odd = ((u64)to & 2) != 0;
  #pragma unroll
  for (int i = 0; i < count; ++i) {
    const u32 next = __shfl_sync(0xffffffffu, own == 0 ? held[i + 1] : held[i], behind);
    T* const p = to + i * lanes * 2;
    if (!odd) *(u32*)p = held[i];
    else {
      if (i == 0 && own == 0) *(u16*)p = (u16)held[i];
      if (i == count - 1 && own == lanes - 1) ((u16*)p)[1] = (u16)(held[i] >> 16);
      else *(u32*)(p + 1) = __funnelshift_r(held[i], next, 16);
    }
  }
}
""",
    "store2": """\
// Two adjacent elements with one store; the address is a multiple of their size.
template <class T, class U> __device__ __forceinline__ void store2(T* p, U a, U b) {
  struct alignas(2 * sizeof(T)) Pair { T a, b; };
  *(Pair*)p = Pair{(T)a, (T)b};
}
__device__ __forceinline__ void store2(float* p, float a, float b) {
  *(float2*)p = make_float2(a, b);
}
__device__ __forceinline__ void store2(int* p, int a, int b) { *(int2*)p = make_int2(a, b); }
__device__ __forceinline__ void store2(f16* p, f16 a, f16 b) {
  *(u32*)p = (u32)a.bits | ((u32)b.bits << 16);
}
__device__ __forceinline__ void store2(bf16* p, bf16 a, bf16 b) {
  *(u32*)p = (u32)a.bits | ((u32)b.bits << 16);
}
__device__ __forceinline__ void store2(s8* p, s8 a, s8 b) {
  *(u16*)p = (u16)((u8)a | ((u16)(u8)b << 8));
}
__device__ __forceinline__ void store2(u8* p, u8 a, u8 b) { *(u16*)p = (u16)(a | ((u16)b << 8)); }
""",
}  # fmt: skip
