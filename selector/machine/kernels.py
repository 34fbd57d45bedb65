"""The kernels that measure a GPU, as CUDA: loops of one thing, and the clocks that they take.

Each writes, for every block, clocks and nanoseconds of its loop (``clock64``, ``globaltimer``).
"""

from __future__ import annotations

from selector.machine.record import Rate

PREAMBLE = r"""
typedef unsigned int u32; typedef unsigned long long u64;
__device__ __forceinline__ u64 nanoseconds() {
  u64 t; asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t)); return t; }
struct Watch {
  long long clocks; u64 time;
  __device__ void start() { __syncthreads(); time = nanoseconds(); clocks = clock64(); }
  __device__ void stop(long long* out) {
    __syncthreads();
    if (threadIdx.x == 0) {
      out[2 * blockIdx.x] = clock64() - clocks; out[2 * blockIdx.x + 1] = nanoseconds() - time; } }
};
// Numbers between 1 and 2 in size, of either sign, as halves.
__device__ __forceinline__ u32 halves(u32 i) {
  return ((i * 2654435761u >> 7) & 0x83ff83ffu) ^ 0x3c003c00u; }
extern "C" __global__ void empty() {}
extern "C" __global__ void barrier(long long* out, int n) {
  Watch w; w.start();
  #pragma unroll 1
  for (int i = 0; i < n; ++i) __syncthreads();
  w.stop(out); }
extern "C" __global__ void fma_f32(long long* out, float* sink, int n) {
  float d[16]; for (int j = 0; j < 16; ++j) d[j] = threadIdx.x + j;
  const float a = 1.0f + threadIdx.x * 1e-7f, b = blockIdx.x * 1e-7f;
  Watch w; w.start();
  #pragma unroll 1
  for (int i = 0; i < n; ++i)
    #pragma unroll
    for (int j = 0; j < 16; ++j) d[j] = fmaf(d[j], a, b);
  w.stop(out);
  float s = 0; for (int j = 0; j < 16; ++j) s += d[j];
  if (s == 0.125f) sink[0] = s; }
extern "C" __global__ void shared_reads(long long* out, float* sink, int n) {
  __shared__ float4 room[1024];
  for (int i = threadIdx.x; i < 1024; i += blockDim.x) room[i] = make_float4(i, i, i, i);
  float s = 0;
  Watch w; w.start();
  #pragma unroll 1
  for (int i = 0; i < n; ++i)
    #pragma unroll
    for (int j = 0; j < 8; ++j) {
      float4 v;
      const float4* const from = room + ((threadIdx.x + 32 * j) & 1023);
      const u32 at = (u32)__cvta_generic_to_shared(from);
      asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
        : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "r"(at));
      s += v.x + v.w; }
  w.stop(out);
  if (s == 0.125f) sink[0] = s; }
// Every block reads all of `count` vectors of 16 bytes, `n` times, past L1.
extern "C" __global__ void cache_reads(
    long long* out, const uint4* from, int count, int n, u32* sink) {
  u32 s = 0;
  Watch w; w.start();
  #pragma unroll 1
  for (int i = 0; i < n; ++i)
    #pragma unroll 8
    for (int j = threadIdx.x; j < count; j += blockDim.x) {
      uint4 v;
      asm volatile("ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4];"
        : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(from + j));
      s ^= v.x ^ v.w; }
  w.stop(out);
  if (s == 0x12345u) sink[0] = s; }
// One thread follows a chain of indices.
extern "C" __global__ void chase(long long* out, const u32* chain, int n, u32* sink) {
  u32 at = 0;
  Watch w; w.start();
  #pragma unroll 1
  for (int i = 0; i < n; ++i) at = __ldcg(chain + at);
  w.stop(out);
  if (at == 0xffffffffu) sink[0] = at; }
"""

_MMA: dict[Rate, tuple[str, int, str]] = {
    "mma.f16": ("m16n8k16.row.col.f32.f16.f16.f32", 2048, "f"),
    "mma.f16.f16": ("m16n8k16.row.col.f16.f16.f16.f16", 2048, "h"),
    "mma.s8": ("m16n8k32.row.col.s32.s8.s8.s32", 4096, "r"),
}
MMA_IN_FLIGHT = 8
WGMMA_COLUMNS = 256
_WGMMA: dict[Rate, tuple[str, int, str]] = {
    "wgmma.f16": ("m64n256k16.f32.f16.f16", 64 * 256 * 16, "f"),
    "wgmma.s8": ("m64n256k32.s32.s8.s8", 64 * 256 * 32, "r"),
}


