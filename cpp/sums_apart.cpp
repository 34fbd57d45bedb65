// Sums that are one of several updates of a Func, or of its values, as Funcs of their own.

#include "reads.h"

namespace bridge {

using namespace Halide::Internal;
using Halide::Expr;
using Halide::Func;

namespace {

// Whether an expression is a value of a Func at the place that an update stores to.
bool is_own(const Expr &e, const Function &f, int value, const std::vector<Expr> &place) {
    const Call *call = e.as<Call>();
    return is_read(call, f) && call->value_index == value && alike(place, call->args);
}

// What an update of the element itself adds to it, subtracted with a sign; undefined where it does not
// read the element as one of the terms of a sum.
struct Term {
    Expr added;
    bool minus = false;

    Term(const Expr &e, const std::function<bool(const Expr &)> &own) {
        const Add *add = e.as<Add>();
        const Sub *sub = e.as<Sub>();
        if (sub && own(sub->a)) {
            added = sub->b;
            minus = true;
        } else if (add && (own(add->a) || own(add->b))) {
            added = own(add->a) ? add->b : add->a;
        } else if (add || sub) {
            Term a(add ? add->a : sub->a, own);
            Term b = add && !a.added.defined() ? Term(add->b, own) : Term();
            Expr a_rest = a.minus ? -a.added : a.added, b_rest = b.minus ? -b.added : b.added;
            if (a_rest.defined()) {
                added = add ? a_rest + add->b : a_rest - sub->b;
            } else if (b_rest.defined()) {
                added = add->a + b_rest;
            }
        }
    }

    Term() = default;
};

// The values of a Func after its updates, which are taken one after the other as long as that can be
// said of each element by itself; the sums that it takes are Funcs.
class Apart {
    const Function f;
    const std::string name;
    const bool each;  // product has a sum
    std::vector<Halide::Var> args;

    // The values with others in place of what is read of the Func's own element; none if it is read
    // elsewhere.
    std::vector<Expr> instead(const std::vector<Expr> &in, const std::vector<Expr> &place) {
        bool elsewhere = false;
        ChangeReads own(f, [&](const Call *read) {
            elsewhere = elsewhere || !is_own(read, f, read->value_index, place);
            return values[read->value_index];
        });
        std::vector<Expr> found = own.mutate(in);
        return elsewhere ? std::vector<Expr>{} : found;
    }

    static bool reads(const Expr &e, const Function &f) {
        Reads own(f);
        e.accept(&own);
        return !own.places.empty();
    }

    // The part of a condition that the sum's variables have no say in, which is taken from it.
    static Expr outside(Expr &condition, const Definition &d) {
        std::vector<Expr> parts;
        split_into_ands(condition, parts);
        Expr rest = const_true(), found = const_true();
        for (const Expr &part : parts) {
            bool varies = false;
            for (const ReductionVariable &r : d.schedule().rvars()) {
                varies = varies || expr_uses_var(part, r.var);
            }
            (varies ? rest : found) = (varies ? rest : found) && part;
        }
        condition = simplify(rest);
        return simplify(found);
    }

    Expr masked(const Expr &condition, const Expr &value, const Expr &other) {
        return is_const_one(condition) ? value : Halide::select(condition, value, other);
    }

    bool take_sum(const Definition &d, const std::vector<Expr> &in) {
        std::vector<Expr> found = values;
        std::vector<Func> made;
        for (size_t i = 0; i < in.size(); i++) {
            if (is_own(in[i], f, (int)i, d.args())) {
                continue;
            }
            Term term(in[i], [&](const Expr &e) { return is_own(e, f, (int)i, d.args()); });
            bool sum = term.added.defined() && !reads(term.added, f);
            std::vector<std::pair<Expr, int>> products = {{term.added, 1}};
            if (sum && each) {
                products = products_in(term.added, d.schedule().rvars());
            }
            Expr next = values[i], outer;
            for (const auto &[product, sign] : products) {
                Func one(name + "_sum");
                if (!(sum ? add_up(one, product) : combine(one, in[i], (int)i, d.args()))) {
                    return false;
                }
                Expr inner = d.predicate(), whole = one(args);
                outer = outside(inner, d);
                one.function().update(0).predicate() = inner;
                bool minus = term.minus != (sign < 0);
                next = !sum || is_const_zero(next) ? (minus ? -whole : whole) :
                       minus ? next - whole : next + whole;
                made.push_back(one);
            }
            found[i] = masked(outer, next, values[i]);
            any = any || sum;
        }
        values = found;
        made_of.insert(made_of.end(), made.begin(), made.end());
        return true;
    }

