// Writes Halide's nodes as Python tuples. The first field is the name of Halide's node class.

#include "records.h"

#include <cmath>
#include <optional>
#include <unordered_map>

namespace bridge {

using namespace Halide::Internal;
using Halide::Expr;

namespace {

const char *for_kind(ForType type) {
    switch (type) {
    case ForType::Serial:
        return "for";
    case ForType::Parallel:
        return "parallel";
    case ForType::Vectorized:
        return "vectorized";
    case ForType::Unrolled:
        return "unrolled";
    case ForType::GPUBlock:
        return "gpu_block";
    case ForType::GPUThread:
        return "gpu_thread";
    case ForType::GPULane:
        return "gpu_lane";
    default:
        return "extern";
    }
}

const char *reduce_kind(VectorReduce::Operator op) {
    switch (op) {
    case VectorReduce::Add:
        return "add";
    case VectorReduce::SaturatingAdd:
        return "saturating_add";
    case VectorReduce::Mul:
        return "mul";
    case VectorReduce::Min:
        return "min";
    case VectorReduce::Max:
        return "max";
    case VectorReduce::And:
        return "and";
    default:
        return "or";
    }
}

const char *memory_kind(Halide::MemoryType type) {
    switch (type) {
    case Halide::MemoryType::Auto:
        return "Auto";
    case Halide::MemoryType::Heap:
        return "Heap";
    case Halide::MemoryType::Stack:
        return "Stack";
    case Halide::MemoryType::Register:
        return "Register";
    case Halide::MemoryType::GPUShared:
        return "GPUShared";
    default:
        return "other";
    }
}

// The constant that a minimum, extent or stride of an array is declared to be.
std::optional<int64_t> declared_size(const Variable *op) {
    const Halide::Parameter &p = op->param;
    if (!p.defined() || !p.is_buffer()) {
        return std::nullopt;
    }
    for (int d = 0; d < p.dimensions(); d++) {
        const std::pair<const char *, Expr> sizes[] = {{"min", p.min_constraint(d)},
                                                       {"extent", p.extent_constraint(d)},
                                                       {"stride", p.stride_constraint(d)}};
        for (const auto &[what, value] : sizes) {
            if (value.defined() && op->name == p.name() + "." + what + "." + std::to_string(d)) {
                return as_const_int(value);
            }
        }
    }
    return std::nullopt;
}

}  // namespace

py::tuple type_record(const Halide::Type &type) {
    const char *kind = type.is_bfloat() ? "bfloat" :
                       type.is_float()  ? "float" :
                       type.is_handle() ? "handle" :
                       type.is_uint()   ? "uint" :
                                          "int";
    return py::make_tuple(kind, type.bits(), type.lanes());
}

struct Records::State : public IRVisitor {
    py::list records;
    std::unordered_map<const IRNode *, int> index;
    std::vector<IRHandle> alive;  // keeps addresses unique while the table lives
    std::unordered_map<uint64_t, py::tuple> types;
    py::dict known;  // index of each record that is an expression
    bool declared = false;

    template<typename... Fields>
    void emit(const BaseStmtNode *node, const char *kind, const Fields &...fields) {
        index[node] = append(py::make_tuple(kind, fields...));
    }

    // Equal expressions are one record: operands are, so records are equal where expressions are.
    template<typename... Fields>
    void emit(const BaseExprNode *node, const char *kind, const Fields &...fields) {
        py::tuple record = py::make_tuple(kind, fields...);
        PyObject *found = PyDict_GetItemWithError(known.ptr(), record.ptr());
        if (found != nullptr) {
            index[node] = py::handle(found).cast<int>();
            return;
        }
        int place = index[node] = append(record);
        known[record] = place;
    }

    int append(const py::tuple &record) {
        records.append(record);
        return (int)records.size() - 1;
    }

    template<typename Node>
    int add(const Node &node) {
        if (!node.defined()) {
            return -1;
        }
        auto found = index.find(node.get());
        if (found != index.end()) {
            return found->second;
        }
        node.accept(this);
        alive.push_back(node);
        return index.at(node.get());
    }

