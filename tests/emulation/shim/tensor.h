// Tensor memory, and products in it that one thread asks for (tcgen05).
#pragma once
#include "matrices.h"

void tensor_allocate(u32 to, int columns);
void tensor_free(u32 address, int columns);
// `shape` is the instruction descriptor; the operands have descriptors of their own.
void tensor_multiply(bool bytes, u32 to, u64 a, u64 b, u32 shape, bool add);
void tensor_commit(u32 barrier);
void tensor_load(int pieces, void* const* to, u32 address);  // 16 lanes x pieces of 8 columns
void tensor_await_loads();
