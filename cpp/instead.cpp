// Funcs that are read in place of others: copies, what is read of one only cast; and sums
// that begin with zero, to which their readers add what they began with.

#include "reads.h"

namespace bridge {

using namespace Halide::Internal;
using Halide::Expr;
using Halide::Func;
using Halide::Tuple;
using Halide::Var;

namespace {

// Looks for casts of what is read of a Func, and reads another one instead, if there is one.
class CastReads : public IRMutator {
    const std::string from;
    const Function *to;

    using IRMutator::visit;
    Expr visit(const Cast *op) override {
        const Call *call = op->value.as<Call>();
        if (!call || call->call_type != Call::Halide || call->name != from) {
            return IRMutator::visit(op);
        }
        types.insert(op->type);
        std::vector<Expr> args = mutate(call->args);
        return to ? Call::make(*to, args, 0) : Expr(op);
    }

    Expr visit(const Call *op) override {
        plain = plain || (op->call_type == Call::Halide && op->name == from);
        return IRMutator::visit(op);
    }

public:
    std::set<Halide::Type> types;
    bool plain = false;

    explicit CastReads(const std::string &from, const Function *to = nullptr) : from(from), to(to) {
    }

    // In what the stages of a reader store, which Halide has with lets for what is alike.
    void visit_values(Function reader) {
        std::vector<Definition> stages = reader.updates();
        stages.push_back(reader.definition());
        for (Definition &stage : stages) {
            for (Expr &value : stage.values()) {
                Expr changed = mutate(substitute_in_all_lets(value));
                value = to ? common_subexpression_elimination(changed) : value;
            }
        }
    }
};

// What readers of a Func read by its name: the one that it wraps, whose reads Halide changes when
// the pipeline is lowered.
Function read_as(const Function &f) {
    const Call *call = f.has_update_definition() ? nullptr : f.values()[0].as<Call>();
    if (!call || call->call_type != Call::Halide) {
        return f;
    }
    const Function of(call->func);
    const auto &wrappers = of.schedule().wrappers();
    bool wrapped = std::any_of(wrappers.begin(), wrappers.end(), [&](const auto &wrapper) {
        return wrapper.second.same_as(f.get_contents());
    });
    return wrapped ? of : f;
}

// A Func with the definition and the schedule of another.
Function copy_of(const Function &f, const std::string &name) {
    Function copied(Halide::Internal::unique_name(name));
    std::map<FunctionPtr, FunctionPtr> known;
    for (const auto &[reader, wrapper] : f.schedule().wrappers()) {
        known[wrapper] = wrapper;
    }
    f.deep_copy(copied.name(), copied.get_contents(), known);
    copied.schedule().wrappers().clear();  // of readers of f: a wrapped argument may have some of before
    FunctionPtr self = copied.get_contents();
    self.weaken();
    copied.substitute_calls({{f.get_contents(), self}});  // those of its own updates
    return copied;
}

// A variable, and the names that expressions give what depends on it.
class Dependent : public IRGraphVisitor {
    using IRGraphVisitor::visit;
    void visit(const Let *op) override {
        if (expr_uses_vars(op->value, names)) {
            names.push(op->name);
        }
        IRGraphVisitor::visit(op);
    }

public:
    Scope<> names;

    explicit Dependent(const std::string &variable) {
        names.push(variable);
    }
};

// A Func whose elements are read of another one, which is stored.
Function reading(const Function &f, const std::string &name) {
    std::vector<Var> args(f.args().begin(), f.args().end());
    const std::vector<Expr> at(args.begin(), args.end());
    std::vector<Expr> values;
    for (int i = 0; i < f.outputs(); i++) {
        values.push_back(Call::make(f, at, i));
    }
    Func reads(Halide::Internal::unique_name(name));
    reads(args) = Tuple(values);
    return reads.function();
}

}  // namespace

Func clone_for(const Function &f, Function consumer, const std::string &variable,
               const std::string &name) {
    const Function read_here = read_as(f);
    // Halide tells where it is computed once all is scheduled only; its loops are there to be seen.
    const bool stored = !f.definition().schedule().splits().empty();
    const Function copied = stored ? reading(f, name) : copy_of(f, name);
    if (variable.empty()) {
        consumer.substitute_calls(read_here, copied);
    } else {
        bool found = false;
        Dependent along(variable);
        consumer.accept(&along);
        ChangeReads elsewhere(read_here, [&](const Call *read) {
            bool other = std::any_of(read->args.begin(), read->args.end(), [&](const Expr &index) {
                return expr_uses_vars(index, along.names);
            });
            found = found || other;
            return other ? Call::make(copied, read->args, read->value_index) : Expr(read);
        });
        consumer.mutate(&elsewhere);
        if (!found) {
            return Func();
        }
    }
    return Func(copied);
}

bool from_zero(Function sum, Function reader) {
    Expr &begin = sum.definition().values()[0];
    ChangeReads add(sum, [&](const Call *read) {
        return at(sum, begin, read->args) + Expr(read);
    });
    reader.mutate(&add);
    if (add.found) {
        begin = Halide::Internal::make_zero(begin.type());
    }
    return add.found;
}

bool counted_from_zero(Function sum) {
    if (sum.updates().size() != 1) {
        return false;
    }
    Definition &update = sum.update(0);
    std::vector<ReductionVariable> &rvars = update.schedule().rvars();
    std::vector<ReductionVariable> counted = rvars;
    for (ReductionVariable &r : counted) {
        r.min = 0;
    }
    ReductionDomain domain(counted);
    std::map<std::string, Expr> moved;
    bool any = false;
    for (const ReductionVariable &r : rvars) {
        any = any || !is_const_zero(r.min);
        moved[r.var] = simplify(Variable::make(Halide::Int(32), r.var, domain) + r.min);
    }
    if (!any) {
        return false;
    }
    for (std::vector<Expr> *all : {&update.values(), &update.args()}) {
        for (Expr &e : *all) {
            e = substitute(moved, e);
        }
    }
    update.predicate() = substitute(moved, update.predicate());
    rvars = counted;
    return true;
}

Func narrowed(const Function &f, const Functions &readers, const std::string &name) {
    CastReads found(f.name());
    for (const Function &reader : readers) {
        found.visit_values(reader);
    }
    if (found.plain || found.types.size() != 1 || f.outputs() != 1) {
        return Func();
    }
    std::vector<Expr> own;
    for (const std::string &arg : f.args()) {
        own.push_back(Variable::make(Halide::Int(32), arg));
    }
    Func made(name);
    Expr whole = Call::make(f, own, 0);
    made.function().define(f.args(), {Cast::make(*found.types.begin(), whole)});
    Function narrow = made.function();
    CastReads instead(f.name(), &narrow);
    for (const Function &reader : readers) {
        instead.visit_values(reader);
    }
    return made;
}

}  // namespace bridge
