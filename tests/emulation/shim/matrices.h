// Warp-level matrices: ldmatrix, stmatrix, mma.sync.
#pragma once
#include "cuda.h"

inline u32 word(u32 register_bits) { return register_bits; }
inline u32 word(int value) { return (u32)value; }
inline u32 word(float value) { return __float_as_uint(value); }

enum Format { F16, BF16, S8, U8, TF32, F32, S32, E4M3, E5M2 };
inline bool is_byte(Format format) { return format == S8 || format == U8 || format == E4M3 || format == E5M2; }
inline int bytes_of(Format format) { return format == TF32 ? 4 : is_byte(format) ? 1 : 2; }
float element(Format format, u32 word, int e);
void add(Format format, void* const* d, int e, double sum);  // to accumulator e of a lane

// m16n8k`k` of a warp: `a` and `b` are a lane's words, `d` points at its accumulators.
void mma(Format a, Format b, Format sum, int k, void* const* d, const u32* left, const u32* right);
void load_matrices(int count, bool transposed, void* const* to, u32 address);
void store_matrices(int count, bool transposed, u32 address, const u32* from);
