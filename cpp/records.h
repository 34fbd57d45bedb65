// Halide's tree as flat Python records.

#pragma once

#include "passes.h"

#include <pybind11/pybind11.h>

namespace bridge {

namespace py = pybind11;

// A list of tuples in post-order: (kind, fields...). A field that is a node is the index of its
// record; shared nodes are written once. `halide_bridge/records.py` reads them. `declared`: sizes of
// arrays that are declared to be constants are these.
class Records {
public:
    explicit Records(bool declared = false);
    int add(const Halide::Expr &e);
    int add(const ir::Stmt &s);
    py::list take();

private:
    struct State;
    std::shared_ptr<State> state;
};

py::tuple type_record(const Halide::Type &type);

}  // namespace bridge
