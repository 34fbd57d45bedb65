// Barriers in shared memory (PTX ISA, "mbarrier"): a phase ends when all arrivals and all bytes
// that it expects have come.
#include "runtime.h"

Phases& phases_of(u32 barrier) {
  auto& known = own().owner->phases;
  const auto found = known.find(barrier);
  if (found == known.end()) fail("there is no mbarrier at %d", (int)(barrier - SHARED_START));
  return found->second;
}

void step(u32 barrier, Phases& phases) {
  ++progress;
  if (phases.pending < 0)
    fail("more than %ld arrivals at the mbarrier at %d", phases.expected,
         (int)(barrier - SHARED_START));
  if (phases.pending || phases.bytes) return;
  phases.pending = phases.expected;
  ++phases.passed;
}

void mbarrier_make(u32 barrier, u32 arrivals) {
  shared_bytes(barrier, 8, 8, "mbarrier.init");
  if (!arrivals) fail("an mbarrier for no arrivals");
  if (!own().owner->phases.insert({barrier, {arrivals, arrivals, 0, 0}}).second)
    fail("there already is an mbarrier at %d", (int)(barrier - SHARED_START));
}

void mbarrier_end(u32 barrier) {
  phases_of(barrier);
  own().owner->phases.erase(barrier);
}

void mbarrier_arrive(u32 barrier) {
  Phases& phases = phases_of(barrier);
  --phases.pending;
  step(barrier, phases);
}

void mbarrier_expect(u32 barrier, u32 bytes) { phases_of(barrier).bytes += bytes; }

void mbarrier_arrive_behind_copies(u32 barrier, bool counted) {
  Phases& phases = phases_of(barrier);
  if (counted) ++phases.pending;
  Thread* thread = &own();
  later([=] {
    here = thread;
    end_copies(*thread);
    mbarrier_arrive(barrier);
    here = nullptr;
  });
}

bool mbarrier_passed(u32 barrier, u32 parity) {
  if (parity > 1) fail("a phase has parity 0 or 1, not %u", parity);
  const Phases& phases = phases_of(barrier);
  if ((phases.passed & 1) != parity) return true;
  let_others_run("an mbarrier");
  return (phases_of(barrier).passed & 1) != parity;
}
