// The copy engine.
#pragma once
#include "cuda.h"

void bulk_copy_later(u32 to, const void* from, u32 bytes, u32 barrier);
