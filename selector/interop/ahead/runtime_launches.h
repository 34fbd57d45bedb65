// Written by tensor-selector: do not edit.
//
// Calls of exported kernels on GPUs: machine code loaded once for each device, memory between
// kernels kept for each stream and size (selector/runtime/execute.py does the same in Python).
#pragma once

#include "runtime_driver.h"

#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <thread>

namespace {

constexpr size_t KEPT_AT_MOST = 16;

// Memory between kernels of zeros: what no kernel writes may meet the zeros of a band. `filled`: the
// launches that run once have done so.
struct Kept {
  int device = 0;
  const Program *program = nullptr;
  Handle stream = nullptr;
  std::thread::id thread;
  std::vector<int64_t> numbers;
  std::vector<Address> addresses;
  bool filled = false;
};

struct OnDevice {
  int device = 0;  // CUdevice
  Handle context = nullptr;
  int capability = 0, multiprocessors = 0;
  std::map<const Program *, Handle> modules;
  std::map<const Launch *, Handle> functions;
};

class Launcher {
 public:
  explicit Launcher(const Kernel &k) : k_(k) {}

  void call(int device, const View *v, const Number *s, Handle stream) {
    const Driver &d = driver();
    const std::lock_guard<std::mutex> alone(mutex_);
    OnDevice &on = on_device(d, device);
    const Program &p = program(on, v);
    check_sizes(k_, p, v, s);
    check_overlap(k_, v);
    std::vector<int64_t> n(size_t(p.numbers) + 1);
    p.sizes(v, s, n.data());
    const Current current(d, on.context);
    int capturing = 0;
    d.check(d.capturing(stream, &capturing), "the stream cannot be used");
    Run run{d, on, p, v, s, n, stream, {}};
    if (capturing) {
      captured(run);
      return;
    }
    Kept &kept = kept_for(run, device);
    run.scratch = kept.addresses;
    const bool again = kept.filled && p.scratch_count;
    launch(run, again, again);
    kept.filled = true;
  }

  void release() {
    const std::lock_guard<std::mutex> alone(mutex_);
    if (devices_.empty()) return;
    const Driver &d = driver();
    while (!kept_.empty()) forget(d);
    for (auto &[number, on] : devices_) {
      {
        const Current current(d, on.context);
        for (auto &[program, module] : on.modules) d.unload(module);
      }
      d.release(on.device);
    }
    devices_.clear();
  }

 private:
  struct Run {
    const Driver &d;
    OnDevice &on;
    const Program &p;
    const View *v;
    const Number *s;
    const std::vector<int64_t> &n;
    Handle stream;
    std::vector<Address> scratch;
  };

  struct alignas(64) Slot {
    uint8_t bytes[128];
  };

  OnDevice &on_device(const Driver &d, int number) {
    const auto known = devices_.find(number);
    if (known != devices_.end()) return known->second;
    OnDevice on;
    d.check(d.device(&on.device, number), "the GPU cannot be used");
    int major = 0, minor = 0;
    d.check(d.device_attribute(&major, MAJOR, on.device), "the GPU cannot be asked");
    d.check(d.device_attribute(&minor, MINOR, on.device), "the GPU cannot be asked");
    d.check(d.device_attribute(&on.multiprocessors, MULTIPROCESSORS, on.device),
            "the GPU cannot be asked");
    on.capability = 10 * major + minor;
    d.check(d.retain(&on.context, on.device), "the GPU's context cannot be had");
    return devices_[number] = on;
  }

  // Of the targets that the device runs the newest, of its programs the one of the size class.
  const Program &program(const OnDevice &on, const View *v) const {
    const Program *best = nullptr;
    std::string targets;
    for (int i = 0; i < k_.count; ++i) {
      const Program &p = k_.programs[i];
      if (targets.find(p.target) == std::string::npos) targets += std::string(" ") + p.target;
      if (!p.cubin || !p.runs_on(on.capability)) continue;
      if (!best || p.capability > best->capability ||
          (p.capability == best->capability && p.exact && !best->exact))
        best = &p;
    }
    if (!best)
      fail(TENSOR_SELECTOR_TARGET, std::string(k_.name) + " is compiled for" + targets +
                                       "; this GPU has compute capability " +
                                       str(on.capability / 10) + "." + str(on.capability % 10));
    std::vector<bool> fits;
    for (int i = 0; i < k_.count; ++i)
      fits.push_back(!std::strcmp(k_.programs[i].target, best->target));
    return choose(k_, v, fits);
  }

  Handle function(const Run &run, const Launch &l) {
    const auto known = run.on.functions.find(&l);
    if (known != run.on.functions.end()) return known->second;
    Handle &module = run.on.modules[&run.p];
    if (!module) run.d.check(run.d.load(&module, run.p.cubin), "the machine code cannot be loaded");
    Handle found = nullptr;
    run.d.check(run.d.function(&found, module, l.entry), l.entry);
    if (l.shared > STATIC_SHARED)
      run.d.check(run.d.set(found, DYNAMIC_SHARED, int(l.shared)), "shared memory cannot be had");
    return run.on.functions[&l] = found;
  }

  size_t bytes(const Run &run, int i) const {
    const Scratch &scratch = run.p.scratch[i];
    return size_t(most<int64_t>(run.n[size_t(scratch.at)], 1)) * size_t(scratch.element);
  }

