// Shared memory by address, and copies into it by threads that end later (cp.async).
#pragma once
#include "cuda.h"

u32 shared_place(const void* p);  // its address in the shared window
inline u64 __cvta_generic_to_shared(const void* p) { return shared_place(p); }
u32 shared_size();

void copy_later(u32 to, const void* from, int bytes, int valid);
void commit_copies();
void await_copies(int pending);
void store_shared(u32 to, u32 value);
