// Written by tensor-selector: do not edit.
//
// The part of the CUDA driver that exported kernels need, found in the installed library when a
// kernel is first called.
#pragma once

#include "runtime_arrays.h"
#include "runtime_cuda.h"

#include <dlfcn.h>

namespace {

using namespace tensor_selector;
using Address = uint64_t;

constexpr int MULTIPROCESSORS = 16, MAJOR = 75, MINOR = 76;  // CUdevice_attribute
constexpr int DYNAMIC_SHARED = 8;                            // CUfunction_attribute
constexpr unsigned STATIC_SHARED = 48 * 1024;  // more dynamic shared memory has to be asked for
constexpr int RELAXED = 2;                     // CUstreamCaptureMode
constexpr int OUT_OF_MEMORY = 2;               // CUresult

struct Driver {
  int (*init)(unsigned);
  int (*device)(int *, int);
  int (*device_attribute)(int *, int attribute, int device);
  int (*retain)(Handle *context, int device);
  int (*release)(int device);
  int (*push)(Handle);
  int (*pop)(Handle *);
  int (*synchronize)();
  int (*load)(Handle *module, const void *image);
  int (*unload)(Handle module);
  int (*function)(Handle *, Handle module, const char *name);
  int (*set)(Handle function, int attribute, int value);
  int (*allocate)(Address *, size_t);
  int (*free)(Address);
  int (*allocate_async)(Address *, size_t, Handle stream);
  int (*free_async)(Address, Handle stream);
  int (*fill)(Address, unsigned char, size_t, Handle stream);
  int (*capturing)(Handle stream, int *status);
  int (*exchange)(int *mode);
  LaunchKernel *launch;
  int (*error)(int status, const char **name);
  EncodeMap *encode;  // older drivers lack it

  void check(int status, const char *what) const {
    if (!status) return;
    const char *name = nullptr;
    if (error(status, &name) || !name) name = "unknown error";
    fail(status == OUT_OF_MEMORY ? TENSOR_SELECTOR_MEMORY : TENSOR_SELECTOR_DRIVER,
         std::string(what) + ": " + name + " (" + str(status) + ")");
  }
};

const Driver &driver() {
  static const Driver found = [] {
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!library)
      fail(TENSOR_SELECTOR_TARGET, std::string("there is no CUDA driver here: ") + dlerror());
    Driver d{};
    const char *missing = nullptr;
    const auto find = [&](auto &function, const char *name, bool needed = true) {
      void *address = dlsym(library, name);
      std::memcpy(&function, &address, sizeof address);
      if (!address && needed) missing = name;
    };
    find(d.init, "cuInit");
    find(d.device, "cuDeviceGet");
    find(d.device_attribute, "cuDeviceGetAttribute");
    find(d.retain, "cuDevicePrimaryCtxRetain");
    find(d.release, "cuDevicePrimaryCtxRelease_v2");
    find(d.push, "cuCtxPushCurrent_v2");
    find(d.pop, "cuCtxPopCurrent_v2");
    find(d.synchronize, "cuCtxSynchronize");
    find(d.load, "cuModuleLoadData");
    find(d.unload, "cuModuleUnload");
    find(d.function, "cuModuleGetFunction");
    find(d.set, "cuFuncSetAttribute");
    find(d.allocate, "cuMemAlloc_v2");
    find(d.free, "cuMemFree_v2");
    find(d.allocate_async, "cuMemAllocAsync");
    find(d.free_async, "cuMemFreeAsync");
    find(d.fill, "cuMemsetD8Async");
    find(d.capturing, "cuStreamIsCapturing");
    find(d.exchange, "cuThreadExchangeStreamCaptureMode");
    find(d.launch, "cuLaunchKernelEx");
    find(d.error, "cuGetErrorName");
    find(d.encode, "cuTensorMapEncodeTiled", false);
    if (missing)
      fail(TENSOR_SELECTOR_TARGET, std::string("the CUDA driver is too old: it has no ") + missing);
    d.check(d.init(0), "cuInit");
    return d;
  }();
  return found;
}

// A context that is current, and a thread that may allocate while a stream is captured.
class Current {
 public:
  Current(const Driver &d, Handle context) : d_(d) {
    d_.check(d_.push(context), "cuCtxPushCurrent");
    d_.exchange(&mode_);
  }
  ~Current() {
    d_.exchange(&mode_);
    Handle old;
    d_.pop(&old);
  }
  Current(const Current &) = delete;
  Current &operator=(const Current &) = delete;

 private:
  const Driver &d_;
  int mode_ = RELAXED;
};

// What the copy engine has to know of an array (selector/runtime/tensor_map.py); false, and zeros,
// for one that it cannot read. `n`: extents in elements, then strides in elements.
bool encode(const Driver &d, const MapShape &m, const int64_t *n, Address address, void *map) {
  std::memset(map, 0, 128);
  uint64_t extents[MAP_AXES] = {}, strides[MAP_AXES] = {};
  bool possible = d.encode && m.possible && address % 16 == 0;
  bool apart = true, far = true, within = false;  // rows: no two in a box's, in a fetch; in lines
  const int64_t row = int64_t(m.box[0]) * m.element;
  for (int i = 0; i < m.axes; ++i) {
    possible &= 0 < n[i] && n[i] <= int64_t(1) << 32;
    extents[i] = uint64_t(n[i]);
  }
  for (int i = 0; i + 1 < m.axes; ++i) {
    const int64_t stride = n[m.axes + i] * m.element;
    possible &= 0 < stride && stride < int64_t(1) << 40 && stride % 16 == 0;
    apart &= stride > row;
    far &= stride > 256;
    within |= stride % 128 != 0;
    strides[i] = uint64_t(stride);
  }
  if (!possible || (m.stored && n[0] * m.element % 16)) return false;
  const int promotion = row <= 64 && apart ? 1 : within && far ? 2 : 3;  // 64, 128, 256 bytes
  const int status = d.encode(map, m.type, uint32_t(m.axes), address, extents, strides, m.box,
                              m.steps, 0, m.swizzle, promotion, 0);
  if (status) std::memset(map, 0, 128);
  return !status;
}

}  // namespace
