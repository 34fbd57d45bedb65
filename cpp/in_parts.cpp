// Sums of powers that go down from a largest element, over parts of the loop of all three: each
// part has a largest element of its own, and their sums are joined by what powers go down between.

#include "reads.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace bridge {

using namespace Halide::Internal;
using Halide::Expr;
using Halide::Func;
using Halide::Tuple;
using Halide::Var;

namespace {

constexpr float LOWEST = -3.0e38f;

// Whether a Func is made of elements of another, by pure ones that this needs.
bool is_over(const Function &f, const Function &scores) {
    if (f.name() == scores.name() || !f.is_pure()) {
        return f.name() == scores.name();
    }
    for (const auto &[name, below] : find_direct_calls(f)) {
        if (is_over(below, scores)) {
            return true;
        }
    }
    return false;
}

class Uses : public IRGraphVisitor {
    const Function &f;

    using IRGraphVisitor::visit;
    void visit(const Call *op) override {
        found = found || is_read(op, f);
        IRGraphVisitor::visit(op);
    }

public:
    bool found = false;

    explicit Uses(const Function &f) : f(f) {
    }
};

// Whether an expression reads a Func.
bool uses(const Expr &e, const Function &f) {
    Uses reads(f);
    e.accept(&reads);
    return reads.found;
}

// Without what makes it one of several of the name.
std::string plain_name(const Function &f) {
    return f.name().substr(0, f.name().find('$'));
}

bool is_power(const std::string &name) {
    return name == "exp_f32" || name == "exp2_f32" || name == "pow_f32";
}

// Where heads that share keys are rows of one: row `r` of group `g` of `sharing` heads is query
// `r / sharing` of head `g * sharing + r % sharing`. What goes along the queries is called `query`,
// what goes along the heads `head`, in whatever is looked at.
struct Grouped {
    int sharing = 1;
    std::string query, head;

    // The query of a row, or its head.
    Expr of(const Variable *op) const {
        if (sharing > 1 && op->name == query) {
            return Expr(op) / sharing;
        }
        return sharing > 1 && op->name == head ? Expr(op) * sharing + Var(query) % sharing : Expr(op);
    }

    // The row of a query and a head, or its group.
    Expr back(const Variable *op) const {
        if (sharing > 1 && op->name == query) {
            return Expr(op) * sharing + Var(head) % sharing;
        }
        return sharing > 1 && op->name == head ? Expr(op) / sharing : Expr(op);
    }

    // What they are called in a Func that is read at variables.
    Grouped in(const Function &f, const std::vector<Expr> &args) const {
        Grouped found = *this;
        for (size_t d = 0; d < args.size(); d++) {
            const Variable *v = args[d].as<Variable>();
            found.query = v && v->name == query ? f.args()[d] : found.query;
            found.head = v && v->name == head ? f.args()[d] : found.head;
        }
        return found;
    }
};

// The rows of an argument; undefined where it is none. It has heads up to the last group, of which
// that may have fewer than others: nobody reads the rest.
Func rows_of(const Function &array, const Grouped &grouped) {
    Func rows(plain_name(array) + "_rows");
    const Call *image = array.has_pure_definition() ? array.values()[0].as<Call>() : nullptr;
    if (!image || image->call_type != Call::Image || !image->param.defined()) {
        return rows;
    }
    std::vector<Expr> place;
    for (size_t d = 0; d < array.args().size(); d++) {
        const std::string &name = array.args()[d];
        Expr v = Var(name), at = grouped.of(v.as<Variable>());
        if (name == grouped.head) {
            std::string size = image->param.name() + ".extent." + std::to_string(d);
            Expr extent = Variable::make(Halide::Int(32), size, image->param);
            Expr last = v * grouped.sharing + (extent - 1) % grouped.sharing;
            at = promise_clamped(at, 0, last);
        }
        place.push_back(at);
    }
    rows.function().define(array.args(), {Call::make(array, place, 0)});
    return rows;
}

// Copies what is read of Funcs over scores, with a dimension more for the parts: elements are
// numbered from the begin of a part on, by the Func's first dimension, and the peak is the part's.
// Powers beyond the last element are 0.
class OfPart : public IRMutator {
    const Function &scores, &peak;
    const Function own, queries;
    const Expr part, first, length;
    Expr key;
    Grouped grouped;
    Func &rows;

    using IRMutator::visit;
    Expr visit(const Variable *op) override {
        return op->name == name() ? promise_clamped(op + first, 0, length - 1) : grouped.of(op);
    }

