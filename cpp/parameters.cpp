// The parameters of a pipeline, and what of their shape is known at compile time.

#include "passes.h"

namespace bridge {

using namespace Halide::Internal;
using Halide::Expr;
using Halide::Parameter;

namespace {

std::string property(const Buffer &b, const char *what, size_t d) {
    return b.name + "." + what + "." + std::to_string(d);
}

bool known(const Expr &e) {
    return e.defined() && is_const(e);
}

Buffer describe(const Parameter &p, const std::string &name) {
    Buffer b{name, p.type(), {}, {}, {}, false, name, {}};
    for (int d = 0; d < p.dimensions(); d++) {
        b.min.push_back(p.min_constraint(d));
        b.extent.push_back(p.extent_constraint(d));
        b.stride.push_back(p.stride_constraint(d));
        for (auto [what, value] : {std::make_pair("min", b.min[d]),
                                   std::make_pair("extent", b.extent[d]),
                                   std::make_pair("stride", b.stride[d])}) {
            if (value.defined() && !is_const(value)) {
                b.constraints.emplace_back(property(b, what, d), value);
            }
        }
    }
    return b;
}

class FindParameters : public IRGraphVisitor {
    Parameters &result;
    std::map<std::string, Parameter> found;
    std::set<std::string> seen;  // of constant images

    // Whether two parameters of a name may be one argument.
    static bool alike(const Parameter &a, const Parameter &b) {
        return a.is_buffer() == b.is_buffer() && a.type() == b.type() &&
               (!a.is_buffer() || a.dimensions() == b.dimensions());
    }

    void add(const Parameter &p) {
        if (!p.defined()) {
            return;
        }
        auto [known, first] = found.emplace(p.name(), p);
        if (!first) {
            if (!alike(known->second, p)) {
                result.repeated.insert(p.name());
            }
            return;
        }
        if (p.is_buffer()) {
            Buffer b = describe(p, p.name());
            result.buffers.push_back(b);
            for (const auto &[name, value] : b.constraints) {
                value.accept(this);
            }
        } else {
            result.scalars.push_back({p.name(), p.type()});
        }
    }

    void add(const Halide::Buffer<> &image) {
        if (image.defined() && seen.insert(image.name()).second) {
            result.embedded.push_back(image.name());
        }
    }

protected:
    using IRGraphVisitor::visit;

    void visit(const Call *op) override {
        add(op->param);
        add(op->image);
        IRGraphVisitor::visit(op);
    }

    void visit(const Variable *op) override {
        add(op->param);
        add(op->image);
    }

public:
    explicit FindParameters(Parameters &result, const Functions &outputs) : result(result) {
        for (const Function &f : outputs) {
            for (const Parameter &p : f.output_buffers()) {
                found.emplace(p.name(), p);
            }
        }
    }
};

// `Func::bound` with constants fixes the shape of an output as well as a constraint on its buffer
// does.
void apply_bounds(const Function &f, Buffer &b) {
    for (const Bound &bound : f.schedule().bounds()) {
        auto at = std::find(f.args().begin(), f.args().end(), bound.var);
        if (at == f.args().end()) {
            continue;
        }
        size_t d = at - f.args().begin();
        if (bound.min.defined() && !b.min[d].defined()) {
            b.min[d] = bound.min;
        }
        if (bound.extent.defined() && !b.extent[d].defined()) {
            b.extent[d] = bound.extent;
        }
    }
}

}  // namespace

Parameters find_parameters(const Environment &env, const Functions &outputs,
                           const std::vector<Stmt> &requirements) {
    Parameters result;
    FindParameters find(result, outputs);
    for (const auto &[name, function] : env) {
        function.accept(&find);
    }
    for (const Stmt &requirement : requirements) {
        requirement.accept(&find);
    }
    for (const Function &f : outputs) {
        for (size_t i = 0; i < f.output_buffers().size(); i++) {
            std::string suffix = f.outputs() > 1 ? "." + std::to_string(i) : "";
            Buffer b = describe(f.output_buffers()[i], f.name() + suffix);
            apply_bounds(f, b);
            b.output = true;
            b.func = f.name();
            result.buffers.push_back(b);
        }
    }
    return result;
}

std::map<std::string, Expr> known_values(const Parameters &parameters) {
    std::map<std::string, Expr> values;
    for (const Buffer &b : parameters.buffers) {
        for (size_t d = 0; d < b.min.size(); d++) {
            values[property(b, "min", d)] = known(b.min[d]) ? simplify(b.min[d]) : Expr(0);
            if (known(b.extent[d])) {
                values[property(b, "extent", d)] = simplify(b.extent[d]);
            }
            if (known(b.stride[d])) {
                values[property(b, "stride", d)] = simplify(b.stride[d]);
            }
        }
    }
    return values;
}

std::vector<Expr> ends_of(const Buffer &b) {
    std::vector<Expr> ends;
    for (size_t d = 0; d < b.min.size(); d++) {
        Expr extent = b.extent[d];
        if (!known(extent)) {
            extent = Variable::make(Halide::Int(32), property(b, "extent", d));
        }
        ends.push_back(simplify(known(b.min[d]) ? b.min[d] + extent : extent));
    }
    return ends;
}

}  // namespace bridge
