// What a call is known by: library, type, shape, strides and device of each array, as numbers.
//
// Reading never judges: what is not understood is left to the checks that are written in Python.
#pragma once

#include "driver.h"
#include "python.h"

#include <cstring>
#include <vector>

namespace launch {

// The numbers of a signature. Addresses of Python objects among them stay valid as long as those
// are held, which `Held` notes for who keeps the key.
struct Key {
  static constexpr size_t ROOM = 512;
  int64_t values[ROOM];
  size_t size = 0;

  bool add(int64_t value) {
    if (size == ROOM) return false;
    values[size++] = value;
    return true;
  }
  bool add_tuple(PyObject *tuple) {
    if (!PyTuple_Check(tuple)) return false;
    const Py_ssize_t count = PyTuple_GET_SIZE(tuple);
    if (!add(count)) return false;
    for (Py_ssize_t i = 0; i < count; i++) {
      int64_t value;
      if (!integer(PyTuple_GET_ITEM(tuple, i), value) || !add(value)) return false;
    }
    return true;
  }
  uint64_t hash() const {
    uint64_t result = size;
    for (size_t i = 0; i < size; i++) {
      result = (result ^ uint64_t(values[i])) * 0x9E3779B97F4A7C15;
      result ^= result >> 29;
    }
    return result;
  }
  bool equals(const std::vector<int64_t> &other) const {
    return size == other.size() && !std::memcmp(values, other.data(), size * sizeof(int64_t));
  }
};

using Held = std::vector<Object>;

// What arrays are read with. torch's are known once somebody has imported it.
struct Libraries {
  Driver driver{};
  Object ndarray, current_stream;       // CuPy's
  Object tensor, current_torch_stream;  // torch's

  enum Kind : int64_t { CUPY, TORCH, OTHER };

  Kind kind(PyObject *value) const {
    if (Py_TYPE(value) == reinterpret_cast<PyTypeObject *>(ndarray.get())) return CUPY;
    if (tensor && PyObject_TypeCheck(value, reinterpret_cast<PyTypeObject *>(tensor.get())))
      return TORCH;
    return OTHER;
  }

  // Adds an array to the key; false, perhaps with an error set, for what is none of a device.
  bool read(PyObject *value, Key &key, uint64_t &address, int64_t &device, Kind &library,
            Held *held) const {
    library = kind(value);
    if (!key.add(library)) return false;
    switch (library) {
      case CUPY: return read_cupy(value, key, address, device, held);
      case TORCH: return read_torch(value, key, address, device, held);
      case OTHER: return read_other(value, key, address, device, held);
    }
    return false;
  }

  // The address of an array that was made by CuPy or torch.
  bool pointer(PyObject *value, uint64_t &address) const {
    const Object array = Object::of(value);
    const Object at = kind(value) == TORCH ? array.call(names.data_ptr)
                                           : array.attribute(names.data).attribute(names.ptr);
    return address_of(at.get(), address);
  }

 private:
  static bool add_object(Key &key, const Object &object, Held *held) {
    if (held) held->push_back(object);
    return object && key.add(reinterpret_cast<int64_t>(object.get()));
  }

  static bool read_cupy(PyObject *value, Key &key, uint64_t &address, int64_t &device,
                        Held *held) {
    const Object array = Object::of(value);
    const Object data = array.attribute(names.data);
    const Object shape = array.attribute(names.shape), strides = array.attribute(names.strides);
    return data && shape && strides &&
           address_of(data.attribute(names.ptr).get(), address) &&
           integer(data.attribute(names.device_id).get(), device) && key.add(device) &&
           add_object(key, array.attribute(names.dtype), held) && key.add_tuple(shape.get()) &&
           key.add_tuple(strides.get());
  }

  static bool read_torch(PyObject *value, Key &key, uint64_t &address, int64_t &device,
                         Held *held) {
    const Object tensor = Object::of(value);
    if (!integer(tensor.call(names.get_device).get(), device) || device < 0) return false;
    const Object shape = tensor.attribute(names.shape), strides = tensor.call(names.stride);
    return shape && strides && address_of(tensor.call(names.data_ptr).get(), address) &&
           key.add(device) && add_object(key, tensor.attribute(names.dtype), held) &&
           key.add_tuple(shape.get()) && key.add_tuple(strides.get());
  }

  // Anything with __cuda_array_interface__; its type is part of the signature, too.
  bool read_other(PyObject *value, Key &key, uint64_t &address, int64_t &device,
                  Held *held) const {
    const Object array = Object::of(value);
    const Object type = Object::of(reinterpret_cast<PyObject *>(Py_TYPE(value)));
    const Object interface = array.attribute(names.interface);
    if (!interface || !PyDict_Check(interface.get())) return false;
    PyObject *data = PyDict_GetItemWithError(interface.get(), names.data);
    PyObject *shape = PyDict_GetItemWithError(interface.get(), names.shape);
    PyObject *typestr = PyDict_GetItemWithError(interface.get(), names.typestr);
    PyObject *strides = PyDict_GetItemWithError(interface.get(), names.strides);
    if (!data || !PyTuple_Check(data) || PyTuple_GET_SIZE(data) != 2 || !shape || !typestr)
      return false;
    Py_ssize_t length;
    const char *text = PyUnicode_Check(typestr) ? PyUnicode_AsUTF8AndSize(typestr, &length) : nullptr;
    if (!text || length > 8 || !address_of(PyTuple_GET_ITEM(data, 0), address)) return false;
    int64_t element = 0;
    std::memcpy(&element, text, length);
    int ordinal = 0;
    if (address && driver.attribute(&ordinal, DEVICE_ORDINAL, address)) return false;
    device = ordinal;
    const int read_only = PyObject_IsTrue(PyTuple_GET_ITEM(data, 1));
    return read_only >= 0 && key.add(read_only) && key.add(device) && key.add(element) &&
           add_object(key, type, held) && key.add_tuple(shape) &&
           (strides && strides != Py_None ? key.add_tuple(strides) : key.add(-1));
  }
};

}  // namespace launch
