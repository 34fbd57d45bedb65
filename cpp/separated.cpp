// Sums over windows along two axes as sums along one of sums along the other (inspect.h).

#include "reads.h"

namespace bridge {

using namespace Halide::Internal;
using Halide::Expr;
using Halide::Func;

namespace {

const int steps[] = {1, 2, 3, 4};  // elements that neighbouring results lie apart
const int ways[] = {1, -1};

// What the only update of a Func combines with its element, and how: a sum, or the largest or smallest.
struct Combined {
    Expr term, identity;
    IRNodeType how;

    explicit Combined(const Function &f) {
        Expr value = substitute_in_all_lets(f.update(0).values()[0]);
        how = value.node_type();
        const Halide::Type &t = value.type();
        if (const Add *add = value.as<Add>()) {
            take(f, add->a, add->b);
            identity = make_zero(t);
        } else if (const Max *max = value.as<Max>()) {
            take(f, max->a, max->b);
            identity = t.min();
        } else if (const Min *min = value.as<Min>()) {
            take(f, min->a, min->b);
            identity = t.max();
        }
    }

    Expr of(const Expr &before, const Expr &e) const {
        return how == IRNodeType::Add ? before + e :
               how == IRNodeType::Max ? Halide::max(before, e) : Halide::min(before, e);
    }

private:
    void take(const Function &f, const Expr &a, const Expr &b) {
        for (const auto &[own, other] : {std::make_pair(a, b), std::make_pair(b, a)}) {
            Reads reads(f);
            other.accept(&reads);
            if (is_read(own.as<Call>(), f) && reads.places.empty()) {
                term = other;
                return;
            }
        }
    }
};

void split_factors(const Expr &e, std::vector<Expr> &factors) {
    if (const Mul *product = e.as<Mul>()) {
        split_factors(product->a, factors);
        split_factors(product->b, factors);
    } else {
        factors.push_back(e);
    }
}

// The product of factors; one where there are none.
Expr all_of(const std::vector<Expr> &factors, const Halide::Type &t) {
    Expr all;
    for (const Expr &e : factors) {
        all = all.defined() ? all * e : e;
    }
    return all.defined() ? all : make_one(t);
}

}  // namespace

Func separated(Function f, const std::string &along, const std::string &name) {
    if (f.updates().size() != 1 || f.outputs() != 1 || !is_const_one(f.update(0).predicate()) || !is_in_place(f)) {
        return Func();
    }
    Definition &update = f.update(0);
    std::vector<ReductionVariable> outer, inner;
    for (const ReductionVariable &r : update.schedule().rvars()) {
        (r.var == along ? outer : inner).push_back(r);
    }
    const Combined combined(f);
    if (!combined.term.defined() || outer.empty() || inner.empty()) {
        return Func();
    }
    // Factors of all terms of a row are multiplied last.
    std::vector<Expr> factors, own, last;
    if (combined.how == IRNodeType::Add) {
        split_factors(combined.term, factors);
    } else {
        factors = {combined.term};
    }
    for (const Expr &e : factors) {
        bool row = expr_uses_var(e, along) && own_of(f, e).empty();
        for (const ReductionVariable &r : inner) {
            row = row && !expr_uses_var(e, r.var);
        }
        (row ? last : own).push_back(e);
    }
    const Expr term = all_of(own, combined.term.type());
    // Where all that a term reads along an axis is at `step` times the result's place, plus the variable
    // or minus it.
    const std::string place = unique_name("place");
    const Expr at_place = Variable::make(Halide::Int(32), place);
    for (const std::string &axis : f.args()) {
        const Expr result = Variable::make(Halide::Int(32), axis);
        for (int i = 0; i < (int)(std::size(steps) * std::size(ways)); i++) {
            const int step = steps[i / 2], way = ways[i % 2];
            Expr moved = simplify(substitute(along, (at_place - result * step) * way, term));
            if (expr_uses_var(moved, axis) || !expr_uses_var(moved, place)) {
                continue;
            }
            Halide::Region ranges;
            for (const ReductionVariable &r : inner) {
                ranges.emplace_back(r.min, r.extent);
            }
            Halide::RDom domain(ranges, "r");
            std::map<std::string, Expr> renamed = {{place, result}};
            for (size_t i = 0; i < inner.size(); i++) {
                renamed[inner[i].var] = domain[(int)i];
            }
            std::vector<Halide::Var> args(f.args().begin(), f.args().end());
            Func rows(name);
            rows(args) = combined.identity;
            rows(args) = combined.of(rows(args), common_subexpression_elimination(substitute(renamed, moved)));

            const Expr number = Variable::make(Halide::Int(32), along, ReductionDomain(outer));
            std::vector<Expr> read;
            for (const std::string &arg : f.args()) {
                Expr own_place = Variable::make(Halide::Int(32), arg);
                read.push_back(arg == axis ? simplify(own_place * step + number * way) : own_place);
            }
            last.push_back(Call::make(rows.function(), read, 0));
            Expr before = Call::make(f, update.args(), 0);
            update.values()[0] = combined.of(before, substitute(along, number, all_of(last, before.type())));
            update.schedule().rvars() = outer;
            std::vector<Dim> &dims = update.schedule().dims();
            dims.erase(std::remove_if(dims.begin(), dims.end(), [&](const Dim &d) {
                return std::any_of(inner.begin(), inner.end(), [&](const ReductionVariable &r) { return r.var == d.var; });
            }), dims.end());
            return rows;
        }
    }
    return Func();
}

}  // namespace bridge
