// tcgen05. What a thread asks for ends in order, some time before the first commit behind it does;
// until then its columns are nobody's to load, and operands that change meanwhile are poison, as are
// registers until their load is waited for. Source: PTX ISA, "tcgen05", "Shared Memory Descriptor",
// "Instruction Descriptor", "Data Path Layout", "Matrix fragments for shape .16x256b".
#include "runtime.h"

constexpr int TENSOR_COLUMNS = 512, TENSOR_LANES = 128, QUARTER = 32;

struct TensorProduct {
  Format a, b, sum;
  int m, n, k;
  bool a_across, b_across, add;
  u32 column;
  u64 a_matrix, b_matrix;
  std::vector<unsigned char> left, right;  // as they were in the beginning
};

struct TensorLoading {
  void* to;
  u32 lane, column, value;
};

struct TensorWork {
  u32 first, columns;  // that are allocated
  std::vector<u32> cells;
  std::vector<int> busy;  // by column: products that are not complete
  std::deque<TensorProduct> products;
  u64 asked = 0, ended = 0;
  std::unordered_map<int, std::vector<TensorLoading>> loads;  // by thread
};

static TensorWork& tensor_of(const char* what) {
  Block& block = *own().owner;
  if (!block.tensor) fail("%s, and no tensor memory is allocated", what);
  return *block.tensor;
}

void tensor_allocate(u32 to, int columns) {
  struct Operands { u32 to; int columns; } mine = {to, columns};
  together("tcgen05.alloc", mine, [](auto of) {
    Block& block = *own().owner;
    const int columns = of(0).columns;
    if (columns < 32 || columns > TENSOR_COLUMNS || columns & (columns - 1))
      fail("tcgen05.alloc of %d columns", columns);
    if (block.tensor) fail("tcgen05.alloc, and there is tensor memory already");
    block.tensor = std::make_shared<TensorWork>();
    TensorWork& work = *block.tensor;
    work.first = TENSOR_COLUMNS - columns;
    work.columns = columns;
    u32 poison;
    memset(&poison, launch.poison, 4);
    work.cells.assign(TENSOR_COLUMNS * TENSOR_LANES, poison);
    work.busy.assign(TENSOR_COLUMNS, 0);
    memcpy(shared_bytes(of(0).to, 4, 4, "tcgen05.alloc"), &work.first, 4);
    stored(own(), of(0).to - SHARED_START, 4);
  });
}

void tensor_free(u32 address, int columns) {
  struct Operands { u32 address; int columns; } mine = {address, columns};
  together("tcgen05.dealloc", mine, [](auto of) {
    TensorWork& work = tensor_of("tcgen05.dealloc");
    if (of(0).address != work.first || of(0).columns != (int)work.columns)
      fail("tcgen05.dealloc of %d columns at %u", of(0).columns, of(0).address);
    if (!work.products.empty()) fail("tcgen05.dealloc while products are not complete");
    for (const auto& [_, loads] : work.loads)
      if (!loads.empty()) fail("tcgen05.dealloc while somebody loads");
    own().owner->tensor = nullptr;
  });
}

static Matrix tensor_matrix(u64 descriptor) {
  static const u32 row_bytes[] = {0, 1, 128, 1, 64, 1, 32, 1};
  const u32 swizzle = row_bytes[descriptor >> 61];
  if ((descriptor >> 46 & 7) != 1) fail("tcgen05: no descriptor of a matrix");
  if (descriptor >> 49 & 0xfff) fail("tcgen05: a matrix with a base offset or another mode");
  if (swizzle <= 1) fail("tcgen05: unsupported: a matrix without a swizzle, or of that one");
  return {(u32)(descriptor & 0x3fff) << 4, (u32)(descriptor >> 16 & 0x3fff) << 4,
          (u32)(descriptor >> 32 & 0x3fff) << 4, swizzle};
}

// Of a field of the instruction descriptor.
static Format tensor_operand(bool bytes, u32 field) {
  if (field > 1) fail("tcgen05: operands of format %u", field);
  return bytes ? field ? S8 : U8 : field ? BF16 : F16;
}

static u32 tensor_lane(const TensorProduct& p, int row) {
  return p.m == TENSOR_LANES ? row : row / 16 * QUARTER + row % 16;
}

