// Formats of numbers, and the conversions and pair arithmetic that PTX has for them.
#pragma once
#include "cuda.h"

inline float half_value(u16 bits) { return (float)same_bits<_Float16>(bits); }
inline u16 half_bits(float value) { return same_bits<u16>((_Float16)value); }
inline float brain_value(u16 bits) { return same_bits<float>((u32)bits << 16); }
// Ties to even, as the copy engine does it.
inline u32 even_tf32(float value) {
  const u32 bits = __float_as_uint(value);
  return value - value == 0 ? (bits + 0xfffu + (bits >> 13 & 1)) & 0xffffe000u : bits;
}
// Ties away from zero.
inline u32 rounded_to_tf32(float value) {
  const u32 bits = __float_as_uint(value);
  return value - value == 0 ? (bits + 0x1000u) & 0xffffe000u : bits;
}
inline u16 brain_bits(float value) {
  const u32 bits = same_bits<u32>(value);
  if (value != value) return 0x7fff;
  return (u16)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
inline u32 half_pair(float high, float low) { return (u32)half_bits(high) << 16 | half_bits(low); }
inline u32 brain_pair(float high, float low) {
  return (u32)brain_bits(high) << 16 | brain_bits(low);
}
// ex2.approx.ftz: results below the least normal number are 0.
inline float power_of_two(float x) {
  const float y = exp2f(x);
  return y < 1.17549435e-38f ? 0.0f : y;
}

template <class F> inline u32 each_half(u32 a, u32 b, F f) {
  const u16 low = half_bits(f(half_value((u16)a), half_value((u16)b)));
  const u16 high = half_bits(f(half_value(a >> 16), half_value(b >> 16)));
  return (u32)high << 16 | low;
}
template <class F> inline u32 where_halves(u32 a, u32 b, F f) {
  return (f(half_value((u16)a), half_value((u16)b)) ? 0xffffu : 0u) |
         (f(half_value(a >> 16), half_value(b >> 16)) ? 0xffff0000u : 0u);
}
inline u32 add_halves(u32 a, u32 b) { return each_half(a, b, [](float x, float y) { return x + y; }); }
inline u32 sub_halves(u32 a, u32 b) { return each_half(a, b, [](float x, float y) { return x - y; }); }
inline u32 mul_halves(u32 a, u32 b) { return each_half(a, b, [](float x, float y) { return x * y; }); }
inline u32 min_halves(u32 a, u32 b) { return each_half(a, b, [](float x, float y) { return fminf(x, y); }); }
inline u32 max_halves(u32 a, u32 b) { return each_half(a, b, [](float x, float y) { return fmaxf(x, y); }); }
inline u32 eq_halves(u32 a, u32 b) { return where_halves(a, b, [](float x, float y) { return x == y; }); }
inline u32 lt_halves(u32 a, u32 b) { return where_halves(a, b, [](float x, float y) { return x < y; }); }
inline u32 le_halves(u32 a, u32 b) { return where_halves(a, b, [](float x, float y) { return x <= y; }); }
inline u32 gt_halves(u32 a, u32 b) { return where_halves(a, b, [](float x, float y) { return x > y; }); }
inline u32 ge_halves(u32 a, u32 b) { return where_halves(a, b, [](float x, float y) { return x >= y; }); }
