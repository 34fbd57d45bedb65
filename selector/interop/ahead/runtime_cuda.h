// Written by tensor-selector: do not edit.
//
// What calls say to the CUDA driver, in an exported kernel and in Python's own (cpp/launch).
// Structures and numbers are those of cuda.h (CUDA Driver API), so that no toolkit is needed to
// build this.
#pragma once

#include <cstdint>

namespace tensor_selector {

using Handle = void *;  // CUcontext, CUmodule, CUfunction, CUstream

struct LaunchAttribute {  // CUlaunchAttribute
  uint32_t id, padding;
  int32_t value;
  uint8_t rest[60];
};

struct LaunchConfig {  // CUlaunchConfig
  uint32_t grid[3], block[3], shared_bytes;
  Handle stream;
  const LaunchAttribute *attributes;
  uint32_t count;
};

static_assert(sizeof(LaunchAttribute) == 72 && sizeof(LaunchConfig) == 56);

constexpr LaunchAttribute EARLY = {6, 0, 1, {}};  // programmatic stream serialization
constexpr uintptr_t PER_THREAD = 2;  // the stream handle that means another one in each thread

using LaunchKernel = int(const LaunchConfig *, Handle function, void **arguments, void **extra);
using EncodeMap = int(void *map, int type, uint32_t rank, uint64_t address,
                      const uint64_t *extents, const uint64_t *strides, const uint32_t *box,
                      const uint32_t *steps, int interleave, int swizzle, int promotion,
                      int outside);

}  // namespace tensor_selector
