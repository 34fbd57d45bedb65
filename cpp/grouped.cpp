// Sums over taps that begin where data say, as sums of groups of neighbours that begin together.
//
//     f[x, o] += image[x, clamp(start[o] + t, a, b)] * weights[t, o]
//
// is for all o of a group the product of a band and the pixels that any of them reads:
//
//     pixels[x, k] = image[x, clamp(k, a, b)]
//     starts[o] = start[o], but no farther outside than all of its taps are
//     table[t, o] = weights[t, o]
//     band[k, o] = table[k - starts[o], o] where there is such a tap, else 0
//     f[x, o] += pixels[x, k] * band[k, o]
//
//     tile[x, o] = what the consumer made of f[x, o]; consumer[x, o] = tile[x, o]
//
// k goes through whole runs of pixels from before `a` to behind `b`, of which only those count that a
// group has taps in.

#include "inspect.h"

namespace bridge {

using namespace Halide::Internal;
using Halide::Expr;
using Halide::Func;
using Halide::Var;

namespace {

void require(bool held, const std::string &otherwise) {
    if (!held) {
        throw std::invalid_argument(otherwise);
    }
}

bool mentions(const Expr &e, const std::string &name) {
    return expr_uses_var(e, name);
}

// An index without the clamps around the side of it that mentions a tap, and these.
struct Held {
    Expr inner, low, high;

    Held(const Expr &index, const std::string &tap) : inner(index) {
        while (true) {
            if (const Max *m = inner.as<Max>()) {
                step(m->a, m->b, tap, low, true);
            } else if (const Min *m = inner.as<Min>()) {
                step(m->a, m->b, tap, high, false);
            } else {
                return;
            }
        }
    }

private:
    void step(const Expr &a, const Expr &b, const std::string &tap, Expr &end, bool largest) {
        bool first = mentions(a, tap);
        require(first != mentions(b, tap), "both sides of a clamp go from tap to tap");
        Expr side = first ? b : a;
        inner = first ? a : b;
        end = !end.defined() ? side : largest ? max(end, side) : min(end, side);
    }
};

// The smallest extent of the arrays that expressions read at one variable alone.
class Ends : public IRGraphVisitor {
    const std::string variable;
    using IRGraphVisitor::visit;
    void visit(const Call *op) override {
        IRGraphVisitor::visit(op);
        if (op->call_type == Call::Halide) {
            Function f(op->func);
            find(f.values()[op->value_index], f.args(), op->args);
        }
    }

