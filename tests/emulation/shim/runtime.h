// What the runtime knows of the threads that it runs: each is a fiber, and one runs at a time.
#pragma once
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>
#include "device.h"

constexpr u32 SHARED_START = 1024;  // of dynamic shared memory in the shared window
constexpr int BARRIERS = 16;        // named ones; number 0 is the block's

struct Copy {
  u32 to;
  const void* from;
  int bytes, valid;  // the rest are zeros
  u64 number;        // counts the thread's copies
};

struct Block;
struct Cluster;

// A store to global memory that the copy engine makes of what it finds in shared memory.
struct BoxStore {
  u32 from;
  const TensorMap* map;
  int place[BOX_DIMENSIONS];
  std::vector<unsigned char> seen;  // the bytes when it began
};

struct Thread : ThreadView {
  Block* owner;
  int number;          // in the block
  void* stack_pointer;
  bool done;
  const char* waits;   // what for, while it waits
  u64 copies;          // begun so far
  std::vector<Copy> open;
  std::deque<std::vector<Copy>> groups;
  std::vector<BoxStore> open_stores;
  std::deque<std::vector<BoxStore>> stores;
  std::vector<std::pair<u32, u32>> unfenced;  // bytes of shared memory stored since the last fence
  unsigned cluster_turn;  // of the cluster's barrier: what it waits for, if it has arrived
};

// Those that have come to an instruction that they execute together.
struct Meeting {
  int arrived = 0, expected = 0;
  unsigned turn = 0;
  const char* instruction = nullptr;
  void* operands[32];
};

struct GroupWork;

struct Warp : Meeting {
  int live = 0;
  std::shared_ptr<GroupWork> work;  // of wgmma, once there is any
};

struct Phases {
  long expected, pending, bytes;
  u64 passed;
  int made_by;  // the thread that has not announced it yet, or none
};
constexpr int NONE = -1;

struct TensorWork;

struct Block {
  uint3 number;
  unsigned char* shared;
  std::vector<Thread> threads;
  std::vector<Warp> warps;
  Meeting barriers[BARRIERS];
  std::unordered_map<u32, Phases> phases;  // by the address of the barrier
  std::vector<u16> writers;  // by the byte: who stored it without a fence since, plus one
  int live;
  u32 rank;
  Cluster* cluster;
  std::shared_ptr<TensorWork> tensor;  // while some is allocated
};

struct Cluster {
  std::vector<Block> blocks;
  Meeting barrier;
};

// An address in the cluster: the block, and the address in its shared window.
struct Place {
  Block* block;
  u32 address;
};
Place place_of(u32 address, Block& own_block);

// Threads from the last to the first; the first one of a block only when no other can go on.
constexpr int BACKWARDS = 1, SLOW = 2;

// The launch that runs.
struct Launch {
  void (*body)(void** arguments);
  void** arguments;
  uint3 grid;
  u32 threads, shared_bytes, cluster;
  int order;   // BACKWARDS, SLOW, both or none
  int poison;  // the byte that nobody wrote
  int report;  // where a failure is written to
};
extern Launch launch;
extern u64 progress;  // counts what others may have waited for

Thread& own();
void let_others_run(const char* waits);
void later(std::function<void()> end);  // what the hardware does by itself, and nobody knows when

template <class Done> void wait_until(const char* waits, Done done) {
  while (!done()) let_others_run(waits);
  ++progress;
}
// The bytes of a block's shared memory at an address; it fails where there are none.
unsigned char* shared_bytes(u32 address, u32 bytes, u32 alignment, const char* what);
unsigned char* shared_bytes(Block& of, u32 address, u32 bytes, u32 alignment, const char* what);
void end_copies(Thread& thread, u64 first);  // so many of its copies
void end_stores(Thread& thread);
void step(u32 barrier, Phases& phases);
Phases& phases_of(Place barrier);
void stored(Thread& by, u32 offset, u32 bytes);  // by ordinary means, in shared memory
void stored_by_engine(Block& in, u32 offset, u32 bytes);
// What wgmma and the copy engine see at an address: poison in place of bytes without a fence.
void seen_by_engine(Block& in, u32 address, u32 bytes, unsigned char* to, const char* what);
// The same for bytes that it saw once before: those that have changed since are poison.
void poison_changed(unsigned char* bytes, const unsigned char* before, u32 count);
void* pages(size_t bytes);

// All lanes of the warp come here with their operands; the last one executes for all.
template <class T, class Execute>
void together(const char* instruction, T& mine, Execute execute) {
  Thread& thread = own();
  Warp& warp = thread.owner->warps[thread.number / 32];
  if (warp.arrived && strcmp(warp.instruction, instruction))
    fail("lanes of a warp are at %s and at %s", warp.instruction, instruction);
  warp.instruction = instruction;
  warp.operands[thread.number % 32] = &mine;
  const unsigned turn = warp.turn;
  ++progress;
  if (++warp.arrived < warp.live) {
    wait_until(instruction, [&] { return warp.turn != turn; });
    return;
  }
  if (warp.live < 32) fail("%s in a warp of %d threads", instruction, warp.live);
  execute([&](int lane) -> T& { return *(T*)warp.operands[lane]; });
  warp.arrived = 0;
  ++warp.turn;
}
