// Written by tensor-selector: do not edit.
//
// Calls of exported kernels: what a program is, as data, and what its arrays are checked against.
// Included in one source file alone; the other half is runtime_launches.h.
#pragma once

#include "tensor_selector.h"

#include <climits>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

namespace {

constexpr int AXES = 8, MAP_AXES = 5;
constexpr int64_t LARGEST = 2147483647;  // indices are int32

struct Failure {
  int code;
  std::string text;
};

[[noreturn]] void fail(int code, const std::string &text) { throw Failure{code, text}; }

std::string str(int64_t n) { return std::to_string(n); }

// Integers wrap, in whatever type; a division rounds so that the remainder is not negative, and one
// by zero gives zero.
template <typename T, bool real = std::is_floating_point_v<T>>
struct Arithmetic {
  static T sum(T a, T b) { return T(uint64_t(a) + uint64_t(b)); }
  static T difference(T a, T b) { return T(uint64_t(a) - uint64_t(b)); }
  static T product(T a, T b) { return T(uint64_t(a) * uint64_t(b)); }
  static T remainder(T a, T b) {
    if (b == T(0) || b == T(-1)) return T(0);
    const T r = T(a % b);
    if (!(r < T(0))) return r;
    return b < T(0) ? T(r - b) : T(r + b);
  }
  static T quotient(T a, T b) {
    if (b == T(0)) return T(0);
    if (std::is_signed_v<T> && b == T(-1)) return difference(T(0), a);
    if (!std::is_signed_v<T>) return T(a / b);
    return T((a - remainder(a, b)) / b);
  }
};

template <typename T>
struct Arithmetic<T, true> {
  static T sum(T a, T b) { return a + b; }
  static T difference(T a, T b) { return a - b; }
  static T product(T a, T b) { return a * b; }
  static T quotient(T a, T b) { return a / b; }
};

template <typename T> [[maybe_unused]] T sum(T a, T b) { return Arithmetic<T>::sum(a, b); }
template <typename T> [[maybe_unused]] T difference(T a, T b) {
  return Arithmetic<T>::difference(a, b);
}
template <typename T> [[maybe_unused]] T product(T a, T b) { return Arithmetic<T>::product(a, b); }
template <typename T> [[maybe_unused]] T quotient(T a, T b) {
  return Arithmetic<T>::quotient(a, b);
}
template <typename T> [[maybe_unused]] T remainder(T a, T b) {
  return Arithmetic<T>::remainder(a, b);
}
template <typename T> [[maybe_unused]] T least(T a, T b) { return b < a ? b : a; }
template <typename T> [[maybe_unused]] T most(T a, T b) { return a < b ? b : a; }
template <typename T> [[maybe_unused]] T both(T a, T b) { return a && b; }
template <typename T> [[maybe_unused]] T either(T a, T b) { return a || b; }

// An array that passed; dimension 0 is the last axis.
struct View {
  void *data = nullptr;
  int64_t extents[AXES] = {}, strides[AXES] = {};
  int64_t span = 0;  // bytes from the first element to behind the last
};

struct Number {
  int64_t whole = 0;
  double real = 0;
  unsigned char bytes[8] = {};

  template <typename T> static Number of(T value) {
    Number n;
    n.whole = std::is_floating_point_v<T> ? 0 : int64_t(value);
    n.real = double(value);
    std::memcpy(n.bytes, &value, sizeof value);
    return n;
  }
  template <typename T> T as() const {
    T value;
    std::memcpy(&value, bytes, sizeof value);
    return value;
  }
};

// What an array has to be: -1 stands for any extent, any stride.
struct Field {
  const char *name, *type;
  int code, bits, axes;
  bool output;
  int64_t extents[AXES], strides[AXES];
};

struct Required {
  int array, dimension;
};

struct MapShape {
  bool possible;
  int type;
  int axes, element, swizzle;
  bool stored;
  uint32_t box[MAP_AXES], steps[MAP_AXES];
};

struct Argument {
  enum Kind { VALUE, ADDRESS, NUMBER, MAP, READY } kind;
  int index, at, bytes;
  const int *wanted;
  MapShape shape;

