// A mutator that knows the loops and lets around every node.

#pragma once

#include "passes.h"

namespace bridge {

using namespace Halide::Internal;
using Halide::Expr;

struct Loop {
    std::string name;
    Expr min, extent;
    bool vectorized;
};

// A walk that knows the loops and the lets around every node.
class ScopedMutator : public IRMutator {
protected:
    using IRMutator::visit;
    std::vector<Loop> loops;  // outermost first
    std::map<std::string, Expr> lets;

    Stmt visit(const For *op) override {
        loops.push_back({op->name, expand(op->min), expand(op->extent), op->for_type == ForType::Vectorized});
        Stmt s = IRMutator::visit(op);
        loops.pop_back();
        return s;
    }

    Stmt visit(const LetStmt *op) override {
        Expr hidden = lets[op->name];
        lets[op->name] = expand(op->value);
        Stmt s = IRMutator::visit(op);
        lets[op->name] = hidden;
        return s;
    }

    Expr expand(const Expr &e) const {
        std::map<std::string, Expr> defined;
        for (const auto &[name, value] : lets) {
            if (value.defined()) {
                defined[name] = value;
            }
        }
        return substitute(defined, e);
    }

    // Ranges of the loop variables whose bounds are constant.
    Scope<Interval> ranges() const {
        Scope<Interval> scope;
        for (const Loop &loop : loops) {
            auto extent = as_const_int(loop.extent);
            if (extent && is_const(loop.min)) {
                scope.push(loop.name, Interval(loop.min, simplify(loop.min + (int32_t)(*extent - 1))));
            }
        }
        return scope;
    }

    const Loop *find_loop(const std::string &name) const {
        for (auto loop = loops.rbegin(); loop != loops.rend(); ++loop) {
            if (loop->name == name) {
                return &*loop;
            }
        }
        return nullptr;
    }
};

}  // namespace bridge
