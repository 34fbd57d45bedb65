// wgmma. Each warp of a group has 16 of the 64 rows, and runs on its own until it waits: an
// instruction is complete for all warps or for none, so once all have issued it. From its beginning
// until a wait the accumulators are poison; operands are read in the beginning and in the end, and
// what has changed between is poison. Source: PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions".
#include "runtime.h"
#include <algorithm>
#include <array>
#include <map>
#include <memory>

constexpr int ROWS = 16, DEPTH_BYTES = 32, CHUNK = 16;

// A lane's accumulators while instructions are pending on them.
struct Held {
  std::vector<void*> registers;
  std::vector<u32> values;
};
using Sums = std::array<Held, 32>;

struct Pending {
  GroupProduct product;
  std::shared_ptr<Sums> sums;
  std::vector<unsigned char> a, b;  // rows of DEPTH_BYTES, as they were in the beginning
};

struct GroupWork {
  std::vector<Pending> open;
  std::deque<std::vector<Pending>> groups;
  std::map<void*, std::shared_ptr<Sums>> held;  // by the first register of lane 0
  std::map<void*, std::vector<u32>> known;      // what complete instructions left in lane 0
  long committed = 0, completed = 0;            // groups so far
  bool fenced = false, ever_fenced = false;
};

struct Matrix {
  u32 start, leading, stride, swizzle;
};

static Matrix matrix_of(u64 descriptor) {
  if (descriptor >> 49 & 7) fail("wgmma: a matrix with a base offset");
  static const u32 row_bytes[] = {0, 128, 64, 32};
  return {(u32)(descriptor & 0x3fff) << 4, (u32)(descriptor >> 16 & 0x3fff) << 4,
          (u32)(descriptor >> 32 & 0x3fff) << 4, row_bytes[descriptor >> 62]};
}

// Where the 16 bytes lie that hold element (row, k) of a matrix whose depth runs along memory.
static u32 along_depth(const Matrix& m, int row, int k_bytes) {
  if (!m.swizzle)
    return m.start + row / 8 * m.stride + row % 8 * CHUNK + k_bytes / CHUNK * m.leading;
  return m.start + row / 8 * m.stride + row % 8 * m.swizzle + k_bytes;
}
// The same of a matrix whose rows do.
static u32 along_rows(const Matrix& m, int row_bytes, int k) {
  if (!m.swizzle)
    return m.start + row_bytes / CHUNK * m.stride + k % 8 * CHUNK + k / 8 * m.leading;
  return m.start + row_bytes / m.swizzle * m.leading + row_bytes % m.swizzle + k / 8 * m.stride +
         k % 8 * m.swizzle;
}

static void chunk_at(const Matrix& m, u32 address, unsigned char* to) {
  if (m.swizzle) address ^= address >> 3 & (m.swizzle - 16);
  seen_by_engine(*own().owner, address, CHUNK, to, "wgmma");
}

// Rows [first, first + count) of an operand, DEPTH_BYTES each.
static std::vector<unsigned char> rows_of(const Matrix& m, int first, int count, bool across) {
  std::vector<unsigned char> rows(count * DEPTH_BYTES);
  if (!across) {
    for (int r = 0; r < count; ++r)
      for (int k = 0; k < DEPTH_BYTES; k += CHUNK)
        chunk_at(m, along_depth(m, first + r, k), &rows[r * DEPTH_BYTES + k]);
    return rows;
  }
  u16 chunk[8];
  for (int r = 0; r < count; r += 8)
    for (int k = 0; k < DEPTH_BYTES / 2; ++k) {
      chunk_at(m, along_rows(m, 2 * (first + r), k), (unsigned char*)chunk);
      for (int i = 0; i < 8; ++i) memcpy(&rows[(r + i) * DEPTH_BYTES + 2 * k], &chunk[i], 2);
    }
  return rows;
}

static float value_at(Format format, const unsigned char* rows, int row, int k) {
  u32 word = 0;
  memcpy(&word, rows + row * DEPTH_BYTES + k * bytes_of(format), bytes_of(format));
  return element(format, word, 0);
}

static void multiply(const GroupProduct& p, Sums& sums, const std::vector<unsigned char>& a,
                     const std::vector<unsigned char>& b) {
  std::vector<double> left(ROWS * p.k), right(p.n * p.k);
  for (int r = 0; r < ROWS; ++r)
    for (int k = 0; k < p.k; ++k) left[r * p.k + k] = p.a_sign * value_at(p.a, a.data(), r, k);
  for (int r = 0; r < p.n; ++r)
    for (int k = 0; k < p.k; ++k) right[r * p.k + k] = p.b_sign * value_at(p.b, b.data(), r, k);
  for (int lane = 0; lane < 32; ++lane) {
    Held& held = sums[lane];
    std::vector<void*> values;
    if (!p.add) std::fill(held.values.begin(), held.values.end(), 0);
    for (u32& value : held.values) values.push_back(&value);
    for (int e = 0; e < p.n / 2; ++e) {
      const int row = lane / 4 + e % 4 / 2 * 8, column = e / 4 * 8 + lane % 4 * 2 + e % 2;
      double sum = 0;
      for (int k = 0; k < p.k; ++k) sum += left[row * p.k + k] * right[column * p.k + k];
      add(p.sum, values.data(), e, sum);
    }
  }
}

struct Operands {
  void* const* d;
  const u32* left;
};

static int registers_of(const GroupProduct& p) { return p.sum == F16 ? p.n / 4 : p.n / 2; }

static u32 register_bits(void* place) {
  u32 bits;
  memcpy(&bits, place, 4);
  return bits;
}

