// The end of a sum that is rounded up.

#pragma once

#include "passes.h"

namespace bridge {

// A variable of an expression, by its name; undefined if there is none.
Halide::Expr variable_in(const Halide::Expr &e, const std::string &name);

// A term of a sum over `var`, zero beyond `last`. `pure`: the variables of the Func, `others` those of
// its other sums; `serial`: the sum is no vector.
Halide::Expr guard_term(const Halide::Expr &term, const std::string &var, const Halide::Expr &last,
                        const ir::Scope<> &pure, const ir::Scope<> &others, Environment &env,
                        bool serial);

}  // namespace bridge
