// What emitted CUDA sees in place of CUDA: its keywords, types and functions of one thread. What
// threads do together is declared in the other headers, and done by the runtime (*.cpp).
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

typedef unsigned char u8; typedef unsigned short u16; typedef unsigned int u32;
typedef unsigned long long u64;
typedef signed char s8; typedef short s16; typedef long long s64;
struct f16 { u16 bits; };
struct bf16 { u16 bits; };
struct alignas(64) TensorMap { u64 parts[16]; };

#define __device__
#define __host__
#define __global__
#define __constant__
// Inlined at every call, instructions take the compiler three times as long.
#define __forceinline__ inline __attribute__((noinline))
#define __launch_bounds__(...)
#define __cluster_dims__(...)
#define __grid_constant__
#define __align__(n) __attribute__((aligned(n)))

struct uint3 { unsigned x, y, z; };
struct alignas(8) float2 { float x, y; };
struct alignas(16) float4 { float x, y, z, w; };
struct alignas(8) int2 { int x, y; };
struct alignas(16) int4 { int x, y, z, w; };
struct alignas(8) uint2 { u32 x, y; };
struct alignas(16) uint4 { u32 x, y, z, w; };
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline int2 make_int2(int x, int y) { return {x, y}; }
inline int4 make_int4(int x, int y, int z, int w) { return {x, y, z, w}; }
inline uint2 make_uint2(u32 x, u32 y) { return {x, y}; }
inline uint4 make_uint4(u32 x, u32 y, u32 z, u32 w) { return {x, y, z, w}; }

template <class To, class From> inline To same_bits(From value) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  memcpy(&to, &value, sizeof to);
  return to;
}
inline float __uint_as_float(u32 bits) { return same_bits<float>(bits); }
inline float __int_as_float(int bits) { return same_bits<float>(bits); }
inline u32 __float_as_uint(float value) { return same_bits<u32>(value); }
inline int __float_as_int(float value) { return same_bits<int>(value); }
inline double __longlong_as_double(s64 bits) { return same_bits<double>(bits); }
inline int __popc(u32 v) { return __builtin_popcount(v); }
inline int __popcll(u64 v) { return __builtin_popcountll(v); }
inline int __ffs(int v) { return __builtin_ffs(v); }
inline int __ffsll(s64 v) { return __builtin_ffsll(v); }
inline int __clz(int v) { return v ? __builtin_clz(v) : 32; }
inline int __clzll(s64 v) { return v ? __builtin_clzll(v) : 64; }
inline float __frcp_rn(float x) { return 1.0f / x; }
inline double __drcp_rn(double x) { return 1.0 / x; }
inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
inline double rsqrt(double x) { return 1.0 / sqrt(x); }
// A byte for each digit of four bits, of the eight of both; its sign for one above 7.
inline u32 __byte_perm(u32 a, u32 b, u32 which) {
  const u64 both = (u64)b << 32 | a;
  u32 r = 0;
  for (int i = 0; i < 4; ++i) {
    const u32 digit = which >> 4 * i & 15, byte = (u32)(both >> 8 * (digit & 7)) & 255;
    r |= (digit & 8 ? byte & 128 ? 255u : 0u : byte) << 8 * i;
  }
  return r;
}

inline u32 __funnelshift_r(u32 low, u32 high, u32 by) {
  return (u32)(((u64)high << 32 | low) >> (by & 31));
}
template <class T> inline T __ldg(const T* p) { return *p; }

template <class A, class B> using Common = std::common_type_t<A, B>;
template <class A, class B> inline Common<A, B> min(A x, B y) {
  const Common<A, B> a = x, b = y;
  if constexpr (std::is_floating_point_v<Common<A, B>>) return std::fmin(a, b);
  else return a < b ? a : b;
}
template <class A, class B> inline Common<A, B> max(A x, B y) {
  const Common<A, B> a = x, b = y;
  if constexpr (std::is_floating_point_v<Common<A, B>>) return std::fmax(a, b);
  else return a > b ? a : b;
}
using std::abs;
using std::isfinite;
using std::isinf;
using std::isnan;

// A thread, as far as emitted code sees it. `shared` is its block's shared memory.
struct ThreadView {
  uint3 thread, block;
  unsigned char* shared;
};
extern ThreadView* here;
extern uint3 block_size, grid_size;
#define threadIdx (here->thread)
#define blockIdx (here->block)
#define blockDim block_size
#define gridDim grid_size

[[noreturn]] void fail(const char* form, ...);
// An argument of a kernel. The compiler's code relies on its alignment.
template <class T> inline const T& argument(const void* place) {
  if ((u64)place % alignof(T)) fail("an argument of %zu bytes at %p", sizeof(T), place);
  return *(const T*)place;
}
