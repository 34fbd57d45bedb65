// Accumulator tiles: the storage of a Func that lives in a tensor unit, split into (inner tile,
// outer tiles).
//
// Halide turns a reduction over vectorized loops into a VectorReduce only if its store is one dense
// ramp, so a Func that holds several tiles must keep each tile contiguous. The inner tile has the
// extents over which the update of the Func is vectorized, in the order of its vectorized loops;
// the outer dimensions follow. A Func of n x m = 32 x 32 with an update vectorized 16 x 8 is stored
// as [16, 8][2, 4].
//
// A dimension d of an access at argument a becomes (a - min) % T and (a - min) / T, where T is the
// tile's extent; with the vectorized loops rebased to zero both simplify to sums of loop variables.
// Where they do not (a tile that is not dense, an access that straddles tiles) the update is
// scalarized, and halide_bridge says so.

#include "scoped.h"

namespace bridge {

using namespace Halide::Internal;
using Halide::Expr;
using Halide::Region;

namespace {

// Vectorized loops start at zero, so that differences to a tile's origin are plain lane numbers.
class RebaseVectorLoops : public IRMutator {
protected:
    using IRMutator::visit;

    Stmt visit(const For *op) override {
        if (op->for_type != ForType::Vectorized || is_const_zero(op->min)) {
            return IRMutator::visit(op);
        }
        Expr moved = Variable::make(op->min.type(), op->name) + op->min;
        Stmt body = mutate(substitute(op->name, moved, op->body));
        return For::make(op->name, 0, op->extent, op->for_type, op->partition_policy,
                         op->device_api, body);
    }
};

struct Tile {
    std::vector<int> extent;  // per dimension of the Func; 1 where not vectorized
    std::vector<int> order;   // dimensions with extent > 1, fastest first
};

// Extents over which `arg` runs densely in the vectorized loops; 1 if it is scalar or not dense.
int dense_extent(const Expr &arg, const std::vector<Loop> &loops, int *innermost) {
    int64_t extent = 1;
    for (int i = (int)loops.size() - 1; i >= 0; i--) {
        const Loop &loop = loops[i];
        if (!loop.vectorized || !expr_uses_var(arg, loop.name)) {
            continue;
        }
        Expr var = Variable::make(Halide::Int(32), loop.name);
        auto step = as_const_int(simplify(substitute(loop.name, var + 1, arg) - arg));
        auto lanes = as_const_int(simplify(loop.extent));
        if (!step || !lanes || *step != extent) {
            return 1;
        }
        if (extent == 1) {
            *innermost = i;
        }
        extent *= *lanes;
    }
    return (int)extent;
}

// The tile of every tensor Func, from the first update that is vectorized.
class FindTiles : public ScopedMutator {
    const std::set<std::string> &funcs;
    std::map<std::string, bool> initialized;

protected:
    using ScopedMutator::visit;

    Stmt visit(const Provide *op) override {
        if (!funcs.count(op->name) || tiles.count(op->name) || !reads_itself(op)) {
            return op;
        }
        Tile tile;
        std::vector<std::pair<int, int>> by_loop;
        for (size_t d = 0; d < op->args.size(); d++) {
            int loop = -1;
            tile.extent.push_back(dense_extent(simplify(expand(op->args[d])), loops, &loop));
            if (tile.extent.back() > 1) {
                by_loop.emplace_back(-loop, (int)d);
            }
        }
        std::sort(by_loop.begin(), by_loop.end());
        for (const auto &[loop, dim] : by_loop) {
            tile.order.push_back(dim);
        }
        if (!tile.order.empty()) {
            tiles[op->name] = tile;
        }
        return op;
    }