    template<typename Node>
    py::tuple add_all(const std::vector<Node> &nodes) {
        py::tuple result(nodes.size());
        for (size_t i = 0; i < nodes.size(); i++) {
            result[i] = py::int_(add(nodes[i]));
        }
        return result;
    }

    py::tuple type(const Halide::Type &t) {
        uint64_t element = ((uint64_t)t.code() << 16) | (uint64_t)t.bits();
        uint64_t key = (element << 32) | (uint64_t)t.lanes();
        auto found = types.find(key);
        if (found == types.end()) {
            found = types.emplace(key, type_record(t)).first;
        }
        return found->second;
    }

    // A predicate is -1 where it is always true.
    int predicate(const Expr &e) {
        return is_const_one(e) ? -1 : add(e);
    }

    template<typename Op>
    void binary(const Op *op, const char *kind) {
        int a = add(op->a), b = add(op->b);
        emit(op, kind, a, b);
    }

    using IRVisitor::visit;
    void visit(const IntImm *op) override { emit(op, "IntImm", type(op->type), op->value); }
    void visit(const UIntImm *op) override { emit(op, "IntImm", type(op->type), op->value); }
    void visit(const FloatImm *op) override {
        if (op->value == 0 && std::signbit(op->value)) {  // -0.0 == 0.0
            index[op] = append(py::make_tuple("FloatImm", type(op->type), op->value));
        } else {
            emit(op, "FloatImm", type(op->type), op->value);
        }
    }
    void visit(const StringImm *op) override { emit(op, "StringImm", op->value); }
    void visit(const Variable *op) override {
        std::optional<int64_t> size = declared ? declared_size(op) : std::nullopt;
        if (size) {
            emit(op, "IntImm", type(op->type), *size);
        } else {
            emit(op, "Variable", type(op->type), op->name);
        }
    }
    void visit(const Add *op) override { binary(op, "Add"); }
    void visit(const Sub *op) override { binary(op, "Sub"); }
    void visit(const Mul *op) override { binary(op, "Mul"); }
    void visit(const Div *op) override { binary(op, "Div"); }
    void visit(const Mod *op) override { binary(op, "Mod"); }
    void visit(const Min *op) override { binary(op, "Min"); }
    void visit(const Max *op) override { binary(op, "Max"); }
    void visit(const EQ *op) override { binary(op, "EQ"); }
    void visit(const NE *op) override { binary(op, "NE"); }
    void visit(const LT *op) override { binary(op, "LT"); }
    void visit(const LE *op) override { binary(op, "LE"); }
    void visit(const GT *op) override { binary(op, "GT"); }
    void visit(const GE *op) override { binary(op, "GE"); }
    void visit(const And *op) override { binary(op, "And"); }
    void visit(const Or *op) override { binary(op, "Or"); }

    void visit(const Not *op) override {
        int a = add(op->a);
        emit(op, "Not", a);
    }
    void visit(const Cast *op) override {
        int value = add(op->value);
        emit(op, "Cast", type(op->type), value);
    }
    void visit(const Reinterpret *op) override {
        int value = add(op->value);
        emit(op, "Reinterpret", type(op->type), value);
    }
    void visit(const Select *op) override {
        int c = add(op->condition), t = add(op->true_value), f = add(op->false_value);
        emit(op, "Select", c, t, f);
    }
    void visit(const Load *op) override {
        int index = add(op->index), mask = predicate(op->predicate);
        emit(op, "Load", type(op->type), op->name, index, mask);
    }
    void visit(const Ramp *op) override {
        int base = add(op->base), stride = add(op->stride);
        emit(op, "Ramp", base, stride, op->lanes);
    }
    void visit(const Broadcast *op) override {
        int value = add(op->value);
        emit(op, "Broadcast", value, op->lanes);
    }
    void visit(const Call *op) override {
        if (op->is_intrinsic(Call::lerp) && !op->type.is_float()) {
            index[op] = add(blend(op));
            return;
        }
        if (in_fixed_point(op)) {
            index[op] = add(lower_intrinsic(op));
            return;
        }
        py::tuple args = add_all(op->args);
        if (op->call_type == Call::Halide || op->call_type == Call::Image) {
            emit(op, "Access", type(op->type), op->name, op->value_index, args);
        } else {
            emit(op, "Call", type(op->type), op->name, args);
        }
    }
    void visit(const Let *op) override {
        int value = add(op->value), body = add(op->body);
        emit(op, "Let", op->name, value, body);
    }
    void visit(const Shuffle *op) override {
        py::tuple vectors = add_all(op->vectors);
        emit(op, "Shuffle", vectors, indices(op->indices));
    }
    void visit(const VectorReduce *op) override {
        int value = add(op->value);
        emit(op, "VectorReduce", reduce_kind(op->op), value, op->type.lanes());
    }

