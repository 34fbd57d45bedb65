// Every load and store of emitted code comes by here: g++ writes the calls for a sanitizer, whose
// place this takes.
#include "runtime.h"

static inline void access(const void* p, size_t bytes) {
  const u64 from = (const unsigned char*)p - here->shared;
  // The pages around shared memory cannot be touched, so that what is this far away is elsewhere.
  constexpr u64 NEAR = 4096;
  if (from + NEAR > launch.shared_bytes + 2 * NEAR) return;
  if (from + bytes > launch.shared_bytes)
    fail("%zu bytes at %lld of %u bytes of shared memory", bytes, (s64)from, launch.shared_bytes);
}
static inline void aligned_access(const void* p, size_t bytes) {
  if ((u64)p & (bytes - 1)) fail("misaligned access of %zu bytes at %p", bytes, p);
  access(p, bytes);
}

extern "C" {
void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
#define HOOKS(n)                                                          \
  void __tsan_read##n(void* p) { aligned_access(p, n); }                  \
  void __tsan_write##n(void* p) { aligned_access(p, n); }                 \
  void __tsan_unaligned_read##n(void* p) { access(p, n); }                \
  void __tsan_unaligned_write##n(void* p) { access(p, n); }               \
  void __tsan_volatile_read##n(void* p) { aligned_access(p, n); }         \
  void __tsan_volatile_write##n(void* p) { aligned_access(p, n); }
HOOKS(1) HOOKS(2) HOOKS(4) HOOKS(8) HOOKS(16)
void __tsan_read_range(void* p, size_t bytes) { access(p, bytes); }
void __tsan_write_range(void* p, size_t bytes) { access(p, bytes); }
}