  Kept &kept_for(const Run &run, int device) {
    const bool each = reinterpret_cast<uintptr_t>(run.stream) == PER_THREAD;
    const std::thread::id thread = each ? std::this_thread::get_id() : std::thread::id();
    for (Kept &kept : kept_)
      if (kept.device == device && kept.program == &run.p && kept.stream == run.stream &&
          kept.thread == thread && kept.numbers == run.n)
        return kept;
    if (!run.p.scratch_count) {  // nothing to keep
      none_.filled = false;
      return none_;
    }
    while (kept_.size() >= KEPT_AT_MOST) forget(run.d);
    Kept made{device, &run.p, run.stream, thread, run.n, {}, false};
    for (int i = 0; i < run.p.scratch_count; ++i) {
      Address address = 0;
      run.d.check(run.d.allocate(&address, bytes(run, i)), "memory between kernels");
      made.addresses.push_back(address);
      run.d.check(run.d.fill(address, 0, bytes(run, i), run.stream), "memory between kernels");
    }
    kept_.push_back(made);
    return kept_.back();
  }

  // What was made first; its launches are complete before its memory goes.
  void forget(const Driver &d) {
    const Kept &oldest = kept_.front();
    const Current current(d, devices_[oldest.device].context);
    d.synchronize();
    for (const Address address : oldest.addresses) d.free(address);
    kept_.pop_front();
  }

  // On a stream that is being captured: all launches, on memory of the graph's own.
  void captured(Run &run) {
    for (int i = 0; i < run.p.scratch_count; ++i) {
      Address address = 0;
      run.d.check(run.d.allocate_async(&address, bytes(run, i), run.stream),
                  "memory between kernels");
      run.scratch.push_back(address);
      run.d.check(run.d.fill(address, 0, bytes(run, i), run.stream), "memory between kernels");
    }
    bool once = false;
    for (int i = 0; i < run.p.launch_count; ++i) once |= run.p.launches[i].once;
    launch(run, false, !once && run.p.scratch_count);
    for (const Address address : run.scratch)
      run.d.check(run.d.free_async(address, run.stream), "memory between kernels");
  }

  // `again`: without what runs once. `early`: each may start while the one before it ends, but the
  // first, before which anything may run.
  void launch(const Run &run, bool again, bool early) {
    bool first = true;
    int64_t before = 0;  // blocks of the last one
    for (int i = 0; i < run.p.launch_count; ++i) {
      const Launch &l = run.p.launches[i];
      if (again && l.once) continue;
      int64_t grid[3] = {run.n[size_t(l.at)], run.n[size_t(l.at) + 1], run.n[size_t(l.at) + 2]};
      if (grid[0] <= 0 || grid[1] <= 0 || grid[2] <= 0) continue;
      blocks(run.on, l, grid);
      const int64_t own = grid[0] * grid[1] * grid[2];
      const bool crowded = l.crowd && own <= (run.on.multiprocessors - before) * l.crowd;
      const bool starts = early && l.early && !first && !crowded;
      LaunchConfig config{{uint32_t(grid[0]), uint32_t(grid[1]), uint32_t(grid[2])},
                          {uint32_t(l.threads), 1, 1},
                          l.shared,
                          run.stream,
                          starts ? &EARLY : nullptr,
                          starts ? 1u : 0u};
      std::vector<Slot> slots(size_t(l.count) + 1);
      std::vector<void *> pointers(size_t(l.count) + 1);
      fill(run, l, slots.data(), pointers.data());
      run.d.check(run.d.launch(&config, function(run, l), pointers.data(), nullptr), l.entry);
      first = false;
      before = own;
    }
  }

  // Whole clusters, and no more than are persistent.
  static void blocks(const OnDevice &on, const Launch &l, int64_t *grid) {
    const int64_t size = l.cluster;
    grid[0] = (grid[0] + size - 1) / size * size;
    if (l.persistent) {
      const int64_t limit = most<int64_t>(int64_t(on.multiprocessors) * l.persistent / size, 1);
      grid[0] = least(grid[0] * grid[1] * grid[2], limit * size);
      grid[1] = grid[2] = 1;
    }
    if (grid[0] > LARGEST || grid[1] > 65535 || grid[2] > 65535)
      fail(TENSOR_SELECTOR_ARGUMENT, std::string(l.entry) + ": a grid of " + str(grid[0]) + " x " +
                                         str(grid[1]) + " x " + str(grid[2]) +
                                         " blocks is too large");
  }

  void fill(const Run &run, const Launch &l, Slot *slots, void **pointers) const {
    std::vector<bool> made(size_t(l.count), true);
    const auto address = [&](int index) {
      return index < k_.arrays ? Address(reinterpret_cast<uintptr_t>(run.v[index].data))
                               : run.scratch[size_t(index - k_.arrays)];
    };
    for (int i = 0; i < l.count; ++i) {
      const Argument &a = l.arguments[i];
      uint8_t *at = slots[i].bytes;
      pointers[i] = at;
      if (a.kind == Argument::VALUE) {
        std::memcpy(at, &run.n[size_t(a.at)], size_t(a.bytes));
      } else if (a.kind == Argument::ADDRESS) {
        const Address value = address(a.index);
        std::memcpy(at, &value, sizeof value);
      } else if (a.kind == Argument::NUMBER) {
        std::memcpy(at, run.s[a.index].bytes, size_t(a.bytes));
      } else if (a.kind == Argument::MAP) {
        made[size_t(i)] = encode(run.d, a.shape, &run.n[size_t(a.at)], address(a.index), at);
      }
    }
    for (int i = 0; i < l.count; ++i) {
      if (l.arguments[i].kind != Argument::READY) continue;
      int32_t all = 1;
      for (int w = 0; w < l.arguments[i].index; ++w) all &= made[size_t(l.arguments[i].wanted[w])];
      std::memcpy(slots[i].bytes, &all, sizeof all);
    }
  }

  const Kernel &k_;
  std::mutex mutex_;
  std::map<int, OnDevice> devices_;
  std::list<Kept> kept_;
  Kept none_;
};

}  // namespace
