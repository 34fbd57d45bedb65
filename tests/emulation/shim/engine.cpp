// The copy engine: what it does comes as late as possible, when every thread waits. Where it is
// going to write is lost from the beginning on; what it reads of shared memory must not change
// before it has read it. Source: PTX ISA, "Asynchronous Copy", "Tensors".
#include "runtime.h"
#include <algorithm>

// What the host has put into the 128 bytes of a map.
struct Tensor {
  u16 rank, becomes_tf32;
  u32 element_bytes, swizzle_bytes, mark;
  unsigned char* data;
  u64 extents[BOX_DIMENSIONS], strides[BOX_DIMENSIONS - 1];
  u16 box[BOX_DIMENSIONS];
  unsigned char steps[BOX_DIMENSIONS];

  u32 row_bytes() const { return box[0] * element_bytes; }
  u32 rows() const {
    u32 count = 1;
    for (u32 i = 1; i < rank; ++i) count *= box[i];
    return count;
  }
  u32 bytes() const { return rows() * row_bytes(); }
};
static_assert(sizeof(Tensor) <= sizeof(TensorMap));
static constexpr u32 MARK = 0x7e4507;

static const Tensor& tensor_of(const TensorMap* map, int rank) {
  const Tensor& tensor = *reinterpret_cast<const Tensor*>(map);
  if (tensor.mark != MARK) fail("a copy by a tensor map that is none");
  if ((int)tensor.rank != rank) fail("a copy of %d dimensions by a map of %u", rank, tensor.rank);
  return tensor;
}

// Chunks of 16 bytes change places by the bits of their address from bit 7 on.
static u32 swizzled(u32 address, u32 row_bytes) {
  return row_bytes ? address ^ (address >> 3 & (row_bytes - 16)) : address;
}

// Calls f(address in shared memory, address in global memory or null outside, bytes) for the
// pieces of a box: chunks of 16 bytes, and each element that the end of a row cuts off.
template <class F> static void each_piece(const Tensor& tensor, u32 address, const int* place, F f) {
  const u32 row_bytes = tensor.row_bytes(), size = tensor.element_bytes;
  for (u32 row = 0; row < tensor.rows(); ++row) {
    unsigned char* from = tensor.data;
    bool inside = true;
    for (u32 d = 1, rest = row; d < tensor.rank; rest /= tensor.box[d], ++d) {
      const s64 at = place[d] + (s64)(rest % tensor.box[d]) * tensor.steps[d];
      inside &= at >= 0 && at < (s64)tensor.extents[d];
      from += at * (s64)tensor.strides[d - 1];
    }
    for (u32 x = 0; x < tensor.box[0]; ++x) {
      const s64 at = place[0] + (s64)x;
      const bool known = inside && at >= 0 && at < (s64)tensor.extents[0];
      f(swizzled(address + row * row_bytes + x * size, tensor.swizzle_bytes),
        known ? from + at * (s64)size : nullptr, size);
    }
  }
}

static void arrived(Place barrier, u32 bytes) {
  Phases& phases = phases_of(barrier);
  phases.bytes -= bytes;
  step(barrier.address, phases);
}

static void expect_announced(Place barrier) {
  if (phases_of(barrier).made_by != NONE)
    fail("a copy for the mbarrier at %d, which no fence has announced",
         (int)(barrier.address - SHARED_START));
}

void bulk_copy_later(u32 to, const void* from, u32 bytes, u32 barrier) {
  if ((u64)from % 16 || bytes % 16) fail("cp.async.bulk: %u bytes from %p", bytes, from);
  Block& block = *own().owner;
  unsigned char* const place = shared_bytes(to, bytes, 16, "cp.async.bulk");
  expect_announced({&block, barrier});
  memset(place, launch.poison, bytes);
  stored_by_engine(block, to - SHARED_START, bytes);
  for (u32 i = 0; i < bytes; ++i) (void)((const volatile char*)from)[i];
  Thread* thread = &own();
  later([=, &block] {
    here = thread;
    memcpy(place, from, bytes);
    stored_by_engine(block, to - SHARED_START, bytes);
    arrived({&block, barrier}, bytes);
    here = nullptr;
  });
}

static void copy_box(const Tensor& tensor, Place to, const int* place) {
  const u32 first = to.address - SHARED_START;
  each_piece(tensor, to.address, place, [&](u32 address, const unsigned char* from, u32 size) {
    unsigned char* there = to.block->shared + (address - SHARED_START);
    from ? (void)memcpy(there, from, size) : (void)memset(there, 0, size);
    if (tensor.becomes_tf32) *(u32*)there = even_tf32(*(float*)there);
  });
  stored_by_engine(*to.block, first, tensor.bytes());
}

void box_copy_later(u32 to, const TensorMap* map, const int* place, int rank, u32 barrier,
                    u32 blocks) {
  const Tensor& tensor = tensor_of(map, rank);
  Thread* thread = &own();
  Block& block = *thread->owner;
  std::vector<int> coordinates(place, place + rank);
  for (u32 i = 0; i < launch.cluster; ++i) {
    if (blocks ? !(blocks >> i & 1) : i != block.rank) continue;
    Place there = place_of(place_in(to, i), block), signal = place_of(place_in(barrier, i), block);
    unsigned char* const room =
        shared_bytes(*there.block, there.address, tensor.bytes(), 128, "cp.async.bulk.tensor");
    if (there.address % std::max(128u, 8 * tensor.swizzle_bytes))
      fail("cp.async.bulk.tensor: a box at %d, rows of %u bytes swizzled",
           (int)(there.address - SHARED_START), tensor.swizzle_bytes);
    expect_announced(signal);
    memset(room, launch.poison, tensor.bytes());
    stored_by_engine(*there.block, there.address - SHARED_START, tensor.bytes());
    later([=, &tensor] {
      here = thread;
      copy_box(tensor, there, coordinates.data());
      arrived(signal, tensor.bytes());
      here = nullptr;
    });
  }
}

void box_store_later(u32 from, const TensorMap* map, const int* place, int rank) {
  const Tensor& tensor = tensor_of(map, rank);
  Thread& thread = own();
  shared_bytes(from, tensor.bytes(), 128, "cp.async.bulk.tensor");
  BoxStore store = {from, map, {}, std::vector<unsigned char>(tensor.bytes())};
  std::copy_n(place, rank, store.place);
  seen_by_engine(*thread.owner, from, tensor.bytes(), store.seen.data(), "cp.async.bulk.tensor");
  thread.open_stores.push_back(std::move(store));
}

void bulk_commit() {
  Thread& thread = own();
  thread.stores.push_back(std::move(thread.open_stores));
  thread.open_stores.clear();
}

static void store_box(Thread& thread, const BoxStore& store) {
  const Tensor& tensor = *reinterpret_cast<const Tensor*>(store.map);
  std::vector<unsigned char> bytes(tensor.bytes());
  seen_by_engine(*thread.owner, store.from, tensor.bytes(), bytes.data(), "cp.async.bulk.tensor");
  poison_changed(bytes.data(), store.seen.data(), tensor.bytes());
  each_piece(tensor, store.from, store.place, [&](u32 address, unsigned char* to, u32 size) {
    if (to) memcpy(to, bytes.data() + (address - store.from), size);
  });
}

void bulk_wait(int pending) {
  Thread& thread = own();
  for (; (int)thread.stores.size() > pending; thread.stores.pop_front())
    for (const BoxStore& store : thread.stores.front()) store_box(thread, store);
}

void end_stores(Thread& thread) {
  if (!thread.stores.empty() || !thread.open_stores.empty())
    fail("a thread ends before its stores have read shared memory");
}
