"""The kernel IR: what makes trees, how they read, how CUDA prints them."""

from __future__ import annotations

import pytest
from registers import registers

from selector.diagnostics import InternalError
from selector.gpu.cuda.printer import print_body, print_kernel
from selector.gpu.ir.builder import Builder
from selector.gpu.ir.expressions import (
    BLOCK,
    BLOCKS,
    FIRST_OF_GROUP,
    POINTER,
    THREAD,
    THREAD_OF_GROUP,
    WARP_OF_GROUP,
    address,
    as_number,
    at_least,
    barrier,
    below,
    both,
    chosen,
    element,
    equal,
    exclusive_or,
    flag,
    given,
    greater,
    half_of,
    least,
    less,
    minus,
    most,
    moved,
    negated,
    number,
    of_first_lane,
    of_lane,
    packed,
    place,
    plus,
    pointer,
    quotient,
    register,
    remainder,
    shared_address,
    shifted,
    times,
)
from selector.gpu.ir.lane_maps import ACCUMULATOR, RIGHT
from selector.gpu.ir.memory import (
    Array,
    CopyAsync,
    CopyElement,
    CopyRun,
    EngineCopy,
    EngineStore,
    Evaluate,
    LoadShifted,
    Map,
    Point,
    Prefetch,
    StoreChunk,
    StoreEight,
    StorePair,
    StoreQuad,
    StoreRows,
    StoreRun,
    StoreThere,
    StoreWords,
)
from selector.gpu.ir.nodes import (
    Advance,
    Arrive,
    Assign,
    Await,
    Comment,
    Commit,
    Dependents,
    Drain,
    Fence,
    Fused,
    If,
    Init,
    Kernel,
    Leave,
    Let,
    Node,
    Read,
    Registers,
    ResetArrivals,
    Retire,
    State,
    Sync,
    Touch,
)
from selector.gpu.ir.parameters import Parameter
from selector.gpu.ir.products import (
    Busy,
    Descriptor,
    Fragment,
    InMemory,
    InRegisters,
    LoadFragment,
    MatrixRows,
    Mma,
    Pin,
    Record,
    SetTile,
)
from selector.gpu.ir.text import parse_kernels, print_kernels
from selector.gpu.ir.views import View
from selector.ir.nodes import Call, Expr, FloatImm, Var
from selector.ir.types import FLOAT16, FLOAT32, INT32, UINT32

C0 = number("c0")
X0 = element(FLOAT16, pointer("x"), 0)
ZEROS = (FloatImm(0.0, FLOAT32), FloatImm(-0.0, FLOAT32))


def negated_number(name: str) -> Expr:
    return as_number(negated(flag(name)))


def small() -> Kernel:
    w = Builder()
    with w.when(flag("a")):
        w.store(Var("b"), number(1))
        with w.block():
            w.add(Let("int", ("c",), (number(2),)))
    w.store(Var("d"), number(3))
    parameters = (Parameter("read", FLOAT16, "i"), Parameter("value", INT32, "n"))
    declared = (Let("int", ("x",), (number(1),)),)
    return Kernel("kernel_k", 32, 1, parameters, declared, w.body(), 3, 5120, 1024)