  [[maybe_unused]] static constexpr Argument address(int index) {
    return {ADDRESS, index, 0, 8, nullptr, {}};
  }
  [[maybe_unused]] static constexpr Argument number(int index, int bytes) {
    return {NUMBER, index, 0, bytes, nullptr, {}};
  }
  [[maybe_unused]] static constexpr Argument value(int at, int bytes) {
    return {VALUE, 0, at, bytes, nullptr, {}};
  }
  [[maybe_unused]] static constexpr Argument map(int index, int at, MapShape shape) {
    return {MAP, index, at, 128, nullptr, shape};
  }
  [[maybe_unused]] static constexpr Argument ready(const int *wanted, int count) {
    return {READY, count, 0, 4, wanted, {}};
  }
};

struct Launch {
  const char *entry;
  int at;  // of the grid among the sizes
  int threads;
  unsigned shared;
  bool once;
  int persistent, cluster;
  bool early;
  int crowd;  // blocks on an idle multiprocessor, where there is no room beside others; 0: there is
  const Argument *arguments;
  int count;
};

struct Scratch {
  int at, element;
};

struct Program {
  const char *target;
  int capability;
  bool exact;  // runs on that capability alone
  const unsigned char *cubin;
  const Required *required;
  int requirements;
  void (*needs)(const View *, const Number *, int64_t *);
  const char *(*promises)(const View *, const Number *);
  void (*sizes)(const View *, const Number *, int64_t *);
  int numbers;
  const Launch *launches;
  int launch_count;
  const Scratch *scratch;
  int scratch_count;
  const int64_t *size_class;
  int (*run)(const View *, const Number *, const int64_t *);

