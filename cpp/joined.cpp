// Sums whose terms two variables number, over both as one (inspect.h).

#include "reads.h"

namespace bridge {

using namespace Halide::Internal;
using Halide::Expr;
using Halide::Func;

namespace {

// Two variables of a sum that are to be one, and how many values each has.
struct Both {
    std::string inner, outer;
    int inside, outside;

    bool in(const Expr &e) const {
        return expr_uses_var(e, inner) || expr_uses_var(e, outer);
    }
};

// The values of a variable of a sum that begins at 0; 0 where that is not known.
int values_of(const Definition &update, const std::string &variable) {
    for (const ReductionVariable &v : update.schedule().rvars()) {
        auto extent = as_const_int(v.extent);
        if (v.var == variable && is_const_zero(v.min) && extent) {
            return (int)*extent;
        }
    }
    return 0;
}

// A factor of the products as a Func of its own, and how the sum reads that at `term`: its first
// dimension numbers terms, the others are those of what the factor reads, but for those along which
// both variables choose, which are the variable that chooses there beside these, if one does. Beyond
// the last term it has that again. Undefined for a factor that is no element.
Expr along_both(const Expr &factor, const Both &both, const Expr &term, const std::string &name,
                Func &made) {
    const Cast *cast = factor.as<Cast>();
    const Call *call = (cast ? cast->value : factor).as<Call>();
    if (!call || (call->call_type != Call::Halide && call->call_type != Call::Image)) {
        return Expr();
    }
    Halide::Var k("k");
    Expr last = both.inside * both.outside - 1, number = Halide::min(k, last);
    std::map<std::string, Expr> numbered = {{both.inner, number % both.inside},
                                            {both.outer, number / both.inside}};
    std::vector<std::string> args = {k.name()};
    std::vector<Expr> read = {term}, inside;
    for (const Expr &index : call->args) {
        if (!both.in(index)) {
            args.push_back("v" + std::to_string(args.size()));
            read.push_back(index);
            inside.push_back(Variable::make(Halide::Int(32), args.back()));
            continue;
        }
        std::map<std::string, Expr> renamed = numbered;
        Variables others;
        index.accept(&others);
        for (const auto &[variable, e] : others.found) {
            if (!numbered.count(variable)) {
                args.push_back("v" + std::to_string(args.size()));
                read.push_back(e);
                renamed[variable] = Variable::make(Halide::Int(32), args.back());
            }
        }
        inside.push_back(substitute(renamed, index));
    }
    made = Func(name);
    Expr whole = Call::make(call->type, call->name, inside, call->call_type, call->func,
                            call->value_index, call->image, call->param);
    made.function().define(args, {whole});
    Expr element = Call::make(made.function(), read, 0);
    return cast ? Cast::make(cast->type, element) : element;
}

}  // namespace

std::vector<Func> joined(const Function &f, Function reader, const std::string &inner,
                         const std::string &outer, const std::string &name) {
    bool one = f.updates().size() == 1 && f.outputs() == 1 && find_direct_calls(reader).count(f.name());
    if (!one || !is_const_one(f.update(0).predicate())) {
        return {};
    }
    const Definition &update = f.update(0);
    Both both = {inner, outer, values_of(update, inner), values_of(update, outer)};
    const AddedProduct added(f);
    const Mul *product = added.product;
    if (!product || inner == outer || !both.inside || !both.outside || !is_in_place(f)) {
        return {};
    }
    Halide::Region ranges = {{0, both.inside * both.outside}};
    for (const ReductionVariable &v : update.schedule().rvars()) {
        if (v.var != inner && v.var != outer) {
            ranges.push_back({v.min, v.extent});
        }
    }
    Halide::RDom domain(ranges, "r");
    std::map<std::string, Expr> renamed;
    int next = 1;
    for (const ReductionVariable &v : update.schedule().rvars()) {
        if (v.var != inner && v.var != outer) {
            renamed[v.var] = domain[next++];
        }
    }
    Func a, b, sum(name);
    Expr left = along_both(product->a, both, domain[0], name + "_a", a);
    Expr right = along_both(product->b, both, domain[0], name + "_b", b);
    if (!left.defined() || !right.defined()) {
        return {};
    }
    std::vector<Halide::Var> args(f.args().begin(), f.args().end());
    sum(args) = f.definition().values()[0];
    sum(args) += substitute(renamed, left * right);
    reader.substitute_calls(f, sum.function());
    return {sum, a, b};
}

}  // namespace bridge