    Expr visit(const Call *op) override {
        if (grouped.sharing > 1 && is_read(op, queries)) {
            Grouped inside = grouped.in(queries, op->args);
            if (!rows.defined()) {
                rows = rows_of(queries, inside);
            }
            plain = plain && rows.defined();
            return plain ? Call::make(rows.function(), op->args, 0) : op;
        }
        if (op->call_type != Call::Halide) {
            Expr e = IRMutator::visit(op);
            if (!is_power(op->name) || !uses(op->args.back(), peak)) {
                return e;
            }
            std::vector<Expr> args = e.as<Call>()->args;
            args.back() = inside(args.back(), LOWEST);
            return Call::make(op->type, op->name, args, op->call_type);
        }
        Function f(op->func);
        bool over = is_over(f, scores);
        if (!over && f.name() != peak.name()) {
            Expr e = IRMutator::visit(op);
            return grouped.sharing > 1 ? simplify(e) : e;
        }
        std::vector<Expr> args = op->args;
        for (const Expr &arg : args) {
            plain = plain && arg.as<Variable>();
        }
        plain = plain && (!over || args[0].as<Variable>()->name == name());
        args.push_back(part);
        return Call::make(over ? of(f, grouped.in(f, op->args)) : own, args, op->value_index);
    }

public:
    std::map<std::string, Function> made;
    bool plain = true;  // whether all are read at variables

    OfPart(const Function &scores, const Function &peak, const Function &own,
           const Function &queries, const Expr &part, const Expr &first, const Expr &length,
           const Expr &key, const Grouped &grouped, Func &rows)
        : scores(scores), peak(peak), own(own), queries(queries), part(part), first(first),
          length(length), key(key), grouped(grouped), rows(rows) {
    }

    const std::string &name() const {
        return key.as<Variable>()->name;
    }

    // What there is of an element, or something else beyond the last one.
    Expr inside(const Expr &e, const Expr &otherwise) const {
        return select(key + first < length, e, otherwise);
    }

    Function of(const Function &f, const Grouped &inside) {
        auto known = made.find(f.name());
        if (known != made.end()) {
            return known->second;
        }
        Function copied(unique_name(plain_name(f) + "_of_part"));
        made.emplace(f.name(), copied);
        Expr outer = key;
        Grouped around = grouped;
        key = Var(f.args()[0]);
        grouped = inside;
        std::vector<std::string> args = f.args();
        args.push_back(part.as<Variable>()->name);
        copied.define(args, {mutate(substitute_in_all_lets(f.values()[0]))});
        for (const Definition &update : f.updates()) {
            std::vector<Expr> at = update.args();
            at.push_back(part);
            copied.define_update(at, {mutate(substitute_in_all_lets(update.values()[0]))});
        }
        key = outer;
        grouped = around;
        return copied;
    }
};

// Writes out pure Funcs over the scores, and finds the power that goes down from the peak.
class Power : public IRMutator {
    const Function &scores, &peak;

    using IRMutator::visit;
    Expr visit(const Call *op) override {
        if (op->call_type == Call::Halide) {
            Function f(op->func);
            if (f.name() == scores.name() || !is_over(f, scores)) {
                return op;
            }
            std::map<std::string, Expr> at;
            for (size_t d = 0; d < op->args.size(); d++) {
                at[f.args()[d]] = op->args[d];
            }
            return mutate(substitute(at, substitute_in_all_lets(f.values()[0])));
        }
        Expr e = IRMutator::visit(op);
        if (is_power(op->name) && uses(e.as<Call>()->args.back(), peak)) {
            found.push_back(e);
        }
        return e;
    }

public:
    std::vector<Expr> found;

