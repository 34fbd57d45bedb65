// The part of the CUDA driver that a call needs, found in the installed library at run time.
//
// Structures and numbers are those of cuda.h (CUDA Driver API), so that no toolkit is needed to
// build this.
#pragma once

#include <dlfcn.h>

#include <cstdint>
#include <string>

namespace launch {

using Handle = void *;  // CUcontext, CUstream, CUfunction

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
constexpr int DEVICE_ORDINAL = 9;                 // CUpointer_attribute
constexpr uintptr_t PER_THREAD = 2;  // the stream handle that means another one in each thread

struct Driver {
  int (*launch)(const LaunchConfig *, Handle function, void **arguments, void **extra);
  int (*encode)(void *map, int type, uint32_t rank, uint64_t address, const uint64_t *extents,
                const uint64_t *strides, const uint32_t *box, const uint32_t *steps,
                int interleave, int swizzle, int promotion, int outside);
  int (*current)(Handle *context);
  int (*push)(Handle context);
  int (*pop)(Handle *context);
  int (*capturing)(Handle stream, int *status);
  int (*attribute)(void *result, int attribute, uint64_t address);

  // Finds all functions but `encode`, which older drivers lack; what is missing, or nothing.
  std::string open(const char *name) {
    void *library = dlopen(name, RTLD_NOW | RTLD_GLOBAL);
    if (!library) return dlerror();
    find(library, "cuTensorMapEncodeTiled", encode);
    const bool all = find(library, "cuLaunchKernelEx", launch) &
                     find(library, "cuCtxGetCurrent", current) &
                     find(library, "cuCtxPushCurrent_v2", push) &
                     find(library, "cuCtxPopCurrent_v2", pop) &
                     find(library, "cuStreamIsCapturing", capturing) &
                     find(library, "cuPointerGetAttribute", attribute);
    return all ? "" : "the driver is too old";
  }

 private:
  template <typename Function>
  static bool find(void *library, const char *name, Function &function) {
    function = reinterpret_cast<Function>(dlsym(library, name));
    return function != nullptr;
  }
};

}  // namespace launch
