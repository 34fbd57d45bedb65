"""Operands and instructions of warpgroups.

Source: PTX ISA, ``wgmma``.
"""

from __future__ import annotations

from selector.gpu.cuda.snippets.swizzles import TURN

GROUPS: dict[str, str] = {
    "panel_index": f"""\
// Where element i of rows of `pitch` elements lies in swizzled panels whose rows have `row_bytes`.
template <int pitch, int rows, int bytes, int row_bytes>
__device__ __forceinline__ int panel_index(int i) {{
  const int width = row_bytes / bytes, chunk = 16 / bytes, row = i / pitch, column = i % pitch;
  const int turn = {TURN};
  const int place = (column % width / chunk ^ turn) * chunk + column % chunk;
  return column / width * (rows * width) + row * width + place;
}}
""",
    "anew": """\
// A number that is not known to be the same every time: what follows of it is not kept.
__device__ __forceinline__ int anew(int x) { asm volatile("" : "+r"(x)); return x; }
""",
    "pair_in_panels": f"""\
// Two neighbours of 16 bits in swizzled panels, `down` rows (eight, or so many times as much) below
// `row`. The exclusive or comes last: addresses of all chunks are one number and a constant.
template <int rows, int row_bytes, int down> __device__ __forceinline__ u32 pair_in_panels(
    const unsigned char* memory, const f16* panels, int row, int column) {{
  const int width = row_bytes / 2, turn = {TURN};
  const int start = (int)((const unsigned char*)panels - memory) + row * row_bytes + turn * 16;
  const int place = start + column % 8 * 2 ^ column % width / 8 * 16;
  return *(const u32*)(memory + place + (column / width * rows + down) * row_bytes);
}}
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
// A matrix in panels; distances in bytes; `swizzle` is 1, 2 or 3 for rows of 128, 64 or 32 bytes
// (PTX ISA: wgmma, matrix descriptor).
__device__ __forceinline__ u64 matrix_descriptor(u32 start, u32 leading, u32 stride, u32 swizzle) {
  return (u64)((start & 0x3ffff) >> 4) | (u64)(leading >> 4) << 16 | (u64)(stride >> 4) << 32
    | (u64)swizzle << 62;
}
""",
    "core_descriptor": """\
// A matrix in core matrices of 8 rows x 16 bytes; bytes from one to the next along the depth, and
// along the rows.
__device__ __forceinline__ u64 core_descriptor(u32 start, u32 along, u32 rows) {
  return (u64)((start & 0x3ffff) >> 4) | (u64)(along >> 4) << 16 | (u64)(rows >> 4) << 32;
}
""",
    "fewer_registers": """\
// Registers of this thread from here on; the whole group says so (PTX ISA: setmaxnreg).
template <int n> __device__ __forceinline__ void fewer_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" :: "n"(n));
}
""",
    "more_registers": """\
template <int n> __device__ __forceinline__ void more_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" :: "n"(n));
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
    "group_sync": """\
__device__ __forceinline__ void group_sync(int barrier, int threads) {
  asm volatile("bar.sync %0, %1;" :: "r"(barrier), "r"(threads) : "memory");
}
""",
}  # fmt: skip
