// The part of the CUDA driver that a call needs, found in the installed library at run time.
#pragma once

#include <dlfcn.h>

#include <string>

#include "../../selector/interop/ahead/runtime_cuda.h"

namespace launch {

using namespace tensor_selector;

constexpr int DEVICE_ORDINAL = 9;  // CUpointer_attribute

struct Driver {
  LaunchKernel *launch;
  EncodeMap *encode;
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
