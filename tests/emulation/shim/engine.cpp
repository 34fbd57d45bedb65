// The copy engine: what it does comes as late as possible, when every thread waits.
#include "runtime.h"

void bulk_copy_later(u32 to, const void* from, u32 bytes, u32 barrier) {
  if ((u64)from % 16 || bytes % 16) fail("cp.async.bulk: %u bytes from %p", bytes, from);
  unsigned char* const place = shared_bytes(to, bytes, 16, "cp.async.bulk");
  memset(place, launch.poison, bytes);
  for (u32 i = 0; i < bytes; ++i) (void)((const volatile char*)from)[i];
  Thread* thread = &own();
  later([=] {
    here = thread;
    memcpy(place, from, bytes);
    Phases& phases = phases_of(barrier);
    phases.bytes -= bytes;
    step(barrier, phases);
    here = nullptr;
  });
}
