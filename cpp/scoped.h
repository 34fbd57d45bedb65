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
    std::map<std::string, std::vector<Expr>> lets;

    Stmt visit(const For *op) override {
        loops.push_back({op->name, op->min, op->extent, op->for_type == ForType::Vectorized});
        Stmt s = IRMutator::visit(op);
        loops.pop_back();
        return s;
    }

    Stmt visit(const LetStmt *op) override {
        lets[op->name].push_back(op->value);
        Stmt s = IRMutator::visit(op);
        lets[op->name].pop_back();
        return s;
    }

    // `e` with every let in scope replaced by its value. Names are unique at this stage of
    // lowering.
    Expr expand(const Expr &e) const {
        class Expand : public IRGraphMutator {
            using IRGraphMutator::visit;
            Expr visit(const Variable *op) override {
                auto found = lets.find(op->name);
                bool bound = found != lets.end() && !found->second.empty();
                return bound ? mutate(found->second.back()) : op;
            }

        public:
            const std::map<std::string, std::vector<Expr>> &lets;
            explicit Expand(const std::map<std::string, std::vector<Expr>> &lets) : lets(lets) {
            }
        };
        return is_const(e) ? e : Expand(lets).mutate(e);
    }

    // Ranges of the loop variables whose bounds are constant.
    Scope<Interval> ranges() const {
        Scope<Interval> scope;
        for (const Loop &loop : loops) {
            auto extent = as_const_int(expand(loop.extent));
            auto low = as_const_int(expand(loop.min));
            if (extent && low) {
                scope.push(loop.name, Interval((int32_t)*low, (int32_t)(*low + *extent - 1)));
            }
        }
        return scope;
    }
};

}  // namespace bridge
