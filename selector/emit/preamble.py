"""Device functions that emitted CUDA may use, as named snippets; a source holds only those it
calls.

No header is included, so that NVRTC needs none and compiles in milliseconds. f16 and bf16 are their
bits; every arithmetic step goes through f32, which rounds once to the same value as a native
operation would (f32 has more than twice the significand). Sources of the instruction forms: PTX
ISA, sections on ``mma``, ``ldmatrix``, ``cp.async``, ``cvt``.
"""

from __future__ import annotations

import re

_ALWAYS = """\
typedef unsigned char u8; typedef unsigned short u16; typedef unsigned int u32;
typedef unsigned long long u64;
typedef signed char s8; typedef short s16; typedef long long s64;
struct f16 { u16 bits; };
struct bf16 { u16 bits; };
"""


def _tensor_copy(rank: int) -> str:
    """A box of a tensor into shared memory, by the copy engine (PTX ISA: cp.async.bulk.tensor)."""
    names = [f"c{i}" for i in range(rank)]
    places = ", ".join(f"%{i + 2}" for i in range(rank))
    given = ", ".join(f'"r"({n})' for n in names)
    return (
        f"__device__ __forceinline__ void tensor_copy{rank}(u32 to, const TensorMap* map, "
        f"{', '.join(f'int {n}' for n in names)}, u32 barrier) {{\n"
        f'  asm volatile("cp.async.bulk.tensor.{rank}d.shared::cluster.global.mbarrier::"\n'
        f'    "complete_tx::bytes [%0], [%1, {{{places}}}], [%{rank + 2}];"\n'
        f'    :: "r"(to), "l"(map), {given}, "r"(barrier)\n'
        f'    : "memory");\n'
        f"}}\n"
    )


def _tensor_store(rank: int) -> str:
    """A box of a tensor out of shared memory; what lies outside of the tensor is left out."""
    names = [f"c{i}" for i in range(rank)]
    places = ", ".join(f"%{i + 2}" for i in range(rank))
    inputs = ", ".join(f'"r"({n})' for n in names)
    return (
        f"__device__ __forceinline__ void tensor_store{rank}(u32 from, const TensorMap* map, "
        f"{', '.join(f'int {n}' for n in names)}) {{\n"
        f'  asm volatile("cp.async.bulk.tensor.{rank}d.global.shared::cta.bulk_group "\n'
        f'    "[%1, {{{places}}}], [%0];" :: "r"(from), "l"(map), {inputs} : "memory");\n'
        f"}}\n"
    )


