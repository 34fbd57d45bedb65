// Terms of sums in other words: products of sums are sums of products, of which each may be an update;
// variables count down; and what is read around the edges of an image is read of a Func that goes on
// there.

#include "reads.h"

namespace bridge {

using namespace Halide::Internal;
using Halide::Expr;
using Halide::Func;

namespace {

// What is added so many times, or subtracted where that is negative.
struct Term {
    Expr value;
    int times;
};

// `f(a, b)` for a product, sum or difference, also one of Halide's that widens its operands first;
// undefined for another expression.
template <typename F>
Expr with_operands(const Expr &e, const F &f) {
    const Call *call = e.as<Call>();
    if (const Mul *mul = e.as<Mul>()) {
        return f(IRNodeType::Mul, mul->a, mul->b);
    }
    if (const Add *add = e.as<Add>()) {
        return f(IRNodeType::Add, add->a, add->b);
    }
    if (const Sub *sub = e.as<Sub>()) {
        return f(IRNodeType::Sub, sub->a, sub->b);
    }
    if (call && call->is_intrinsic({Call::widening_mul, Call::widening_add, Call::widening_sub})) {
        Expr a = Halide::cast(call->type, call->args[0]), b = Halide::cast(call->type, call->args[1]);
        return f(call->is_intrinsic(Call::widening_mul) ? IRNodeType::Mul :
                 call->is_intrinsic(Call::widening_add) ? IRNodeType::Add : IRNodeType::Sub, a, b);
    }
    return Expr();
}

Expr made_of(IRNodeType kind, const Expr &a, const Expr &b) {
    return kind == IRNodeType::Mul ? Mul::make(a, b) : kind == IRNodeType::Add ? a + b : a - b;
}

ConstantInterval bounds_of(IRNodeType kind, const Expr &a, const Expr &b) {
    ConstantInterval x = constant_integer_bounds(a), y = constant_integer_bounds(b);
    return kind == IRNodeType::Mul ? x * y : kind == IRNodeType::Add ? x + y : x - y;
}

class Expansion {
    const std::vector<ReductionVariable> &along;

    bool varies(const Expr &e) const {
        return std::any_of(along.begin(), along.end(), [&](const ReductionVariable &r) {
            return expr_uses_var(e, r.var);
        });
    }

    // A cast of a product, sum or difference as one of casts, where none of them rounds or wraps
    // around; undefined for others.
    Expr opened(const Cast *cast) const {
        const Halide::Type &t = cast->type;
        return with_operands(cast->value, [&](IRNodeType kind, const Expr &a, const Expr &b) {
            if (t.is_float() && kind == IRNodeType::Sub && is_const_zero(a)) {
                return make_zero(t) - Cast::make(t, b);
            }
            bool whole = t.is_int_or_uint() && cast->value.type().is_int_or_uint() &&
                         fits(bounds_of(kind, a, b), cast->value.type()) && fits(bounds_of(kind, a, b), t);
            Expr x = whole ? kept(t, a) : Expr(), y = whole ? kept(t, b) : Expr();
            return x.defined() && y.defined() ? made_of(kind, x, y) : Expr();
        });
    }

    static std::vector<Term> times(std::vector<Term> terms, int by) {
        for (Term &term : terms) {
            term.times *= by;
        }
        return terms;
    }

    std::vector<Term> combined(const Expr &e, IRNodeType kind, const Expr &a, const Expr &b) const {
        if (kind == IRNodeType::Mul) {
            std::vector<Term> left = of(a), right = of(b), found;
            for (const Term &x : left) {
                for (const Term &y : right) {
                    found.push_back({Mul::make(x.value, y.value), x.times * y.times});
                }
            }
            return found;
        }
        int sign = kind == IRNodeType::Sub ? -1 : 1;
        if (sign < 0 && is_const_zero(a)) {
            return times(of(b), sign);
        }
        if (!varies(a) || !varies(b)) {
            return {{e, 1}};
        }
        std::vector<Term> found = of(a), rest = times(of(b), sign);
        found.insert(found.end(), rest.begin(), rest.end());
        return found;
    }

public:
    explicit Expansion(const std::vector<ReductionVariable> &along) : along(along) {
    }

