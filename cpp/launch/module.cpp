// The module `selector.runtime._launch`: calls of a kernel whose signature has been seen before.
//
// One translation unit over CPython's C API, so that a compiler and Python's headers are all that
// it takes to build:
//
//     g++ -O2 -std=c++17 -shared -fPIC $(python3-config --includes) cpp/launch/module.cpp
//         -o selector/runtime/_launch$(python3-config --extension-suffix) -ldl
#include "launcher.h"
#include "parse.h"

#include <new>

namespace {

using namespace launch;

// A C++ object in a Python one.
template <typename T>
struct Box {
  PyObject_HEAD
  T *value;
};

template <typename T>
T &inside(PyObject *self) {
  return *reinterpret_cast<Box<T> *>(self)->value;
}

template <typename T>
PyObject *boxed(PyTypeObject *type, std::unique_ptr<T> value) {
  PyObject *self = type->tp_alloc(type, 0);
  if (self) reinterpret_cast<Box<T> *>(self)->value = value.release();
  return self;
}

template <typename T>
void unbox(PyObject *self) {
  PyTypeObject *type = Py_TYPE(self);
  delete reinterpret_cast<Box<T> *>(self)->value;
  type->tp_free(self);
  Py_DECREF(type);
}

using SharedProgram = std::shared_ptr<Program>;
PyTypeObject *libraries_type, *program_type;  // for the life of the process

PyObject *new_libraries(PyTypeObject *type, PyObject *args, PyObject *) {
  const char *driver;
  PyObject *ndarray, *current_stream;
  if (!PyArg_ParseTuple(args, "sO!OOO", &driver, &PyType_Type, &ndarray, &current_stream,
                        &numpy_floating, &numpy_integer))
    return nullptr;
  Py_INCREF(numpy_floating);
  Py_INCREF(numpy_integer);
  auto made = std::make_unique<Libraries>();
  const std::string missing = made->driver.open(driver);
  if (!missing.empty()) {
    PyErr_SetString(PyExc_OSError, missing.c_str());
    return nullptr;
  }
  made->ndarray = Object::of(ndarray);
  made->current_stream = Object::of(current_stream);
  return boxed(type, std::move(made));
}

PyObject *libraries_torch(PyObject *self, PyObject *args) {
  PyObject *tensor, *current_stream;
  if (!PyArg_ParseTuple(args, "O!O", &PyType_Type, &tensor, &current_stream)) return nullptr;
  inside<Libraries>(self).tensor = Object::of(tensor);
  inside<Libraries>(self).current_torch_stream = Object::of(current_stream);
  Py_RETURN_NONE;
}

PyObject *new_program(PyTypeObject *type, PyObject *args, PyObject *) {
  PyObject *libraries, *launches, *spans, *allocations;
  long long device;
  int needs_scratch;
  if (!PyArg_ParseTuple(args, "O!LOOOp", libraries_type, &libraries, &device, &launches, &spans,
                        &allocations, &needs_scratch))
    return nullptr;
  auto made = std::make_unique<SharedProgram>(std::make_shared<Program>());
  Program &program = **made;
  program.device = device;
  program.needs_scratch = needs_scratch;
  const bool whole =
      for_each(launches,
               [&](PyObject *item) {
                 return parse_launch(item, program.launches.emplace_back(), program);
               }) &&
      parse_numbers(spans, program.spans) && for_each(allocations, [&](PyObject *item) {
        return parse_allocation(item, program.allocations.emplace_back());
      });
  if (!whole) return nullptr;
  if (const int status = inside<Libraries>(libraries).driver.current(&program.context)) {
    PyErr_Format(PyExc_OSError, "cuCtxGetCurrent ended with status %d", status);
    return nullptr;
  }
  return boxed(type, std::move(made));
}

PyObject *program_scratch(PyObject *self, PyObject *sets) {
  std::vector<Scratch> scratch;
  const bool whole = for_each(
      sets, [&](PyObject *item) { return parse_scratch(item, scratch.emplace_back()); });
  if (!whole) return nullptr;
  inside<SharedProgram>(self)->scratch.swap(scratch);
  Py_RETURN_NONE;
}

bool parse_names(PyObject *sequence, std::vector<Object> &result) {
  return for_each(sequence, [&](PyObject *item) {
    result.push_back(Object::of(item));
    return true;
  });
}

PyObject *new_launcher(PyTypeObject *type, PyObject *args, PyObject *) {
  PyObject *libraries, *parameters, *outputs, *scalars, *failed;
  Py_ssize_t inputs, at_most;
  int sizes_use_scalars;
  if (!PyArg_ParseTuple(args, "O!OnOOpnO", libraries_type, &libraries, &parameters, &inputs,
                        &scalars, &outputs, &sizes_use_scalars, &at_most, &failed))
    return nullptr;
  auto made = std::make_unique<Launcher>();
  Signature &signature = made->signature;
  signature.inputs = inputs;
  signature.sizes_use_scalars = sizes_use_scalars;
  made->at_most = at_most;
  made->libraries_owner = Object::of(libraries);
  made->libraries = &inside<Libraries>(libraries);
  made->failed = Object::of(failed);
  const bool whole = parse_names(parameters, signature.parameters) &&
                     parse_names(outputs, signature.outputs) &&
                     for_each(scalars, [&](PyObject *item) {
                       int kind, bytes;
                       if (!PyArg_ParseTuple(item, "Ci", &kind, &bytes)) return false;
                       signature.scalars.push_back({char(kind), bytes});
                       return true;
                     });
  return whole ? boxed(type, std::move(made)) : nullptr;
}

bool is_five(Py_ssize_t count) {
  if (count == 5) return true;
  PyErr_SetString(PyExc_TypeError, "expected 5 arguments");
  return false;
}

bool are_plain(PyObject *args, PyObject *named) { return PyTuple_Check(args) && PyDict_Check(named); }

PyObject *launcher_call(PyObject *self, PyObject *const *given, Py_ssize_t count) {
  if (!is_five(count)) return nullptr;
  if (!are_plain(given[0], given[1])) Py_RETURN_NOTIMPLEMENTED;
  Object result;
  switch (inside<Launcher>(self).call(given[0], given[1], given[2], given[3], given[4], result)) {
    case Outcome::DONE: return result.release();
    case Outcome::MISSED: Py_RETURN_NOTIMPLEMENTED;
    case Outcome::RAISED: break;
  }
  return nullptr;
}

PyObject *launcher_add(PyObject *self, PyObject *const *given, Py_ssize_t count) {
  if (!is_five(count)) return nullptr;
  if (!PyObject_TypeCheck(given[4], program_type)) {
    PyErr_SetString(PyExc_TypeError, "expected a Program");
    return nullptr;
  }
  const bool added = are_plain(given[0], given[1]) &&
                     inside<Launcher>(self).add(given[0], given[1], given[2], given[3],
                                                inside<SharedProgram>(given[4]));
  if (!added) PyErr_Clear();
  return PyBool_FromLong(added);
}

PyObject *launcher_enter(PyObject *self, PyObject *) {
  std::recursive_mutex &mutex = inside<Launcher>(self).mutex;
  Py_BEGIN_ALLOW_THREADS;
  mutex.lock();
  Py_END_ALLOW_THREADS;
  Py_RETURN_NONE;
}

PyObject *launcher_exit(PyObject *self, PyObject *) {
  inside<Launcher>(self).mutex.unlock();
  Py_RETURN_NONE;
}

Py_ssize_t launcher_size(PyObject *self) { return inside<Launcher>(self).size(); }

PyMethodDef libraries_methods[] = {
    {"torch", libraries_torch, METH_VARARGS, "torch(Tensor, current_stream)"},
    {nullptr, nullptr, 0, nullptr},
};

PyMethodDef program_methods[] = {
    {"set_scratch", program_scratch, METH_O, "set_scratch([(stream, thread, addresses, owner)])"},
    {nullptr, nullptr, 0, nullptr},
};

PyMethodDef launcher_methods[] = {
    {"call", reinterpret_cast<PyCFunction>(reinterpret_cast<void *>(launcher_call)), METH_FASTCALL,
     "call(args, named, out, stream, sizes): the outputs; NotImplemented for other signatures"},
    {"add", reinterpret_cast<PyCFunction>(reinterpret_cast<void *>(launcher_add)), METH_FASTCALL,
     "add(args, named, out, sizes, program): whether such calls are known from now on"},
    {"__enter__", launcher_enter, METH_NOARGS, "Keeps others from the intermediate buffers."},
    {"__exit__", launcher_exit, METH_VARARGS, "Lets others at them."},
    {nullptr, nullptr, 0, nullptr},
};

template <typename T>
PyTypeObject *make_type(const char *name, newfunc make, PyMethodDef *methods,
                        lenfunc length = nullptr) {
  PyType_Slot slots[] = {
      {Py_tp_new, reinterpret_cast<void *>(make)},
      {Py_tp_dealloc, reinterpret_cast<void *>(unbox<T>)},
      {Py_tp_methods, methods},
      {length ? Py_sq_length : 0, reinterpret_cast<void *>(length)},
      {0, nullptr},
  };
  PyType_Spec spec = {name, sizeof(Box<T>), 0, Py_TPFLAGS_DEFAULT, slots};
  return reinterpret_cast<PyTypeObject *>(PyType_FromSpec(&spec));
}

PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_launch",
                          "Calls of a kernel whose signature has been seen before.", -1,
                          nullptr, nullptr, nullptr, nullptr, nullptr};

}  // namespace

PyMODINIT_FUNC PyInit__launch() {
  if (!names.make()) return nullptr;
  Object module(PyModule_Create(&definition));
  libraries_type = make_type<Libraries>("selector.runtime._launch.Libraries", new_libraries,
                                        libraries_methods);
  program_type =
      make_type<SharedProgram>("selector.runtime._launch.Program", new_program, program_methods);
  PyTypeObject *launcher_type = make_type<Launcher>("selector.runtime._launch.Launcher",
                                                    new_launcher, launcher_methods, launcher_size);
  for (PyTypeObject *type : {libraries_type, program_type, launcher_type})
    if (!module || !type || PyModule_AddType(module.get(), type)) return nullptr;
  return module.release();
}
