// Programs from what Python says of them: see `selector/runtime/native.py`.
#pragma once

#include "program.h"

namespace launch {

// Calls `each` with the items of any sequence; false, with an error set, if one is refused.
template <typename Each>
bool for_each(PyObject *sequence, Each &&each) {
  const Object items(PySequence_Fast(sequence, "expected a sequence"));
  if (!items) return false;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(items.get()); i++)
    if (!each(PySequence_Fast_GET_ITEM(items.get(), i))) return false;
  return true;
}

template <typename Number>
bool parse_numbers(PyObject *sequence, std::vector<Number> &result) {
  return for_each(sequence, [&](PyObject *item) {
    uint64_t value;
    if (!address_of(item, value)) return false;
    result.push_back(static_cast<Number>(value));
    return true;
  });
}

template <typename Number>
bool parse_extents(PyObject *sequence, Number (&result)[RANK_AT_MOST], uint32_t &count) {
  std::vector<Number> numbers;
  if (!parse_numbers(sequence, numbers)) return false;
  if (numbers.size() > RANK_AT_MOST) {
    PyErr_SetString(PyExc_ValueError, "a tensor map has at most 5 dimensions");
    return false;
  }
  std::copy(numbers.begin(), numbers.end(), result);
  count = numbers.size();
  return true;
}

inline bool parse_map(PyObject *described, MapShape &map) {
  PyObject *extents, *strides, *box, *steps;
  int possible;
  uint32_t apart, boxed, stepped;
  if (!PyArg_ParseTuple(described, "piOOOOii", &possible, &map.type, &extents, &strides, &box,
                        &steps, &map.swizzle, &map.promotion))
    return false;
  map.possible = possible;
  return parse_extents(extents, map.extents, map.rank) &&
         parse_extents(strides, map.strides, apart) && parse_extents(box, map.box, boxed) &&
         parse_extents(steps, map.steps, stepped);
}

inline bool parse_argument(PyObject *described, Argument &argument, Program &program) {
  int kind;
  PyObject *of, *map = nullptr;
  if (!PyArg_ParseTuple(described, "CO|O", &kind, &of, &map)) return false;
  argument.kind = static_cast<Argument::Kind>(kind);
  int64_t number = 0;
  const char *value = nullptr;
  if (kind == Argument::VALUE) {
    Py_ssize_t length;
    if (PyBytes_AsStringAndSize(of, const_cast<char **>(&value), &length)) return false;
    argument.bytes = length;
  } else if (kind == Argument::READY) {
    argument.bytes = sizeof(int32_t);
    if (!parse_numbers(of, argument.wanted)) return false;
  } else if (!integer(of, number)) {
    return false;
  }
  argument.index = number;
  if (kind == Argument::ADDRESS || kind == Argument::SCALAR) argument.bytes = sizeof(uint64_t);
  if (kind == Argument::MAP) {
    argument.bytes = MAP_BYTES;
    if (!parse_map(map, argument.map)) return false;
  }
  argument.offset = (program.room.size() + 15) / 16 * 16;
  program.room.resize(argument.offset + argument.bytes);
  if (value) std::memcpy(program.room.data() + argument.offset, value, argument.bytes);
  program.arguments++;
  return true;
}

inline bool parse_launch(PyObject *described, Launch &launch, Program &program) {
  unsigned long long function;
  int early;
  PyObject *arguments;
  LaunchConfig &c = launch.config;
  if (!PyArg_ParseTuple(described, "K(III)(III)IpO", &function, &c.grid[0], &c.grid[1], &c.grid[2],
                        &c.block[0], &c.block[1], &c.block[2], &c.shared_bytes, &early, &arguments))
    return false;
  launch.function = reinterpret_cast<Handle>(function);
  if (early) c.attributes = &EARLY, c.count = 1;
  return for_each(arguments, [&](PyObject *item) {
    return parse_argument(item, launch.arguments.emplace_back(), program);
  });
}

inline bool parse_allocation(PyObject *described, Allocation &allocation) {
  PyObject *function, *arguments, *named;
  if (!PyArg_ParseTuple(described, "OO!O!", &function, &PyTuple_Type, &arguments, &PyDict_Type,
                        &named))
    return false;
  allocation = {Object::of(function), Object::of(arguments), Object::of(named)};
  return true;
}

inline bool parse_scratch(PyObject *described, Scratch &scratch) {
  unsigned long long stream, thread;
  PyObject *addresses, *owner;
  if (!PyArg_ParseTuple(described, "KKOO", &stream, &thread, &addresses, &owner)) return false;
  scratch.stream = stream;
  scratch.thread = thread;
  scratch.owner = Object::of(owner);
  return parse_numbers(addresses, scratch.addresses);
}

}  // namespace launch
