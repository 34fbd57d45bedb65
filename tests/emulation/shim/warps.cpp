// Barriers of blocks and warps, shuffles, and what a thread can ask for.
#include "runtime.h"

static void meet(const char* name, Meeting& barrier, int expected) {
  if (barrier.arrived && barrier.expected != expected)
    fail("%s: some wait for %d threads, some for %d", name, barrier.expected, expected);
  barrier.expected = expected;
  const unsigned turn = barrier.turn;
  ++progress;
  if (++barrier.arrived < expected) {
    wait_until(name, [&] { return barrier.turn != turn; });
    return;
  }
  barrier.arrived = 0;
  ++barrier.turn;
}

void sync_block() {
  Block& block = *own().owner;
  meet("the barrier of the block", block.barriers[0], block.live);
}

void sync_named(int barrier, int threads) {
  if (barrier < 0 || barrier >= BARRIERS) fail("there is no barrier %d", barrier);
  if (threads <= 0 || threads % 32) fail("a barrier of %d threads", threads);
  meet("a named barrier", own().owner->barriers[barrier], threads);
}

void sync_warp(u32 lanes) {
  if (lanes != 0xffffffffu) fail("unsupported: __syncwarp of some lanes");
  int nothing = 0;
  together("__syncwarp", nothing, [](auto) {});
}

u64 shuffled(u64 value, int from) {
  struct Operands { u64 value, result; int from; } mine = {value, 0, from};
  together("a shuffle", mine, [](auto of) {
    for (int lane = 0; lane < 32; ++lane) of(lane).result = of(of(lane).from & 31).value;
  });
  return mine.result;
}

bool any_lane(bool value) {
  struct Operands { bool value, result; } mine = {value, false};
  together("a vote", mine, [](auto of) {
    bool any = false;
    for (int lane = 0; lane < 32; ++lane) any |= of(lane).value;
    for (int lane = 0; lane < 32; ++lane) of(lane).result = any;
  });
  return mine.result;
}

// Time stands still: who waits for it to pass lets others run, and waits in vain with them.
u64 global_timer() {
  let_others_run("a clock");
  return 1;
}

u32 added_before(u32* place, u32 value) {
  ++progress;
  const u32 before = *place;
  *place += value;
  return before;
}
