// The copy engine, and the fence that lets it and wgmma see what threads have stored.
#pragma once
#include "cuda.h"

constexpr int BOX_DIMENSIONS = 5;

void bulk_copy_later(u32 to, const void* from, u32 bytes, u32 barrier);
// A box at `place` (innermost first) of a tensor, to all blocks of the cluster in `blocks`, or, if
// that is 0, to this one.
void box_copy_later(u32 to, const TensorMap* map, const int* place, int rank, u32 barrier, u32 blocks);
void box_store_later(u32 from, const TensorMap* map, const int* place, int rank);
void bulk_commit();
void bulk_wait(int pending);
void fence_stores();
void fence_barriers();
