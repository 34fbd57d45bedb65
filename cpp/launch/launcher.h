// The table of programs by signature, and the way of a call whose signature is in it.
#pragma once

#include "program.h"
#include "request.h"

#include <memory>

namespace launch {

enum class Outcome { DONE, MISSED, RAISED };

class Launcher {
 public:
  Signature signature;
  size_t at_most = 0;
  Object libraries_owner, failed;  // `failed(status)` makes the exception
  const Libraries *libraries = nullptr;
  std::recursive_mutex mutex;  // while launches share intermediate buffers

  Outcome call(PyObject *args, PyObject *named, PyObject *out, PyObject *stream, PyObject *sizes,
               Object &result) {
    Request request;
    if (!request.read(signature, *libraries, args, named, out, sizes, false)) return missed();
    const std::shared_ptr<Program> program = find(request.key);
    if (!program) return Outcome::MISSED;
    const Driver &driver = libraries->driver;
    const bool allocates = request.outs.empty();
    Handle context = nullptr;
    if (driver.current(&context)) return Outcome::MISSED;
    const bool elsewhere = context != program->context;
    uint64_t on;
    if (!stream_of(request, *program, stream, allocates, on)) return missed();
    const Handle handle = reinterpret_cast<Handle>(on);
    int capturing = 0;
    if (driver.capturing(handle, &capturing) || capturing) return Outcome::MISSED;
    if (allocates ? elsewhere : program->overlap(request.addresses, signature.inputs))
      return Outcome::MISSED;
    Scratch scratch;
    if (program->needs_scratch && !program->find_scratch(on, scratch)) return Outcome::MISSED;
    if (allocates && !allocate(request, *program)) return Outcome::RAISED;
    request.addresses.insert(request.addresses.end(), scratch.addresses.begin(),
                             scratch.addresses.end());
    const int status = launch(*program, request, handle, elsewhere);
    if (status) return raised(status);
    result = named_results(request.outs);
    return result ? Outcome::DONE : Outcome::RAISED;
  }

  // Remembers what the signature of a call launches; false, perhaps with an error set, for calls
  // that stay with Python.
  bool add(PyObject *args, PyObject *named, PyObject *out, PyObject *sizes,
           std::shared_ptr<Program> program) {
    Request request;
    if (!request.read(signature, *libraries, args, named, out, sizes, true)) return false;
    const Key &key = request.key;
    const uint64_t hash = key.hash();
    for (Entry &entry : entries_)
      if (entry.hash == hash && key.equals(entry.key)) {
        std::swap(entry.program, program);
        return true;
      }
    std::shared_ptr<Program> oldest;  // let go of when the table is whole again
    Held held;
    if (entries_.size() >= at_most) {
      oldest = std::move(entries_.front().program);
      held = std::move(entries_.front().held);
      entries_.erase(entries_.begin());
    }
    entries_.push_back({hash, {key.values, key.values + key.size}, std::move(request.held),
                        std::move(program)});
    return true;
  }

  size_t size() const { return entries_.size(); }

 private:
  struct Entry {
    uint64_t hash;
    std::vector<int64_t> key;
    Held held;
    std::shared_ptr<Program> program;
  };
  std::vector<Entry> entries_;

  std::shared_ptr<Program> find(const Key &key) const {
    const uint64_t hash = key.hash();
    for (const Entry &entry : entries_)
      if (entry.hash == hash && key.equals(entry.key)) return entry.program;
    return nullptr;
  }

  // Python looks at the call again, and says what is wrong with it if anything is.
  static Outcome missed() {
    if (PyErr_Occurred() && !PyErr_ExceptionMatches(PyExc_Exception)) return Outcome::RAISED;
    PyErr_Clear();
    return Outcome::MISSED;
  }

  Outcome raised(int status) const {
    const Object error(PyObject_CallFunction(failed.get(), "i", status));
    if (error) PyErr_SetObject(reinterpret_cast<PyObject *>(Py_TYPE(error.get())), error.get());
    return Outcome::RAISED;
  }

  // The stream that was given, else the current one of the arrays' library. New arrays belong to
  // the latter, so that calls that allocate on another one are Python's.
  bool stream_of(const Request &request, const Program &program, PyObject *given, bool allocates,
                 uint64_t &handle) const {
    if (given == Py_None) return current_stream(request, program, handle);
    const Object stream = Object::of(given);
    if (PyLong_Check(given)) {
      if (!address_of(given, handle)) return false;
    } else {
      Object at = stream.attribute(names.ptr);
      if (!at) {
        PyErr_Clear();
        at = stream.attribute(names.cuda_stream);
      }
      if (!address_of(at.get(), handle)) return false;
    }
    uint64_t current;
    return !allocates || (current_stream(request, program, current) && current == handle);
  }

  bool current_stream(const Request &request, const Program &program, uint64_t &handle) const {
    const Object device(PyLong_FromLongLong(program.device));
    if (!device) return false;
    if (request.torch) {
      const Object at(PyObject_CallOneArg(libraries->current_torch_stream.get(), device.get()));
      return address_of(at.get(), handle);
    }
    const Object stream(PyObject_CallOneArg(libraries->current_stream.get(), device.get()));
    return address_of(stream.attribute(names.ptr).get(), handle);
  }

  bool allocate(Request &request, const Program &program) const {
    for (const Allocation &a : program.allocations) {
      uint64_t address;
      Object array(PyObject_Call(a.function.get(), a.arguments.get(), a.named.get()));
      if (!array || !libraries->pointer(array.get(), address)) return false;
      request.outs.push_back(std::move(array));
      request.addresses.push_back(address);
    }
    return true;
  }

  // All launches, without the interpreter's lock: the driver may wait for room in its queue.
  int launch(Program &program, const Request &request, Handle stream, bool elsewhere) {
    const Driver &driver = libraries->driver;
    Arguments arguments(program, request.addresses, request.scalars, driver);
    int status = 0;
    Py_BEGIN_ALLOW_THREADS;
    {  // the mutex is free again before the interpreter's lock is waited for
      std::unique_lock<std::recursive_mutex> alone(mutex, std::defer_lock);
      if (program.needs_scratch) alone.lock();
      if (elsewhere) status = driver.push(program.context);
      if (!status) {
        status = arguments.launch(program, stream, driver);
        Handle pushed;
        if (elsewhere) driver.pop(&pushed);
      }
    }
    Py_END_ALLOW_THREADS;
    return status;
  }

  Object named_results(const std::vector<Object> &results) const {
    if (results.size() == 1) return results[0];
    Object dict(PyDict_New());
    for (size_t i = 0; dict && i < results.size(); i++)
      if (PyDict_SetItem(dict.get(), signature.outputs[i].get(), results[i].get())) return Object();
    return dict;
  }
};

}  // namespace launch
