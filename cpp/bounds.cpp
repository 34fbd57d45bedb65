// Facts about symbolic loops that Halide's simplifier does not use.
//
// Inside `for (ro, 0, n)` with a symbolic n, `min(ro*32 + 31, n*32 - 1)` is `ro*32 + 31`: the last
// iteration bounds ro. With that, a tile staged in a reduction loop that was rounded up has a
// constant size.

#include "scoped.h"

namespace bridge {

namespace {

class TightenBounds : public ScopedMutator {
protected:
    using ScopedMutator::visit;

    // `e` with every symbolic loop variable counted backwards from its last iteration, which is at
    // distance 0.
    Expr count_backwards(const Expr &e, Scope<Interval> &distances) const {
        std::map<std::string, Expr> values;
        for (const Loop &loop : loops) {
            if (expr_uses_var(e, loop.name) && !is_const(expand(loop.extent))) {
                Expr distance = Variable::make(Halide::Int(32), loop.name + ".distance");
                values[loop.name] = expand(loop.min + loop.extent - 1) - distance;
                distances.push(loop.name + ".distance", Interval(0, Interval::pos_inf()));
            }
        }
        return values.empty() ? Expr() : substitute(values, e);
    }

    // The sign of a - b, if it is known: -1 for a <= b, 1 for a >= b, else 0.
    int compare(const Expr &a, const Expr &b) const {
        Scope<Interval> distances;
        if (a.type() != Halide::Int(32)) {
            return 0;
        }
        Expr difference = count_backwards(expand(a - b), distances);
        if (!difference.defined()) {
            return 0;
        }
        Expr simple = simplify(difference, true, distances);
        return can_prove(simple <= 0, distances) ? -1 : can_prove(simple >= 0, distances) ? 1 : 0;
    }

    Expr visit(const Min *op) override {
        Expr a = mutate(op->a), b = mutate(op->b);
        int order = compare(a, b);
        return order < 0 ? a : order > 0 ? b : Min::make(a, b);
    }

    Expr visit(const Max *op) override {
        Expr a = mutate(op->a), b = mutate(op->b);
        int order = compare(a, b);
        return order < 0 ? b : order > 0 ? a : Max::make(a, b);
    }
};

}  // namespace

Stmt tighten_bounds(const Stmt &s) {
    return TightenBounds().mutate(s);
}

}  // namespace bridge
