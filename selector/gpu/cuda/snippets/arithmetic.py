"""Numbers: conversions, and Halide's integer arithmetic.

Source: CUDA C++ and PTX ISA, ``cvt``, ``ex2``.
"""

from __future__ import annotations

ARITHMETIC: dict[str, str] = {
    "to_f32": """\
__device__ __forceinline__ float to_f32(f16 v) {
  float r;
  asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"(v.bits));
  return r;
}
__device__ __forceinline__ float to_f32(bf16 v) { return __uint_as_float((u32)v.bits << 16); }
""",
    "to_f16": """\
__device__ __forceinline__ f16 to_f16(float v) {
  f16 r;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(r.bits) : "f"(v));
  return r;
}
""",
    "to_bf16": """\
__device__ __forceinline__ bf16 to_bf16(float v) {
  bf16 r;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(r.bits) : "f"(v));
  return r;
}
""",
    "to_tf32": """\
// As the copy engine rounds: ties to even (sm_90).
__device__ __forceinline__ float to_tf32(float v) {
  u32 r;
  asm("cvt.rn.tf32.f32 %0, %1;" : "=r"(r) : "f"(v));
  return __uint_as_float(r);
}
""",
    "byte_float": """\
// Byte `at` of a thread's words as a float: with 0x4B00 and 0 in front of it it is 2^23 more
// (PTX ISA: prmt).
__device__ __forceinline__ float byte_float(const u8* of, int at) {
  const u32 word = ((const u32*)of)[at >> 2];
  return __uint_as_float(__byte_perm(word, 0x4B000000u, 0x7650u | (at & 3))) - 8388608.0f;
}
""",
    "exp2_rounded": """\
// 2^x where the result is rounded to 16 bits next, or is a term of a sum in float32, which loses as
// much: 2 units off. Results below 2^-126 are 0.
__device__ __forceinline__ float exp2_rounded(float x) {
  float y; asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x)); return y; }
""",
    "exp_rounded": """\
// exp(x) where the result is rounded to 16 bits next: as float16 2 to 15 units of float32 off, at
// most 1/250 of what rounding loses, as bfloat16 at most 1/150. Results below 2^-126 are 0.
__device__ __forceinline__ float exp_rounded(float x) {
  float y; asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x * 1.44269504f)); return y; }
""",
    "pow_rounded": """\
// x^y, of an y that is no whole number, where the result is rounded to 8 or 16 bits next.
__device__ __forceinline__ float pow_rounded(float x, float y) {
  float l, r; asm("lg2.approx.f32 %0, %1;" : "=f"(l) : "f"(x));
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(y * l)); return r; }
""",
    "root_times": """\
// x^(n + 1/2)
__device__ __forceinline__ float root_times(float x, int n) {
  float r = sqrtf(x);
  #pragma unroll
  for (int i = 0; i < n; ++i) r *= x;
  return r; }
""",
    "divided_rounded": """\
// a / b where the result is rounded to 16 bits next: 2 units off (PTX ISA, div.full.f32).
__device__ __forceinline__ float divided_rounded(float a, float b) {
  float r; asm("div.full.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b)); return r; }
""",
    "tanh_approximate": """\
// 2^-11 off at most, relatively, which is what rounding to float16 loses (PTX ISA, tanh.approx).
__device__ __forceinline__ float tanh_approximate(float x) {
  float y; asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x)); return y; }
""",
    "floor_div": """\
// Halide's division: the remainder is never negative, and by zero gives zero.
template <class A, class B> __device__ __forceinline__ auto floor_div(A a, B b) -> decltype(a + b) {
  if (b == 0) return 0; auto q = a / b; return q - ((a - q * b) < 0 ? (b > 0 ? 1 : -1) : 0); }
""",
    "floor_mod": """\
template <class A, class B> __device__ __forceinline__ auto floor_mod(A a, B b) -> decltype(a + b) {
  if (b == 0) return 0; auto r = a % b; return r < 0 ? r + (b < 0 ? -b : b) : r; }
""",
    "floor_mod_near": """\
// The same of an element beyond an edge: few lie so far off that it takes a division.
__device__ __forceinline__ int floor_mod_near(int a, int b) {
  int r = a < 0 ? a + b : a >= b ? a - b : a;
  if ((u32)r >= (u32)b) { r = b ? a % b : 0; r += r < 0 ? b : 0; }
  return r; }
""",
    "shifted_left": """\
// Halide's shifts: by a negative amount they go the other way, and no amount is too large.
template <class T> __device__ __forceinline__ T shifted_left(T a, s64 by) {
  const int bits = 8 * sizeof(T);
  if (by < 0) return by <= -bits ? (T)(a < 0 ? -1 : 0) : (T)(a >> -by);
  return by >= bits ? (T)0 : (T)((u64)a << by);
}
""",
    "shifted_right": """\
template <class T> __device__ __forceinline__ T shifted_right(T a, s64 by) {
  const int bits = 8 * sizeof(T);
  if (by >= 0) return by >= bits ? (T)(a < 0 ? -1 : 0) : (T)(a >> by);
  return by <= -bits ? (T)0 : (T)((u64)a << -by);
}
""",
    "bits_as": """\
template <class To, class From> __device__ __forceinline__ To bits_as(From v) {
  union { From from; To to; } both;
  both.from = v;
  return both.to;
}
""",
}  # fmt: skip
