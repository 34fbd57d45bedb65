// Tails: sizes that no tile divides.
//
// Stores to an output beyond its extent are predicated off, lane by lane. Funcs inside the pipeline
// are computed over rounded-up tiles; what they load beyond a buffer is zero and never reaches an
// output. Of one that is computed once, and whose own variable is split with GuardWithIf, only what
// somebody needs is stored. A reduction whose split does not divide runs rounded up as well, and its
// operands read zero beyond the end, so that the statement stays one vector reduction; so it does
// where a predicate says where the sum ends, as that of the last part of a sum that `rfactor` took
// apart. A maximum is of the lowest number there, a minimum of the highest.

#include "sum_ends.h"

namespace bridge {

using namespace Halide::Internal;
using Halide::Expr;
using Halide::TailStrategy;
using Halide::Type;

namespace {

template<typename F>
void for_each_definition(Definition &definition, const F &f) {
    f(definition);
    for (Specialization &s : definition.specializations()) {
        for_each_definition(s.definition, f);
    }
}

template<typename F>
void for_each_definition(Function &function, const F &f) {
    if (!function.has_pure_definition() && !function.has_update_definition()) {
        return;
    }
    for_each_definition(function.definition(), f);
    for (size_t i = 0; i < function.updates().size(); i++) {
        for_each_definition(function.update((int)i), f);
    }
}

// What `rfactor` says of an index: that it is likely inside, and a promise that no longer holds once
// the sum is rounded up.
class StripPromises : public IRMutator {
protected:
    using IRMutator::visit;
    Expr visit(const Call *op) override {
        bool promise = op->is_intrinsic(Call::promise_clamped) || op->is_intrinsic(Call::likely);
        return promise ? mutate(op->args[0]) : IRMutator::visit(op);
    }
};

// `var + offset <= last` as a condition says it, where neither side else moves with `var`, and
// `last` with no loop.
struct Bound {
    Expr var, offset, last;
};

std::optional<Bound> bound_of(const Expr &condition, const std::string &var, const Scope<> &loops) {
    Expr plain = StripPromises().mutate(condition);
    const LE *le = plain.as<LE>();
    const LT *lt = plain.as<LT>();
    if (le == nullptr && lt == nullptr) {
        return {};
    }
    Expr position = le != nullptr ? le->a : lt->a;
    Expr last = le != nullptr ? le->b : lt->b - 1;
    Expr found = variable_in(position, var);
    if (!found.defined() || expr_uses_var(last, var) || expr_uses_vars(last, loops)) {
        return {};
    }
    Expr offset = simplify(position - found);
    if (expr_uses_var(offset, var)) {
        return {};
    }
    return Bound{found, offset, simplify(last)};
}

// Whether a condition says no more than where the loop over `r` ends, as that of the parts of a sum
// does, which `rfactor` keeps.
bool holds_throughout(const Expr &condition, const ReductionVariable &r) {
    Expr last = r.min + r.extent - 1;
    Scope<Interval> inside;
    inside.push(r.var, Interval(r.min, last));
    Expr plain = simplify(StripPromises().mutate(condition), true, inside);
    const LE *le = plain.as<LE>();
    Expr var = Variable::make(Halide::Int(32), r.var);
    if (le == nullptr || expr_uses_var(le->b, r.var) ||
        !can_prove(substitute(r.var, var + 1, le->a) >= le->a)) {
        return false;
    }
    return can_prove(substitute(r.var, last, plain));
}

// What a predicate says of the end of the sum over `r` goes to the operands: their places are
// counted from the sum's begin meanwhile, in the definition as well, wherever its part begins.
Expr guard_predicate(const Expr &term, Definition &definition, const ReductionVariable &r,
                     const Scope<> &pure, const Scope<> &others, Environment &env, bool serial) {
    Expr found = term, rest = const_true();
    for (const Expr &condition : definition.split_predicate()) {
        if (holds_throughout(condition, r)) {
            continue;
        }
        auto bound = bound_of(condition, r.var, others);
        if (!bound) {
            rest = rest && condition;
            continue;
        }
        std::string whole = Halide::Internal::unique_name("whole");
        Expr place = Variable::make(Halide::Int(32), whole);
        found = StripPromises().mutate(found);
        found = simplify(substitute(r.var, place - bound->offset, found));
        definition.values()[0] = found;
        found = guard_term(found, whole, bound->last, pure, others, env, serial);
        found = substitute(whole, bound->var + bound->offset, found);
    }
    definition.predicate() = simplify(rest);
    return found;
}

bool is_self_call(const Expr &e, const std::string &func, const std::vector<Expr> &args) {
    const Call *c = e.as<Call>();
    if (c == nullptr || c->call_type != Call::Halide || c->name != func) {
        return false;
    }
    for (size_t i = 0; i < args.size(); i++) {
        if (!equal(c->args[i], args[i])) {
            return false;
        }
    }
    return true;
}

// The number that the extent of `var` must be a multiple of for its splits to divide; 0 where no
// extent will do.
int64_t required_multiple(const std::string &var, const std::vector<Split> &splits, size_t from) {
    for (size_t i = from; i < splits.size(); i++) {
        const Split &split = splits[i];
        if (split.split_type == Split::FuseVars && (split.outer == var || split.inner == var)) {
            return required_multiple(split.old_var, splits, i + 1) == 1 ? 1 : 0;
        }
        if (split.old_var != var) {
            continue;
        }
        if (split.split_type == Split::RenameVar) {
            return required_multiple(split.outer, splits, i + 1);
        }
        auto factor = as_const_int(split.factor);
        int64_t inner = required_multiple(split.inner, splits, i + 1);
        if (!factor || inner == 0 || *factor % inner != 0) {
            return 0;
        }
        return *factor * required_multiple(split.outer, splits, i + 1);
    }
    return 1;
}

// An update of the element itself: what it adds, or compares with what there is.
struct Combined {
    Expr self, term, beyond;  // `beyond`: what changes nothing; of a sum it is not defined
    Expr (*with)(Expr, Expr);
};

template<typename Node>
std::optional<Combined> combined(const Expr &value, const Function &f, const Definition &definition,
                                 const Expr &beyond) {
    const Node *node = value.as<Node>();
    if (node == nullptr) {
        return {};
    }
    if (is_self_call(node->a, f.name(), definition.args())) {
        return Combined{node->a, node->b, beyond, [](Expr a, Expr b) { return Node::make(a, b); }};
    }
    if (is_self_call(node->b, f.name(), definition.args())) {
        return Combined{node->b, node->a, beyond, [](Expr a, Expr b) { return Node::make(b, a); }};
    }
    return {};
}

std::optional<Combined> combined(const Expr &value, const Function &f,
                                 const Definition &definition) {
    Type type = value.type();
    if (auto sum = combined<Add>(value, f, definition, Expr())) {
        return sum;
    }
    if (auto maximum = combined<Max>(value, f, definition, type.min())) {
        return maximum;
    }
    return combined<Min>(value, f, definition, type.max());
}

void guard_update(const Function &function, Definition &definition, Environment &env) {
    StageSchedule &schedule = definition.schedule();
    if (!schedule.atomic() || definition.values().size() != 1) {
        return;
    }
    // What occurs twice in it, such as an index of both factors, Halide has bound by lets.
    Expr value = substitute_in_all_lets(definition.values()[0]);
    auto update = combined(value, function, definition);
    if (!update) {
        return;
    }
    bool sum = !update->beyond.defined();
    Expr term = update->term;
    Scope<> pure;
    for (const std::string &arg : function.args()) {
        pure.push(arg);
    }
    bool serial = std::none_of(schedule.dims().begin(), schedule.dims().end(), [](const Dim &dim) {
        return dim.for_type == ForType::Vectorized;
    });
    for (ReductionVariable &r : schedule.rvars()) {
        Scope<> others;
        others.set_containing_scope(&pure);
        for (const ReductionVariable &other : schedule.rvars()) {
            if (other.var != r.var) {
                others.push(other.var);
            }
        }
        if (sum) {
            term = guard_predicate(term, definition, r, pure, others, env, serial);
        }
        int64_t multiple = required_multiple(r.var, schedule.splits(), 0);
        if (multiple != 0 && !can_prove(r.extent % (int32_t)multiple == 0)) {
            Expr last = simplify(r.min + r.extent - 1);
            Expr at = Variable::make(Halide::Int(32), r.var);
            term = sum ? guard_term(term, r.var, last, pure, others, env, serial) :
                         select(at <= last, term, update->beyond);
            int32_t m = (int32_t)multiple;
            r.extent = simplify((r.extent + (m - 1)) / m * m);
        }
    }
    definition.values()[0] = update->with(update->self, term);
}

// Dimensions of an output whose loops may run beyond the extent.
std::set<size_t> rounded_dimensions(Function function) {
    std::set<std::string> rounded;
    for_each_definition(function, [&](Definition &definition) {
        const std::vector<Split> &splits = definition.schedule().splits();
        for (auto split = splits.rbegin(); split != splits.rend(); ++split) {
            switch (split->split_type) {
            case Split::SplitVar:
                rounded.insert(split->old_var);
                break;
            case Split::RenameVar:
                if (rounded.count(split->outer)) {
                    rounded.insert(split->old_var);
                }
                break;
            case Split::FuseVars:
                rounded.insert(split->outer);
                rounded.insert(split->inner);
                break;
            }
        }
    });
    std::set<size_t> dimensions;
    for (size_t d = 0; d < function.args().size(); d++) {
        if (rounded.count(function.args()[d])) {
            dimensions.insert(d);
        }
    }
    return dimensions;
}

class PredicateStores : public IRMutator {
    const std::map<std::string, std::map<size_t, Expr>> ends;  // by Func and dimension

protected:
    using IRMutator::visit;

