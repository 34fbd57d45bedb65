// Barriers in shared memory.
#pragma once
#include "cuda.h"

// Barriers of other blocks of the cluster by their address in the cluster (clusters.h).
void mbarrier_make(u32 barrier, u32 arrivals);
void mbarrier_end(u32 barrier);
void mbarrier_arrive(u32 barrier);
void mbarrier_expect(u32 barrier, u32 bytes);
void mbarrier_arrive_behind_copies(u32 barrier, bool counted);  // cp.async of this thread
bool mbarrier_passed(u32 barrier, u32 parity);  // lets others run if it is not
