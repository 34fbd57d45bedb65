// Owned references and attributes, over the C API of CPython.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <cstdint>
#include <utility>

namespace launch {

class Object {
 public:
  Object() = default;
  explicit Object(PyObject *owned) : p(owned) {}
  Object(const Object &other) : p(other.p) { Py_XINCREF(p); }
  Object(Object &&other) noexcept : p(std::exchange(other.p, nullptr)) {}
  Object &operator=(Object other) noexcept {
    std::swap(p, other.p);
    return *this;
  }
  ~Object() { Py_XDECREF(p); }

  static Object of(PyObject *borrowed) { return Object(Py_XNewRef(borrowed)); }
  explicit operator bool() const { return p != nullptr; }
  PyObject *get() const { return p; }
  PyObject *release() { return std::exchange(p, nullptr); }
  Object attribute(PyObject *name) const { return Object(p ? PyObject_GetAttr(p, name) : nullptr); }
  Object call(PyObject *method) const {
    return Object(p ? PyObject_CallMethodNoArgs(p, method) : nullptr);
  }

 private:
  PyObject *p = nullptr;
};

// A Python integer; with an error set, and false, for anything else.
inline bool integer(PyObject *value, int64_t &result) {
  if (!value) return false;
  result = PyLong_AsLongLong(value);
  return result != -1 || !PyErr_Occurred();
}

inline bool address_of(PyObject *value, uint64_t &result) {
  if (!value) return false;
  result = PyLong_AsUnsignedLongLong(value);
  return result != uint64_t(-1) || !PyErr_Occurred();
}

// Names of attributes, made once.
struct Names {
  PyObject *shape, *strides, *dtype, *data, *ptr, *device_id, *stride, *data_ptr, *get_device,
      *interface, *typestr, *cuda_stream;

  bool make() {
    const std::pair<PyObject **, const char *> all[] = {
        {&shape, "shape"},           {&strides, "strides"},
        {&dtype, "dtype"},           {&data, "data"},
        {&ptr, "ptr"},               {&device_id, "device_id"},
        {&stride, "stride"},         {&data_ptr, "data_ptr"},
        {&get_device, "get_device"}, {&interface, "__cuda_array_interface__"},
        {&typestr, "typestr"},       {&cuda_stream, "cuda_stream"},
    };
    for (const auto &[name, text] : all)
      if (!(*name = PyUnicode_InternFromString(text))) return false;
    return true;
  }
};

inline Names names;

}  // namespace launch
