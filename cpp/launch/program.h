// The launches of one signature: machine code, grids, and arguments with holes for what differs
// from call to call.
#pragma once

#include "arrays.h"

#include <mutex>
#include <unordered_map>

namespace launch {

constexpr size_t MAP_BYTES = 128, MAPS_AT_MOST = 256, RANK_AT_MOST = 5;

// What cuTensorMapEncodeTiled takes besides an address, and the maps that it made.
struct MapShape {
  int type = 0, swizzle = 0, promotion = 0;
  uint32_t rank = 0;
  bool possible = false;  // for an address that is a multiple of 16
  uint64_t extents[RANK_AT_MOST] = {}, strides[RANK_AT_MOST] = {};
  uint32_t box[RANK_AT_MOST] = {}, steps[RANK_AT_MOST] = {};

  struct alignas(64) Map {
    uint8_t bytes[MAP_BYTES] = {};
    bool made = false;
  };
  std::unordered_map<uint64_t, Map> kept;

  const Map &of(uint64_t address, const Driver &driver) {
    const auto found = kept.find(address);
    if (found != kept.end()) return found->second;
    if (kept.size() >= MAPS_AT_MOST) kept.clear();
    Map &map = kept[address];
    map.made = possible && address % 16 == 0 && driver.encode &&
               !driver.encode(map.bytes, type, rank, address, extents, strides, box, steps, 0,
                              swizzle, promotion, 0);
    if (!map.made) std::memset(map.bytes, 0, MAP_BYTES);
    return map;
  }
};

struct Argument {
  enum Kind : char { VALUE = 'v', ADDRESS = 'a', SCALAR = 's', MAP = 'm', READY = 'r' };
  Kind kind = VALUE;
  size_t offset = 0, index = 0, bytes = 0;
  std::vector<size_t> wanted;  // READY: positions of the maps that are asked for
  MapShape map;
  bool made = false;  // the map of the call at hand
};

struct Launch {
  Handle function = nullptr;
  LaunchConfig config{};
  std::vector<Argument> arguments;
};

// Intermediate buffers of a stream, and of a thread where each has one of that handle.
struct Scratch {
  uint64_t stream = 0, thread = 0;
  std::vector<uint64_t> addresses;
  Object owner;
};

// How an output is made: a callable with its arguments.
struct Allocation {
  Object function, arguments, named;
};

struct Program {
  Handle context = nullptr;
  int64_t device = 0;
  bool needs_scratch = false;
  std::vector<Launch> launches;
  std::vector<uint8_t> room;  // of all arguments, those that are the same in every call filled in
  size_t arguments = 0;
  std::vector<uint64_t> spans;
  std::vector<Allocation> allocations;
  std::vector<Scratch> scratch;

  // A copy: while Python runs, another thread may put other sets in their place.
  bool find_scratch(uint64_t stream, Scratch &found) const {
    const uint64_t thread = stream == PER_THREAD ? PyThread_get_thread_ident() : 0;
    for (const Scratch &s : scratch) {
      if (s.stream != stream || s.thread != thread) continue;
      found = s;
      return true;
    }
    return false;
  }

  // Whether an output (they come behind the inputs) shares memory with another array.
  bool overlap(const std::vector<uint64_t> &addresses, size_t inputs) const {
    for (size_t i = inputs; i < spans.size(); i++)
      for (size_t j = 0; j < i; j++)
        if (addresses[i] < addresses[j] + spans[j] && addresses[j] < addresses[i] + spans[i])
          return true;
    return false;
  }
};

// A call's own copy of the arguments, so that threads do not meet.
class Arguments {
 public:
  Arguments(Program &program, const std::vector<uint64_t> &addresses,
            const std::vector<uint64_t> &scalars, const Driver &driver)
      : room_(program.room) {
    uint8_t *start = room_.data();
    pointers_.reserve(program.arguments);
    for (Launch &launch : program.launches) {
      for (Argument &a : launch.arguments) {
        uint8_t *at = start + a.offset;
        pointers_.push_back(at);
        if (a.kind == Argument::ADDRESS) {
          std::memcpy(at, &addresses[a.index], sizeof(uint64_t));
        } else if (a.kind == Argument::SCALAR) {
          std::memcpy(at, &scalars[a.index], a.bytes);
        } else if (a.kind == Argument::MAP) {
          const MapShape::Map &map = a.map.of(addresses[a.index], driver);
          std::memcpy(at, map.bytes, MAP_BYTES);
          a.made = map.made;
        }
      }
      for (const Argument &a : launch.arguments) {
        if (a.kind != Argument::READY) continue;
        int32_t all = 1;
        for (const size_t position : a.wanted) all &= launch.arguments[position].made;
        std::memcpy(start + a.offset, &all, sizeof all);
      }
    }
  }

  // The status of the first launch that could not be made, or 0.
  int launch(const Program &program, Handle stream, const Driver &driver) {
    void **arguments = pointers_.data();
    for (const Launch &launch : program.launches) {
      LaunchConfig config = launch.config;
      config.stream = stream;
      if (const int status = driver.launch(&config, launch.function, arguments, nullptr))
        return status;
      arguments += launch.arguments.size();
    }
    return 0;
  }

 private:
  std::vector<uint8_t> room_;
  std::vector<void *> pointers_;
};

}  // namespace launch
