// Shared memory by address, and cp.async: what a copy is going to write is lost from its beginning
// on, and there at the latest time that its wait allows.
#include "runtime.h"

unsigned char* shared_bytes(Block& of, u32 address, u32 bytes, u32 alignment, const char* what) {
  const u32 from = address - SHARED_START;
  if (address < SHARED_START || from > launch.shared_bytes || bytes > launch.shared_bytes - from)
    fail("%s: %u bytes at %d of %u bytes of shared memory", what, bytes, (int)from,
         launch.shared_bytes);
  if (address % alignment) fail("%s: shared address %u is misaligned", what, from);
  return of.shared + from;
}
unsigned char* shared_bytes(u32 address, u32 bytes, u32 alignment, const char* what) {
  return shared_bytes(*own().owner, address, bytes, alignment, what);
}

u32 shared_place(const void* p) { return (u32)((const unsigned char*)p - here->shared) + SHARED_START; }
u32 shared_size() { return launch.shared_bytes; }

void store_shared(u32 to, u32 value) {
  memcpy(shared_bytes(to, 4, 4, "st.shared"), &value, 4);
  stored(own(), to - SHARED_START, 4);
}

static void land(Thread& thread, const Copy& copy) {
  unsigned char* to = shared_bytes(*thread.owner, copy.to, copy.bytes, copy.bytes, "cp.async");
  memcpy(to, copy.from, copy.valid);
  memset(to + copy.valid, 0, copy.bytes - copy.valid);
  stored(thread, copy.to - SHARED_START, copy.bytes);
}

static void land(Thread& thread, std::vector<Copy>& copies, u64 first) {
  for (const Copy& copy : copies)
    if (copy.number < first) land(thread, copy);
  std::erase_if(copies, [=](const Copy& copy) { return copy.number < first; });
}

void copy_later(u32 to, const void* from, int bytes, int valid) {
  if ((u64)from % bytes) fail("cp.async: the source %p is misaligned", from);
  if (valid < 0 || valid > bytes) fail("cp.async: %d bytes of %d", valid, bytes);
  memset(shared_bytes(to, bytes, bytes, "cp.async"), launch.poison, bytes);
  for (int i = 0; i < valid; ++i) (void)((const volatile char*)from)[i];
  own().open.push_back({to, from, bytes, valid, own().copies++});
}

void commit_copies() {
  Thread& thread = own();
  thread.groups.push_back(std::move(thread.open));
  thread.open.clear();
}

void await_copies(int pending) {
  Thread& thread = own();
  auto& groups = thread.groups;
  for (; (int)groups.size() > pending; groups.pop_front())
    land(thread, groups.front(), thread.copies);
}

void end_copies(Thread& thread, u64 first) {
  for (auto& group : thread.groups) land(thread, group, first);
  land(thread, thread.open, first);
}
