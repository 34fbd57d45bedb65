// The end of a sum that is rounded up: its terms are zero from there on.
//
// What a term reads beyond the end is made zero where it is read, or where it is staged, so that
// operands of a tensor unit stay plain loads; where that does not make the term zero, a select does.

#include "sum_ends.h"

namespace bridge {

using namespace Halide::Internal;
using Halide::Expr;

namespace {

bool is_variable(const Expr &e, const std::string &name) {
    const Variable *v = e.as<Variable>();
    return v != nullptr && v->name == name;
}

// Does `call` read a parameter whose dimension, indexed by argument `dim`, ends at `last`? Wrappers
// are seen through. `outermost`: and is it the last one, so that nothing of the parameter lies
// beyond? (Beyond the end of an inner dimension lies the next row. The emitters tell it from the
// strides, unless these are constants.)
bool beyond_end_is_outside(const Call *call, size_t dim, const Expr &last, const Environment &env,
                           bool outermost = false) {
    if (call->call_type == Call::Image && call->param.defined()) {
        if (dim + 1 != call->args.size() &&
            (outermost || call->param.stride_constraint((int)dim + 1).defined())) {
            return false;
        }
        Expr extent = call->param.extent_constraint((int)dim);
        if (!extent.defined()) {
            std::string name = call->name + ".extent." + std::to_string(dim);
            extent = Variable::make(Halide::Int(32), name, call->param);
        }
        return can_prove(last + 1 == extent);
    }
    auto callee = env.find(call->name);
    if (callee == env.end() || !callee->second.is_pure()) {
        return false;
    }
    const Function &f = callee->second;
    const Call *inner = f.values()[0].as<Call>();
    for (size_t d = 0; inner != nullptr && d < inner->args.size(); d++) {
        if (is_variable(inner->args[d], f.args()[dim])) {
            return beyond_end_is_outside(inner, d, last, env, outermost);
        }
    }
    return false;
}

// Where a sum that is rounded up ends: its variable and the last value that counts. An index that
// `others` move, too, does not follow the sum: the Func's pure variables, and at first those of
// other sums.
struct End {
    const std::string &name;
    Expr var, last;
    const Scope<> &others;
};

// How far an index that follows the sum goes with each step of it; 0: it does not, or not evenly.
int64_t step_of(const Expr &index, const End &end) {
    if (!expr_uses_var(index, end.name) || expr_uses_vars(index, end.others)) {
        return 0;
    }
    auto step = as_const_int(simplify(substitute(end.name, end.var + 1, index) - index));
    return step ? *step : 0;
}

// The dimension of an access that follows the sum; none: the number of dimensions.
size_t dimension_of(const Call *op, const End &end) {
    bool access = op->call_type == Call::Halide || op->call_type == Call::Image;
    for (size_t d = 0; access && d < op->args.size(); d++) {
        if (step_of(op->args[d], end) != 0) {
            return d;
        }
    }
    return op->args.size();
}

Expr last_index(const Expr &index, const End &end) {
    return simplify(substitute(end.name, end.last, index));
}

class CountCalls : public IRVisitor {
    const Call *like;
    size_t dim;

protected:
    using IRVisitor::visit;
    void visit(const Call *op) override {
        if (op->call_type == Call::Halide && op->name == like->name) {
            (equal(op->args[dim], like->args[dim]) ? same : other)++;
        }
        IRVisitor::visit(op);
    }

public:
    int same = 0, other = 0;
    CountCalls(const Call *like, size_t dim) : like(like), dim(dim) {
    }
};

// A Func staged for this reduction alone, and read by it in one way, holds the zeros itself, so that
// the operand stays a plain load.
bool sink_guard(const Call *call, size_t dim, const End &end, Environment &env) {
    auto callee = env.find(call->name);
    const Expr &index = call->args[dim];
    if (callee == env.end() || !callee->second.is_pure() || step_of(index, end) < 0 ||
        !is_const(simplify(substitute(end.name, 0, index)))) {
        return false;
    }
    int consumers = 0;
    for (const auto &[name, function] : env) {
        CountCalls count(call, dim);
        function.accept(&count);
        consumers += count.same + count.other > 0 ? 1 : 0;
        if (count.other > 0) {
            return false;
        }
    }
    Function &f = callee->second;
    if (consumers != 1 || f.schedule().compute_level().is_inlined() || f.outputs() != 1) {
        return false;
    }
    Expr &value = f.definition().values()[0];
    Expr inside = Variable::make(Halide::Int(32), f.args()[dim]) <= last_index(index, end);
    value = select(inside, value, make_zero(value.type()));
    return true;
}

bool is_guard(const Expr &condition, const End &end) {
    const LE *le = condition.as<LE>();
    return le != nullptr && is_variable(le->a, end.name) && equal(le->b, end.last);
}

// What bits are beyond the end, where some accesses are zero.
template<typename Accesses>
class ZeroReads : public IRMutator {
    const Accesses &zero;

protected:
    using IRMutator::visit;
    Expr visit(const Call *op) override {
        return zero(op) ? make_zero(op->type) : IRMutator::visit(op);
    }

public:
    explicit ZeroReads(const Accesses &zero) : zero(zero) {
    }
};

// Whether an expression is zero beyond the end, given which accesses are. A select of the user's says
// nothing of that end, whatever its other side is. Of bits that are taken for a float, as those of
// decoded bytes, it is seen by what they are where the bytes are zero.
template<typename Accesses>
bool vanishes(const Expr &e, const End &end, const Accesses &zero) {
    auto inner = [&](const Expr &value) { return vanishes(value, end, zero); };
    if (const Select *s = e.as<Select>()) {
        bool guarded = is_guard(s->condition, end);
        return inner(s->false_value) && (guarded || inner(s->true_value));
    }
    if (const Call *c = e.as<Call>()) {
        return zero(c);
    }
    if (const Cast *c = e.as<Cast>()) {
        return inner(c->value);
    }
    if (const Reinterpret *r = e.as<Reinterpret>()) {
        return is_const_zero(simplify(ZeroReads<Accesses>(zero).mutate(r->value)));
    }
    if (const Mul *m = e.as<Mul>()) {
        return inner(m->a) || inner(m->b);
    }
    if (const Add *a = e.as<Add>()) {
        return inner(a->a) && inner(a->b);
    }
    if (const Sub *d = e.as<Sub>()) {
        return inner(d->a) && inner(d->b);
    }
    return is_const_zero(e);
}

// As it is once its loads are guarded: every one that follows the sum is zero.
bool vanishes(const Expr &guarded, const End &end) {
    return vanishes(guarded, end, [&](const Call *c) { return dimension_of(c, end) < c->args.size(); });
}

// Loads that follow the sum read zero beyond its end. Those that it moves only together with a pure
// variable, as it does the window of a convolution, are multiplied by the zeros of the others.
class GuardLoads : public IRMutator {
    const End &end;
    Environment &env;
    bool serial;           // the sum is no vector: what it reads is not, either
    bool settled = false;  // some factor of the product at hand is zero beyond the end

protected:
    using IRMutator::visit;

