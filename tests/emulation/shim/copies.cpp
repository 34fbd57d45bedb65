// Shared memory by address, and cp.async: what a copy is going to write is lost from its beginning
// on, and there at the latest time that its wait allows.
#include "runtime.h"

unsigned char* shared_bytes(u32 address, u32 bytes, u32 alignment, const char* what) {
  const u32 from = address - SHARED_START;
  if (address < SHARED_START || from > launch.shared_bytes || bytes > launch.shared_bytes - from)
    fail("%s: %u bytes at %d of %u bytes of shared memory", what, bytes, (int)from,
         launch.shared_bytes);
  if (address % alignment) fail("%s: shared address %u is misaligned", what, from);
  return here->shared + from;
}

u32 shared_place(const void* p) { return (u32)((const unsigned char*)p - here->shared) + SHARED_START; }
u32 shared_size() { return launch.shared_bytes; }

void store_shared(u32 to, u32 value) { memcpy(shared_bytes(to, 4, 4, "st.shared"), &value, 4); }

static void land(std::vector<Copy>& copies) {
  for (const Copy& copy : copies) {
    unsigned char* to = shared_bytes(copy.to, copy.bytes, copy.bytes, "cp.async");
    memcpy(to, copy.from, copy.valid);
    memset(to + copy.valid, 0, copy.bytes - copy.valid);
  }
  copies.clear();
}

void copy_later(u32 to, const void* from, int bytes, int valid) {
  if ((u64)from % bytes) fail("cp.async: the source %p is misaligned", from);
  if (valid < 0 || valid > bytes) fail("cp.async: %d bytes of %d", valid, bytes);
  memset(shared_bytes(to, bytes, bytes, "cp.async"), launch.poison, bytes);
  for (int i = 0; i < valid; ++i) (void)((const volatile char*)from)[i];
  own().open.push_back({to, from, bytes, valid});
}

void commit_copies() {
  Thread& thread = own();
  thread.groups.push_back(std::move(thread.open));
  thread.open.clear();
}

void await_copies(int pending) {
  auto& groups = own().groups;
  for (; (int)groups.size() > pending; groups.pop_front()) land(groups.front());
}

void end_copies(Thread& thread) {
  for (auto& group : thread.groups) land(group);
  thread.groups.clear();
  land(thread.open);
}
