// Barriers in shared memory (PTX ISA, "mbarrier"): a phase ends when all arrivals and all bytes
// that it expects have come.
#include "runtime.h"

static int offset_of(u32 barrier) { return (int)(barrier - SHARED_START); }

Phases& phases_of(Place barrier) {
  auto& known = barrier.block->phases;
  const auto found = known.find(barrier.address);
  if (found == known.end()) fail("there is no mbarrier at %d", offset_of(barrier.address));
  return found->second;
}

static Phases& phases_at(u32 barrier) { return phases_of(place_of(barrier, *own().owner)); }

void step(u32 barrier, Phases& phases) {
  ++progress;
  if (phases.pending < 0)
    fail("more than %ld arrivals at the mbarrier at %d", phases.expected, offset_of(barrier));
  if (phases.pending || phases.bytes) return;
  phases.pending = phases.expected;
  ++phases.passed;
}

void mbarrier_make(u32 barrier, u32 arrivals) {
  shared_bytes(barrier, 8, 8, "mbarrier.init");
  if (!arrivals) fail("an mbarrier for no arrivals");
  const Phases made = {arrivals, arrivals, 0, 0, own().number};
  if (!own().owner->phases.insert({barrier, made}).second)
    fail("there already is an mbarrier at %d", offset_of(barrier));
}

void fence_barriers() {
  for (auto& [_, phases] : own().owner->phases)
    if (phases.made_by == own().number) phases.made_by = NONE;
}

void mbarrier_end(u32 barrier) {
  phases_at(barrier);
  own().owner->phases.erase(barrier);
}

void mbarrier_arrive(u32 barrier) {
  Phases& phases = phases_at(barrier);
  --phases.pending;
  step(barrier, phases);
}

void mbarrier_expect(u32 barrier, u32 bytes) { phases_at(barrier).bytes += bytes; }

void mbarrier_arrive_behind_copies(u32 barrier, bool counted) {
  Phases& phases = phases_at(barrier);
  if (counted) ++phases.pending;
  Thread* thread = &own();
  const u64 first = thread->copies;
  later([=] {
    here = thread;
    end_copies(*thread, first);
    mbarrier_arrive(barrier);
    here = nullptr;
  });
}

bool mbarrier_passed(u32 barrier, u32 parity) {
  if (parity > 1) fail("a phase has parity 0 or 1, not %u", parity);
  if ((phases_at(barrier).passed & 1) != parity) return true;
  let_others_run("an mbarrier");
  return (phases_at(barrier).passed & 1) != parity;
}