    bool is_outside(const Call *op, size_t d, bool outermost) const {
        return step_of(op->args[d], end) > 0 &&
               beyond_end_is_outside(op, d, last_index(op->args[d], end), env, outermost);
    }

    // Whether an access is zero beyond the end, or will be made so, whatever is beside it.
    bool is_zero(const Call *op) const {
        size_t d = dimension_of(op, end);
        return d < op->args.size() && (!is_outside(op, d, false) || is_outside(op, d, true));
    }

    Expr visit(const Mul *op) override {
        bool before = settled;
        auto zero = [&](const Call *c) { return is_zero(c); };
        settled = settled || vanishes(op, end, zero);
        Expr a = mutate(op->a);
        settled = settled || vanishes(a, end);
        Expr b = mutate(op->b);
        settled = before;
        return Mul::make(a, b);
    }

    Expr visit(const Call *op) override {
        size_t d = dimension_of(op, end);
        if (d == op->args.size()) {
            return IRMutator::visit(op);
        }
        if (is_outside(op, d, !settled)) {
            return op;
        }
        if (serial) {  // so that nothing is computed beyond the end
            std::vector<Expr> args = op->args;
            args[d] = substitute(end.name, min(end.var, end.last), args[d]);
            Expr inside = Call::make(op->type, op->name, args, op->call_type, op->func,
                                     op->value_index, op->image, op->param);
            return select(end.var <= end.last, inside, make_zero(op->type));
        }
        bool zero = sink_guard(op, d, end, env);
        return zero ? Expr(op) : select(end.var <= end.last, Expr(op), make_zero(op->type));
    }

public:
    GuardLoads(const End &end, Environment &env, bool serial)
        : end(end), env(env), serial(serial) {
    }
};

class FindVariable : public IRVisitor {
    const std::string &name;

protected:
    using IRVisitor::visit;
    void visit(const Variable *op) override {
        if (op->name == name) {
            found = op;
        }
    }

public:
    Expr found;
    explicit FindVariable(const std::string &name) : name(name) {
    }
};

}  // namespace

Expr variable_in(const Expr &e, const std::string &name) {
    FindVariable find(name);
    e.accept(&find);
    return find.found;
}

Expr guard_term(const Expr &term, const std::string &var, const Expr &last, const Scope<> &pure,
                const Scope<> &others, Environment &env, bool serial) {
    Expr found = variable_in(term, var);
    if (!found.defined()) {
        return select(Variable::make(Halide::Int(32), var) <= last, term, make_zero(term.type()));
    }
    for (const Scope<> *moved : {&others, &pure}) {
        End end{var, found, last, *moved};
        Expr guarded = GuardLoads(end, env, serial).mutate(term);
        if (vanishes(guarded, end)) {
            return guarded;
        }
    }
    return select(found <= last, term, make_zero(term.type()));
}

}  // namespace bridge