    bool add_up(Func &sum, const Expr &term) {
        sum(args) = make_zero(term.type());
        sum(args) += common_subexpression_elimination(term);
        return true;
    }

    // What is no sum goes on from the value before.
    bool combine(Func &one, const Expr &value, int number, const std::vector<Expr> &place) {
        bool others = false;
        one(args) = common_subexpression_elimination(values[number]);
        ChangeReads own(f, [&](const Call *read) {
            others = others || !is_own(read, f, number, place);
            return Expr(one(args));
        });
        Expr next = own.mutate(value);
        if (!others) {
            one(args) = common_subexpression_elimination(next);
        }
        return !others;
    }

public:
    std::vector<Expr> values;
    std::vector<Func> made_of;
    bool any = false;  // sums among these

    Apart(const Function &f, const std::string &name, bool each)
        : f(f), name(name), each(each), args(f.args().begin(), f.args().end()) {
        for (const Expr &value : f.values()) {
            values.push_back(substitute_in_all_lets(value));
        }
    }

    // Whether an update is taken. One without a sum may be of some elements, at a place that is the same
    // whatever the Func's variables are.
    bool take(const Definition &d) {
        std::vector<Expr> in;
        for (const Expr &value : d.values()) {
            in.push_back(substitute_in_all_lets(value));
        }
        Expr here = simplify(d.predicate());
        bool sum = !d.schedule().rvars().empty();
        for (size_t i = 0; i < d.args().size(); i++) {
            const auto *own = d.args()[i].as<Variable>();
            if (own && own->name == f.args()[i]) {
                continue;
            }
            if (sum || !own_of(f, d.args()[i]).empty() || reads(d.args()[i], f)) {
                return false;
            }
            here = here && Expr(args[i]) == d.args()[i];
        }
        if (sum) {
            return take_sum(d, in);
        }
        std::vector<Expr> next = instead(in, d.args());
        for (size_t i = 0; i < next.size(); i++) {
            next[i] = masked(here, next[i], values[i]);
        }
        values = next.empty() ? values : next;
        return !next.empty();
    }
};

// The updates of a Func from one on, of another one.
void update_as(const Function &f, size_t first, Func &whole) {
    ChangeReads own(f, [&](const Call *read) {
        return Call::make(whole.function(), read->args, 0);
    });
    for (size_t u = first; u < f.updates().size(); u++) {
        const Definition &d = f.update((int)u);
        whole.function().define_update(own.mutate(d.args()), own.mutate(d.values()));
    }
}

}  // namespace

std::vector<Func> sums_apart(const Function &f, const Functions &readers, const std::string &name, bool stored,
                             bool each) {
    if (!f.has_pure_definition() || f.has_extern_definition()) {
        return {};
    }
    Apart apart(f, name, each);
    size_t taken = 0;
    while (taken < f.updates().size() && apart.take(f.update((int)taken))) {
        taken++;
    }
    bool rest = taken < f.updates().size();
    if (!apart.any || (rest && f.outputs() > 1)) {
        return {};
    }
    std::vector<Func> wholes;
    for (const Expr &value : apart.values) {
        Func whole(name + "_whole");
        whole.function().define(f.args(), {common_subexpression_elimination(value)});
        if (!stored) {
            whole.function().schedule().bounds() = f.schedule().bounds();
        }
        wholes.push_back(whole);
    }
    update_as(f, taken, wholes[0]);
    ChangeReads instead(f, [&](const Call *read) {
        return Call::make(wholes[read->value_index].function(), read->args, 0);
    });
    Functions all = readers;
    if (stored) {
        all.push_back(Func(f).in().function());
        all.back().schedule().bounds() = f.schedule().bounds();
        all.back().schedule().estimates() = f.schedule().estimates();
    }
    for (Function reader : all) {
        reader.mutate(&instead);
    }
    std::vector<Func> made = apart.made_of;
    made.insert(made.end(), wholes.begin(), wholes.end());
    return instead.found ? made : std::vector<Func>{};
}

}  // namespace bridge