    // What is added up; what does not change along the sum stays with what it is added to.
    std::vector<Term> of(const Expr &e) const {
        const Cast *cast = e.as<Cast>();
        Expr inner = cast ? opened(cast) : Expr();
        if (!varies(e)) {
            return {{e, 1}};
        }
        if (inner.defined()) {
            return of(inner);
        }
        std::vector<Term> found = {{e, 1}};
        with_operands(e, [&](IRNodeType kind, const Expr &a, const Expr &b) {
            found = combined(e, kind, a, b);
            return e;
        });
        return found;
    }
};

bool are_same(const Expr &a, const Expr &b) {
    const Mul *x = a.as<Mul>(), *y = b.as<Mul>();
    return equal(a, b) || (x && y && equal(x->a, y->b) && equal(x->b, y->a));
}

// Each once.
std::vector<Term> collected(const std::vector<Term> &terms) {
    std::vector<Term> found;
    for (const Term &term : terms) {
        auto same = std::find_if(found.begin(), found.end(),
                                 [&](const Term &t) { return are_same(t.value, term.value); });
        if (same == found.end()) {
            found.push_back(term);
        } else {
            same->times += term.times;
        }
    }
    found.erase(std::remove_if(found.begin(), found.end(), [](const Term &t) { return !t.times; }),
                found.end());
    std::stable_sort(found.begin(), found.end(),
                     [](const Term &s, const Term &t) { return s.times > 0 && t.times < 0; });
    return found;
}

Expr value_of(const Term &term) {
    int by = std::abs(term.times);
    return by == 1 ? term.value : Mul::make(term.value, make_const(term.value.type(), by));
}

Expr added(const Expr &before, const Term &term) {
    return term.times < 0 ? before - value_of(term) : before + value_of(term);
}

// The element itself in what its only update computes, and what is added to it; undefined for others.
struct Updated {
    Expr own, term;
    bool minus = false;

    explicit Updated(const Function &sum) {
        const Expr whole = substitute_in_all_lets(sum.update(0).values()[0]);
        const Add *add = whole.as<Add>();
        const Sub *sub = whole.as<Sub>();
        for (bool last : {false, true}) {
            Expr a = add ? (last ? add->b : add->a) : sub && !last ? sub->a : Expr();
            if (!own.defined() && a.defined() && is_read(a.as<Call>(), sum)) {
                own = a;
                term = add ? (last ? add->a : add->b) : sub->b;
                minus = sub != nullptr;
            }
        }
        Reads more(sum);
        if (term.defined()) {
            term.accept(&more);
        }
        if (!more.places.empty()) {
            own = Expr();
        }
    }
};

bool has_one_update(const Function &sum) {
    return sum.updates().size() == 1 && sum.outputs() == 1 && is_const_one(sum.update(0).predicate());
}

std::vector<Term> terms_of(const Function &sum, const Updated &update) {
    const Expansion expansion(sum.update(0).schedule().rvars());
    std::vector<Term> terms = expansion.of(update.term);
    for (Term &term : terms) {
        term.times *= update.minus ? -1 : 1;
    }
    return collected(terms);
}

}  // namespace

bool expanded(Function sum) {
    if (!has_one_update(sum)) {
        return false;
    }
    const Updated update(sum);
    if (!update.own.defined()) {
        return false;
    }
    std::vector<Term> terms = terms_of(sum, update);
    if (terms.empty()) {
        return false;
    }
    Expr value;
    if (terms[0].times < 0) {  // all are subtracted
        Expr total = value_of(terms[0]);
        for (size_t i = 1; i < terms.size(); i++) {
            total = total + value_of(terms[i]);
        }
        value = update.own - total;
    } else {
        Expr total = value_of(terms[0]);
        for (size_t i = 1; i < terms.size(); i++) {
            total = added(total, terms[i]);
        }
        value = update.own + total;
    }
    Expr &old = sum.update(0).values()[0];
    if (equal(value, substitute_in_all_lets(old))) {
        return false;
    }
    old = common_subexpression_elimination(value);
    return true;
}

std::vector<std::pair<Expr, int>> products_in(const Expr &term,
                                              const std::vector<ReductionVariable> &along) {
    std::vector<std::pair<Expr, int>> found;
    for (const Term &each : collected(Expansion(along).of(term))) {
        found.emplace_back(value_of(each), each.times < 0 ? -1 : 1);
    }
    return found;
}

bool counted_down(Function sum, const std::string &variable) {
    if (sum.updates().size() != 1) {
        return false;
    }
    Definition &update = sum.update(0);
    for (const ReductionVariable &r : update.schedule().rvars()) {
        if (r.var != variable) {
            continue;
        }
        ReductionDomain domain(update.schedule().rvars());
        Expr own = Variable::make(Halide::Int(32), r.var, domain);
        Expr last = simplify(2 * r.min + r.extent - 1);
        for (std::vector<Expr> *all : {&update.values(), &update.args()}) {
            for (Expr &e : *all) {
                e = simplify(substitute(r.var, last - own, substitute_in_all_lets(e)));
            }
        }
        update.predicate() = substitute(r.var, last - own, update.predicate());
        return true;
    }
    return false;
}

namespace {

// Variables of loops.
class Loops : public IRGraphVisitor {
    using IRGraphVisitor::visit;
    void visit(const Variable *op) override {
        if (!op->param.defined()) {
            names.insert(op->name);
        }
    }

public:
    std::set<std::string> names;

