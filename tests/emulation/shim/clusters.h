// Blocks that run together and reach each other's shared memory.
#pragma once
#include "cuda.h"

int cluster_rank();
u32 place_in(u32 address, u32 block);  // the same address in another block's memory
void store_there(u32 to, u32 value);  // st.shared::cluster
void cluster_arrive();
void cluster_wait();