_SNIPPETS: dict[str, str] = {
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
    "exp_rounded": """\
// exp(x) where the result is rounded to float16 next: 2 to 15 units of float32 off there, at most
// 1/250 of what rounding loses. Results below 2^-126 are 0.
__device__ __forceinline__ float exp_rounded(float x) {
  float y; asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x * 1.44269504f)); return y; }
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
    "shift_left": """\
// Halide's shifts: by a negative amount they go the other way, and no amount is too large.
template <class T> __device__ __forceinline__ T shift_left(T a, s64 by) {
  const int bits = 8 * sizeof(T);
  if (by < 0) return by <= -bits ? (T)(a < 0 ? -1 : 0) : (T)(a >> -by);
  return by >= bits ? (T)0 : (T)((u64)a << by);
}
""",
    "shift_right": """\
template <class T> __device__ __forceinline__ T shift_right(T a, s64 by) {
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
    "barrier_init": """\
// Barriers in shared memory (PTX ISA: mbarrier): a phase ends when the expected number of
// arrivals has come.
__device__ __forceinline__ void barrier_init(u32 b, u32 arrivals) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" :: "r"(b), "r"(arrivals) : "memory");
}
""",
    "barrier_arrive": """\
__device__ __forceinline__ void barrier_arrive(u32 b) {
  asm volatile("{ .reg .b64 state; mbarrier.arrive.shared.b64 state, [%0]; }"
    :: "r"(b) : "memory");
}
""",
    "barrier_arrive_copies": """\
// Arrives twice: now, for what this thread has stored, and when the asynchronous copies that it
// has issued are done.
__device__ __forceinline__ void barrier_arrive_copies(u32 b) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" :: "r"(b) : "memory");
  asm volatile("{ .reg .b64 state; mbarrier.arrive.shared.b64 state, [%0]; }"
    :: "r"(b) : "memory");
}
""",
    "barrier_wait": """\
__device__ __forceinline__ void barrier_wait(u32 b, u32 parity) {
  asm volatile("{ .reg .pred done; again: mbarrier.test_wait.parity.shared.b64 done, [%0], %1;"
    " @done bra out; bra again; out: }"
    :: "r"(b), "r"(parity) : "memory");
}
""",
    "barrier_await": """\
// The same wait, asleep for as long as the hardware sees fit (sm_90).
__device__ __forceinline__ void barrier_await(u32 b, u32 parity) {
  u32 done;
  do asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;"
    " selp.u32 %0, 1, 0, p; }" : "=r"(done) : "r"(b), "r"(parity) : "memory");
  while (!done);
}
""",
    "barrier_expect": """\
// Arrives, and lets the phase wait for so many bytes of the copy engine.
__device__ __forceinline__ void barrier_expect(u32 b, u32 bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
    :: "r"(b), "r"(bytes) : "memory");
}
""",
    "bulk_copy": """\
// A run of 16-byte pieces by the copy engine, whose bytes the phase of the barrier waits for
// (PTX ISA: cp.async.bulk).
__device__ __forceinline__ void bulk_copy(u32 to, const void* from, u32 bytes, u32 barrier) {
  asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;"
    :: "r"(barrier), "r"(bytes) : "memory");
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
    " [%0], [%1], %2, [%3];" :: "r"(to), "l"(from), "r"(bytes), "r"(barrier) : "memory");
}
""",
    "barriers_made": """\
// Barriers are there for the copy engine, too.
__device__ __forceinline__ void barriers_made() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
""",
    "barrier_end": """\
__device__ __forceinline__ void barrier_end(u32 b) {
  asm volatile("mbarrier.inval.shared.b64 [%0];" :: "r"(b) : "memory");
}
""",
    "async_fence": """\
// What this thread has stored in shared memory is there for wgmma (PTX ISA: async proxy).
__device__ __forceinline__ void async_fence() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
""",
    "TensorMap": """\
struct alignas(64) TensorMap { u64 parts[16]; };
""",
    **{f"tensor_copy{rank}": _tensor_copy(rank) for rank in (2, 3, 4, 5)},
    **{f"tensor_store{rank}": _tensor_store(rank) for rank in (2, 3, 4, 5)},
    "bulk_commit": """\
__device__ __forceinline__ void bulk_commit() {
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
""",
    "bulk_wait_read": """\
// Until all but the last `pending` groups of this thread have read what they store.
template <int pending> __device__ __forceinline__ void bulk_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" :: "n"(pending) : "memory");
}
""",
    "panel_index": """\
// Where element i of rows of `pitch` elements lies in swizzled panels of 128-byte rows.
template <int pitch, int rows, int bytes> __device__ __forceinline__ int panel_index(int i) {
  const int width = 128 / bytes, chunk = 16 / bytes, row = i / pitch, column = i % pitch;
  const int place = (column % width / chunk ^ (row & 7)) * chunk + column % chunk;
  return column / width * (rows * width) + row * width + place;
}
""",
    "strip_column": """\
// Where element x of a row lies whose chunks of `per` elements are dealt out to `step` strips.
template <int pitch, int step, int per> __device__ __forceinline__ int strip_column(int x) {
  const u32 chunk = (u32)x / per, strip = chunk % step, longer = pitch / per % step;
  const u32 start = strip * (pitch / per / step) + min(strip, longer);
  return (start + chunk / step) * per + (u32)x % per;
}
""",
    "matrix_descriptor": """\
// A matrix in panels swizzled by 128 bytes; distances in bytes (PTX ISA: wgmma, matrix descriptor).
__device__ __forceinline__ u64 matrix_descriptor(u32 start, u32 leading, u32 stride) {
  return (u64)((start & 0x3ffff) >> 4) | (u64)(leading >> 4) << 16 | (u64)(stride >> 4) << 32
    | 1ull << 62;
}
""",
    "group_fence": """\
__device__ __forceinline__ void group_fence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
""",
    "group_commit": """\
__device__ __forceinline__ void group_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
""",
    "group_wait": """\
template <int pending> __device__ __forceinline__ void group_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" :: "n"(pending) : "memory");
}
""",
    "group_hold": """\
// Accumulators are read after this, not before.
template <int n, int e> __device__ __forceinline__ void group_hold(float (&d)[n][e]) {
  #pragma unroll
  for (int i = 0; i < n * e; ++i) asm volatile("" : "+f"(d[i / e][i % e]) :: "memory");
}
template <int n, int e> __device__ __forceinline__ void group_hold(u32 (&d)[n][e]) {
  #pragma unroll
  for (int i = 0; i < n * e; ++i) asm volatile("" : "+r"(d[i / e][i % e]) :: "memory");
}
""",
    "group_sync": """\
__device__ __forceinline__ void group_sync(int barrier, int threads) {
  asm volatile("bar.sync %0, %1;" :: "r"(barrier), "r"(threads) : "memory");
}
""",
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
    "pack16": """\
__device__ __forceinline__ u32 pack16(f16 a, f16 b) { return (u32)a.bits | ((u32)b.bits << 16); }
__device__ __forceinline__ u32 pack16(bf16 a, bf16 b) { return (u32)a.bits | ((u32)b.bits << 16); }
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

SNIPPET_NAMES = frozenset(_SNIPPETS)
"""What the functions of the snippets are called."""

_WORD = re.compile(r"[A-Za-z_]\w*")


def preamble(body: str, extra: dict[str, str]) -> str:
    """The snippets whose name occurs in ``body``, in a fixed order; ``extra`` holds instruction
    wrappers.
    """
    used = set(_WORD.findall(body))
    parts = [_ALWAYS]
    parts += [text for name, text in _SNIPPETS.items() if name in used]
    parts += [text for name, text in sorted(extra.items()) if name in used]
    return "".join(parts)