  bool runs_on(int device) const {
    if (exact) return device == capability;
    return cubin && device / 10 == capability / 10 && device >= capability;
  }
};

struct Kernel {
  const char *name;
  const Field *fields;
  int arrays, inputs;
  const Program *programs;
  int count;
};

std::string shape_of(const Field &f, const View &v) {
  std::string text = "(";
  for (int d = f.axes; d--;) text += str(v.extents[d]) + (d || f.axes == 1 ? ", " : "");
  if (f.axes == 1) text.pop_back();
  return text + ")";
}

void check_strides(const Field &f, const View &v) {
  for (int d = 0; d < f.axes; ++d) {
    if (v.extents[d] <= 1) continue;
    const std::string axis = std::string(f.name) + ": axis " + str(f.axes - 1 - d);
    if (v.strides[d] < 0)
      fail(TENSOR_SELECTOR_ARGUMENT, axis + " runs backwards (stride " + str(v.strides[d]) + ")");
    if (f.strides[d] >= 0 && v.strides[d] != f.strides[d])
      fail(TENSOR_SELECTOR_ARGUMENT, axis + " must have stride " + str(f.strides[d]) + ", has " +
                                         str(v.strides[d]) + " (in elements)");
  }
}

// No row of declared stride has more elements than there are before another axis goes on.
void check_rows(const Field &f, const View &v) {
  for (int d = 0; d < f.axes; ++d)
    if (v.extents[d] == 0) return;
  for (int d = 0; d < f.axes; ++d)
    for (int e = 0; e < f.axes; ++e) {
      const int64_t own = f.strides[d], other = f.strides[e];
      const bool after = own == other ? e > d : own < other && other % own == 0;
      if (own <= 0 || !after || v.extents[d] <= 1 || v.extents[d] <= other / own) continue;
      fail(TENSOR_SELECTOR_ARGUMENT,
           std::string(f.name) + ": axis " + str(f.axes - 1 - d) + " has " + str(v.extents[d]) +
               " elements, and axis " + str(f.axes - 1 - e) + " goes on after " + str(other / own));
    }
}

// Each element of an output is its own.
void check_output(const Field &f, const View &v) {
  bool done[AXES] = {};
  int64_t reach = 1;
  for (int turn = 0; turn < f.axes; ++turn) {
    int next = -1;
    for (int d = 0; d < f.axes; ++d)
      if (!done[d] && (next < 0 || v.strides[d] < v.strides[next] ||
                       (v.strides[d] == v.strides[next] && v.extents[d] < v.extents[next])))
        next = d;
    done[next] = true;
    if (v.extents[next] <= 1) continue;
    if (v.strides[next] < reach)
      fail(TENSOR_SELECTOR_ARGUMENT,
           std::string(f.name) + ": elements of the out= array share memory");
    reach = v.strides[next] * (v.extents[next] - 1) + 1;
  }
}

View view_of(const Field &f, const DLTensor *t) {
  const std::string name = f.name;
  if (!t) fail(TENSOR_SELECTOR_ARGUMENT, "missing: " + name);
  const bool own = t->dtype.code == f.code && t->dtype.bits == f.bits;
  const bool as_bits = f.code == kDLBfloat && t->dtype.code == kDLUInt && t->dtype.bits == 16;
  if (t->dtype.lanes != 1 || !(own || as_bits)) {
    const char *codes[] = {"int", "uint", "float", "handle", "bfloat", "complex", "bool"};
    const std::string code = t->dtype.code < 7 ? codes[t->dtype.code] : "type ";
    const std::string bits = t->dtype.code == kDLBool ? "" : str(t->dtype.bits);
    const std::string lanes = t->dtype.lanes == 1 ? "" : " x " + str(t->dtype.lanes);
    fail(TENSOR_SELECTOR_ARGUMENT, name + ": expected " + f.type + ", got " + code + bits + lanes);
  }
  if (t->ndim != f.axes)
    fail(TENSOR_SELECTOR_ARGUMENT,
         name + ": expected " + str(f.axes) + " axes, got " + str(t->ndim));
  View v;
  int64_t dense = 1, reach = 0, longest = 0;
  bool empty = false;
  for (int axis = 0; axis < f.axes; ++axis) empty |= t->shape[axis] <= 0;
  for (int d = 0; d < f.axes; ++d) {
    const int axis = f.axes - 1 - d;
    v.extents[d] = t->shape[axis];
    v.strides[d] = t->strides && !empty && v.extents[d] > 1 ? t->strides[axis] : dense;
    if (v.extents[d] > 0 && dense <= LARGEST) dense *= v.extents[d];
    if (f.extents[d] >= 0 && v.extents[d] != f.extents[d])
      fail(TENSOR_SELECTOR_ARGUMENT, name + ": axis " + str(axis) + " must have " +
                                         str(f.extents[d]) + " elements, has " +
                                         str(v.extents[d]));
  }
  check_strides(f, v);
  check_rows(f, v);
  if (f.output) check_output(f, v);
  for (int d = 0; d < f.axes; ++d) {
    longest = most(longest, v.extents[d]);
    if (v.extents[d] > 1 && v.strides[d] > 0)
      reach = v.strides[d] > (LARGEST - least(reach, LARGEST)) / (v.extents[d] - 1)
                  ? LARGEST + 1
                  : reach + (v.extents[d] - 1) * v.strides[d];
  }
  if (reach > LARGEST || longest > LARGEST)
    fail(TENSOR_SELECTOR_ARGUMENT, name + ": too many elements from first to last: indices are 32 "
                                          "bits wide, at most 2147483648 elements");
  for (int d = 0; d < f.axes; ++d) v.strides[d] = least(v.strides[d], LARGEST);
  v.span = empty ? 0 : (reach + 1) * (f.bits / 8);
  v.data = static_cast<unsigned char *>(t->data) + t->byte_offset;
  if (!t->data && v.span) fail(TENSOR_SELECTOR_ARGUMENT, name + ": its data is null");
  return v;
}

// The one device that all arrays are on.
DLDevice device_of(const Kernel &k, const DLTensor *const *tensors) {
  const auto host = [](DLDevice d) { return d.device_type == kDLCPU; };
  const auto place = [&](DLDevice d) {
    return host(d) ? std::string("the CPU") : "GPU " + str(d.device_id);
  };
  const DLDevice first = tensors[0]->device;
  for (int i = 0; i < k.arrays; ++i) {
    const DLDevice d = tensors[i]->device;
    if (!host(d) && d.device_type != kDLCUDA && d.device_type != kDLCUDAManaged)
      fail(TENSOR_SELECTOR_ARGUMENT, std::string(k.fields[i].name) + " is on a device of type " +
                                         str(d.device_type) + ": CPU (1) or CUDA (2, 13) are known");
    if (host(d) != host(first) || (!host(d) && d.device_id != first.device_id))
      fail(TENSOR_SELECTOR_ARGUMENT, std::string(k.fields[i].name) + " is on " + place(d) + ", " +
                                         k.fields[0].name + " on " + place(first));
  }
  return first;
}

void check_overlap(const Kernel &k, const View *v) {
  for (int i = k.inputs; i < k.arrays; ++i)
    for (int j = 0; j < i; ++j) {
      const auto a = reinterpret_cast<uintptr_t>(v[i].data);
      const auto b = reinterpret_cast<uintptr_t>(v[j].data);
      if (a < b + uint64_t(v[j].span) && b < a + uint64_t(v[i].span))
        fail(TENSOR_SELECTOR_ARGUMENT, std::string(k.fields[i].name) +
                                           ": the out= array shares memory with " +
                                           k.fields[j].name);
    }
}

// Whether the arrays hold what is read and written, and whether what was promised is kept.
void check_sizes(const Kernel &k, const Program &p, const View *v, const Number *s) {
  bool nothing = true;
  std::string outputs;
  for (int i = k.inputs; i < k.arrays; ++i) {
    bool empty = false;
    for (int d = 0; d < k.fields[i].axes; ++d) empty |= v[i].extents[d] == 0;
    nothing &= empty;
    outputs += (i > k.inputs ? ", " : "") + std::string(k.fields[i].name) + " of shape " +
               shape_of(k.fields[i], v[i]);
  }
  if (!nothing && p.requirements) {
    std::vector<int64_t> n(size_t(p.requirements) * 3);
    p.needs(v, s, n.data());
    for (int i = 0; i < p.requirements; ++i) {
      const Required r = p.required[i];
      const int64_t low = n[size_t(i) * 3], high = n[size_t(i) * 3 + 1], first = n[size_t(i) * 3 + 2];
      const int64_t has = v[r.array].extents[r.dimension];
      if (high < low || (first <= low && high < first + has)) continue;
      const Field &f = k.fields[r.array];
      const std::string axis = std::string(f.name) + ": axis " + str(f.axes - 1 - r.dimension);
      fail(TENSOR_SELECTOR_ARGUMENT,
           axis + (low < first ? " is read from " + str(low) + " on, and begins at " + str(first)
                               : " needs " + str(high + 1 - first) + " elements, has " + str(has)) +
               ", for " + outputs);
    }
  }
  if (const char *broken = p.promises(v, s)) fail(TENSOR_SELECTOR_ARGUMENT, broken);
}

// The program of a size class, else the nearest (selector/runtime/classes.py). `fits`: those that
// the device can run.
const Program &choose(const Kernel &k, const View *v, const std::vector<bool> &fits) {
  const auto rounded = [](int64_t n) {
    int64_t low = 1;
    while (low * 2 <= n) low *= 2;
    return n < 2 ? 1 : double(n) * double(n) < 2.0 * double(low) * double(low) ? low : 2 * low;
  };
  const Program *found = nullptr;
  double least_away = 0;
  for (int i = 0; i < k.count; ++i) {
    const Program &p = k.programs[i];
    if (!fits[size_t(i)]) continue;
    double away = 0;
    bool holds = true;
    const int64_t *wanted = p.size_class;
    for (int a = 0; wanted && a < k.arrays; ++a)
      for (int d = 0; d < k.fields[a].axes; ++d, ++wanted) {
        if (!*wanted) continue;
        holds &= rounded(v[a].extents[d]) == *wanted;
        away += std::fabs(std::log2(double(most<int64_t>(v[a].extents[d], 1)) / double(*wanted)));
      }
    if (holds) return p;
    if (!found || away < least_away) found = &p, least_away = away;
  }
  return *found;
}

}  // namespace
