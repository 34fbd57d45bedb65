// Sums of terms that are divided or multiplied by what does not change along the sum: their readers do
// that instead.

#include "reads.h"

#include <cmath>

namespace bridge {

using namespace Halide::Internal;
using Halide::Expr;

namespace {

// Writes out what some pure Funcs are where they are read.
class WrittenOut : public IRMutator {
    const Functions &funcs;

    using IRMutator::visit;
    Expr visit(const Call *op) override {
        Expr e = IRMutator::visit(op);
        const Call *call = e.as<Call>();
        if (call && call->call_type == Call::Halide) {
            for (const Function &f : funcs) {
                if (f.name() == call->name) {
                    return mutate(substitute_in_all_lets(at(f, f.values()[0], call->args)));
                }
            }
        }
        return e;
    }

public:
    explicit WrittenOut(const Functions &funcs) : funcs(funcs) {
    }
};

// Takes a division by what is read of a Func out of a product, by its logarithm out of a power's
// exponent; `places`: where it is read.
class Undivided : public IRMutator {
    const Function total;

    const Call *read(const Expr &e) const {
        const Call *call = e.as<Call>();
        return is_read(call, total) ? call : nullptr;
    }

    const Call *inverse(const Expr &e) const {
        const Div *div = e.as<Div>();
        return div && is_const_one(div->a) ? read(div->b) : nullptr;
    }

    bool take(const Call *call) {
        if (call) {
            places.push_back(call->args);
        }
        return call != nullptr;
    }

    using IRMutator::visit;
    Expr visit(const Div *op) override {
        return take(read(op->b)) ? op->a : IRMutator::visit(op);
    }

    Expr visit(const Mul *op) override {
        if (take(inverse(op->b))) {
            return op->a;
        }
        return take(inverse(op->a)) ? op->b : IRMutator::visit(op);
    }

    Expr visit(const Call *op) override {
        bool two = op->name == "pow_f32" && is_two(op->args[0]);
        if (op->name != "exp_f32" && !two) {
            return IRMutator::visit(op);
        }
        std::vector<Expr> args = op->args;
        Expr rest = without_log(args.back(), false, two);
        args.back() = rest.defined() ? rest : make_zero(args.back().type());
        return Call::make(op->type, op->name, args, op->call_type);
    }

    static bool is_two(const Expr &e) {
        return as_const_float(e) == 2.0;
    }

    // The logarithm, of base 2 in a power of 2.
    const Call *logarithm(const Expr &e, bool two) const {
        const Mul *mul = two ? e.as<Mul>() : nullptr;
        auto factor = mul ? as_const_float(mul->b) : std::nullopt;
        bool scaled = factor && std::abs(*factor - 1 / std::log(2.0)) < 1e-6;
        const Call *log = (scaled ? mul->a : e).as<Call>();
        return log && log->name == "log_f32" && two == scaled ? read(log->args[0]) : nullptr;
    }

    // A sum without the logarithm, where it is subtracted; undefined if nothing is left.
    Expr without_log(const Expr &e, bool negative, bool two) {
        const Add *add = e.as<Add>();
        const Sub *sub = e.as<Sub>();
        if (!add && !sub) {
            return negative && take(logarithm(e, two)) ? Expr() : e;
        }
        Expr a = without_log(add ? add->a : sub->a, negative, two);
        Expr b = without_log(add ? add->b : sub->b, negative != (sub != nullptr), two);
        if (!a.defined() || !b.defined()) {
            return a.defined() ? a : add || !b.defined() ? b : make_zero(b.type()) - b;
        }
        return add ? a + b : a - b;
    }

public:
    std::vector<std::vector<Expr>> places;

    explicit Undivided(const Function &total) : total(total) {
    }
};

// Whether a value is not the same for all terms of a sum.
class Varies : public IRGraphVisitor {
    const Function &sum;

    using IRGraphVisitor::visit;
    void visit(const Call *op) override {
        found = found || is_read(op, sum);
        IRGraphVisitor::visit(op);
    }
    void visit(const Variable *op) override {
        const std::vector<std::string> &own = sum.args();
        found = found || (!op->param.defined() &&
                          std::find(own.begin(), own.end(), op->name) == own.end());
    }

public:
    bool found = false;