    Stmt visit(const Provide *op) override {
        auto found = ends.find(op->name);
        if (found == ends.end()) {
            return IRMutator::visit(op);
        }
        Expr predicate = op->predicate;
        for (const auto &[d, end] : found->second) {
            predicate = predicate && op->args[d] < end;
        }
        return Provide::make(op->name, op->values, op->args, simplify(predicate));
    }

public:
    explicit PredicateStores(const std::map<std::string, std::map<size_t, Expr>> &ends)
        : ends(ends) {
    }
};

}  // namespace

void guard_reductions(Environment &env) {
    for (auto &[name, function] : env) {
        for (size_t i = 0; i < function.updates().size(); i++) {
            for_each_definition(function.update((int)i),
                                [&, &f = function](Definition &d) { guard_update(f, d, env); });
        }
    }
}

Dimensions round_up_tails(Environment &env) {
    Dimensions guarded;
    for (auto &[name, function] : env) {
        const bool alone = function.schedule().compute_level().is_root() &&
                           function.updates().empty();
        for_each_definition(function, [&, &f = function](Definition &definition) {
            const std::vector<std::string> &args = f.args();
            for (Split &split : definition.schedule().splits()) {
                if (split.split_type == Split::SplitVar && !split.exact) {
                    bool own = std::find(args.begin(), args.end(), split.old_var) != args.end();
                    if (alone && own && split.tail == TailStrategy::GuardWithIf) {
                        guarded.insert({f.name(), split.old_var});
                    }
                    split.tail = TailStrategy::RoundUp;
                }
            }
        });
    }
    return guarded;
}

Stmt predicate_needed(const Stmt &s, const Environment &env, const Dimensions &guarded) {
    std::map<std::string, std::map<size_t, Expr>> ends;
    for (const auto &[name, arg] : guarded) {
        const std::vector<std::string> &args = env.at(name).args();
        size_t d = std::find(args.begin(), args.end(), arg) - args.begin();
        ends[name][d] = Variable::make(Halide::Int(32), name + ".s0." + arg + ".loop_max") + 1;
    }
    return PredicateStores(ends).mutate(s);
}

Stmt predicate_stores(const Stmt &s, const Functions &outputs, const Parameters &parameters) {
    std::map<std::string, std::map<size_t, Expr>> ends;
    for (const Function &f : outputs) {
        std::string buffer = f.outputs() > 1 ? f.name() + ".0" : f.name();
        for (const Buffer &b : parameters.buffers) {
            if (b.output && b.name == buffer) {
                const std::vector<Expr> all = ends_of(b);
                for (size_t d : rounded_dimensions(f)) {
                    ends[f.name()][d] = all[d];
                }
            }
        }
    }
    return PredicateStores(ends).mutate(s);
}

}  // namespace bridge