def products() -> tuple[Node, ...]:
    """One of each node of products and clause."""
    warp, group = Record(16, 8, 16, "f32", "f16", "f16"), Record(64, 16, 32, "s32", "s8", "u8")
    four = InRegisters(registers("r0", "r1", "r2", "r3"))
    return (
        Fragment("acc", "float", (2, 4), ACCUMULATOR),
        Fragment("sums", "int", (2, 4), ACCUMULATOR),
        Fragment("kept", "u32", (3,), RIGHT),
        MatrixRows("a0", View("p"), number(1), number(4), (8, 4)),
        MatrixRows("a1", View("p", times("slot", 4)), number("i"), number("n"), ()),
        LoadFragment(registers("r0", "r1", "r2", "r3"), "ldmatrix", "a0"),
        LoadFragment(registers("r4"), "ldmatrix_trans", "a1", 32),
        LoadFragment(registers("r5"), "word", "taps", 7),
        LoadFragment(registers("r6"), "elements", elements=(X0, element(FLOAT16, pointer("y"), 1))),
        LoadFragment(registers("r7"), "u8_pair", "bytes", 6),
        LoadFragment(registers("r8"), "s8_pair_odd", "bytes", 0, (less("q", 2),)),
        LoadFragment(registers("r9"), "byte_word", "bytes", 14),
        SetTile("acc", 1, (*ZEROS, *ZEROS)),
        Mma("add", warp, "acc", 1, four, InRegisters(registers("r4", "kept[2]"))),
        Descriptor("d0", View("p", times("slot", 4), number("i")), 16, 1024, 64),
        Descriptor("d1", View("p"), 128, 256),
        Mma("add", group, "sums", 0, InMemory("d0", 32, across=False), InMemory("d1", 0, True)),
        Mma("fresh", group, "sums", 1, four, InMemory("d1", 64, across=False)),
        Pin("sums"),
    )


def fused() -> Fused:
    """A product that waits for its operands and passes them on."""
    rows, band = Descriptor("d0", View("p"), 16, 128), Descriptor("d1", View("t"), 128, 256)
    operands = InMemory("d0", 32, across=False), InMemory("d1", 0, across=False)
    return Fused((
        rows, band, Await("asleep", barrier("full", 1), number("round")), Fence("matrix"),
        Mma("add", Record(64, 8, 16, "f16", "bf16", "bf16"), "conv", 1, *operands),
        Commit("matrix"), Drain("matrix", 0), If(FIRST_OF_GROUP, (Arrive(number("free_")),)),
    ))  # fmt: skip


