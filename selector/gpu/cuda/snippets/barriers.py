"""Barriers in shared memory, and the copy engine that arrives at them.

Source: PTX ISA, ``mbarrier``, ``cp.async.bulk``.
"""

from __future__ import annotations


def _tensor_copy(rank: int, *, share: bool = False) -> str:
    """A box of a tensor into shared memory, by the copy engine (PTX ISA: cp.async.bulk.tensor);
    ``share``: to the same place in all blocks of the cluster that a mask names.
    """
    names = [f"c{i}" for i in range(rank)]
    places = ", ".join(f"%{i + 2}" for i in range(rank))
    given = ", ".join(f'"r"({n})' for n in names)
    name, form = ("share", ".multicast::cluster") if share else ("copy", "")
    mask = (", u16 blocks", f", %{rank + 3}", ', "h"(blocks)') if share else ("", "", "")
    return (
        f"__device__ __forceinline__ void tensor_{name}{rank}(u32 to, const TensorMap* map, "
        f"{', '.join(f'int {n}' for n in names)}, u32 barrier{mask[0]}) {{\n"
        f'  asm volatile("cp.async.bulk.tensor.{rank}d.shared::cluster.global.mbarrier::"\n'
        f'    "complete_tx::bytes{form} [%0], [%1, {{{places}}}], [%{rank + 2}]{mask[1]};"\n'
        f'    :: "r"(to), "l"(map), {given}, "r"(barrier){mask[2]}\n'
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


def _within(name: str, form: str) -> dict[str, str]:
    """A wait that ends after so many nanoseconds in a store that no hardware executes, at an odd
    address: the launch fails as it would after a trap, which would take the registers that
    ``setmaxnreg`` gives (ptxas: C7512).
    """
    text = f"""\
// The same wait for so many nanoseconds at most; in vain, it ends the kernel.
__device__ __forceinline__ void {name}_within(u32 b, u32 parity, u64 limit) {{
  u32 done;
  u64 start = 0, now;
  do {{
    asm volatile("{{ .reg .pred p; mbarrier.{form}.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }}"
      : "=r"(done) : "r"(b), "r"(parity) : "memory");
    if (done) break;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    if (start == 0) start = now;
    if (now - start > limit)
      asm volatile("st.shared.u32 [%0], %0;" :: "r"(b | 1) : "memory");
  }} while (true);
}}
"""
    return {f"{name}_within": text}


BARRIERS: dict[str, str] = {
    "next_may_start": """\
// The launch after this one may start (PTX ISA: griddepcontrol).
__device__ __forceinline__ void next_may_start() {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}
""",
    "await_launches": """\
// The launches before this one are complete, and what they wrote can be read.
__device__ __forceinline__ void await_launches() {
  asm volatile("griddepcontrol.wait;" ::: "memory");
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
    **_within("barrier_wait", "test_wait.parity.shared"),
    **_within("barrier_await", "try_wait.parity.shared::cta"),
    "arrivals_reset": """\
// Threads that have come to the block's barrier (0) and to its named ones. All threads of the block
// are at the beginning of the kernel: nobody waits here in vain.
__device__ __forceinline__ u32* named_arrivals(int barrier) {
  extern __shared__ unsigned char all_memory[];
  u32 size;
  asm("mov.u32 %0, %%dynamic_smem_size;" : "=r"(size));
  return (u32*)(all_memory + size) - 16 + barrier;
}
__device__ __forceinline__ void arrivals_reset() {
  for (int i = threadIdx.x; i < 16; i += blockDim.x) *named_arrivals(i) = 0;
  asm volatile("bar.sync 0;" ::: "memory");
}
""",
    "group_sync_within": """\
// A named barrier at which threads wait for so many nanoseconds at most; in vain, it ends the
// kernel.
__device__ __forceinline__ void group_sync_within(int barrier, int threads, u64 limit) {
  __threadfence_block();
  u32* const arrivals = named_arrivals(barrier);
  const u32 come = atomicAdd(arrivals, 1u);
  const u32 all = (come / threads + 1) * threads;
  u64 start = 0, now;
  while ((int)(*(volatile u32*)arrivals - all) < 0) {
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    if (start == 0) start = now;
    if (now - start > limit)
      asm volatile("st.shared.u32 [%0], %0;" :: "r"(1) : "memory");
  }
  __threadfence_block();
  __syncwarp();
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
    "cluster_rank": """\
__device__ __forceinline__ int cluster_rank() {
  int r;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(r));
  return r;
}
""",
    "cluster_sync": """\
// All threads of all blocks of the cluster; barriers are announced by ``barriers_made``. Blocks of
// a cluster start together, and come here before the first wait for copies or for each other.
__device__ __forceinline__ void cluster_sync() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;\\n"
    "barrier.cluster.wait.acquire.aligned;" ::: "memory");
}
""",
    "cluster_meet": """\
// The same, and what any of them has stored before, all see behind it.
__device__ __forceinline__ void cluster_meet() {
  asm volatile("barrier.cluster.arrive.release.aligned;\\n"
    "barrier.cluster.wait.acquire.aligned;" ::: "memory");
}
""",
    "store_there": """\
// To the same place in the shared memory of another block of the cluster (PTX ISA: mapa).
template <class T> __device__ __forceinline__ void store_there(T* to, T value, u32 block) {
  static_assert(sizeof(T) == 4, "32 bits");
  const u32 at = (u32)__cvta_generic_to_shared(to);
  asm volatile("{ .reg .b32 there; mapa.shared::cluster.u32 there, %0, %1;"
    " st.shared::cluster.u32 [there], %2; }"
    :: "r"(at), "r"(block), "r"(*(const u32*)&value) : "memory");
}
""",
    "barrier_arrive_at": """\
// At the same barrier of another block of the cluster. The form without .release.cluster: what it
// orders are reads that are complete.
__device__ __forceinline__ void barrier_arrive_at(u32 b, u32 block) {
  asm volatile("{ .reg .b32 there; mapa.shared::cluster.u32 there, %0, %1;"
    " mbarrier.arrive.shared::cluster.b64 _, [there]; }" :: "r"(b), "r"(block) : "memory");
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
    "prefetch_map": """\
// The copy engine is going to need it.
__device__ __forceinline__ void prefetch_map(const TensorMap* map) {
  asm volatile("prefetch.tensormap [%0];" :: "l"(map) : "memory");
}
""",
    **{f"tensor_copy{rank}": _tensor_copy(rank) for rank in (2, 3, 4, 5)},
    **{f"tensor_share{rank}": _tensor_copy(rank, share=True) for rank in (2, 3, 4, 5)},
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
}  # fmt: skip
