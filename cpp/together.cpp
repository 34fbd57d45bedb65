// Sums of several products as one of longer rows: the factors of all of them one after the other.

#include "reads.h"

namespace bridge {

using namespace Halide::Internal;
using Halide::Expr;
using Halide::Func;

namespace {

// Factors without the casts to what they are multiplied in, the first negated if it is subtracted.
struct Factors {
    Expr a, b;
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
    found.push_back({minus ? -a->value : a->value, b->value});
    return true;
}

// A Func that has some factors one after the other along its first dimension, each over what `along`
// runs through, and the element of it at `index`.
Expr after_each_other(const Function &sum, const std::vector<Expr> &factors,
                      const ReductionVariable &along, const Expr &index, const std::string &name,
                      Func &made) {
    Expr first = Variable::make(Halide::Int(32), "v0");
    std::vector<std::string> args = {"v0"};
    std::vector<Expr> own = {index};
    std::map<std::string, Expr> renamed = {{along.var, along.min + first % along.extent}};
    for (const std::string &arg : own_of(sum, factors[0])) {
        args.push_back("v" + std::to_string(args.size()));
        own.push_back(Variable::make(Halide::Int(32), arg));
        renamed[arg] = Variable::make(Halide::Int(32), args.back());
    }
    Expr value = substitute(renamed, factors.back());
    for (int i = (int)factors.size() - 2; i >= 0; i--) {
        value = Halide::select(first < (i + 1) * along.extent, substitute(renamed, factors[i]), value);
    }
    made = Func(name);
    made.function().define(args, {common_subexpression_elimination(value)});
    return Call::make(made.function(), own, 0);
}

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
    if (!self || self->name != sum.name() || !add_terms(add->b, false, terms) || terms.size() < 2) {
        return {};
    }
    std::vector<std::string> rows = own_of(sum, terms[0].a), columns = own_of(sum, terms[0].b);
    std::vector<Expr> a, b;
    for (const Factors &t : terms) {
        bool swapped = own_of(sum, t.a) == columns && own_of(sum, t.b) == rows;
        Expr left = swapped ? t.b : t.a, right = swapped ? t.a : t.b;
        bool fits = own_of(sum, left) == rows && own_of(sum, right) == columns &&
                    left.type() == terms[0].a.type() && right.type() == terms[0].b.type() &&
                    expr_uses_var(left, along.var) && expr_uses_var(right, along.var);
        if (!fits || rows == columns) {
            return {};
        }
        a.push_back(left);
        b.push_back(right);
    }
    Halide::RDom domain(0, (int)terms.size() * along.extent, "r");
    Func left, right, made(name);
    Halide::Type wide = value.type();
    Expr product = Cast::make(wide, after_each_other(sum, a, along, domain.x, name + "_a", left)) *
                   Cast::make(wide, after_each_other(sum, b, along, domain.x, name + "_b", right));
    std::vector<Halide::Var> args(sum.args().begin(), sum.args().end());
    made(args) = sum.definition().values()[0];
    made(args) += product;
    for (Function reader : readers) {
        reader.substitute_calls(sum, made.function());
    }
    return {made, left, right};
}

}  // namespace bridge