def every() -> Kernel:
    """One of each node and clause."""
    wide = given(Var("n"))
    w = Builder()
    w.add(Fragment("conv", "u32", (2, 2), ACCUMULATOR))
    extents = (Var("A.extent.0"), Var("A.extent.1"))
    w.add(Map("map", "A", FLOAT16, extents, (Var("A.stride.1"),), (64, 8)))
    with w.when(both(flag("maps_ready"), equal(THREAD, 0))):
        w.add(Prefetch("map"))
    w.add(Let("u32", ("full",), (shared_address(64),)))
    w.add(Let("int", ("a", "b"), (remainder("i", 3), quotient(BLOCK, BLOCKS)), "two"))
    w.add(State("int", ("slot", "round"), (number(0), minus("a", negated_number("b"))), "where"))
    with w.when(both(flag("ready"), equal(THREAD, 128))):
        with w.loop("i", number(0), number(2)):
            w.add(Init(barrier("full", "i"), chosen(flag("ready"), 1, 128)))
        w.add(Fence("barriers", "made"))
    with w.otherwise(), w.when(FIRST_OF_GROUP):
        w.add(Fence("proxy"))
        w.add(Registers("fewer", 40))
    with w.when(less("i", wide)):
        w.store(Var("x"), number(1))
    with w.otherwise():
        w.store(Var("y"), number(2))
        w.add(fused())
    with w.loop("k", None, moved(wide, 0), "rolled", times(2, BLOCKS)):
        with w.when(flag("round")):
            w.add(Await("spinning", barrier("full", "slot"), minus("round", 1)))
        w.add(Arrive(number("full"), number(512)))
        w.add(Arrive(number("full"), after="copies"))
        with w.when(greater("k", 0)):
            w.add(Arrive(number("full"), block=chosen(flag("ready"), THREAD_OF_GROUP, "rank")))
        w.add(
            EngineCopy(
                View("p", times("slot", 4), number(8)),
                "map",
                (times("x", 2), number("y")),
                number("full"),
                256,
                3,
            )
        )
        w.add(EngineStore(View("p"), "map", (number("x"), plus("y", times(WARP_OF_GROUP, 16)))))
        w.add(
            Point("to", "f16", View("p", times("slot", 4), index=place("panel_index", 8, index=C0)))
        )
        w.add(Point("from", "const f16", View("A", index=C0)))
        w.add(CopyAsync(address("p", times("slot", 4), C0), number("from"), "past"))
        w.add(CopyAsync(plus("there", 16), plus("from", 8), "through", flag("ready")))
        w.add(
            CopyElement("to", "f16", C0, "from", C0, below(C0, most(least("n", 9), 0)), less(C0, 3))
        )
        w.add(LoadShifted("part", number(16)))
        w.add(Array("run", "f16", 8, 16))
        w.add(Array("held", "float", 4))
        w.store(element(FLOAT16, pointer("run"), "e"), FloatImm(-1.5, FLOAT16))
        w.store(
            element(FLOAT32, pointer("p"), plus("i", 1), times("slot", 4)), Var("total", FLOAT32)
        )
        w.add(StoreChunk(pointer("to"), pointer("run")))
        acc = element(FLOAT32, register("acc", 1), 2)
        w.add(StorePair(View("to", index=number(6)), (acc, of_lane(acc, 1))))
        w.add(StorePair(View("box", index=plus(8, exclusive_or("g", "q"))), (X0, X0), "f16"))
        w.add(StorePair(View("to"), (packed(half_of(register("kept", 1), 0), X0),)))
        w.add(StoreQuad(View("to", index=number(-2)), (acc, acc, *ZEROS)))
        w.add(StoreEight(View("to", index=number(8)), View("p"), (packed(X0, X0),) * 4))
        w.add(StoreRun(View("to", index=number(3)), (packed(X0, X0), packed(X0, X0)), 4))
        there = element(FLOAT32, pointer("box"), Call(INT32, "cluster_rank", ()))
        w.add(StoreThere(there, Var("total", FLOAT32), THREAD))
        with w.loop(
            "n", number(0), number(64), "fours", number(4), both(flag("ready"), flag("on"))
        ):
            w.add(Comment("words; of a chunk"))
            start = View("p", index=minus(plus(1, "n"), remainder("n", 4)))
            w.add(Point("words", "const u32", start, "terms"))
            words = tuple(element(UINT32, pointer("words"), n) for n in range(4))
            w.add(StoreWords(View("p", number("slot"), index=C0), words, less("n", 9)))
            w.add(StoreWords(View("to", index=number("n")), (number(0),) * 4))
        box = View("smem", index=plus(16, times("warp", 512)))
        w.add(StoreRows(View("A", index=plus("x", times("y", 9))), box, 128, C0, C0, minus("n", 1)))
        w.add(StoreRows(View("A"), box, 64, number(9), C0, number(32), 4, number(81), number("m")))
        w.add(Evaluate(Call(POINTER, "store_shifted", (pointer("moved"),))))
        with w.when(flag("ready")):
            w.add(CopyRun(address("to"), number("from"), number(64), number("full")))
        for queue in ("copies", "stores", "matrix"):
            w.add(Commit(queue))
        w.add(Drain("copies", 1))
        w.add(Drain("stores", 0, "read"))
        w.add(Advance("branch", "round", 4))
        w.add(Advance("branch", "round", 4, times(2, "others")))
        w.add(Advance("select", "", 4))
        w.add(Assign("turns", plus("turns", 1)))
        w.add(Assign("last", barrier("full", "slot")))
        with w.when(at_least("k", 3)):
            w.add(Leave("loop"))
    w.add(Sync("block"))
    w.add(Sync("cluster_data"))
    w.add(Sync("named", plus(2, "group"), 128, "all of them"))
    w.add(ResetArrivals())
    w.add(Await("spinning", number("full"), number("round"), 500))
    w.add(Sync("named", number(0), 256, "all, for some time", 10**9))
    w.add(Let("int", ("group",), (of_first_lane(shifted(THREAD, 7)),)))
    w.add(Dependents("await"))
    w.add(Retire(number("full")))
    for node in products():
        w.add(node)
    w.add(Leave("kernel", "done"))
    return Kernel("all", 256, 2, (), (), w.body())