// The accumulators as they are, which are lost until the instructions on them are complete.
template <class Of> static std::shared_ptr<Sums> taken(const GroupProduct& p, Of of) {
  auto sums = std::make_shared<Sums>();
  for (int lane = 0; lane < 32; ++lane) {
    Held& held = (*sums)[lane];
    held.registers.assign(of(lane).d, of(lane).d + registers_of(p));
    for (void* place : held.registers) {
      held.values.push_back(register_bits(place));
      memset(place, launch.poison, 4);
    }
  }
  return sums;
}

static std::shared_ptr<Sums> held_sums(GroupWork& work, const std::vector<void*>& registers) {
  const auto found = work.held.find(registers[0]);
  if (found != work.held.end() && (*found->second)[0].registers == registers) return found->second;
  for (const auto& [_, sums] : work.held)
    for (void* place : (*sums)[0].registers)
      if (std::find(registers.begin(), registers.end(), place) != registers.end())
        fail("wgmma: accumulators overlap others that are not complete");
  return nullptr;
}

static GroupWork& work_of(Warp& warp) {
  if (!warp.work) warp.work = std::make_shared<GroupWork>();
  return *warp.work;
}
static Warp& own_warp() { return own().owner->warps[own().number / 32]; }

// Registers that were written since the last instruction on them need a fence.
static void expect_fence(GroupWork& work, const std::vector<void*>& registers) {
  if (work.fenced) return;
  if (!work.ever_fenced) fail("wgmma before any wgmma.fence");
  const auto known = work.known.find(registers[0]);
  std::vector<u32> now;
  for (void* place : registers) now.push_back(register_bits(place));
  if (known == work.known.end() || known->second != now)
    fail("wgmma: its accumulators were written, and no wgmma.fence came after that");
}

template <class Of> static void begin(const GroupProduct& p, Of of) {
  GroupWork& work = work_of(own_warp());
  const std::vector<void*> registers(of(0).d, of(0).d + registers_of(p));
  Pending pending = {p, held_sums(work, registers), {}, {}};
  if (!pending.sums) {
    if (p.add) expect_fence(work, registers);
    pending.sums = taken(p, of);
    work.held[registers[0]] = pending.sums;
  }
  const int warp = own().number / 32 % 4;
  if (of(0).left) {
    pending.a.resize(ROWS * DEPTH_BYTES);
    for (int lane = 0; lane < 32; ++lane)
      for (int i = 0; i < 4; ++i) {
        const int row = lane / 4 + i % 2 * 8, k = i / 2 * CHUNK + lane % 4 * 4;
        memcpy(&pending.a[row * DEPTH_BYTES + k], &of(lane).left[i], 4);
      }
  } else {
    pending.a = rows_of(matrix_of(p.a_matrix), warp * ROWS, ROWS, p.a_across);
  }
  pending.b = rows_of(matrix_of(p.b_matrix), 0, p.n, p.b_across);
  work.open.push_back(std::move(pending));
}

void group_multiply(const GroupProduct& product, void* const* d, const u32* left) {
  Operands mine = {d, left};
  together("wgmma", mine, [&](auto of) { begin(product, of); });
}

void group_fence() {
  int nothing = 0;
  together("wgmma.fence", nothing, [](auto) {
    GroupWork& work = work_of(own_warp());
    work.fenced = work.ever_fenced = true;
  });
}

void group_commit() {
  int nothing = 0;
  together("wgmma.commit_group", nothing, [](auto) {
    GroupWork& work = work_of(own_warp());
    work.groups.push_back(std::move(work.open));
    work.open.clear();
    ++work.committed;
  });
}

static void complete(const Pending& pending, int warp) {
  const GroupProduct& p = pending.product;
  auto a = pending.a, b = rows_of(matrix_of(p.b_matrix), 0, p.n, p.b_across);
  if (p.a_matrix) a = rows_of(matrix_of(p.a_matrix), warp * ROWS, ROWS, p.a_across);
  poison_changed(a.data(), pending.a.data(), a.size());
  poison_changed(b.data(), pending.b.data(), b.size());
  multiply(p, *pending.sums, a, b);
}

// Results that no pending instruction is going to change go to their registers.
static void release(GroupWork& work) {
  for (auto at = work.held.begin(); at != work.held.end();) {
    if (at->second.use_count() > 1) {
      ++at;
      continue;
    }
    for (const Held& held : *at->second)
      for (size_t i = 0; i < held.registers.size(); ++i)
        memcpy(held.registers[i], &held.values[i], 4);
    work.known[at->first] = (*at->second)[0].values;
    at = work.held.erase(at);
  }
}

// Calls f(work, number) for the warps of the thread's group.
template <class F> static void each_warp(F f) {
  auto& warps = own().owner->warps;
  const size_t first = own().number / 128 * 4;
  for (int i = 0; i < 4 && first + i < warps.size(); ++i) f(work_of(warps[first + i]), i);
}

void group_wait(int pending) {
  const long wanted = work_of(own_warp()).committed - pending;
  wait_until("wgmma of another warp of the group", [=] {
    bool all = true;
    each_warp([&](GroupWork& work, int) { all &= work.committed >= wanted; });
    return all;
  });
  int nothing = 0;
  together("wgmma.wait_group", nothing, [=](auto) {
    each_warp([=](GroupWork& work, int warp) {
      for (; work.completed < wanted; work.groups.pop_front(), ++work.completed)
        for (const Pending& one : work.groups.front()) complete(one, warp);
    });
    GroupWork& work = work_of(own_warp());
    release(work);
    work.fenced = false;
  });
}
