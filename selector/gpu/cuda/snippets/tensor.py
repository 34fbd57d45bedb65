"""Tensor memory, and the products whose sums lie there.

Source: PTX ISA, ``tcgen05``.
"""

from __future__ import annotations


def _product(kind: str) -> str:
    return f"""\
// A product is added to what lies in tensor memory, or takes its place; one thread asks for it
// (PTX ISA: tcgen05.mma, instruction descriptor).
__device__ __forceinline__ void tensor_mma_{kind}(u32 d, u64 a, u64 b, u32 shape, u32 add) {{
  asm volatile("{{ .reg .pred p; setp.ne.u32 p, %4, 0;"
    " tcgen05.mma.cta_group::1.kind::{kind} [%0], %1, %2, %3, p; }}"
    :: "r"(d), "l"(a), "l"(b), "r"(shape), "r"(add) : "memory");
}}
"""


TENSOR: dict[str, str] = {
    "tensor_alloc": """\
// Columns of tensor memory for this block, by a whole warp, which allocates no more after that;
// their address goes to shared memory (PTX ISA: tcgen05.alloc).
template <int columns> __device__ __forceinline__ void tensor_alloc(u32 to) {
  asm volatile("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], %1;"
    :: "r"(to), "n"(columns) : "memory");
  asm volatile("tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;" ::: "memory");
}
""",
    "tensor_free": """\
template <int columns> __device__ __forceinline__ void tensor_free(u32 memory) {
  asm volatile("tcgen05.dealloc.cta_group::1.sync.aligned.b32 %0, %1;"
    :: "r"(memory), "n"(columns) : "memory");
}
""",
    "tensor_descriptor": """\
// A matrix in panels of rows of `swizzle` 2 (128 bytes), 4 (64) or 6 (32), as tcgen05 takes it
// (PTX ISA: tcgen05, shared memory descriptor).
__device__ __forceinline__ u64 tensor_descriptor(u32 start, u32 leading, u32 stride, u32 swizzle) {
  return (u64)((start & 0x3ffff) >> 4) | (u64)(leading >> 4) << 16 | (u64)(stride >> 4) << 32
    | 1ull << 46 | (u64)swizzle << 61;
}
""",
    "tensor_mma_f16": _product("f16"),
    "tensor_mma_i8": _product("i8"),
    "tensor_commit": """\
// An arrival when all products that this thread has asked for are complete (PTX ISA:
// tcgen05.commit).
__device__ __forceinline__ void tensor_commit(u32 barrier) {
  asm volatile("tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%0];"
    :: "r"(barrier) : "memory");
}
""",
    "tensor_before": """\
// Others may go on with what this thread has done to tensor memory, once they have heard of it
// (PTX ISA: tcgen05.fence).
__device__ __forceinline__ void tensor_before() {
  asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory");
}
""",
    "tensor_after": """\
__device__ __forceinline__ void tensor_after() {
  asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");
}
""",
    "tensor_loaded": """\
// All loads of this thread from tensor memory are complete.
__device__ __forceinline__ void tensor_loaded() {
  asm volatile("tcgen05.wait::ld.sync.aligned;" ::: "memory");
}
""",
}