    explicit Varies(const Function &sum) : sum(sum) {
    }

    static bool in(const Expr &e, const Function &sum) {
        Varies varies(sum);
        e.accept(&varies);
        return varies.found;
    }
};

// A product without what is the same for all terms of a sum; `factor`: the product of that, undefined
// without any. Integers are not divided last, which rounds.
Expr without_same(const Expr &e, const Function &sum, Expr &factor) {
    const Mul *mul = e.as<Mul>();
    const Div *div = e.type().is_float() ? e.as<Div>() : nullptr;
    if (div && !Varies::in(div->b, sum)) {
        Expr rest = without_same(div->a, sum, factor);
        factor = (factor.defined() ? factor : make_one(e.type())) / div->b;
        return rest;
    }
    for (bool last : {true, false}) {
        Expr same = !mul ? Expr() : last ? mul->b : mul->a;
        if (same.defined() && !Varies::in(same, sum)) {
            Expr rest = without_same(last ? mul->a : mul->b, sum, factor);
            factor = factor.defined() ? factor * same : same;
            return rest;
        }
    }
    const Sub *sub = e.as<Sub>();
    if (sub && is_const_zero(sub->a)) {
        Expr rest = without_same(sub->b, sum, factor);
        factor = -(factor.defined() ? factor : make_one(e.type()));
        return rest;
    }
    if (!mul) {
        return e;
    }
    Expr a = without_same(mul->a, sum, factor);
    return a * without_same(mul->b, sum, factor);
}

// Whether a Func is a sum from zero on, by the only update, which is of the element itself.
bool is_sum_from_zero(const Function &f) {
    return f.updates().size() == 1 && is_const_zero(f.values()[0]) && is_in_place(f);
}

}  // namespace

bool divided_last(Function weight, const Function &total, Function sum, Function reader,
                  const Functions &between) {
    if (!is_sum_from_zero(sum)) {
        return false;
    }
    Expr &value = weight.definition().values()[0];
    Undivided undivided(total);
    Expr rest = undivided.mutate(WrittenOut(between).mutate(substitute_in_all_lets(value)));
    Reads left(total), terms(weight);
    rest.accept(&left);
    substitute_in_all_lets(sum.update(0).values()[0]).accept(&terms);
    if (undivided.places.size() != 1 || !left.places.empty() || terms.places.size() != 1) {
        return false;
    }
    std::vector<Expr> places;
    for (const Expr &place : undivided.places[0]) {
        places.push_back(at(weight, place, terms.places[0]));
        const Variable *own = places.back().as<Variable>();
        const std::vector<std::string> &args = sum.args();
        if (!own || std::find(args.begin(), args.end(), own->name) == args.end()) {
            return false;
        }
    }
    value = common_subexpression_elimination(rest);
    ChangeReads divide(sum, [&](const Call *read) {
        std::vector<Expr> args;
        for (const Expr &place : places) {
            args.push_back(at(sum, place, read->args));
        }
        return Expr(read) / Call::make(total, args, 0);
    });
    reader.mutate(&divide);
    return true;
}

bool multiplied_last(Function sum, const Functions &readers) {
    if (!is_sum_from_zero(sum)) {
        return false;
    }
    Expr &value = sum.update(0).values()[0];
    Expr whole = substitute_in_all_lets(value), factor;
    const Add *add = whole.as<Add>();
    const Sub *sub = whole.as<Sub>();
    if (!add && !sub) {
        return false;
    }
    Expr own = add ? add->a : sub->a, term = add ? add->b : -sub->b;
    if (add && !is_read(own.as<Call>(), sum)) {
        std::swap(own, term);
    }
    if (!is_read(own.as<Call>(), sum)) {
        return false;
    }
    Expr rest = without_same(term, sum, factor);
    if (!factor.defined()) {
        return false;
    }
    value = own + rest;
    factor = simplify(factor);
    ChangeReads multiply(sum, [&](const Call *read) {
        return Expr(read) * at(sum, factor, read->args);
    });
    for (Function reader : readers) {
        reader.mutate(&multiply);
    }
    return true;
}

}  // namespace bridge
