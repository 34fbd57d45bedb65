// Every load and store of emitted code comes by here: g++ writes the calls for a sanitizer, whose
// place this takes.
#include "runtime.h"

void stored(Thread& by, u32 offset, u32 bytes) {
  auto& writers = by.owner->writers;
  const u16 writer = by.number + 1;
  if (writers[offset] != writer || writers[offset + bytes - 1] != writer)
    by.unfenced.push_back({offset, bytes});
  for (u32 i = 0; i < bytes; ++i) writers[offset + i] = writer;
}

void stored_by_engine(Block& in, u32 offset, u32 bytes) {
  std::fill_n(in.writers.begin() + offset, bytes, 0);
}

void fence_stores() {
  Thread& thread = own();
  auto& writers = thread.owner->writers;
  for (const auto& [offset, bytes] : thread.unfenced)
    for (u32 i = offset; i < offset + bytes; ++i)
      if (writers[i] == thread.number + 1) writers[i] = 0;
  thread.unfenced.clear();
}

void seen_by_engine(Block& in, u32 address, u32 bytes, unsigned char* to, const char* what) {
  memcpy(to, shared_bytes(in, address, bytes, 16, what), bytes);
  const u32 offset = address - SHARED_START;
  for (u32 i = 0; i < bytes; ++i)
    if (in.writers[offset + i]) to[i] = launch.poison;
}

void poison_changed(unsigned char* bytes, const unsigned char* before, u32 count) {
  for (u32 i = 0; i < count; ++i)
    if (bytes[i] != before[i]) bytes[i] = launch.poison;
}

static inline void access(const void* p, size_t bytes, bool store) {
  const u64 from = (const unsigned char*)p - here->shared;
  // The pages around shared memory cannot be touched, so that what is this far away is elsewhere.
  constexpr u64 NEAR = 4096;
  if (from + NEAR > launch.shared_bytes + 2 * NEAR) return;
  if (from + bytes > launch.shared_bytes)
    fail("%zu bytes at %lld of %u bytes of shared memory", bytes, (s64)from, launch.shared_bytes);
  if (store) stored(own(), from, bytes);
}
static inline void aligned_access(const void* p, size_t bytes, bool store) {
  if ((u64)p & (bytes - 1)) fail("misaligned access of %zu bytes at %p", bytes, p);
  access(p, bytes, store);
}

extern "C" {
void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
#define HOOKS(n)                                                            \
  void __tsan_read##n(void* p) { aligned_access(p, n, false); }             \
  void __tsan_write##n(void* p) { aligned_access(p, n, true); }             \
  void __tsan_unaligned_read##n(void* p) { access(p, n, false); }           \
  void __tsan_unaligned_write##n(void* p) { access(p, n, true); }           \
  void __tsan_volatile_read##n(void* p) { aligned_access(p, n, false); }    \
  void __tsan_volatile_write##n(void* p) { aligned_access(p, n, true); }
HOOKS(1) HOOKS(2) HOOKS(4) HOOKS(8) HOOKS(16)
void __tsan_read_range(void* p, size_t bytes) { access(p, bytes, false); }
void __tsan_write_range(void* p, size_t bytes) { access(p, bytes, true); }
}
