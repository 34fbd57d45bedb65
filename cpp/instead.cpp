// Funcs that are read in place of others: copies, factors, what is read of one only cast; and sums
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

// The variables of loops that an expression depends on.
class Variables : public IRGraphVisitor {
    using IRGraphVisitor::visit;
    void visit(const Variable *op) override {
        if (!op->param.defined() && !op->image.defined()) {
            inside.emplace(op->name, op);
        }
    }

public:
    std::map<std::string, Expr> inside;
};

// The Func with updates that is read at some variables, in their order.
class ReadAt : public IRGraphVisitor {
    const std::vector<Expr> &own;

    using IRGraphVisitor::visit;
    void visit(const Call *op) override {
        IRGraphVisitor::visit(op);
        bool here = op->call_type == Call::Halide && op->args.size() == own.size() &&
                    std::equal(own.begin(), own.end(), op->args.begin(),
                               [](const Expr &a, const Expr &b) { return equal(a, b); });
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
    return Expr();
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
    std::map<std::string, Expr> renamed;  // at once: the sum may have variables of these names
    Variables found;
    inner.accept(&found);
    for (const std::string &variable : order) {
        auto used = found.inside.find(variable);
        if (used == found.inside.end() || !renamed.emplace(variable, Expr()).second) {
            return Func();
        }
        own.push_back(used->second);
    }
    for (const ReductionVariable &r : sum.update(0).schedule().rvars()) {
        if (is_const_one(r.extent) && found.inside.count(r.var)) {
            renamed.emplace(r.var, r.min);  // unless it is named
        }
    }
    if (renamed.size() < found.inside.size()) {
        return Func();
    }
    std::vector<std::string> args = named(inner, own);
    for (size_t d = 0; d < args.size(); d++) {
        renamed[order[d]] = Variable::make(Halide::Int(32), args[d]);
    }
    Func made(name);
    made.function().define(args, {substitute(renamed, inner)});
    Expr read = Call::make(made.function(), own, 0);
    read = cast ? Cast::make(cast->type, read) : read;
    Expr terms = factor ? product->a * read : read * product->b;
    sum.update(0).values()[0] = added.with(terms);
    return made;
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
