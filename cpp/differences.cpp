// Sums of products of integers from which something is subtracted that does not change along the sum,
// such as zero points: their readers subtract what the sums of the operands are multiplied by.

#include "reads.h"

namespace bridge {

using namespace Halide::Internal;
using Halide::Expr;
using Halide::Func;

namespace {

// `rest - zero`; without a zero if nothing is subtracted.
struct Difference {
    Expr rest, zero;
};

class Factors {
    const std::vector<ReductionVariable> &reduced;

    bool changes(const Expr &e) const {
        return std::any_of(reduced.begin(), reduced.end(), [&](const ReductionVariable &r) {
            return expr_uses_var(e, r.var);
        });
    }

    static bool fits(const ConstantInterval &all, const Halide::Type &t) {
        return t.is_int() && all.is_bounded() && t.can_represent(all.min) &&
               t.can_represent(all.max);
    }

    static bool keeps(const Expr &a, const Expr &b, bool sum, const Halide::Type &t) {
        ConstantInterval x = constant_integer_bounds(a), y = constant_integer_bounds(b);
        return fits(sum ? x + y : x - y, t);
    }

    // Without casts in between that change nothing.
    static Expr tidy(const Expr &e) {
        const Cast *cast = e.as<Cast>();
        const Cast *inner = cast ? cast->value.as<Cast>() : nullptr;
        bool kept = inner && fits(constant_integer_bounds(inner->value), inner->type);
        return kept ? tidy(Cast::make(e.type(), inner->value)) : e;
    }

public:
    explicit Factors(const std::vector<ReductionVariable> &reduced) : reduced(reduced) {
    }

    // Of an integer of 32 bits; a difference in fewer bits is taken apart where it has room there.
    Difference apart(const Expr &e) const {
        const Add *add = e.as<Add>();
        const Sub *sub = e.as<Sub>();
        const Cast *cast = e.as<Cast>();
        if (cast && (cast->value.as<Add>() || cast->value.as<Sub>())) {
            const Add *sum = cast->value.as<Add>();
            const Sub *less = cast->value.as<Sub>();
            Expr a = sum ? sum->a : less->a, b = sum ? sum->b : less->b;
            if (!keeps(a, b, sum != nullptr, cast->value.type())) {
                return {e, Expr()};
            }
            Expr x = Cast::make(e.type(), a), y = Cast::make(e.type(), b);
            return apart(sum ? Add::make(x, y) : Sub::make(x, y));
        }
        if (!add && !sub) {
            return {tidy(e), Expr()};
        }
        Expr a = add ? add->a : sub->a, b = add ? add->b : sub->b;
        if (add && changes(b) && !changes(a)) {
            std::swap(a, b);
        }
        if (!changes(a) || changes(b)) {
            return {e, Expr()};
        }
        Difference inner = apart(a);
        Expr zero = add ? -b : b;
        return {inner.rest, inner.zero.defined() ? inner.zero + zero : zero};
    }
};

// The sum of an operand over what a sum goes over, a Func of the variables that it depends on besides,
// and what is read of it at these.
Expr summed(const Function &sum, const Expr &operand, const std::string &name, Func &made) {
    const std::vector<ReductionVariable> &reduced = sum.update(0).schedule().rvars();
    Halide::Region ranges;
    for (const ReductionVariable &v : reduced) {
        ranges.push_back({v.min, v.extent});
    }
    Halide::RDom domain(ranges, "r");
    std::map<std::string, Expr> renamed;
    for (size_t i = 0; i < reduced.size(); i++) {
        renamed[reduced[i].var] = domain[i];
    }
    std::vector<Halide::Var> args;
    std::vector<Expr> own;
    for (const std::string &arg : own_of(sum, operand)) {
        args.push_back(Halide::Var(arg));
        own.push_back(Variable::make(Halide::Int(32), arg));
    }
    made = Func(name);
    made(args) = make_zero(operand.type());
    made(args) += substitute(renamed, operand);
    return Call::make(made.function(), own, 0);
}

}  // namespace

std::vector<Func> subtracted_last(Function sum, const Functions &readers, const std::string &name) {
    bool one = sum.updates().size() == 1 && sum.outputs() == 1;
    if (!one || sum.output_types()[0] != Halide::Int(32) ||
        !is_const_one(sum.update(0).predicate())) {
        return {};
    }
    const AddedProduct added(sum);
    if (!added.product) {
        return {};
    }
    const std::vector<ReductionVariable> &reduced = sum.update(0).schedule().rvars();
    Factors factors(reduced);
    Difference a = factors.apart(added.product->a), b = factors.apart(added.product->b);
    if (!a.zero.defined() && !b.zero.defined()) {
        return {};
    }
    std::vector<Func> made;
    Expr less = make_zero(Halide::Int(32));
    if (b.zero.defined()) {
        made.emplace_back();
        less = less + b.zero * summed(sum, a.rest, name + "_a_sum", made.back());
    }
    if (a.zero.defined()) {
        made.emplace_back();
        less = less + a.zero * summed(sum, b.rest, name + "_b_sum", made.back());
    }
    if (made.size() == 2) {
        Expr count = make_one(Halide::Int(32));
        for (const ReductionVariable &v : reduced) {
            count = count * v.extent;
        }
        less = less - count * a.zero * b.zero;
    }
    sum.update(0).values()[0] = added.with(a.rest * b.rest);
    less = simplify(less);
    ChangeReads subtract(sum, [&](const Call *read) {
        return Expr(read) - at(sum, less, read->args);
    });
    for (Function reader : readers) {
        reader.mutate(&subtract);
    }
    return made;
}

}  // namespace bridge
