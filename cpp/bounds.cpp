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

// Of what is inferred outside of such a loop, all its turns.
class AllTurns : public IRMutator {
    const Scope<Interval> &turns;
    std::set<std::string> inside;

    using IRMutator::visit;
    Stmt visit(const For *op) override {
        bool own = inside.insert(op->name).second;
        Stmt result = IRMutator::visit(op);
        if (own) {
            inside.erase(op->name);
        }
        return result;
    }
    Stmt visit(const LetStmt *op) override {
        Scope<Interval> outside;
        for (auto turn = turns.cbegin(); turn != turns.cend(); ++turn) {
            if (!inside.count(turn.name()) && expr_uses_var(op->value, turn.name())) {
                outside.push(turn.name(), turn.value());
            }
        }
        bool own = inside.insert(op->name).second;
        Stmt body = mutate(op->body);
        if (own) {
            inside.erase(op->name);
        }
        Expr value = op->value;
        if (outside.cbegin() != outside.cend()) {
            Interval all = bounds_of_expr_in_scope(value, outside);
            bool least = op->name.find(".min") != std::string::npos;
            value = least ? all.min : all.max;
        }
        return LetStmt::make(op->name, value, body);
    }

public:
    explicit AllTurns(const Scope<Interval> &turns) : turns(turns) {
    }
};

}  // namespace

void name_loops(Environment &env, Scope<Interval> &turns) {
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
                    turns.push(loop, Interval(0, simplify(split.factor - 1)));
                }
            }
        }
    }
}

Stmt infer_all_turns(const Stmt &s, const Scope<Interval> &turns) {
    return AllTurns(turns).mutate(s);
}

Stmt tighten_bounds(const Stmt &s) {
    return TightenBounds().mutate(s);
}

}  // namespace bridge
