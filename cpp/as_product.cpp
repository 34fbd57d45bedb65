// Terms that are a product of two factors in other words: of which a condition says whether they
// count, or that are multiplied by one as a number, or that are multiplied in fewer bits than they are added up in.

#include "reads.h"

namespace bridge {

using namespace Halide::Internal;
using Halide::Expr;

namespace {

// Undefined where there is no such product.
struct Pair {
    Expr a, b;
};

// A product, also one that Halide has in fewer nodes; undefined for another expression.
Expr product_of(const Expr &e) {
    const Call *call = e.as<Call>();
    bool wide = call && call->is_intrinsic(Call::widening_mul);
    return wide ? Mul::make(Halide::cast(e.type(), call->args[0]), Halide::cast(e.type(), call->args[1])) :
           e.as<Mul>() ? e : Expr();
}

// A product of integers that has room in the type of its factors.
Pair widened(const Halide::Type &t, const Mul *mul) {
    bool whole = mul && t.is_int_or_uint() && mul->type.is_int_or_uint();
    if (!whole) {
        return {};
    }
    ConstantInterval product = constant_integer_bounds(mul->a) * constant_integer_bounds(mul->b);
    Pair found = {kept(t, mul->a), kept(t, mul->b)};
    bool exact = fits(product, mul->type) && found.a.defined() && found.b.defined();
    return exact ? found : Pair{};
}

// A factor where a condition holds, and zero: what it is cast from, if it is.
Expr masked(const Expr &condition, const Expr &e) {
    if (const Cast *cast = e.as<Cast>()) {
        return Cast::make(e.type(), masked(condition, cast->value));
    }
    return Halide::select(condition, e, make_zero(e.type()));
}

// The condition that a factor of one or zero stands for; undefined for others.
Expr condition_of(const Expr &e) {
    const Cast *cast = e.as<Cast>();
    if (cast) {
        return cast->value.type().is_bool() ? cast->value : condition_of(cast->value);
    }
    const auto *select = e.as<Halide::Internal::Select>();
    if (select && is_const_one(select->true_value) && is_const_zero(select->false_value)) {
        return select->condition;
    }
    bool inverse = select && is_const_zero(select->true_value) && is_const_one(select->false_value);
    return inverse ? !select->condition : Expr();
}

// The factors of a product, and all conditions among them.
void split(const Mul *mul, std::vector<Expr> &numbers, Expr &all) {
    for (const Expr &factor : {mul->a, mul->b}) {
        Expr condition = condition_of(factor);
        if (const Mul *inner = factor.as<Mul>()) {
            split(inner, numbers, all);
        } else if (condition.defined()) {
            all = is_const_one(all) ? condition : all && condition;
        } else {
            numbers.push_back(factor);
        }
    }
}

class Products {
    const Function &sum;

    // Whether a factor has all variables of the result that a condition has.
    bool has(const Expr &factor, const Expr &condition) const {
        std::vector<std::string> asked = own_of(sum, condition);
        return std::all_of(asked.begin(), asked.end(),
                           [&](const std::string &v) { return expr_uses_var(factor, v); });
    }

    // A product where a condition holds, and zero; undefined where that belongs to neither factor.
    Pair under(const Expr &condition, Pair found) const {
        std::vector<Expr> conditions;
        split_into_ands(condition, conditions);
        for (const Expr &part : conditions) {
            bool first = found.a.defined() && has(found.a, part);
            if (!first && !(found.b.defined() && has(found.b, part))) {
                return {};
            }
            Expr &factor = first ? found.a : found.b;
            factor = masked(part, factor);
        }
        return found;
    }

    // A product of two numbers, and of conditions as numbers.
    Pair multiplied(const Mul *mul) const {
        std::vector<Expr> numbers;
        Expr all = const_true();
        split(mul, numbers, all);
        return numbers.size() == 2 ? under(all, {numbers[0], numbers[1]}) : Pair{mul->a, mul->b};
    }

public:
    explicit Products(const Function &sum) : sum(sum) {
    }

    Pair of(const Expr &e) const {
        if (const Mul *mul = e.as<Mul>()) {
            return multiplied(mul);
        }
        if (const Cast *cast = e.as<Cast>()) {
            Expr product = product_of(cast->value);
            return widened(e.type(), product.defined() ? product.as<Mul>() : nullptr);
        }
        const auto *select = e.as<Halide::Internal::Select>();
        bool some = select && is_const_zero(select->false_value);
        return some ? under(select->condition, of(select->true_value)) : Pair{};
    }
};

}  // namespace

bool as_product(Function sum) {
    if (sum.updates().size() != 1 || sum.outputs() != 1) {
        return false;
    }
    Expr &value = sum.update(0).values()[0];
    const Expr whole = substitute_in_all_lets(value);
    const Add *add = whole.as<Add>();
    bool last = add && is_read(add->a.as<Call>(), sum);
    if (!add || (!last && !is_read(add->b.as<Call>(), sum))) {
        return false;
    }
    Definition &update = sum.update(0);
    const Expr &own = last ? add->a : add->b, &plain = last ? add->b : add->a;
    const bool all = is_const_one(update.predicate());
    const Expr term = all ? plain : select(update.predicate(), plain, make_zero(plain.type()));
    Reads more(sum);
    term.accept(&more);
    Pair found = Products(sum).of(term);
    const Mul *already = term.as<Mul>();
    bool changes = !already || !already->a.same_as(found.a) || !already->b.same_as(found.b);
    if (!more.places.empty() || !found.a.defined() || !changes) {
        return false;
    }
    value = common_subexpression_elimination(own + found.a * found.b);
    update.predicate() = const_true();
    return true;
}

}  // namespace bridge
