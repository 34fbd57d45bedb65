// Written by tensor-selector: do not edit.
//
// What the functions of exported kernels have in common: how they are given arrays, and what they
// return. C and C++.
#ifndef TENSOR_SELECTOR_H
#define TENSOR_SELECTOR_H

#if defined(__has_include)
#if __has_include(<dlpack/dlpack.h>)
#include <dlpack/dlpack.h>
#endif
#endif

#ifndef DLPACK_DLPACK_H_  // as in dlpack.h (https://dmlc.github.io/dlpack), for who has it not
#define DLPACK_DLPACK_H_
#include <stdint.h>

typedef enum { kDLCPU = 1, kDLCUDA = 2, kDLCUDAHost = 3, kDLCUDAManaged = 13 } DLDeviceType;

typedef struct {
  DLDeviceType device_type;
  int32_t device_id;
} DLDevice;

typedef enum { kDLInt = 0, kDLUInt = 1, kDLFloat = 2, kDLBfloat = 4, kDLBool = 6 } DLDataTypeCode;

typedef struct {
  uint8_t code;
  uint8_t bits;
  uint16_t lanes;
} DLDataType;

typedef struct {
  void *data;
  DLDevice device;
  int32_t ndim;
  DLDataType dtype;
  int64_t *shape;
  int64_t *strides;  // in elements; null where the last axis is dense and the others follow
  uint64_t byte_offset;
} DLTensor;
#endif

enum {
  TENSOR_SELECTOR_OK = 0,
  TENSOR_SELECTOR_ARGUMENT = 1,  // the arrays or numbers do not fit
  TENSOR_SELECTOR_TARGET = 2,    // no program for this GPU or CPU, or no driver
  TENSOR_SELECTOR_DRIVER = 3,    // the CUDA driver refused
  TENSOR_SELECTOR_MEMORY = 4,    // there is too little memory for what lies between kernels
};

#endif
