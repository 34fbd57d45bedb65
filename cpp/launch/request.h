// One call as it comes from Python, brought into the order of the plan and read.
#pragma once

#include "arrays.h"
#include "scalars.h"

#include <string>

namespace launch {

// What a plan takes: names of inputs, then scalars; names of outputs.
struct Signature {
  std::vector<Object> parameters, outputs;
  size_t inputs = 0;
  std::vector<Scalar> scalars;
  bool sizes_use_scalars = false;
};

struct Request {
  Key key;
  std::vector<PyObject *> given;  // borrowed: inputs, scalars
  std::vector<Object> outs;       // the arrays of out=
  std::vector<uint64_t> addresses, scalars;
  Held held;  // what numbers of the key stand for
  int64_t device = -1;
  bool torch = false;

  // False, perhaps with an error set, for a call that Python has to look at.
  bool read(const Signature &signature, const Libraries &libraries, PyObject *args,
            PyObject *named, PyObject *out, PyObject *sizes, bool hold) {
    if (!match(signature, args, named) || !match_outs(signature, out)) return false;
    const size_t inputs = signature.inputs;
    addresses.reserve(inputs + signature.outputs.size() + 8);
    for (size_t i = 0; i < inputs; i++)
      if (!read_array(libraries, given[i], hold)) return false;
    if (!key.add(outs.size())) return false;
    for (const Object &array : outs)
      if (!read_array(libraries, array.get(), hold)) return false;
    if (!add_sizes(signature, sizes)) return false;
    for (size_t i = 0; i < signature.scalars.size(); i++) {
      uint64_t bits;
      if (!scalar_bits(signature.scalars[i], given[inputs + i], bits)) return false;
      scalars.push_back(bits);
      if (signature.sizes_use_scalars && !key.add(bits)) return false;
    }
    return true;
  }

 private:
  // A shape for one output, or a dict of shapes.
  bool add_sizes(const Signature &signature, PyObject *sizes) {
    if (sizes == Py_None) return key.add(-1);
    if (!PyDict_Check(sizes)) return signature.outputs.size() == 1 && key.add_tuple(sizes);
    if (size_t(PyDict_GET_SIZE(sizes)) != signature.outputs.size()) return false;
    for (const Object &name : signature.outputs) {
      PyObject *shape = PyDict_GetItemWithError(sizes, name.get());
      if (!shape || !key.add_tuple(shape)) return false;
    }
    return true;
  }

  bool read_array(const Libraries &libraries, PyObject *array, bool hold) {
    uint64_t address;
    int64_t at;
    Libraries::Kind kind;
    if (!libraries.read(array, key, address, at, kind, hold ? &held : nullptr)) return false;
    addresses.push_back(address);
    torch |= kind == Libraries::TORCH;
    device = device < 0 ? at : device;
    return true;
  }

  bool match(const Signature &signature, PyObject *args, PyObject *named) {
    const size_t first = PyTuple_GET_SIZE(args), count = signature.parameters.size();
    if (first + PyDict_GET_SIZE(named) != count) return false;
    given.reserve(count);
    for (size_t i = 0; i < first; i++) given.push_back(PyTuple_GET_ITEM(args, i));
    for (size_t i = first; i < count; i++) {
      PyObject *value = PyDict_GetItemWithError(named, signature.parameters[i].get());
      if (!value) return false;
      given.push_back(value);
    }
    return true;
  }

  bool match_outs(const Signature &signature, PyObject *out) {
    const auto &names = signature.outputs;
    if (out == Py_None) return true;
    if (!PyDict_Check(out)) {
      if (names.size() != 1) return false;
      outs.push_back(Object::of(out));
      return true;
    }
    if (size_t(PyDict_GET_SIZE(out)) != names.size()) return false;
    for (const Object &name : names) {
      PyObject *value = PyDict_GetItemWithError(out, name.get());
      if (!value) return false;
      outs.push_back(Object::of(value));
    }
    return true;
  }
};

}  // namespace launch
