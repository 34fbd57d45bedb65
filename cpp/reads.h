// What is read of a Func, and what its values are at a place.

#pragma once

#include "inspect.h"

#include <algorithm>
#include <functional>

namespace bridge {

// Which values of which Funcs an expression reads.
class ValuesRead : public Halide::Internal::IRGraphVisitor {
    using Halide::Internal::IRGraphVisitor::visit;
    void visit(const Halide::Internal::Call *op) override {
        IRGraphVisitor::visit(op);
        if (op->call_type == Halide::Internal::Call::Halide) {
            found.emplace(op->name, op->value_index);
        }
    }

public:
    std::set<std::pair<std::string, int>> found;
};

inline bool is_read(const Halide::Internal::Call *call, const Halide::Internal::Function &f) {
    return call && call->call_type == Halide::Internal::Call::Halide && call->name == f.name();
}

// The variables of loops that an expression depends on.
class Variables : public Halide::Internal::IRGraphVisitor {
    using Halide::Internal::IRGraphVisitor::visit;
    void visit(const Halide::Internal::Variable *op) override {
        if (!op->param.defined() && !op->image.defined()) {
            found.emplace(op->name, op);
        }
    }

public:
    std::map<std::string, Halide::Expr> found;
};

// Whether two places are one.
inline bool alike(const std::vector<Halide::Expr> &a, const std::vector<Halide::Expr> &b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const auto &x, const auto &y) {
        return Halide::Internal::equal(x, y);
    });
}

// A value of a Func, in terms of its variables, at a place.
inline Halide::Expr at(const Halide::Internal::Function &f, const Halide::Expr &value,
                       const std::vector<Halide::Expr> &place) {
    std::map<std::string, Halide::Expr> places;
    for (size_t d = 0; d < place.size(); d++) {
        places[f.args()[d]] = place[d];
    }
    return Halide::Internal::substitute(places, value);
}

// The variables of a Func that an expression depends on.
inline std::vector<std::string> own_of(const Halide::Internal::Function &f, const Halide::Expr &e) {
    std::vector<std::string> found;
    for (const std::string &arg : f.args()) {
        if (Halide::Internal::expr_uses_var(e, arg)) {
            found.push_back(arg);
        }
    }
    return found;
}

// Whether the only update of a Func is of the element itself.
inline bool is_in_place(const Halide::Internal::Function &f) {
    const std::vector<Halide::Expr> &place = f.update(0).args();
    for (size_t d = 0; d < place.size(); d++) {
        const auto *own = place[d].as<Halide::Internal::Variable>();
        if (!own || own->name != f.args()[d]) {
            return false;
        }
    }
    return true;
}

// The `product` that the only update of a sum adds to its element, before it or behind it; null where
// it adds none.
struct AddedProduct {
    Halide::Expr whole;
    const Halide::Internal::Mul *product = nullptr;
    const Halide::Internal::Add *add = nullptr;

    explicit AddedProduct(const Halide::Internal::Function &sum)
        : whole(Halide::Internal::substitute_in_all_lets(sum.update(0).values()[0])),
          add(whole.as<Halide::Internal::Add>()) {
        if (add) {
            product = add->b.as<Halide::Internal::Mul>();
            product = product ? product : add->a.as<Halide::Internal::Mul>();
        }
    }

    // The update with other terms in place of the product.
    Halide::Expr with(const Halide::Expr &terms) const {
        return add->b.as<Halide::Internal::Mul>() ? add->a + terms : terms + add->b;
    }
};

// Whether a type has all integers of an interval.
inline bool fits(const Halide::Internal::ConstantInterval &all, const Halide::Type &t) {
    return all.is_bounded() && t.can_represent(all.min) && t.can_represent(all.max);
}

// An integer in another type; undefined where it would be another number.
inline Halide::Expr kept(const Halide::Type &t, const Halide::Expr &e) {
    const auto *cast = e.as<Halide::Internal::Cast>();
    bool twice = cast && fits(Halide::Internal::constant_integer_bounds(cast->value), cast->type);
    const Halide::Expr &inner = twice ? cast->value : e;
    return fits(Halide::Internal::constant_integer_bounds(inner), t) ? Halide::cast(t, inner) : Halide::Expr();
}

// Where a Func is read.
class Reads : public Halide::Internal::IRGraphVisitor {
    const Halide::Internal::Function f;

    using IRGraphVisitor::visit;
    void visit(const Halide::Internal::Call *op) override {
        IRGraphVisitor::visit(op);
        if (is_read(op, f)) {
            places.push_back(op->args);
        }
    }

public:
    std::vector<std::vector<Halide::Expr>> places;

    explicit Reads(const Halide::Internal::Function &f) : f(f) {
    }
};

// Makes another value of what is read of a Func: `change` has the read, its places changed already.
class ChangeReads : public Halide::Internal::IRMutator {
    const Halide::Internal::Function f;
    const std::function<Halide::Expr(const Halide::Internal::Call *)> change;

    using IRMutator::visit;
    Halide::Expr visit(const Halide::Internal::Call *op) override {
        Halide::Expr e = IRMutator::visit(op);
        const auto *call = e.as<Halide::Internal::Call>();
        if (!is_read(call, f)) {
            return e;
        }
        found = true;
        return change(call);
    }

public:
    bool found = false;

    ChangeReads(const Halide::Internal::Function &f,
                std::function<Halide::Expr(const Halide::Internal::Call *)> change)
        : f(f), change(std::move(change)) {
    }
};

}  // namespace bridge
