// Instructions of warpgroups (wgmma), which end behind what a thread does.
#pragma once
#include "matrices.h"

// m64n`n`k`k` as it is written: `d` points at a lane's accumulators; `left` is null where the first
// operand has a descriptor. `add`: to what the accumulators hold. `across_*`: rows along memory.
struct GroupProduct {
  Format a, b, sum;
  int n, k;
  u64 a_matrix, b_matrix;
  bool add;
  int a_sign, b_sign;
  bool a_across, b_across;
};
void group_multiply(const GroupProduct& product, void* const* d, const u32* left);
void group_fence();
void group_commit();
void group_wait(int pending);
