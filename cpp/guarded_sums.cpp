// Reductions that end where no split does, and those of which a predicate says which terms count.
//
// A reduction whose split does not divide runs rounded up, and its operands read zero beyond the
// end, so that the statement stays one vector reduction; so it does where a predicate says where the
// sum ends, as that of the last part of a sum that `rfactor` took apart. A maximum is of the lowest
// number there, a minimum of the highest. What else a predicate says of the lanes of a tensor unit's
// sum says which of its terms are zero.

#include "definitions.h"
#include "sum_ends.h"

namespace bridge {

using namespace Halide::Internal;
using Halide::Expr;
using Halide::Type;

namespace {

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

// A sum that adds several terms to the element, one after the other, as one that adds their sum.
std::optional<Combined> several_added(const Expr &value, const Function &f,
                                      const Definition &definition) {
    if (auto one = combined<Add>(value, f, definition, Expr())) {
        return one;
    }
    const Add *add = value.as<Add>();
    const Sub *sub = value.as<Sub>();
    for (const Expr &side : add ? std::vector<Expr>{add->a, add->b} :
                                  std::vector<Expr>{sub ? sub->a : Expr()}) {
        auto found = side.defined() ? several_added(side, f, definition) : std::nullopt;
        if (found) {
            const Expr &other = !add ? sub->b : side.same_as(add->a) ? add->b : add->a;
            found->term = add ? found->term + other : found->term - other;
            return found;
        }
    }
    return {};
}

std::optional<Combined> combined(const Expr &value, const Function &f,
                                 const Definition &definition, bool on_tensor_unit) {
    Type type = value.type();
    if (auto sum = on_tensor_unit ? several_added(value, f, definition) :
                                    combined<Add>(value, f, definition, Expr())) {
        return sum;
    }
    if (auto maximum = combined<Max>(value, f, definition, type.min())) {
        return maximum;
    }
    return combined<Min>(value, f, definition, type.max());
}

// The variables that a sum has beside one of those that it goes along.
Scope<> others_than(const ReductionVariable &r, const StageSchedule &schedule,
                    const Scope<> &pure) {
    Scope<> others;
    others.set_containing_scope(&pure);
    for (const ReductionVariable &other : schedule.rvars()) {
        if (other.var != r.var) {
            others.push(other.var);
        }
    }
    return others;
}

// The variables of a stage whose values are lanes of a vector, and how many there are of each; 0
// where that is not known.
std::map<std::string, int64_t> lanes_of(const Function &function, const StageSchedule &schedule) {
    std::map<std::string, int64_t> found;
    for (const Dim &dim : schedule.dims()) {
        if (dim.for_type == ForType::Vectorized) {
            found[dim.var] = 0;
        }
    }
    for (const Halide::Internal::Bound &bound : function.schedule().bounds()) {
        auto extent = bound.extent.defined() ? as_const_int(bound.extent) : std::nullopt;
        if (found.count(bound.var) && extent) {
            found[bound.var] = *extent;
        }
    }
    for (auto split = schedule.splits().rbegin(); split != schedule.splits().rend(); ++split) {
        bool fused = split->split_type == Split::FuseVars;
        bool outer = found.count(split->outer), inner = found.count(split->inner);
        auto factor = split->factor.defined() ? as_const_int(split->factor) : std::nullopt;
        if (fused && found.count(split->old_var)) {
            found[split->outer] = found[split->inner] = 0;
        } else if (!fused && (outer || inner)) {
            found[split->old_var] = !outer && factor ? *factor : 0;
        }
    }
    return found;
}

// A condition in which what all lanes have in common, the number of their group, is no lane's.
class WithoutGroups : public IRMutator {
    const std::map<std::string, int64_t> &lanes;

protected:
    using IRMutator::visit;
    Expr visit(const Div *op) override {
        const Variable *var = op->a.as<Variable>();
        auto found = var ? lanes.find(var->name) : lanes.end(), none = lanes.end();
        auto size = as_const_int(op->b);
        bool whole = found != none && found->second > 0 && size && *size % found->second == 0;
        return whole ? make_zero(op->type) : IRMutator::visit(op);
    }

public:
    explicit WithoutGroups(const std::map<std::string, int64_t> &lanes) : lanes(lanes) {
    }
};

// What a predicate says of lanes goes to the terms: under a condition on them Halide takes a vector
// apart. What it says of them all together stays a loop's condition, whose work is left out.
Expr mask_term(const Function &function, const Expr &term, Definition &definition) {
    auto found = lanes_of(function, definition.schedule());
    Scope<> lanes;
    for (const auto &[name, count] : found) {
        lanes.push(name);
    }
    Expr mask = const_true(), rest = const_true();
    for (const Expr &condition : definition.split_predicate()) {
        Expr varying = WithoutGroups(found).mutate(condition);
        Expr &of = expr_uses_vars(varying, lanes) ? mask : rest;
        of = of && condition;
    }
    if (is_const_one(mask)) {
        return term;
    }
    definition.predicate() = simplify(rest);
    return select(StripPromises().mutate(mask), term, make_zero(term.type()));
}

void guard_update(const Function &function, Definition &definition, Environment &env,
                  bool on_tensor_unit) {
    StageSchedule &schedule = definition.schedule();
    if (!schedule.atomic() || definition.values().size() != 1) {
        return;
    }
    // What occurs twice in it, such as an index of both factors, Halide has bound by lets.
    Expr value = substitute_in_all_lets(definition.values()[0]);
    auto update = combined(value, function, definition, on_tensor_unit);
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
    for (const ReductionVariable &r : schedule.rvars()) {
        if (sum) {
            Scope<> others = others_than(r, schedule, pure);
            term = guard_predicate(term, definition, r, pure, others, env, serial);
        }
    }
    if (sum && on_tensor_unit) {
        term = mask_term(function, term, definition);
    }
    for (ReductionVariable &r : schedule.rvars()) {
        Scope<> others = others_than(r, schedule, pure);
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

}  // namespace

void guard_reductions(Environment &env, const std::set<std::string> &tensor_funcs) {
    for (auto &[name, function] : env) {
        bool on_tensor_unit = tensor_funcs.count(name) > 0;
        for (size_t i = 0; i < function.updates().size(); i++) {
            for_each_definition(function.update((int)i), [&, &f = function](Definition &d) {
                guard_update(f, d, env, on_tensor_unit);
            });
        }
    }
}

}  // namespace bridge
