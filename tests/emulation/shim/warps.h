// What the threads of a warp or of a block do together.
#pragma once
#include "cuda.h"

void sync_block();
void sync_warp(u32 lanes);
void sync_named(int barrier, int threads);
u64 shuffled(u64 value, int from);  // the value of lane `from`
bool any_lane(bool value);
int own_lane();
u64 global_timer();
u32 added_before(u32* place, u32 value);

inline void __syncthreads() { sync_block(); }
inline void __syncwarp(u32 lanes = 0xffffffffu) { sync_warp(lanes); }
inline void __threadfence_block() {}
inline void __threadfence() {}
inline u32 atomicAdd(u32* place, u32 value) { return added_before(place, value); }

template <class T> inline T from_lane(T value, int from) {
  static_assert(sizeof(T) <= 8);
  u64 bits = 0;
  memcpy(&bits, &value, sizeof value);
  bits = shuffled(bits, from);
  memcpy(&value, &bits, sizeof value);
  return value;
}
template <class T> inline T __shfl_sync(u32, T value, int from, int width = 32) {
  return from_lane(value, (own_lane() & -width) | (from & (width - 1)));
}
template <class T> inline T __shfl_xor_sync(u32, T value, int mask, int = 32) {
  return from_lane(value, own_lane() ^ mask);
}
template <class T> inline T __shfl_down_sync(u32, T value, int by, int width = 32) {
  const int lane = own_lane();
  return from_lane(value, (lane & (width - 1)) + by < width ? lane + by : lane);
}
template <class T> inline T __shfl_up_sync(u32, T value, int by, int width = 32) {
  const int lane = own_lane();
  return from_lane(value, (lane & (width - 1)) >= by ? lane - by : lane);
}
inline int __any_sync(u32, int value) { return any_lane(value != 0); }
inline int __all_sync(u32, int value) { return !any_lane(value == 0); }