    static bool reads_itself(const Provide *op) {
        class Reads : public IRVisitor {
            using IRVisitor::visit;
            void visit(const Call *call) override {
                found |= call->name == name;
                IRVisitor::visit(call);
            }

        public:
            std::string name;
            bool found = false;
        } reads;
        reads.name = op->name;
        op->values[0].accept(&reads);
        return reads.found;
    }

public:
    std::map<std::string, Tile> tiles;
    explicit FindTiles(const std::set<std::string> &funcs) : funcs(funcs) {
    }
};

// Registers are indexed by constants only: a serial loop over tiles is unrolled. A loop around the
// whole realization fills all its tiles anew in every iteration, and stays.
class UnrollTileLoops : public IRMutator {
    const std::map<std::string, Tile> &tiles;
    std::map<std::string, std::set<std::string>> indexing;  // Func -> loops that choose its tile

    void collect(const std::string &name, const std::vector<Expr> &args) {
        class Collect : public IRVisitor {
            using IRVisitor::visit;
            void visit(const Variable *op) override {
                names.insert(op->name);
            }

        public:
            std::set<std::string> &names;
            explicit Collect(std::set<std::string> &names) : names(names) {
            }
        } collect(indexing[name]);
        for (size_t d = tiles.count(name) ? 0 : args.size(); d < args.size(); d++) {
            args[d].accept(&collect);
        }
    }

protected:
    using IRMutator::visit;

    Stmt visit(const Provide *op) override {
        collect(op->name, op->args);
        return IRMutator::visit(op);
    }

    Expr visit(const Call *op) override {
        collect(op->name, op->args);
        return IRMutator::visit(op);
    }

    Stmt visit(const Realize *op) override {
        Stmt s = IRMutator::visit(op);
        indexing.erase(op->name);
        return s;
    }

    Stmt visit(const For *op) override {
        Stmt body = mutate(op->body);
        bool serial = op->for_type == ForType::Serial && is_const(op->extent);
        bool unroll = false;
        for (auto &[func, loops] : indexing) {
            unroll |= serial && loops.count(op->name) > 0;
        }
        return For::make(op->name, op->min, op->extent, unroll ? ForType::Unrolled : op->for_type,
                         op->partition_policy, op->device_api, body);
    }

public:
    explicit UnrollTileLoops(const std::map<std::string, Tile> &tiles) : tiles(tiles) {
    }
};

class SplitStorage : public ScopedMutator {
    const std::map<std::string, Tile> &tiles;
    Environment &env;
    std::map<std::string, std::vector<Expr>> origins;  // minima of the realizations in scope

protected:
    using ScopedMutator::visit;

    std::vector<Expr> split_args(const std::string &name, const std::vector<Expr> &args) const {
        const Tile &tile = tiles.at(name);
        const std::vector<Expr> &origin = origins.at(name);
        Scope<Interval> scope = ranges();
        std::vector<Expr> inner(args.size()), outer;
        for (size_t d = 0; d < args.size(); d++) {
            Expr offset = simplify(expand(args[d]) - origin[d], true, scope);
            inner[d] = simplify(offset % tile.extent[d], true, scope);
            outer.push_back(simplify(offset / tile.extent[d], true, scope));
        }
        std::vector<Expr> result;
        for (int d : tile.order) {
            result.push_back(inner[d]);
        }
        result.insert(result.end(), outer.begin(), outer.end());
        return result;
    }

    void define_stand_in(const std::string &name, const Halide::Type &type, size_t dimensions) {
        Function stand_in(name);
        std::vector<std::string> args;
        for (size_t d = 0; d < dimensions; d++) {
            args.push_back("d" + std::to_string(d));
        }
        stand_in.define(args, {make_zero(type)});
        stand_in.schedule().memory_type() = env.at(name).schedule().memory_type();
        env[name] = stand_in;
    }

    Stmt visit(const Realize *op) override {
        auto found = tiles.find(op->name);
        if (found == tiles.end()) {
            return ScopedMutator::visit(op);
        }
        const Tile &tile = found->second;
        std::vector<Expr> &origin = origins[op->name];
        Region bounds;
        for (int d : tile.order) {
            bounds.emplace_back(0, tile.extent[d]);
        }
        origin.clear();
        for (size_t d = 0; d < op->bounds.size(); d++) {
            origin.push_back(simplify(expand(op->bounds[d].min)));
            int size = tile.extent[d];
            bounds.emplace_back(0, simplify((op->bounds[d].extent + (size - 1)) / size));
        }
        Stmt body = mutate(op->body);
        define_stand_in(op->name, op->types[0], bounds.size());
        return Realize::make(op->name, op->types, op->memory_type, bounds, op->condition, body);
    }