    Power(const Function &scores, const Function &peak) : scores(scores), peak(peak) {
    }

};

// What an exponent gains where the peak that it goes down from is `gained` more; undefined where it
// is not a number of times that.
Expr gain(const Expr &e, const Function &peak, const Expr &gained) {
    if (is_read(e.as<Call>(), peak)) {
        return gained;
    }
    auto of = [&](const Expr &x) { return gain(x, peak, gained); };
    auto used = [&](const Expr &x) { return uses(x, peak); };
    const Add *add = e.as<Add>();
    const Sub *sub = e.as<Sub>();
    if (add || sub) {
        const Expr &a = add ? add->a : sub->a, &b = add ? add->b : sub->b;
        Expr left = used(a) ? of(a) : make_zero(e.type());
        Expr right = used(b) ? of(b) : make_zero(e.type());
        if (!left.defined() || !right.defined()) {
            return Expr();
        }
        return add ? simplify(left + right) : simplify(left - right);
    }
    if (const Mul *mul = e.as<Mul>()) {
        if (used(mul->a) && used(mul->b)) {
            return Expr();
        }
        Expr inner = of(used(mul->a) ? mul->a : mul->b);
        return inner.defined() ? inner * (used(mul->a) ? mul->b : mul->a) : inner;
    }
    if (const Div *div = e.as<Div>()) {
        Expr inner = used(div->b) ? Expr() : of(div->a);
        return inner.defined() ? inner / div->b : inner;
    }
    const Select *select = e.as<Select>();  // what is too low to count is so in any case
    bool either = select && used(select->true_value) != used(select->false_value);
    if (either && !used(select->condition)) {
        bool first = used(select->true_value);
        auto other = as_const_float(first ? select->false_value : select->true_value);
        bool low = other && *other <= LOWEST / 10 && std::isfinite(*other);
        return low ? of(first ? select->true_value : select->false_value) : Expr();
    }
    return Expr();
}

// By how much the powers of a sum's terms go down for a peak that is `gained` more; undefined where
// they are no such terms.
Expr down(const Function &sum, const Function &scores, const Function &peak, const Expr &gained) {
    Power powers(scores, peak);
    Expr value = powers.mutate(substitute_in_all_lets(sum.update(0).values()[0]));
    if (powers.found.size() != 1) {
        return Expr();
    }
    const Call *power = powers.found[0].as<Call>();
    std::vector<Expr> args = power->args;
    args.back() = gain(args.back(), peak, gained);
    if (!args.back().defined()) {
        return Expr();
    }
    return Call::make(power->type, power->name, args, power->call_type);
}

std::vector<Expr> variables(const std::vector<std::string> &names) {
    std::vector<Expr> found;
    for (const std::string &name : names) {
        found.push_back(Var(name));
    }
    return found;
}

// A sum, or a maximum, of each part, and of it the copies of what it is made of. What it reads of
// itself is the part's, and so what the peak reads of the peak.
OfPart copy_sum(const Function &sum, Func &copied, const Function &scores, const Function &peak,
                const Function &own, const Function &queries, const Var &part, int keys,
                const Grouped &grouped, Func &rows) {
    const Definition &update = sum.update(0);
    const ReductionVariable &along = update.schedule().rvars()[0];
    Halide::RDom r({{0, keys}}, "r");
    OfPart parts(scores, peak, own, queries, part, part * keys, along.extent, r.x, grouped, rows);
    std::vector<std::string> args = sum.args();
    args.push_back(part.name());
    copied.function().define(args, {sum.values()[0]});
    Expr itself = Variable::make(sum.output_types()[0], "self");
    Expr value = ChangeReads(sum, [&](const Call *) { return itself; }).mutate(substitute_in_all_lets(update.values()[0]));
    value = parts.mutate(substitute(std::map<std::string, Expr>{{along.var, r.x}}, value));
    const Max *largest = value.as<Max>();
    if (largest && sum.name() == peak.name()) {
        Expr other = equal(largest->a, itself) ? largest->b : largest->a;
        value = max(itself, parts.inside(other, max(sum.values()[0], LOWEST)));
    }
    Expr self = Call::make(copied.function(), variables(args), 0);
    copied.function().define_update(variables(args), {substitute("self", self, value)});
    return parts;
}

// What blocks find of parts, in the dimensions of `output` and one of the parts: the sum, and beside
// it the peak where it has an even `channel`, the total where that is odd. These are an epilogue of
// the sum as well, whatever it is: both ways out of the choice are the same number.
Func found_of(const Function &output, const std::vector<Func> &copies,
              const std::array<std::vector<int>, 3> &along, const Var &part, int channel) {
    std::array<Expr, 3> found;
    for (int i = 0; i < 3; i++) {
        std::vector<Expr> place;
        for (int d : along[i]) {
            place.push_back(Var(output.args()[d]));
        }
        place.push_back(part);
        found[i] = copies[i](place);
    }
    std::vector<Var> all(output.args().begin(), output.args().end());
    Expr even = select(all[channel] % 2 == 0, found[0], found[1]);
    Expr odd = select(all[channel] % 2 == 1, found[1], found[0]);
    all.push_back(part);
    Func parts("parts");
    parts(all) = Tuple(select(found[2] > LOWEST, even, odd), found[2]);
    return parts;
}

// What joins them: what is read of each, no sums beyond the last, their largest peak, and their
// sums. Empty where it is not known how powers go down.
std::vector<Func> joining(const Function &output, const Func &parts, const Var &part,
                          const std::array<Function, 3> &sums, const Function &scores,
                          const Expr &count, int at_once, const Grouped &grouped,
                          int channel) {
    Func near("near"), top("top"), joined("joined");
    std::vector<Var> own(output.args().begin(), output.args().end()), all = own;
    all.push_back(part);
    std::vector<Expr> last(own.begin(), own.end());
    for (Expr &at : last) {
        at = grouped.back(at.as<Variable>());
    }
    last.push_back(min(part, max(count, 1) - 1));
    Expr begin = sums[0].values()[0], zero = Halide::cast<float>(0);
    std::array<std::vector<Expr>, 2> size = {last, last};
    for (int i = 0; i < 2; i++) {
        size[i][channel] = i;
    }
    near(all) = Tuple(parts(size[0])[0], parts(size[1])[0], parts(last)[1]);
    Expr turns = (count + at_once - 1) / at_once * at_once;
    Halide::RDom r({{0, turns}}, "p_top"), s({{0, turns}}, "p_sums");
    auto next = [&](const Halide::RDom &domain, int i) {
        std::vector<Expr> place(own.begin(), own.end());
        place.push_back(domain.x);
        return Expr(near(place)[i]);
    };
    top(own) = begin;
    top(own) = max(top(own), next(r, 0));
    std::array<Expr, 2> terms;
    for (int i = 0; i < 2; i++) {
        Expr peak = select(s.x < count, next(s, 0), begin);
        Expr less = down(sums[i + 1], scores, sums[0], Expr(top(own)) - peak);
        if (!less.defined()) {
            return {};
        }
        terms[i] = less * next(s, i + 1);
    }
    joined(own) = Tuple(zero, zero);
    joined(own) = Tuple(joined(own)[0] + terms[0], joined(own)[1] + terms[1]);
    return {near, top, joined};
}

}  // namespace