void tensor_multiply(bool bytes, u32 to, u64 a, u64 b, u32 shape, bool add) {
  TensorWork& work = tensor_of("tcgen05.mma");
  if (shape & 0b01100000100000000110000001001111u) fail("tcgen05: unsupported: shape %#x", shape);
  TensorProduct p = {};
  static const Format sums[] = {F16, F32, S32, F16};
  p.sum = sums[shape >> 4 & 3];
  if (p.sum != (bytes ? S32 : F32)) fail("tcgen05: unsupported: sums of another format");
  p.a = tensor_operand(bytes, shape >> 7 & 7);
  p.b = tensor_operand(bytes, shape >> 10 & 7);
  p.a_across = shape >> 15 & 1;
  p.b_across = shape >> 16 & 1;
  p.n = (shape >> 17 & 63) * 8;
  p.m = (shape >> 24 & 31) * 16;
  p.k = DEPTH_BYTES / bytes_of(p.a);
  p.add = add;
  if ((p.m != 64 && p.m != TENSOR_LANES) || !p.n || p.n > 256 || p.n % (p.m / 8))
    fail("tcgen05.mma of %d x %d", p.m, p.n);
  if (bytes && (p.a_across || p.b_across)) fail("tcgen05: unsupported: bytes across");
  p.column = to;
  if (to < work.first || to + p.n > work.first + work.columns)
    fail("tcgen05.mma at column %u of %u from %u on", to, work.columns, work.first);
  p.a_matrix = a;
  p.b_matrix = b;
  p.left = rows_of(tensor_matrix(a), 0, p.m, p.a_across);
  p.right = rows_of(tensor_matrix(b), 0, p.n, p.b_across);
  for (int i = 0; i < p.n; ++i) ++work.busy[to + i];
  work.products.push_back(std::move(p));
  ++work.asked;
}

static void end_product(TensorWork& work) {
  const TensorProduct& p = work.products.front();
  auto a = rows_of(tensor_matrix(p.a_matrix), 0, p.m, p.a_across);
  auto b = rows_of(tensor_matrix(p.b_matrix), 0, p.n, p.b_across);
  poison_changed(a.data(), p.left.data(), a.size());
  poison_changed(b.data(), p.right.data(), b.size());
  std::vector<float> left(p.m * p.k), right(p.n * p.k);
  for (size_t i = 0; i < left.size(); ++i) left[i] = value_at(p.a, a.data(), i / p.k, i % p.k);
  for (size_t i = 0; i < right.size(); ++i) right[i] = value_at(p.b, b.data(), i / p.k, i % p.k);
  for (int row = 0; row < p.m; ++row)
    for (int column = 0; column < p.n; ++column) {
      u32& cell = work.cells[tensor_lane(p, row) * TENSOR_COLUMNS + p.column + column];
      double sum = 0;
      for (int k = 0; k < p.k; ++k)
        sum += (double)left[row * p.k + k] * right[column * p.k + k];
      if (!p.add) cell = 0;
      void* place = &cell;
      add(p.sum, &place, 0, sum);
    }
  for (int i = 0; i < p.n; ++i) --work.busy[p.column + i];
  work.products.pop_front();
  ++work.ended;
}

void tensor_commit(u32 barrier) {
  Thread* thread = &own();
  const auto work = thread->owner->tensor;
  const u64 asked = work ? work->asked : 0;
  later([=] {
    here = thread;
    while (work && work->ended < asked) end_product(*work);
    mbarrier_arrive(barrier);
    here = nullptr;
  });
}

void tensor_load(int pieces, void* const* to, u32 address) {
  struct Operands { void* const* to; u32 address; } mine = {to, address};
  together("tcgen05.ld", mine, [=](auto of) {
    TensorWork& work = tensor_of("tcgen05.ld");
    const u32 first = of(0).address >> 16, column = of(0).address & 0xffff;
    const int warp = own().number / 32, quarter = warp % 4;
    if (first / QUARTER != (u32)quarter || first % 16) fail("tcgen05.ld of lane %u", first);
    if (column < work.first || column + 8 * pieces > work.first + work.columns)
      fail("tcgen05.ld at column %u", column);
    for (int i = 0; i < 8 * pieces; ++i)
      if (work.busy[column + i]) fail("tcgen05.ld of sums that are not complete");
    for (int lane = 0; lane < 32; ++lane)
      for (int e = 0; e < 4 * pieces; ++e) {
        const u32 row = first + lane / 4 + e % 4 / 2 * 8;
        const u32 at = column + e / 4 * 8 + lane % 4 * 2 + e % 2;
        const u32 value = work.cells[row * TENSOR_COLUMNS + at];
        work.loads[warp * 32 + lane].push_back({of(lane).to[e], row, at, value});
        memset(of(lane).to[e], launch.poison, 4);
      }
  });
}

void tensor_await_loads() {
  int nothing = 0;
  together("tcgen05.wait::ld", nothing, [](auto) {
    TensorWork& work = tensor_of("tcgen05.wait");
    for (int lane = 0; lane < 32; ++lane) {
      auto& loads = work.loads[own().number / 32 * 32 + lane];
      for (const TensorLoading& load : loads) {
        if (work.busy[load.column] ||
            work.cells[load.lane * TENSOR_COLUMNS + load.column] != load.value)
          fail("tensor memory was written while it was loaded");
        memcpy(load.to, &load.value, 4);
      }
      loads.clear();
    }
  });
}
