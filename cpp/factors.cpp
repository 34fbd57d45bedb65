// The factors of the products that a sum adds up, as Funcs of their own and in fewer bits.

#include "reads.h"

#include <cmath>

namespace bridge {

using namespace Halide::Internal;
using Halide::Expr;
using Halide::Func;
using Halide::Internal::ConstantInterval;

namespace {

// Where an expression reads elements at places that are not read themselves, if that is one place.
class Place : public IRGraphVisitor {
    using IRGraphVisitor::visit;
    void visit(const Call *op) override {
        if (op->call_type != Call::Halide && op->call_type != Call::Image) {
            IRGraphVisitor::visit(op);
            return;
        }
        Place inner;
        Variables used;
        for (const Expr &arg : op->args) {
            arg.accept(&inner);
            arg.accept(&used);
        }
        if (!inner.found.empty() || inner.several) {
            several = several || inner.several || (!found.empty() && !alike(found, inner.found));
            found = inner.found;
        } else if (!used.found.empty()) {
            several = several || (!found.empty() && !alike(found, op->args));
            found = op->args;
        }
    }

public:
    std::vector<Expr> found;
    bool several = false;

    // The same with variables in place of the place.
    class Moved : public IRMutator {
        const Place &place;
        const std::vector<Expr> &to;

        using IRMutator::visit;
        Expr visit(const Call *op) override {
            bool read = op->call_type == Call::Halide || op->call_type == Call::Image;
            if (!read || !alike(op->args, place.found)) {
                return IRMutator::visit(op);
            }
            return Call::make(op->type, op->name, to, op->call_type, op->func, op->value_index, op->image,
                              op->param);
        }

    public:
        Moved(const Place &place, const std::vector<Expr> &to) : place(place), to(to) {
        }
    };
};

// The Func with updates that is read at some variables, in their order.
class ReadAt : public IRGraphVisitor {
    const std::vector<Expr> &own;

    using IRGraphVisitor::visit;
    void visit(const Call *op) override {
        IRGraphVisitor::visit(op);
        bool here = op->call_type == Call::Halide && alike(op->args, own);
        if (here && Function(op->func).has_update_definition()) {
            found = Function(op->func);
        }
    }

public:
    Function found;