def entry(rate: Rate) -> str:
    """The kernel's name."""
    return rate.replace(".", "_")


def macs(rate: Rate) -> int:
    """Multiply-adds of a thread (``fma``), warp (``mma``) or group (``wgmma``) in one turn of its
    loop.
    """
    if rate == "fma.f32":
        return 16
    return _MMA[rate][1] * MMA_IN_FLIGHT if rate in _MMA else _WGMMA[rate][1] * 4


def mma(rate: Rate) -> str:
    """A loop of independent products by warps."""
    shape, _, kind = _MMA[rate]
    words, letter, held = (
        (2, "r", "u32") if kind == "h" else (4, kind, "float" if kind == "f" else "int")
    )
    sums = ", ".join(f"%{i}" for i in range(words))
    a = ", ".join(f"%{words + i}" for i in range(4))
    b = ", ".join(f"%{words + 4 + i}" for i in range(2))
    outputs = ", ".join(f'"+{letter}"(d[j][{i}])' for i in range(words))
    return f"""
extern "C" __global__ void {entry(rate)}(long long* out, u32* sink, int n) {{
  {held} d[{MMA_IN_FLIGHT}][{words}] = {{}};
  u32 a[4], b[2];
  for (int i = 0; i < 4; ++i) a[i] = halves(threadIdx.x * 4 + i);
  for (int i = 0; i < 2; ++i) b[i] = halves(threadIdx.x * 2 + i + 4096);
  Watch w; w.start();
  #pragma unroll 1
  for (int i = 0; i < n; ++i)
    #pragma unroll
    for (int j = 0; j < {MMA_IN_FLIGHT}; ++j)
      asm volatile("mma.sync.aligned.{shape} {{{sums}}}, {{{a}}}, {{{b}}}, {{{sums}}};"
        : {outputs} : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  w.stop(out);
  for (int j = 0; j < {MMA_IN_FLIGHT}; ++j) if (d[j][0] == ({held})77) sink[0] = 1; }}
"""


def wgmma(rate: Rate) -> str:
    """A loop of products by groups, operands in swizzled shared memory: four in one turn."""
    shape, _, letter = _WGMMA[rate]
    words = WGMMA_COLUMNS // 2
    held = "float" if letter == "f" else "int"
    sums = ", ".join(f"%{i}" for i in range(words))
    outputs = ", ".join(f'"+{letter}"(d[{i}])' for i in range(words))
    scales = ", 1, 1, 1, 0, 0" if letter == "f" else ", 1"
    return f"""
extern "C" __global__ void {entry(rate)}(long long* out, u32* sink, int n) {{
  extern __shared__ __align__(1024) unsigned char memory[];
  for (int i = threadIdx.x; i < 10240; i += blockDim.x) ((u32*)memory)[i] = halves(i);
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  const u64 at = ((u64)__cvta_generic_to_shared(memory) & 0x3ffff) >> 4;
  const u64 a = at | 1ull << 16 | 64ull << 32 | 1ull << 62;
  const u64 b = at + 512 | 1ull << 16 | 64ull << 32 | 1ull << 62;
  {held} d[{words}] = {{}};
  Watch w; w.start();
  #pragma unroll 1
  for (int i = 0; i < n; ++i) {{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    #pragma unroll
    for (int j = 0; j < 4; ++j)
      asm volatile("wgmma.mma_async.sync.aligned.{shape} "
        "{{{sums}}}, %{words}, %{words + 1}{scales};"
        : {outputs} : "l"(a + 2 * j), "l"(b + 2 * j));
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
  }}
  w.stop(out);
  for (int i = 0; i < {words}; ++i) if (d[i] == ({held})77) sink[0] = 1; }}
"""


def source(*, wide: bool) -> str:
    """All of them; those of groups of warps for a GPU that has them."""
    texts = [PREAMBLE, *map(mma, _MMA), *(map(wgmma, _WGMMA) if wide else ())]
    return "".join(texts)