    Stmt visit(const Provide *op) override {
        if (!origins.count(op->name)) {
            return IRMutator::visit(op);
        }
        return Provide::make(op->name, mutate(op->values), split_args(op->name, op->args),
                             mutate(op->predicate));
    }

    Expr visit(const Call *op) override {
        if (op->call_type != Call::Halide || !origins.count(op->name)) {
            return IRMutator::visit(op);
        }
        return Call::make(op->type, op->name, split_args(op->name, op->args), Call::Halide,
                          FunctionPtr(), op->value_index);
    }

public:
    SplitStorage(const std::map<std::string, Tile> &tiles, Environment &env)
        : tiles(tiles), env(env) {
    }
};

// The name of a condition that says nothing of bounds.
constexpr const char *HIDDEN = "hidden mask";

bool calls(const Expr &e, const std::set<std::string> &funcs) {
    struct Find : IRVisitor {
        const std::set<std::string> &funcs;
        bool found = false;
        using IRVisitor::visit;
        void visit(const Call *op) override {
            found = found || (op->call_type == Call::Halide && funcs.count(op->name) > 0);
            IRVisitor::visit(op);
        }
        explicit Find(const std::set<std::string> &funcs) : funcs(funcs) {
        }
    } find(funcs);
    e.accept(&find);
    return find.found;
}

// Those Funcs, and what is read of them through Funcs that are not stored.
std::set<std::string> read_through(const Environment &env, const std::set<std::string> &funcs) {
    std::set<std::string> found = funcs;
    for (size_t before = 0; before != found.size();) {
        before = found.size();
        for (const auto &[name, f] : env) {
            if (f.is_pure() && f.schedule().compute_level().is_inlined()) {
                for (const Expr &value : f.values()) {
                    if (calls(value, found)) {
                        found.insert(name);
                    }
                }
            }
        }
    }
    return found;
}

class HideMasks : public IRMutator {
    const std::set<std::string> &funcs;

protected:
    using IRMutator::visit;
    Expr visit(const Select *op) override {
        if (!calls(op->true_value, funcs) && !calls(op->false_value, funcs)) {
            return IRMutator::visit(op);
        }
        Expr hidden = Call::make(op->condition.type(), HIDDEN, {op->condition}, Call::PureExtern);
        return Select::make(hidden, mutate(op->true_value), mutate(op->false_value));
    }

public:
    explicit HideMasks(const std::set<std::string> &funcs) : funcs(funcs) {
    }
};

class ShowMasks : public IRMutator {
protected:
    using IRMutator::visit;
    Expr visit(const Call *op) override {
        return op->name == HIDDEN ? mutate(op->args[0]) : IRMutator::visit(op);
    }
};

}  // namespace

Stmt split_accumulators(const Stmt &s, Environment &env, const std::set<std::string> &funcs) {
    if (funcs.empty()) {
        return s;
    }
    Stmt rebased = RebaseVectorLoops().mutate(s);
    FindTiles find(funcs);
    find.mutate(rebased);
    Stmt split = SplitStorage(find.tiles, env).mutate(rebased);
    return UnrollTileLoops(find.tiles).mutate(split);
}

void hide_masks(Environment &env, const std::set<std::string> &funcs) {
    const std::set<std::string> read = read_through(env, funcs);
    HideMasks hide(read);
    for (auto &[name, function] : env) {
        function.mutate(&hide);
    }
}

Stmt show_masks(const Stmt &s, Environment &env) {
    ShowMasks show;
    for (auto &[name, function] : env) {
        function.mutate(&show);
    }
    return show.mutate(s);
}

}  // namespace bridge
