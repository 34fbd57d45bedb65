"""Copies into shared memory by threads.

Source: PTX ISA, ``cp.async``.
"""

from __future__ import annotations

COPIES: dict[str, str] = {
    "shared_address": """\
__device__ __forceinline__ u32 shared_address(const void* p) {
  return (u32)__cvta_generic_to_shared(p);
}
""",
    "copy16": """\
// 16 bytes from global to shared memory, asynchronously and past L1 (PTX ISA: cp.async).
__device__ __forceinline__ void copy16(u32 to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" :: "r"(to), "l"(from) : "memory");
}
""",
    "copy16_cached": """\
// The same through L1, for what other blocks of the multiprocessor copy, too.
__device__ __forceinline__ void copy16_cached(u32 to, const void* from) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 16;" :: "r"(to), "l"(from) : "memory");
}
""",
    "Shifted": """\
// A chunk of `valid` bytes that starts at any address, on its way to a multiple of 16 bytes: the
// aligned vectors that hold some of it, which may reach past it, but never past a page.
struct Shifted {
  uint4 a, b;
  void* to;
  int shift, valid;
};
__device__ __forceinline__ Shifted load_shifted(void* to, const void* from, int valid) {
  const int shift = (int)((u64)from & 15);
  const uint4* const at = (const uint4*)((const char*)from - shift);
  Shifted s = {make_uint4(0, 0, 0, 0), make_uint4(0, 0, 0, 0), to, shift, valid};
  if (valid > 0) s.a = at[0];
  if (shift + valid > 16) s.b = at[1];
  return s;
}
// Zeros up to 16 bytes.
__device__ __forceinline__ void store_shifted(Shifted s) {
  u32 w[7] = {s.a.x, s.a.y, s.a.z, s.a.w, s.b.x, s.b.y, s.b.z};
  if (s.shift & 8) {
    w[0] = w[2]; w[1] = w[3]; w[2] = w[4]; w[3] = w[5]; w[4] = w[6]; w[5] = s.b.w;
  }
  if (s.shift & 4) { w[0] = w[1]; w[1] = w[2]; w[2] = w[3]; w[3] = w[4]; w[4] = w[5]; }
  #pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int left = (s.valid - 4 * i) * 8;
    w[i] = __funnelshift_r(w[i], w[i + 1], (s.shift & 3) * 8);
    if (left < 32) w[i] &= left > 0 ? (1u << left) - 1 : 0;
  }
  *(uint4*)s.to = make_uint4(w[0], w[1], w[2], w[3]);
}
""",
    "load_anywhere": """\
// So many bytes from any address to whole words of a thread's own: the aligned vectors, or words,
// that hold some of them, shifted.
template <int bytes> __device__ __forceinline__ void load_anywhere(void* to, const void* from) {
  constexpr int words = (bytes + 3) / 4, per = bytes > 8 ? 4 : 1;
  constexpr int count = (bytes + 4 * per - 2) / (4 * per) + 1;
  const int shift = (int)((u64)from & (4 * per - 1));
  const char* const at = (const char*)from - shift;
  u32 w[count * per + 1];
  #pragma unroll
  for (int i = 0; i < count; ++i) {
    const bool some = i * 4 * per < shift + bytes;
    if (per == 1) w[i] = some ? ((const u32*)at)[i] : 0;
    else {
      const uint4 v = some ? ((const uint4*)at)[i] : make_uint4(0, 0, 0, 0);
      w[4 * i] = v.x; w[4 * i + 1] = v.y; w[4 * i + 2] = v.z; w[4 * i + 3] = v.w;
    }
  }
  w[count * per] = 0;
  if (per == 4 && (shift & 8)) {
    #pragma unroll
    for (int i = 0; i + 2 <= count * per; ++i) w[i] = w[i + 2];
  }
  if (per == 4 && (shift & 4)) {
    #pragma unroll
    for (int i = 0; i + 1 <= count * per; ++i) w[i] = w[i + 1];
  }
  #pragma unroll
  for (int i = 0; i < words; ++i)
    ((u32*)to)[i] = __funnelshift_r(w[i], w[i + 1], (shift & 3) * 8);
}
""",
    "copy_commit": """\
__device__ __forceinline__ void copy_commit() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
""",
    "copy_wait": """\
template <int pending> __device__ __forceinline__ void copy_wait() {
  asm volatile("cp.async.wait_group %0;" :: "n"(pending) : "memory");
}
""",
}  # fmt: skip
