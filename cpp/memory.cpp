// Allocations of a GPU block.
//
// What is realized inside gpu_block loops but outside gpu_thread loops, and is not a tensor unit's,
// lives in shared memory. A row there starts at an odd multiple of 16 bytes from the last: eight
// rows that one `ldmatrix` reads then lie in eight different groups of four banks, and every row
// allows 16-byte accesses.

#include "scoped.h"

namespace bridge {

using namespace Halide::Internal;
using Halide::Expr;
using Halide::Region;
using Halide::MemoryType;

namespace {

constexpr int64_t unit = 16;  // bytes of the widest access

int64_t padded_extent(int64_t extent, int bytes) {
    int64_t units = (extent * bytes + unit - 1) / unit;
    return (units | 1) * unit / bytes;
}

class PlaceBlockAllocations : public ScopedMutator {
    const Environment &env;
    bool in_block = false;
    bool in_thread = false;

    // Index of the dimension that varies fastest in memory; -1 where the user aligned it.
    int innermost(const std::string &name, size_t dimensions) const {
        auto found = env.find(name);
        if (found == env.end()) {
            return dimensions > 0 ? 0 : -1;
        }
        const std::vector<StorageDim> &dims = found->second.schedule().storage_dims();
        const std::vector<std::string> &args = found->second.args();
        if (dims.empty() || dims[0].alignment.defined() || dims[0].bound.defined()) {
            return -1;
        }
        auto at = std::find(args.begin(), args.end(), dims[0].var);
        return at == args.end() ? -1 : (int)(at - args.begin());
    }

    Region pad_rows(const Realize *op) const {
        Region bounds = op->bounds;
        int bytes = op->types[0].bytes();
        int row = bounds.size() < 2 ? -1 : innermost(op->name, bounds.size());
        if (row < 0 || bytes > 2 || op->types.size() != 1) {
            return bounds;
        }
        if (auto extent = as_const_int(simplify(expand(bounds[row].extent)))) {
            bounds[row].extent = Expr((int32_t)padded_extent(*extent, bytes));
        }
        return bounds;
    }

protected:
    using ScopedMutator::visit;

    Stmt visit(const For *op) override {
        bool block = in_block, thread = in_thread;
        in_block |= op->for_type == ForType::GPUBlock;
        in_thread |= op->for_type == ForType::GPUThread || op->for_type == ForType::GPULane;
        Stmt s = ScopedMutator::visit(op);
        in_block = block;
        in_thread = thread;
        return s;
    }

    Stmt visit(const Realize *op) override {
        bool shared = op->memory_type == MemoryType::GPUShared ||
                      (op->memory_type == MemoryType::Auto && in_block && !in_thread);
        if (!shared) {
            return ScopedMutator::visit(op);
        }
        return Realize::make(op->name, op->types, MemoryType::GPUShared, pad_rows(op),
                             op->condition, mutate(op->body));
    }

public:
    explicit PlaceBlockAllocations(const Environment &env) : env(env) {
    }
};

// Halide has the extents of an allocation in the order of a Func's arguments, whatever the order in
// which they are stored.
class OrderExtents : public IRMutator {
    const Environment &env;

    // Of an allocation, which for a tuple is that of one of its values.
    const Function *func(const std::string &name) const {
        auto found = env.find(name);
        if (found == env.end()) {
            found = env.find(name.substr(0, name.rfind('.')));
        }
        return found == env.end() ? nullptr : &found->second;
    }

    using IRMutator::visit;
    Stmt visit(const Allocate *op) override {
        const Function *f = func(op->name);
        if (!f || f->args().size() != op->extents.size()) {
            return IRMutator::visit(op);
        }
        const std::vector<std::string> &args = f->args();
        std::vector<Expr> extents;
        for (const StorageDim &dim : f->schedule().storage_dims()) {
            extents.push_back(op->extents[std::find(args.begin(), args.end(), dim.var) - args.begin()]);
        }
        return Allocate::make(op->name, op->type, op->memory_type, extents, op->condition,
                              mutate(op->body), op->new_expr, op->free_function, op->padding);
    }

public:
    explicit OrderExtents(const Environment &env) : env(env) {
    }
};

}  // namespace

Stmt place_block_allocations(const Stmt &s, const Environment &env) {
    return PlaceBlockAllocations(env).mutate(s);
}

Stmt order_extents(const Stmt &s, const Environment &env) {
    return OrderExtents(env).mutate(s);
}

}  // namespace bridge