std::vector<Func> in_parts(Function output, const std::array<Function, 3> &sums,
                           const Function &weight, const Function &scores, const Function &query,
                           const std::array<std::vector<int>, 3> &along, int keys, int at_once,
                           const std::array<int, 3> &sharing) {
    const Function &peak = sums[0];
    Var part(unique_name("part"));
    Grouped grouped{sharing[0], output.args()[sharing[1]], output.args()[sharing[2]]};
    Func rows;
    std::vector<Func> copies, over;
    for (size_t i = 0; i < sums.size(); i++) {
        const Function &sum = sums[i];
        Func copied(plain_name(sum) + "_of_part");
        Function own = copies.empty() ? copied.function() : copies[0].function();
        std::vector<Expr> place;
        for (int d : along[i]) {
            place.push_back(Var(output.args()[d]));
        }
        OfPart parts = copy_sum(sum, copied, scores, peak, own, query, part, keys,
                                grouped.in(sum, place), rows);
        if (!parts.plain || !parts.made.count(scores.name())) {
            return {};
        }
        copies.push_back(copied);
        over.emplace_back(parts.made.at(scores.name()));
        if (copies.size() == sums.size()) {
            over.emplace_back(parts.made.at(weight.name()));
        }
    }
    int channel = 0;  // the dimension that only the sum has
    while (std::count(along[0].begin(), along[0].end(), channel)) {
        channel++;
    }
    Func parts = found_of(output, copies, along, part, channel);
    Expr count = (peak.update(0).schedule().rvars()[0].extent + keys - 1) / keys;
    std::vector<Func> joins = joining(output, parts, part, sums, scores, count, at_once, grouped,
                                       channel);
    if (joins.empty()) {
        return {};
    }
    std::vector<Var> own(output.args().begin(), output.args().end());
    const Func &top = joins[1], &joined = joins[2];
    std::array<Expr, 3> instead = {top(own), joined(own)[0], joined(own)[1]};
    for (int i = 0; i < 3; i++) {
        ChangeReads read(sums[i], [&](const Call *) { return instead[i]; });
        output.mutate(&read);
    }
    std::vector<Func> result = {parts};
    for (const std::vector<Func> &more : {copies, over, joins}) {
        result.insert(result.end(), more.begin(), more.end());
    }
    if (rows.defined()) {
        result.push_back(rows);
    }
    return result;
}

}  // namespace bridge
