// Sums of several products as one of longer rows: the factors of all of them one after the other.

#include "reads.h"

namespace bridge {

using namespace Halide::Internal;
using Halide::Expr;
using Halide::Func;

namespace {

// Factors without the casts to what they are multiplied in; whether their product is subtracted.
struct Factors {
    Expr a, b;
    bool minus;
};

bool add_terms(const Expr &e, bool minus, std::vector<Factors> &found) {
    if (const Add *add = e.as<Add>()) {
        return add_terms(add->a, minus, found) && add_terms(add->b, minus, found);
    }
    if (const Sub *sub = e.as<Sub>()) {
        return add_terms(sub->a, minus, found) && add_terms(sub->b, !minus, found);
    }
    const Mul *mul = e.as<Mul>();
    const Cast *a = mul ? mul->a.as<Cast>() : nullptr;
    const Cast *b = mul ? mul->b.as<Cast>() : nullptr;
    if (!a || !b || (minus && !a->value.type().is_float())) {
        return false;
    }
    found.push_back({a->value, b->value, minus});
    return true;
}

// Whether an expression is the sum of several products, or a product of sums.
bool terms_of(const Expr &e, const Function &sum, std::vector<Factors> &found) {
    if (add_terms(e, false, found) && found.size() > 1) {
        return true;
    }
    found.clear();
    for (const auto &[product, sign] : products_in(e, sum.update(0).schedule().rvars())) {
        if (!add_terms(product, sign < 0, found)) {
            return false;
        }
    }
    return found.size() > 1;
}

bool are_among(const std::vector<std::string> &some, const std::vector<std::string> &all) {
    return std::all_of(some.begin(), some.end(), [&](const std::string &name) {
        return std::find(all.begin(), all.end(), name) != all.end();
    });
}

// A factor, and whether its elements are taken from the last one on.
struct Part {
    Expr factor;
    bool backwards = false;
};

// A Func that has some factors one after the other along its first dimension, each over what `along`
// runs through, and the element of it at `index`.
Expr after_each_other(const Function &sum, const std::vector<Part> &parts,
                      const ReductionVariable &along, const Expr &index, const std::string &name,
                      Func &made) {
    Expr first = Variable::make(Halide::Int(32), "v0"), place = first % along.extent;
    std::vector<std::string> args = {"v0"};
    std::vector<Expr> own = {index};
    std::map<std::string, Expr> renamed;
    for (const std::string &arg : own_of(sum, parts[0].factor)) {
        args.push_back("v" + std::to_string(args.size()));
        own.push_back(Variable::make(Halide::Int(32), arg));
        renamed[arg] = Variable::make(Halide::Int(32), args.back());
    }
    auto part = [&](size_t i) {
        renamed[along.var] = along.min + (parts[i].backwards ? along.extent - 1 - place : place);
        return substitute(renamed, parts[i].factor);
    };
    Expr value = part(parts.size() - 1);
    for (int i = (int)parts.size() - 2; i >= 0; i--) {
        value = Halide::select(first < (i + 1) * along.extent, part(i), value);
    }
    made = Func(name);
    made.function().define(args, {common_subexpression_elimination(value)});
    return Call::make(made.function(), own, 0);
}

// The order and the directions in which factors go on where the one before ends, so that all of them
// are one over a longer range of `index`, which is returned; undefined where they do not.
class GoingOn {
    const ReductionVariable &along;
    const Expr &index;
    const std::vector<Factors> &terms;

    Expr at(const Factors &term, int slot, bool backwards) const {
        Expr place = index - slot * along.extent;
        place = along.min + (backwards ? along.extent - 1 - place : place);
        return simplify(substitute(along.var, place, term.a));
    }

    bool goes_on(const Expr &whole, std::vector<bool> &used) {
        for (int slot = (int)order.size(); slot < (int)terms.size(); slot++) {
            bool found = false;
            for (size_t i = 0; i < terms.size() && !found; i++) {
                for (bool backwards : {false, true}) {
                    if (!found && !used[i] && equal(at(terms[i], slot, backwards), whole)) {
                        order.push_back({i, backwards});
                        used[i] = found = true;
                    }
                }
            }
            if (!found) {
                return false;
            }
        }
        return true;
    }

public:
    std::vector<std::pair<size_t, bool>> order;
    Expr factor;

    GoingOn(const ReductionVariable &along, const Expr &index, const std::vector<Factors> &terms)
        : along(along), index(index), terms(terms) {
        for (size_t i = 0; i < terms.size() && !factor.defined(); i++) {
            for (bool backwards : {false, true}) {
                std::vector<bool> used(terms.size());
                used[i] = true;
                order = {{i, backwards}};
                Expr whole = at(terms[i], 0, backwards);
                if (!factor.defined() && goes_on(whole, used)) {
                    factor = whole;
                    break;
                }
            }
        }
    }
};

}  // namespace

std::vector<Func> together(Function sum, const Functions &readers, const std::string &name) {
    if (sum.updates().size() != 1 || sum.outputs() != 1 ||
        !is_const_one(sum.update(0).predicate()) || sum.update(0).schedule().rvars().size() != 1) {
        return {};
    }
    const ReductionVariable &along = sum.update(0).schedule().rvars()[0];
    Expr value = substitute_in_all_lets(sum.update(0).values()[0]);
    const Add *add = value.as<Add>();
    const Call *self = add ? add->a.as<Call>() : nullptr;
    std::vector<Factors> terms;
    if (!self || self->name != sum.name() || !terms_of(add->b, sum, terms)) {
        return {};
    }
    std::vector<std::string> rows = own_of(sum, terms[0].a), columns = own_of(sum, terms[0].b);
    bool windows = are_among(columns, rows) || are_among(rows, columns);
    if (windows && rows.size() < columns.size()) {
        std::swap(rows, columns);
    }
    std::vector<Part> a, b;
    for (Factors &t : terms) {
        Expr &negated = windows && own_of(sum, t.a) == rows ? t.b : t.a;
        negated = t.minus ? -negated : negated;
        if (own_of(sum, t.a) == columns && own_of(sum, t.b) == rows) {
            std::swap(t.a, t.b);
        }
        bool fits = own_of(sum, t.a) == rows && own_of(sum, t.b) == columns &&
                    t.a.type() == terms[0].a.type() && t.b.type() == terms[0].b.type() &&
                    expr_uses_var(t.a, along.var) && expr_uses_var(t.b, along.var);
        if (!fits || rows == columns) {
            return {};
        }
        a.push_back({t.a});
        b.push_back({t.b});
    }
    Halide::RDom domain(0, simplify((int)terms.size() * along.extent), "r");
    Func left, right, made(name);
    Halide::Type wide = value.type();
    Expr image;
    if (windows) {
        const GoingOn one(along, domain.x, terms);
        if (!one.factor.defined()) {
            return {};
        }
        b.clear();
        for (auto [term, backwards] : one.order) {
            b.push_back({terms[term].b, backwards});
        }
        image = one.factor;
    } else {
        image = after_each_other(sum, a, along, domain.x, name + "_a", left);
    }
    Expr product = Cast::make(wide, image) *
                   Cast::make(wide, after_each_other(sum, b, along, domain.x, name + "_b", right));
    std::vector<Halide::Var> args(sum.args().begin(), sum.args().end());
    made(args) = sum.definition().values()[0];
    made(args) += product;
    for (Function reader : readers) {
        reader.substitute_calls(sum, made.function());
    }
    return windows ? std::vector<Func>{made, right} : std::vector<Func>{made, left, right};
}

}  // namespace bridge