    // Arithmetic in fixed point, which Halide's code generators make of plain operations.
    static bool in_fixed_point(const Call *op) {
        return op->is_intrinsic({Call::saturating_add, Call::saturating_sub, Call::halving_add,
                                 Call::halving_sub, Call::rounding_halving_add,
                                 Call::rounding_shift_left, Call::rounding_shift_right,
                                 Call::mul_shift_right, Call::rounding_mul_shift_right,
                                 Call::widening_shift_left, Call::widening_shift_right,
                                 Call::widen_right_add, Call::widen_right_mul,
                                 Call::widen_right_sub});
    }

    // What Halide's code generators make of a blend of integers.
    static Expr blend(const Call *op) {
        const std::vector<Expr> &a = op->args;
        return lower_intrinsics(lower_lerp(op->type, a[0], a[1], a[2], Halide::Target()));
    }

    static py::tuple indices(const std::vector<int> &values) {
        py::tuple result(values.size());
        for (size_t i = 0; i < values.size(); i++) {
            result[i] = py::int_(values[i]);
        }
        return result;
    }

    void visit(const LetStmt *op) override {
        int value = add(op->value), body = add(op->body);
        emit(op, "LetStmt", op->name, value, body);
    }
    void visit(const AssertStmt *op) override { emit(op, "AssertStmt"); }
    void visit(const ProducerConsumer *op) override {
        int body = add(op->body);
        emit(op, "ProducerConsumer", op->name, op->is_producer, body);
    }
    void visit(const For *op) override {
        int low = add(op->min), extent = add(op->extent), body = add(op->body);
        emit(op, "For", op->name, low, extent, for_kind(op->for_type), body);
    }
    void visit(const Store *op) override {
        int index = add(op->index), value = add(op->value), mask = predicate(op->predicate);
        emit(op, "Store", op->name, index, value, mask);
    }
    void visit(const Allocate *op) override {
        py::tuple extents = add_all(op->extents);
        int body = add(op->body);
        emit(op, "Allocate", op->name, type(op->type), extents, memory_kind(op->memory_type), body);
    }
    void visit(const Free *op) override { emit(op, "Free", op->name); }
    void visit(const Block *op) override {
        int first = add(op->first), rest = add(op->rest);
        emit(op, "Block", first, rest);
    }
    void visit(const IfThenElse *op) override {
        int c = add(op->condition), t = add(op->then_case), f = add(op->else_case);
        emit(op, "IfThenElse", c, t, f);
    }
    void visit(const Evaluate *op) override {
        int value = add(op->value);
        emit(op, "Evaluate", value);
    }
    void visit(const Atomic *op) override {
        int body = add(op->body);
        emit(op, "Atomic", op->producer_name, body);
    }
    void visit(const Provide *op) override { emit(op, "Provide", op->name); }
    void visit(const Realize *op) override { emit(op, "Realize", op->name); }
    void visit(const Prefetch *op) override { emit(op, "Prefetch", op->name); }
    void visit(const Acquire *op) override { emit(op, "Acquire"); }
    void visit(const Fork *op) override { emit(op, "Fork"); }
    void visit(const HoistedStorage *op) override { emit(op, "HoistedStorage", op->name); }
};

Records::Records(bool declared) : state(std::make_shared<State>()) {
    state->declared = declared;
}

int Records::add(const Expr &e) {
    return state->add(e);
}

int Records::add(const Stmt &s) {
    return state->add(s);
}

py::list Records::take() {
    return std::move(state->records);
}

}  // namespace bridge
