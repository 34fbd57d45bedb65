// Written by tensor-selector: do not edit.
//
// Calls of exported kernels on the CPU.
#pragma once

#include "runtime_arrays.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace {

// Whether this process may use tile registers; asks Linux for it once, which wants to be asked
// (Documentation/arch/x86/xstate.rst).
[[maybe_unused]] bool tiles_permitted() {
#if defined(__x86_64__)
  static const bool permitted = [] {
    constexpr unsigned avx512 = 1u << 16 | 1u << 17 | 1u << 28 | 1u << 30 | 1u << 31;
    constexpr unsigned tiles = 1u << 22 | 1u << 24 | 1u << 25;  // bf16, registers, int8
    unsigned a = 0, b = 0, c = 0, d = 0;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return false;
    if ((b & avx512) != avx512 || (d & tiles) != tiles) return false;
    return syscall(SYS_arch_prctl, 0x1023, 18) == 0;
  }();
  return permitted;
#else
  return false;
#endif
}

[[maybe_unused]] void run_on_host(const Kernel &k, const View *v, const Number *s) {
  std::vector<bool> fits;
  bool any = false;
  for (int i = 0; i < k.count; ++i) fits.push_back(k.programs[i].run), any |= fits.back();
  if (!any)
    fail(TENSOR_SELECTOR_TARGET, std::string(k.name) + " has no program for the CPU: its arrays "
                                                       "have to be on a GPU");
  const Program &p = choose(k, v, fits);
  check_sizes(k, p, v, s);
  check_overlap(k, v);
  std::vector<int64_t> n(size_t(p.numbers) + 1);
  p.sizes(v, s, n.data());
  if (p.run(v, s, n.data()))
    fail(TENSOR_SELECTOR_MEMORY, "there is not enough memory for the kernel's temporaries");
}

}  // namespace
