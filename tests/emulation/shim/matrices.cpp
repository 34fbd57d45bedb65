// Warp-level matrices. Source of the layouts: PTX ISA, "Matrix Fragments", "ldmatrix".
#include "runtime.h"

// Element e of a register that holds several.
float element(Format format, u32 word, int e) {
  switch (format) {
    case F16: return half_value((u16)(word >> 16 * e));
    case BF16: return brain_value((u16)(word >> 16 * e));
    case S8: return (s8)(word >> 8 * e);
    case U8: return (u8)(word >> 8 * e);
    case E4M3: {
      const u32 byte = word >> 8 * e & 0xff;
      if ((byte & 0x7f) == 0x7f) return NAN;
      return half_value((u16)((byte & 0x80) << 8 | (byte & 0x7f) << 7)) * 256;
    }
    case E5M2: return half_value((u16)((word >> 8 * e & 0xff) << 8));
    case TF32: {  // the hardware reads no more; what it does with other bits is not specified
      const float value = __uint_as_float(word & 0xffffe000u);
      if (word & 0x1fffu && value - value == 0) fail("an operand that is not rounded to tf32");
      return value;
    }
    default: fail("no operands of format %d", format);
  }
}

// Adds to an accumulator, two of which share a register if they are halves.
void add(Format format, void* const* d, int e, double sum) {
  if (format == F32) {
    float& to = *(float*)d[e];
    to = (float)(to + sum);
  } else if (format == S32) {
    u32& to = *(u32*)d[e];
    to += (u32)(s64)sum;
  } else {
    u32& to = *(u32*)d[e / 2];
    const int shift = 16 * (e % 2);
    const u32 bits = half_bits((float)(half_value((u16)(to >> shift)) + sum));
    to = (to & ~(0xffffu << shift)) | bits << shift;
  }
}

struct Product {
  Format a, b, sum;
  int k;
  void* const* d;
  const u32 *left, *right;
};

// Lane 4 g + q holds rows g and g + 8 of A and D, column g of B, and 4 bytes of depth at 4 q of
// every 16; columns 2 q and 2 q + 1 of D.
template <class Of> static void multiply(Of of) {
  const Product& p = of(0);
  const int each = 4 / bytes_of(p.a), blocks = p.k / (4 * each);
  float a[16][64], b[64][8];
  for (int lane = 0; lane < 32; ++lane) {
    const Product& mine = of(lane);
    const int g = lane / 4, q = lane % 4;
    for (int block = 0; block < blocks; ++block)
      for (int e = 0; e < each; ++e) {
        const int k = (block * 4 + q) * each + e;
        a[g][k] = element(p.a, mine.left[2 * block], e);
        a[g + 8][k] = element(p.a, mine.left[2 * block + 1], e);
        b[k][g] = element(p.b, mine.right[block], e);
      }
  }
  for (int lane = 0; lane < 32; ++lane)
    for (int e = 0; e < 4; ++e) {
      const int row = lane / 4 + e / 2 * 8, column = lane % 4 * 2 + e % 2;
      double sum = 0;  // products of halves are exact in it, and rounded once
      for (int k = 0; k < p.k; ++k) sum += (double)a[row][k] * b[k][column];
      add(p.sum, of(lane).d, e, sum);
    }
}

void mma(Format a, Format b, Format sum, int k, void* const* d, const u32* left, const u32* right) {
  Product mine = {a, b, sum, k, d, left, right};
  together("mma.sync", mine, [](auto of) { multiply(of); });
}

static Thread& lane_of(int lane) {
  Thread& thread = own();
  return thread.owner->threads[thread.number / 32 * 32 + lane];
}

struct Rows {
  u32 address;
  void* const* registers;
  const u32* words;
};

void load_matrices(int count, bool transposed, void* const* to, u32 address) {
  Rows mine = {address, to, nullptr};
  together("ldmatrix", mine, [&](auto of) {
    for (int m = 0; m < count; ++m) {
      u16 rows[8][8];
      for (int r = 0; r < 8; ++r)
        memcpy(rows[r], shared_bytes(of(8 * m + r).address, 16, 16, "ldmatrix"), 16);
      for (int lane = 0; lane < 32; ++lane) {
        const int g = lane / 4, q = lane % 4;
        const u16 low = transposed ? rows[2 * q][g] : rows[g][2 * q];
        const u16 high = transposed ? rows[2 * q + 1][g] : rows[g][2 * q + 1];
        *(u32*)of(lane).registers[m] = (u32)high << 16 | low;
      }
    }
  });
}

void store_matrices(int count, bool transposed, u32 address, const u32* from) {
  Rows mine = {address, nullptr, from};
  together("stmatrix", mine, [&](auto of) {
    for (int m = 0; m < count; ++m) {
      u16 rows[8][8];
      for (int lane = 0; lane < 32; ++lane) {
        const int g = lane / 4, q = lane % 4;
        const u32 word = of(lane).words[m];
        (transposed ? rows[2 * q][g] : rows[g][2 * q]) = (u16)word;
        (transposed ? rows[2 * q + 1][g] : rows[g][2 * q + 1]) = (u16)(word >> 16);
      }
      for (int r = 0; r < 8; ++r) {
        const u32 to = of(8 * m + r).address;
        memcpy(shared_bytes(to, 16, 16, "stmatrix"), rows[r], 16);
        stored(lane_of(8 * m + r), to - SHARED_START, 16);
      }
    }
  });
}
