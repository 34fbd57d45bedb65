// Numbers of a call as the bits of a kernel's scalar arguments. What is not plainly right is left
// to the checks that are written in Python.
#pragma once

#include "python.h"

#include <cmath>
#include <cstring>

namespace launch {

// `kind`: f float, B bfloat, i and u integers, b bool.
struct Scalar {
  char kind;
  int bytes;
};

inline PyObject *numpy_floating, *numpy_integer;  // types, for the life of the process

inline bool is_a(PyObject *value, PyObject *type) {
  return type && PyObject_TypeCheck(value, reinterpret_cast<PyTypeObject *>(type));
}

inline bool float_bits(const Scalar &scalar, PyObject *value, uint64_t &bits) {
  double number;
  if (PyFloat_Check(value))
    number = PyFloat_AS_DOUBLE(value);
  else if (PyLong_Check(value) || is_a(value, numpy_floating) || is_a(value, numpy_integer))
    number = PyFloat_AsDouble(value);
  else
    return false;
  if (number == -1.0 && PyErr_Occurred()) return false;
  const float single = static_cast<float>(number);
  bits = 0;
  if (scalar.kind == 'B') {
    uint32_t word;
    std::memcpy(&word, &single, sizeof word);
    bits = std::isnan(number) ? 0x7FC0 : uint16_t((word + 0x7FFF + ((word >> 16) & 1)) >> 16);
    return true;
  }
  switch (scalar.bytes) {
    case 2: return PyFloat_Pack2(number, reinterpret_cast<char *>(&bits), 1) == 0;
    case 4:
      std::memcpy(&bits, &single, sizeof single);
      return std::isfinite(number) == std::isfinite(single);
    case 8: std::memcpy(&bits, &number, sizeof number); return true;
    default: return false;
  }
}

inline bool integer_bits(const Scalar &scalar, PyObject *value, uint64_t &bits) {
  if (!PyLong_Check(value) && !is_a(value, numpy_integer)) return false;
  const Object number(PyNumber_Index(value));
  int64_t whole;
  if (!integer(number.get(), whole)) return false;
  const int width = 8 * scalar.bytes;
  bits = static_cast<uint64_t>(whole);
  if (scalar.kind == 'b') return whole == 0 || whole == 1;
  if (scalar.kind == 'u') return whole >= 0 && (width == 64 || whole >> width == 0);
  return width == 64 || (whole >= -(int64_t(1) << (width - 1)) && whole < int64_t(1) << (width - 1));
}

inline bool scalar_bits(const Scalar &scalar, PyObject *value, uint64_t &bits) {
  return scalar.kind == 'f' || scalar.kind == 'B' ? float_bits(scalar, value, bits)
                                                  : integer_bits(scalar, value, bits);
}

}  // namespace launch