    static std::set<std::string> in(const Expr &e) {
        Loops loops;
        e.accept(&loops);
        return loops.names;
    }
};

// An index without what keeps it inside of an array: bounds that are the same everywhere.
Expr anywhere(const Expr &index) {
    const Min *min = index.as<Min>();
    const Max *max = index.as<Max>();
    const Mod *mod = index.as<Mod>();
    if (!min && !max && !mod) {
        return index;
    }
    Expr a = min ? min->a : max ? max->a : mod->a, b = min ? min->b : max ? max->b : mod->b;
    if (Loops::in(b).empty() && !(mod && is_const(b))) {
        return anywhere(a);
    }
    return Loops::in(a).empty() && !mod ? anywhere(b) : index;
}

// Where arrays and Funcs are read, without what keeps indices inside.
class Places : public IRGraphVisitor {
    using IRGraphVisitor::visit;
    void visit(const Call *op) override {
        if (op->call_type != Call::Halide && op->call_type != Call::Image) {
            IRGraphVisitor::visit(op);
            return;
        }
        std::vector<Expr> place;
        for (const Expr &index : op->args) {
            place.push_back(anywhere(index));
            held = held || !equal(place.back(), index);
        }
        found.push_back(place);
    }

public:
    std::vector<std::vector<Expr>> found;
    bool held = false;

    bool are_one() const {
        return !found.empty() && std::all_of(found.begin(), found.end(), [&](const auto &place) {
            return alike(place, found[0]);
        });
    }
};

}  // namespace

Func around(Function sum, int factor, const std::string &name) {
    if (sum.updates().size() != 1 || sum.outputs() != 1) {
        return Func();
    }
    const AddedProduct added(sum);
    if (!added.product) {
        return Func();
    }
    Expr chosen = factor ? added.product->b : added.product->a;
    const Cast *cast = chosen.as<Cast>();
    Expr value = cast ? cast->value : chosen;
    Places places;
    value.accept(&places);
    if (!places.are_one() || (!places.held && value.as<Call>())) {
        return Func();
    }
    std::vector<std::string> args;
    std::vector<Expr> at;
    for (const Expr &index : places.found[0]) {
        if (!Loops::in(index).empty()) {
            args.push_back("v" + std::to_string(args.size()));
            at.push_back(index);
            value = substitute(index, Variable::make(Halide::Int(32), args.back()), value);
        }
    }
    std::set<std::string> left = Loops::in(value);
    for (const std::string &arg : args) {
        left.erase(arg);
    }
    if (!left.empty() || args.empty()) {
        return Func();
    }
    Func made(name);
    made.function().define(args, {value});
    Expr read = Call::make(made.function(), at, 0);
    read = cast ? Cast::make(cast->type, read) : read;
    sum.update(0).values()[0] =
        added.with(factor ? added.product->a * read : read * added.product->b);
    return made;
}

}  // namespace bridge
