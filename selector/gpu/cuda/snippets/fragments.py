"""Fragments of a warp's instructions: their loads and their arithmetic in pairs.

Source: PTX ISA, ``ldmatrix``.
"""

from __future__ import annotations

FRAGMENTS: dict[str, str] = {
    "ldmatrix4": """\
// Four 8 x 8 matrices of 16-bit elements; lane i gives the address of row i % 8 of matrix i / 8
// (PTX ISA: ldmatrix).
__device__ __forceinline__ void ldmatrix4(u32 a, u32& r0, u32& r1, u32& r2, u32& r3) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
    : "=r"(r0), "=r"(r1), "=r"(r2), "=r"(r3) : "r"(a));
}
""",
    "ldmatrix2": """\
__device__ __forceinline__ void ldmatrix2(u32 a, u32& r0, u32& r1) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
    : "=r"(r0), "=r"(r1) : "r"(a));
}
""",
    "ldmatrix1": """\
__device__ __forceinline__ void ldmatrix1(u32 a, u32& r0) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];" : "=r"(r0) : "r"(a)); }
""",
    "ldmatrix4_trans": """\
__device__ __forceinline__ void ldmatrix4_trans(u32 a, u32& r0, u32& r1, u32& r2, u32& r3) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
    : "=r"(r0), "=r"(r1), "=r"(r2), "=r"(r3) : "r"(a));
}
""",
    "ldmatrix2_trans": """\
__device__ __forceinline__ void ldmatrix2_trans(u32 a, u32& r0, u32& r1) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
    : "=r"(r0), "=r"(r1) : "r"(a));
}
""",
    "ldmatrix1_trans": """\
__device__ __forceinline__ void ldmatrix1_trans(u32 a, u32& r0) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 {%0}, [%1];" : "=r"(r0) : "r"(a)); }
""",
    **{
        name: f"""\
// Two bytes as two f16: with 0x64 in front of it{more}, a byte is {least} more (PTX ISA: prmt).
__device__ __forceinline__ u32 {name}(const {kind}* p) {{
  u32 r;
  asm("sub.f16x2 %0, %1, %2;" : "=r"(r)
    : "r"({both}), "r"(0x{bits}{bits}u));
  return r;
}}
"""
        for kind, more, least, bits, flip in (
            ("u8", "", 1024, "6400", ""),
            ("s8", " and its sign turned", 1152, "6480", " ^ 0x8080u"),
        )
        for name, both in (
            (f"{kind}_pair", f"__byte_perm(*(const u16*)p{flip}, 0x64u, 0x4140u)"),
            (
                f"{kind}_pair_odd",
                f"__byte_perm(((u32)(u8)p[0] | (u32)(u8)p[1] << 8){flip}, 0x64u, 0x4140u)",
            ),
        )
    },
    "byte_word": """\
// Four bytes, the first of which is so many behind a word's begin.
template <int past, class T> __device__ __forceinline__ u32 byte_word(const T* p) {
  const u32* const words = (const u32*)p;
  if constexpr (past == 0) return words[0];
  else return __funnelshift_r(words[0], words[1], 8 * past);
}
""",
    "round_pair": """\
__device__ __forceinline__ u32 round_pair(float a, float b) {
  u32 r;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(b), "f"(a));
  return r;
}
""",
    "round_pair_bf16": """\
__device__ __forceinline__ u32 round_pair_bf16(float a, float b) {
  u32 r;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(b), "f"(a));
  return r;
}
""",
    "pack16": """\
__device__ __forceinline__ u32 pack16(f16 a, f16 b) { return (u32)a.bits | ((u32)b.bits << 16); }
__device__ __forceinline__ u32 pack16(bf16 a, bf16 b) { return (u32)a.bits | ((u32)b.bits << 16); }
""",
    "pack_shorts": """\
__device__ __forceinline__ u32 pack_shorts(u16 a, u16 b) { return (u32)a | ((u32)b << 16); }
""",
    "pack32": """\
__device__ __forceinline__ u32 pack32(float a) { return __float_as_uint(a); }
""",
    **{
        f"pair_{name}": (
            f"__device__ __forceinline__ u32 pair_{name}(u32 a, u32 b) {{\n"
            f"  u32 r;\n"
            f'  asm("{name}{rounding}.f16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));\n'
            f"  return r;\n"
            f"}}\n"
        )
        for names, rounding in ((("add", "sub", "mul"), ".rn"), (("min", "max"), ""))
        for name in names
    },
    **{
        f"pair_{name}": (
            f"// All bits of a half where it holds.\n"
            f"__device__ __forceinline__ u32 pair_{name}(u32 a, u32 b) {{\n"
            f"  u32 r;\n"
            f'  asm("set.{name}.u32.f16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));\n'
            f"  return r;\n"
            f"}}\n"
        )
        for name in ("eq", "lt", "le", "gt", "ge")
    },
    "pair_abs": """\
__device__ __forceinline__ u32 pair_abs(u32 a) { return a & 0x7fff7fffu; }
""",
    "pair_select": """\
__device__ __forceinline__ u32 pair_select(u32 mask, u32 a, u32 b) {
  return (mask & a) | (~mask & b);
}
""",
    "pair_at": """\
// Two neighbours of 16 bits, the first at an even place.
__device__ __forceinline__ u32 pair_at(const f16* p) { return *(const u32*)p; }
""",
    "half_of": """\
__device__ __forceinline__ f16 half_of(u32 pair, int i) {
  f16 r;
  r.bits = (u16)(pair >> (16 * i));
  return r;
}
""",
    "pack8": """\
__device__ __forceinline__ u32 pack8(int a, int b, int c, int d) {
  return ((u32)a & 255) | (((u32)b & 255) << 8) | (((u32)c & 255) << 16) | ((u32)d << 24);
}
""",
}  # fmt: skip