TEXT = """\
u32 conv[2][2];
if (maps_ready && threadIdx.x == 0) prefetch_map(&map);
const u32 full = shared_address(smem + 64);
const int a = i % 3, b = (int)blockIdx.x / (int)gridDim.x;  // two
int slot = 0, round = a - !b;  // where
if (ready && threadIdx.x == 128) {
  for (int i = 0; i < 2; ++i) barrier_init(full + 8 * i, ready ? 1 : 128);
  barriers_made();  // made
}
else if ((threadIdx.x & 127) == 0) {
  async_fence();
  fewer_registers<40>();
}
if (i < n) x = 1;
else {
  y = 2;
  asm volatile(
    "{ .reg .b64 a, b; .reg .pred done, first;\\n"
    "setp.eq.u32 first, %7, 0;\\n"
    "ready1: mbarrier.try_wait.parity.shared::cta.b64 done, [%4 + 8], %6; @!done bra ready1;\\n"
    "wgmma.fence.sync.aligned;\\n"
    "add.s64 a, %8, 2; add.s64 b, %9, 0;\\n"
    "wgmma.mma_async.sync.aligned.m64n8k16.f16.bf16.bf16 {%2,%3}, a, b, 1,1,1,0,0;\\n"
    "wgmma.commit_group.sync.aligned;\\n"
    "wgmma.wait_group.sync.aligned 0;\\n"
    "@first mbarrier.arrive.shared::cta.b64 _, [%5 + 0];\\n"
    "}\\n"
    : "+r"(conv[0][0]), "+r"(conv[0][1]), "+r"(conv[1][0]), "+r"(conv[1][1])
    : "r"(full), "r"(free_), "r"(round & 1), "r"(threadIdx.x & 127), "l"(core_descriptor(\
shared_address(p), 16, 128)), "l"(core_descriptor(shared_address(t), 128, 256)) : "memory");
}
#pragma unroll 1
for (; k < n; k += 2 * (int)gridDim.x) {
  if (round) barrier_wait(full + 8 * slot, (round - 1) & 1);
  barrier_expect(full, 512);
  barrier_arrive_copies(full);
  if (k > 0) {
    barrier_arrive_at(full, ready ? threadIdx.x & 127 : rank);
  }
  tensor_share2(shared_address((p + slot * 4)) + 8, &map, x * 2, y, full, 3);
  tensor_store2(shared_address(p), &map, x, y + (int)(threadIdx.x >> 5 & 3) * 16);
  f16* const to = (p + slot * 4) + panel_index<8>(c0);
  const f16* const from = A + c0;
  copy16(shared_address((p + slot * 4) + c0), from);
  if (ready) copy16_cached(there + 16, from + 8);
  if (c0 < 3) to[c0] = (u32)c0 < (u32)max(min(n, 9), 0) ? from[c0] : f16{};
  parts[part] = load_shifted(to, from, 16);
  alignas(16) f16 run[8];
  float held[4];
  run[e] = f16{48640};
  (p + slot * 4)[i + 1] = total;
  *(uint4*)to = *(const uint4*)run;
  store2(to + 6, acc[1][2], __shfl_xor_sync(0xffffffffu, acc[1][2], 1));
  store2((f16*)(box + 8 + (g ^ q)), x[0], x[0]);
  *(u32*)(to) = pack16(half_of(kept[1], 0), x[0]);
  store4_of_two(to + -2, q, acc[1][2], acc[1][2], 0.0f, -0.0f);
  store8_of_four(to + 8, p, q, pack16(x[0], x[0]), pack16(x[0], x[0]), pack16(x[0], x[0]), \
pack16(x[0], x[0]));
  store_run<4>(to + 3, lane, pack16(x[0], x[0]), pack16(x[0], x[0]));
  store_there(&box[cluster_rank()], total, threadIdx.x);
  #pragma unroll 4
  for (int n = 0; ready && on && n < 64; n += 4) {
    // words; of a chunk
    const u32* const words = p + 1 + n - n % 4;
    *(uint4*)((p + slot) + c0) = n < 9 ? make_uint4(words[0], words[1], words[2], words[3]) : \
make_uint4(0, 0, 0, 0);
    *(uint4*)(to + n) = make_uint4(0, 0, 0, 0);
  }
  store_rows<128, 16>(A + (x + y * 9), smem + 16 + warp * 512, lane, c0, 0, c0, 1, n - 1);
  store_rows<64, 4>(A, smem + 16 + warp * 512, lane, 9, 81, c0, m, 32);
  store_shifted(moved);
  if (ready) bulk_copy(shared_address(to), from, 64, full);
  copy_commit();
  bulk_commit();
  group_commit();
  copy_wait<1>();
  bulk_wait_read<0>();
  if (++slot == 4) { slot = 0; ++round; }
  slot += 2 * others;
  round += slot / 4;
  slot %= 4;
  slot = slot == 3 ? 0 : slot + 1;
  ++turns;
  last = full + 8 * slot;
  if (k >= 3) break;
}
__syncthreads();
cluster_meet();
group_sync(2 + group, 128);  // all of them
arrivals_reset();
barrier_wait_within(full, round & 1, 500ull);
group_sync_within(0, 256, 1000000000ull);  // all, for some time
const int group = __shfl_sync(0xffffffffu, threadIdx.x >> 7, 0);
await_launches();
barrier_end(full);
float acc[2][4];
int sums[2][4];
u32 kept[3];
const u32 a0 = shared_address(p + (1 + (lane & 7) * (4) + ((lane >> 3) & 1) * 8 + (lane >> 4) * 4));
const u32 a1 = shared_address((p + slot * 4) + (i + (lane & 7) * (n)));
u32 r0, r1, r2, r3;
ldmatrix4(a0, r0, r1, r2, r3);
u32 r4;
ldmatrix1_trans(a1 + 32, r4);
const u32 r5 = taps[7];
u32 r6 = pack16(x[0], y[1]);
u32 r7 = u8_pair(bytes + 6);
u32 r8 = q < 2 ? s8_pair_odd(bytes) : 0u;
const u32 r9 = byte_word<2>(bytes + 12);
acc[1][0] = 0.0f; acc[1][1] = -0.0f; acc[1][2] = 0.0f; acc[1][3] = -0.0f;
mma_m16n8k16_f16_f32(acc[1], r0, r1, r2, r3, r4, kept[2]);
const u64 d0 = matrix_descriptor(shared_address((p + slot * 4)) + i, 16, 1024, 2);
const u64 d1 = core_descriptor(shared_address(p), 128, 256);
wgmma_m64n16k32_s8_u8_s32_nt(sums, d0 + 2, d1);
wgmma_m64n16k32_s8_u8_s32_rn_fresh(sums + 1, r0, r1, r2, r3, d1 + 4);
group_hold_2_s32(sums);
return;  // done
"""


def test_each_node_has_its_text() -> None:
    assert print_body((*every().declarations, *every().body)) == TEXT


def test_blocks_indent() -> None:
    text = "if (a) {\n  b = 1;\n  {\n    const int c = 2;\n  }\n}\nd = 3;\n"
    assert print_body(small().body) == text
    assert "  const int x = 1;\n  if (a) {\n    b = 1;\n" in print_kernel(small())


def test_the_text_form_reads_back() -> None:
    left = Busy(("acc", "kept"), ("d0", "d1"), (0, 64), (8192, 256))
    stored = Touch("stored", C0, 16, flag("more")), Read("a0", 80, (0, 16, 640))
    kernels = (small(), every(), Kernel("other", 32, 1, (), (), (left, *stored)), small())
    assert parse_kernels(print_kernels(kernels)) == kernels


def test_a_line_that_is_no_node_is_named() -> None:
    with pytest.raises(InternalError, match="line 2 is no node: nonsense"):
        parse_kernels("kernel k threads 1 cluster 1 {\n nonsense\n}\n")