    // Of an image, which a Func reads as it is.
    void find(const Expr &value, const std::vector<std::string> &args,
              const std::vector<Expr> &given) {
        const Call *image = value.as<Call>();
        if (!image || image->call_type != Call::Image || !image->param.defined()) {
            return;
        }
        for (size_t d = 0; d < image->args.size(); d++) {
            for (size_t n = 0; n < args.size(); n++) {
                const Variable *arg = image->args[d].as<Variable>(), *own = given[n].as<Variable>();
                if (arg && own && arg->name == args[n] && own->name == variable) {
                    std::string buffer = image->param.name(), number = std::to_string(d);
                    Expr low = Variable::make(Halide::Int(32), buffer + ".min." + number, image->param);
                    Expr size =
                        Variable::make(Halide::Int(32), buffer + ".extent." + number, image->param);
                    last = last.defined() ? min(last, low + size - 1) : low + size - 1;
                }
            }
        }
    }

public:
    Expr last;
    explicit Ends(const std::string &variable) : variable(variable) {
    }
};

// The update of a sum, which reads pixels and a band, each where it read something else.
class ReadGroups : public IRMutator {
    using IRMutator::visit;
    Expr visit(const Call *op) override {
        if (op->call_type == Call::Halide) {
            auto found = places.find(op->name);
            if (found != places.end()) {
                return found->second(op);
            }
        }
        return IRMutator::visit(op);
    }

public:
    std::map<std::string, std::function<Expr(const Call *)>> places;
};

// The only call of a Func in an expression.
class Only : public IRGraphVisitor {
    using IRGraphVisitor::visit;
    void visit(const Call *op) override {
        IRGraphVisitor::visit(op);
        if (op->call_type == Call::Halide && op->name == name) {
            require(!call || equal(Expr(call), Expr(op)), name + " is read in two places");
            call = op;
        }
    }

public:
    const std::string name;
    const Call *call = nullptr;
    Only(const std::string &name, const Expr &e) : name(name) {
        e.accept(this);
        require(call, name + " is not read");
    }
};

// What reads a Func, other than that itself.
std::vector<Function> readers_of(const Function &f, const Environment &env) {
    std::vector<Function> found;
    for (const auto &[name, reader] : env) {
        auto calls = find_direct_calls(reader);
        if (name != f.name() && calls.count(f.name())) {
            found.push_back(reader);
        }
    }
    return found;
}

bool is_image(const Function &f) {
    const Call *call = f.has_pure_definition() ? f.values()[0].as<Call>() : nullptr;
    return call && call->call_type == Call::Image;
}

// Calls where a variable is an argument as it is, and whether it is mentioned anywhere else.
class Uses : public IRGraphVisitor {
    const std::string variable, self;
    using IRGraphVisitor::visit;
    void visit(const Variable *op) override {
        elsewhere |= op->name == variable;
    }
    void visit(const Call *op) override {
        for (size_t d = 0; d < op->args.size(); d++) {
            const Variable *v = op->args[d].as<Variable>();
            if (v && v->name == variable && op->call_type == Call::Halide) {
                if (op->name != self) {
                    calls.emplace(op->name, std::make_pair(Function(op->func), (int)d));
                }
            } else {
                op->args[d].accept(this);
            }
        }
    }

public:
    std::map<std::string, std::pair<Function, int>> calls;
    bool elsewhere = false;
    Uses(const std::string &variable, const std::string &self) : variable(variable), self(self) {
    }
};

// A variable as its clamp, but for where a Func reads itself.
class Clamped : public IRMutator {
    const std::string variable, self;
    const Expr value;
    using IRMutator::visit;
    Expr visit(const Variable *op) override {
        return op->name == variable ? value : op;
    }
    Expr visit(const Call *op) override {
        return op->name == self ? op : IRMutator::visit(op);
    }

public:
    Clamped(const std::string &variable, const Expr &value, const std::string &self)
        : variable(variable), self(self), value(value) {
    }
};

// Beyond `low` and `high` a Func has what it has there. Said where what it is computed from is
// loaded, if nobody else reads that.
void go_on(Function f, int dimension, const Expr &low, const Expr &high, const Environment &env) {
    std::string variable = f.args()[dimension];
    Uses uses(variable, f.name());
    std::vector<Definition *> definitions = {&f.definition()};
    for (size_t i = 0; i < f.updates().size(); i++) {
        definitions.push_back(&f.update((int)i));
    }
    for (Definition *d : definitions) {
        for (const Expr &value : d->values()) {
            value.accept(&uses);
        }
    }
    if (!uses.elsewhere && uses.calls.size() == 1) {
        auto &[source, at] = uses.calls.begin()->second;
        if (!is_image(source) && readers_of(source, env).size() == 1) {
            go_on(source, at, low, high, env);
            return;
        }
    }
    Expr held = Halide::clamp(Variable::make(Halide::Int(32), variable), low, high);
    Clamped clamped(variable, held, f.name());
    for (Definition *d : definitions) {
        for (Expr &value : d->values()) {
            value = clamped.mutate(value);
        }
    }
}

}  // namespace

std::vector<Func> grouped(const Functions &outputs, const Function &f, Function consumer,
                          const Taps &by, const std::string &name) {
    const Definition &update = f.update(0);
    const ReductionVariable rvar = update.schedule().rvars()[0];
    std::string arg = f.args()[by.along], tap = rvar.var;
    Expr value = update.values()[0];
    const Call *read = Only(by.source, value).call, *weights = Only(by.weights, value).call;
    size_t placed = 0;
    while (!mentions(read->args[placed], tap)) {
        placed++;
    }
    Held index(read->args[placed], tap);
    require(index.low.defined() && index.high.defined(), "taps may begin anywhere");
    Expr taps = rvar.extent, o = Variable::make(Halide::Int(32), arg);

    // Starts, and weights, of those that there are.
    Ends ends(arg);
    index.inner.accept(&ends);
    Expr(weights).accept(&ends);
    auto there = [&](const Expr &at) {
        return ends.last.defined() ? max(min(at, ends.last), 0) : at;
    };
    Expr from = substitute(arg, there(o), simplify(substitute(tap, rvar.min, index.inner)));
    Func starts(name + "_starts");
    starts(Var(arg)) = max(min(from, index.high + 1), index.low - taps);
    Expr base = simplify((index.low - taps) / by.run * by.run);
    Expr rest = simplify(taps + (by.run - 1) - base);
    Halide::RDom r({{0, by.run}, {0, (max(index.high + 1, index.low - taps) + rest) / by.run}},
                   name + "_run");
    Expr first = o / by.group * by.group;
    Expr least = starts(first), most = starts(first);
    for (int j = 1; j < by.group; j++) {
        least = min(least, starts(first + j));
        most = max(most, starts(first + j));
    }
    r.where((least - base) / by.run <= r.y && r.y < (most + rest) / by.run);
    Expr pixel = r.y * by.run + r.x + base;

    Func band(name + "_band");
    Var k(tap.substr(0, 1) == "k" ? "l" : "k");
    Expr weight = substitute({{tap, k + rvar.min}, {arg, there(o)}}, Expr(weights));
    Func table(name + "_table");
    table(k, Var(arg)) = weight;
    Expr t = k - starts(o), zero = Halide::cast(weight.type(), 0);
    band(k, Var(arg)) = select(t >= 0 && t < taps, table(max(min(t, taps - 1), 0), o), zero);

    Environment env = build_environment(outputs);
    Function source(read->func);
    std::vector<Expr> at = read->args;
    Func pixels(source);
    bool image = is_image(source) || readers_of(source, env).size() > 1;
    if (image) {
        pixels = Func(name + "_pixels");
        std::vector<Var> args;
        for (size_t d = 0; d < at.size(); d++) {
            args.emplace_back(d == placed ? arg : at[d].as<Variable>()->name);
        }
        at[placed] = substitute(index.inner, o, at[placed]);
        pixels(args) = Call::make(source, at, read->value_index);
    } else {
        go_on(source, (int)placed, index.low, index.high, env);
    }

    Func total(name);
    total.function().define(f.args(), f.definition().values());
    ReadGroups groups;
    groups.places[by.source] = [&](const Call *op) {
        std::vector<Expr> args = op->args;
        args[placed] = pixel;
        return Call::make(pixels.function(), args, image ? 0 : op->value_index);
    };
    groups.places[by.weights] = [&](const Call *) { return band(pixel, o); };
    groups.places[f.name()] = [&](const Call *op) {
        return Call::make(total.function(), op->args, op->value_index);
    };
    total.function().define_update(update.args(), {groups.mutate(value)}, r.domain());
    consumer.substitute_calls(f, total.function());
    Func tile(name + "_tile");
    tile.function().define(consumer.args(), consumer.values());
    std::vector<Expr> own;
    for (const std::string &variable : consumer.args()) {
        own.push_back(Variable::make(Halide::Int(32), variable));
    }
    consumer.definition().values() = {Call::make(tile.function(), own)};
    return {tile, total, pixels, band, starts, table};
}

}  // namespace bridge