    explicit ReadAt(const std::vector<Expr> &own) : own(own) {
    }
};

// What dimensions that stand for some variables are called: as those of the sum that an expression
// reads there, if it does, so that this can be computed with it.
std::vector<std::string> named(const Expr &e, const std::vector<Expr> &own) {
    std::vector<std::string> names;
    for (size_t d = 0; d < own.size(); d++) {
        names.push_back("v" + std::to_string(d));
    }
    ReadAt sums(own);
    e.accept(&sums);
    return sums.found.get_contents().defined() ? sums.found.args() : names;
}

constexpr int64_t MOST_WHOLE = 1 << 24;  // a float32 has all whole numbers up to there

Expr in_bits(const Expr &e, Halide::Type type);

// Operands of a node in a type, undefined where one has values that it has not.
bool in_bits(std::vector<Expr> &operands, Halide::Type type) {
    for (Expr &e : operands) {
        e = in_bits(e, type);
        if (!e.defined()) {
            return false;
        }
    }
    return true;
}

bool is_within(const ConstantInterval &all, int64_t most) {
    return all.is_bounded() && -most <= all.min && all.max <= most;
}

// What whole numbers a value of float32 is between, which has all of them, as have those that it is
// computed of; unbounded where it may be another one.
ConstantInterval whole(const Expr &e) {
    ConstantInterval all;
    if (auto number = as_const_float(e)) {
        bool is = std::floor(*number) == *number && std::abs(*number) <= MOST_WHOLE;
        all = is ? ConstantInterval::single_point(int64_t(*number)) : all;
    } else if (const auto *cast = e.as<Cast>()) {
        bool is = cast->value.type().is_int_or_uint();
        all = is ? Halide::Internal::constant_integer_bounds(cast->value) : all;
    } else if (const auto *sum = e.as<Halide::Internal::Add>()) {
        all = whole(sum->a) + whole(sum->b);
    } else if (const auto *difference = e.as<Halide::Internal::Sub>()) {
        all = whole(difference->a) - whole(difference->b);
    }
    return is_within(all, MOST_WHOLE) ? all : ConstantInterval();
}

// A value of float32 in a type of 16 bits that has it whatever its elements are, else undefined.
Expr in_bits(const Expr &e, Halide::Type type) {
    std::vector<Expr> of;
    if (auto number = as_const_float(e)) {
        Expr rounded = Halide::Internal::make_const(type, *number);
        return as_const_float(rounded) == *number ? rounded : Expr();
    }
    if (const auto *cast = e.as<Cast>()) {
        Halide::Type from = cast->value.type();
        if (from == type) {
            return cast->value;
        }
        bool all = from.is_int_or_uint() && from.bits() <= 8;
        return all ? Cast::make(type, cast->value) : Expr();
    }
    if (const auto *op = e.as<Max>()) {
        return in_bits(of = {op->a, op->b}, type) ? Max::make(of[0], of[1]) : Expr();
    }
    if (const auto *op = e.as<Min>()) {
        return in_bits(of = {op->a, op->b}, type) ? Min::make(of[0], of[1]) : Expr();
    }
    if (const auto *op = e.as<Halide::Internal::Select>()) {
        of = {op->true_value, op->false_value};
        return in_bits(of, type) ? Halide::Internal::Select::make(op->condition, of[0], of[1]) : Expr();
    }
    if (const auto *op = e.as<Halide::Internal::Sub>(); op && is_const_zero(op->a)) {
        return in_bits(of = {op->b}, type) ? -of[0] : Expr();
    }
    if (const Call *op = Call::as_intrinsic(e, {Call::abs})) {
        of = op->args;
        return in_bits(of, type) ? Halide::abs(of[0]) : Expr();
    }
    return is_within(whole(e), type.is_bfloat() ? 1 << 8 : 1 << 11) ? Cast::make(type, e) : Expr();
}

// The types of 16 bits that elements are cast from.
class Halves : public Halide::Internal::IRGraphVisitor {
    using IRGraphVisitor::visit;
    void visit(const Cast *op) override {
        if (op->value.type().is_float() && op->value.type().bits() == 16) {
            types.insert(op->value.type());
        } else {
            IRGraphVisitor::visit(op);
        }
    }

public:
    std::set<Halide::Type> types;
};

// A Func of its own for a value that elements at one place have; undefined where it has others, or is
// one of these elements.
Func by_place(const Expr &inner, const std::string &name, std::vector<Expr> &own) {
    Place place;
    inner.accept(&place);
    if (place.several || place.found.empty() || inner.as<Call>()) {
        return Func();
    }
    own = place.found;
    std::vector<std::string> args;
    std::vector<Expr> to;
    for (size_t d = 0; d < own.size(); d++) {
        args.push_back("v" + std::to_string(d));
        to.push_back(Variable::make(Halide::Int(32), args.back()));
    }
    Expr value = Place::Moved(place, to).mutate(inner);
    Variables left;
    value.accept(&left);
    for (const auto &[variable, unused] : left.found) {
        if (std::find(args.begin(), args.end(), variable) == args.end()) {
            return Func();
        }
    }
    Func made(name);
    made.function().define(args, {value});
    return made;
}

// Has a sum read a Func at a place in what a factor casts, or in place of it. Returns the Func.
Func reading(Function sum, const AddedProduct &added, int factor, const Func &made,
             const std::vector<Expr> &place) {
    const Mul *product = added.product;
    const Cast *cast = (factor ? product->b : product->a).as<Cast>();
    Expr read = Call::make(made.function(), place, 0);
    read = cast ? Cast::make(cast->type, read) : read;
    sum.update(0).values()[0] = added.with(factor ? product->a * read : read * product->b);
    return made;
}

}  // namespace

Func operand(Function sum, int factor, const std::vector<std::string> &order,
             const std::string &name) {
    if (sum.updates().size() != 1 || sum.outputs() != 1) {
        return Func();
    }
    const AddedProduct added(sum);
    const Mul *product = added.product;
    if (!product) {
        return Func();
    }
    Expr chosen = factor ? product->b : product->a;
    const Cast *cast = chosen.as<Cast>();
    Expr inner = cast ? cast->value : chosen;
    std::vector<Expr> own;
    if (order.empty()) {
        Func made = by_place(inner, name, own);
        return made.defined() ? reading(sum, added, factor, made, own) : made;
    }
    std::map<std::string, Expr> renamed;  // at once: the sum may have variables of these names
    Variables used;
    inner.accept(&used);
    for (const std::string &variable : order) {
        auto at = used.found.find(variable);
        if (at == used.found.end() || !renamed.emplace(variable, Expr()).second) {
            return Func();
        }
        own.push_back(at->second);
    }
    for (const ReductionVariable &r : sum.update(0).schedule().rvars()) {
        if (is_const_one(r.extent) && used.found.count(r.var)) {
            renamed.emplace(r.var, r.min);  // unless it is named
        }
    }
    if (renamed.size() < used.found.size()) {
        return Func();
    }
    std::vector<std::string> args = named(inner, own);
    for (size_t d = 0; d < args.size(); d++) {
        renamed[order[d]] = Variable::make(Halide::Int(32), args[d]);
    }
    Func made(name);
    made.function().define(args, {substitute(renamed, inner)});
    return reading(sum, added, factor, made, own);
}

bool narrow_factors(Function sum) {
    if (sum.updates().size() != 1 || sum.outputs() != 1) {
        return false;
    }
    const AddedProduct added(sum);
    const Mul *product = added.product;
    if (!product || product->type != Halide::Float(32)) {
        return false;
    }
    Halves halves;
    product->a.accept(&halves);
    product->b.accept(&halves);
    if (halves.types.size() > 1) {
        return false;
    }
    Halide::Type type = halves.types.empty() ? Halide::Float(16) : *halves.types.begin();
    std::vector<Expr> of = {product->a, product->b};
    if (!in_bits(of, type)) {
        return false;
    }
    Expr terms = Cast::make(product->type, of[0]) * Cast::make(product->type, of[1]);
    sum.update(0).values()[0] = added.with(terms);
    return true;
}

}  // namespace bridge
