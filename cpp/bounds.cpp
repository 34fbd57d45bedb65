// Facts about symbolic loops that Halide's simplifier does not use.
//
// Inside `for (ro, 0, n)` with a symbolic n, `min(ro*32 + 31, n*32 - 1)` is `ro*32 + 31`: the last
// iteration bounds ro. With that, a tile staged in a reduction loop that was rounded up has a
// constant size.

#include "scoped.h"

#include <algorithm>
#include <optional>

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

// Of what is inferred outside of such a loop, all its turns. Where there is one value Halide says that
// the least is the largest one, which of several turns it is not.
class AllTurns : public IRMutator {
    std::map<std::string, Interval> turns, ends;  // in their scope

    Interval over_turns(const Expr &e) const {
        Scope<Interval> scope;
        bool one = true;
        for (const auto &[name, values] : turns) {
            if (expr_uses_var(e, name)) {
                scope.push(name, values);
                one = false;
            }
        }
        return one ? Interval::single_point(e) : bounds_of_expr_in_scope(e, scope);
    }

    using IRMutator::visit;
    Stmt visit(const For *op) override {
        auto before = turns;
        turns.erase(op->name);
        Stmt result = IRMutator::visit(op);
        turns = before;
        return result;
    }
    Stmt visit(const LetStmt *op) override {
        bool least = ends_with(op->name, ".min");
        Interval all = over_turns(op->value);
        const Variable *largest = least ? op->value.as<Variable>() : nullptr;
        if (largest && ends.count(largest->name)) {
            all = ends.at(largest->name);
        }
        auto outside = turns;
        auto before = ends;
        turns.erase(op->name);
        ends.erase(op->name);
        if (!least && !all.is_single_point()) {
            ends[op->name] = all;
        }
        Stmt body = mutate(op->body);
        turns = outside;
        ends = before;
        return LetStmt::make(op->name, least ? all.min : all.max, body);
    }

public:
    explicit AllTurns(std::map<std::string, Interval> turns) : turns(std::move(turns)) {
    }
};

}  // namespace

void name_loops(Environment &env, std::map<std::string, Interval> &turns) {
    for (auto &[name, f] : env) {
        if (!f.has_pure_definition()) {
            continue;
        }
        for (const Split &split : f.definition().schedule().splits()) {
            if (split.split_type != Split::SplitVar) {
                continue;
            }
            std::string loop = name + ".s0." + split.inner;
            for (Expr &value : f.definition().values()) {
                if (expr_uses_var(value, split.inner)) {
                    value = substitute(split.inner, Variable::make(Halide::Int(32), loop), value);
                    turns[loop] = Interval(0, simplify(split.factor - 1));
                }
            }
        }
    }
}

Stmt infer_all_turns(const Stmt &s, const std::map<std::string, Interval> &turns) {
    return AllTurns(turns).mutate(s);
}

Stmt tighten_bounds(const Stmt &s) {
    return TightenBounds().mutate(s);
}

}  // namespace bridge
