/* One unit on a GPU: its launches, and its node in autograd's graph. */
#pragma once
#include <ATen/EmptyTensor.h>
#include <ATen/PythonTorchFunctionTLS.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/forward_grad.h>
#include <torch/csrc/autograd/python_variable.h>

#include <memory>
#include <mutex>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "calls.h"

namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr int NO_CONTEXT = 201; /* CUDA_ERROR_INVALID_CONTEXT */
constexpr int X = 0, T_R = 1, A_R = 2, T_L = 3, A_L = 4, BIAS = 5; /* among the tensors */

/* What Python does. */
struct Python {
    PyObject *backward;      /* of a unit, where nothing else fits (ops/eager.py) */
    PyObject *pack, *unpack; /* of what kept.h does not know; this and the rest: memory.py */
    PyObject *compute;       /* SReLU where kernels cannot be launched */
    PyObject *is_noted;      /* whether a tensor lies in the memory of an output that it knows */
    PyObject *outputs;       /* a dict of these */
} python;

pybind11::object object(const Tensor &t)
{
    return pybind11::reinterpret_steal<pybind11::object>(THPVariable_Wrap(t));
}

/* The stream that is current where x lives; false if that is not the current device. On a CPU,
 * where the tests have a driver of their own, there is none. */
bool current_stream(const Tensor &x, void **stream)
{
    const c10::impl::VirtualGuardImpl guard(x.device().type());
    if (guard.getDevice() != x.device())
        return false;
    *stream = x.is_cuda() ? guard.getStream(x.device()).native_handle() : nullptr;
    return true;
}

uint64_t address(const Tensor &t)
{
    return t.defined() ? reinterpret_cast<uint64_t>(t.const_data_ptr()) : 0;
}

uint64_t mutable_address(const Tensor &t)
{
    return t.defined() ? reinterpret_cast<uint64_t>(t.mutable_data_ptr()) : 0;
}

/* at::empty_like, less its way through the dispatcher: a unit needs seven tensors a step. */
Tensor fresh(const Tensor &like)
{
    c10::Allocator *const allocator = like.storage().allocator();
    if (!allocator) /* memory that is not torch's own */
        return at::empty_strided(like.sizes(), like.strides(), like.options());
    const auto key = c10::computeDispatchKey(like.scalar_type(), at::kStrided, like.device());
    return at::detail::empty_strided_generic(like.sizes(), like.strides(), allocator,
                                             c10::DispatchKeySet(key), like.scalar_type());
}

/* plan_launch; again where this thread has no CUDA context yet, which filling `out` gives it. */
int launched(const Plan &plan, void *stream, const uint64_t *args, const Tensor &out)
{
    const int error = plan_launch(&plan, stream, args);
    if (error != NO_CONTEXT)
        return error;
    out.zero_();
    return plan_launch(&plan, stream, args);
}

/* Backward by the kernels. Empty if one of the tensors lies where they cannot take it. */
variable_list quick_backward(const Call &call, const Tensor &grad, const variable_list &saved)
{
    void *stream;
    if (!current_stream(saved[X], &stream))
        return {};
    const bool biased = saved.size() > BIAS;
    variable_list grads;
    grads.reserve(saved.size());
    for (const Tensor &t : saved)
        grads.push_back(fresh(t));
    const Tensor none;
    const auto out = [&](size_t i) { return i < grads.size() ? mutable_address(grads[i]) : 0; };
    const uint64_t outs[] = {out(T_R), out(A_R), out(T_L), out(A_L), out(BIAS)};
    const bool alone = call.sums.empty();
    c10::DataPtr sums; /* no tensor: nobody else sees it */
    if (!alone)
        sums = grads[T_R].storage().allocator()->allocate(c10::multiply_integers(call.sums) *
                                                          grads[T_R].element_size());
    const auto sums_at = reinterpret_cast<uint64_t>(sums.get());
    const uint64_t first_args[] = {
        address(grad),
        address(saved[X]),
        mutable_address(grads[X]),
        sums_at,
        address(saved[T_R]),
        address(saved[A_R]),
        address(saved[T_L]),
        address(saved[A_L]),
        address(biased ? saved[BIAS] : none),
        0, /* a second part of the gradient */
        outs[0],
        outs[1],
        outs[2],
        outs[3],
        outs[4],
    };
    int error = launched(call.first, stream, first_args, grads[X]);
    if (error == NOT_ALIGNED)
        return {};
    if (!error && !alone) {
        const uint64_t second_args[] = {
            sums_at, address(saved[A_R]), address(saved[A_L]), outs[0],
            outs[1], outs[2],             outs[3],             outs[4],
        };
        error = plan_launch(&call.second, stream, second_args);
    }
    TORCH_CHECK(error == 0, "the kernels of SReLU's backward pass could not be launched: error ",
                error, " of the CUDA driver");
    return grads;
}

/* The gradient in the layout of x, which kernels need; a mean over positions gives another. */
Tensor laid_out(const Looks &looks, const Tensor &grad, const Tensor &x)
{
    return grad.strides() == looks.strides ? grad : fresh(x).copy_(grad);
}

/* Backward by torch_srelu.ops.eager.backward(grad, saved, needs, dim). */
variable_list slow_backward(const Call &call, const Tensor &grad, const variable_list &saved,
                            const std::vector<bool> &needs)
{
    pybind11::gil_scoped_acquire gil;
    pybind11::tuple tensors(saved.size()), needed(saved.size());
    for (size_t i = 0; i < saved.size(); i++) {
        tensors[i] = object(saved[i]);
        needed[i] = pybind11::bool_(needs[i]);
    }
    const pybind11::handle function(python.backward);
    const pybind11::tuple made = function(object(grad), tensors, needed, call.dim);
    variable_list grads;
    for (const auto &g : made)
        grads.push_back(g.is_none() ? Tensor() : THPVariable_Unpack(g.ptr()));
    return grads;
}

/* SReLU by the kernel; the tensors are `within_reach`. */
Tensor forward(const Call &call, at::TensorList tensors)
{
    void *stream = nullptr;
    current_stream(tensors[X], &stream);
    Tensor y = fresh(tensors[X]);
    const uint64_t args[] = {
        address(tensors[X]),
        mutable_address(y),
        address(tensors[T_R]),
        address(tensors[A_R]),
        address(tensors[T_L]),
        address(tensors[A_L]),
        tensors.size() > BIAS ? address(tensors[BIAS]) : 0,
    };
    const int error = launched(call.forward, stream, args, y);
    TORCH_CHECK(error == 0, "SReLU's kernel could not be launched: error ", error,
                " of the CUDA driver");
    return y;
}

Tensor forward_without_gil(const Call &call, at::TensorList tensors)
{
    pybind11::gil_scoped_release no_gil; /* a launch waits where too many are under way */
    return forward(call, tensors);
}

/* Where a unit's output and tensors lie, all in one number: they can be given other memory
 * (``p.data = ...``) behind autograd's back, and keep their version. */
int64_t places(const Tensor &y, at::TensorList tensors)
{
    uint64_t hash = address(y);
    for (const Tensor &t : tensors)
        hash = hash * 1000003 + address(t);
    return static_cast<int64_t>(hash);
}

/* The gradients of the saved tensors; needs(i): whether that of the i-th is asked for. */
template <typename Needs>
variable_list backward(const Call &call, const Tensor &grad, const variable_list &saved,
                       const Needs &needs)
{
    std::vector<bool> needed(saved.size());
    bool all = true;
    for (size_t i = 0; i < saved.size(); i++)
        all &= needed[i] = needs(i);
    /* Not `watched`: a torch function mode has no say in backward. */
    const bool plain = !at::GradMode::is_enabled() && !grad._fw_grad(0).defined() &&
                       !c10::impl::TorchDispatchModeTLS::any_modes_set();
    variable_list grads;
    if (all && plain && call.looks[X].fit_apart_from_strides(grad) && call.fit(saved))
        grads = quick_backward(call, laid_out(call.looks[X], grad, saved[X]), saved);
    return grads.empty() ? slow_backward(call, grad, saved, needed) : grads;
}

/* What torch itself calls, where it does not call the node: compiled autograd. */
struct SReLU : torch::autograd::Function<SReLU> {
    static variable_list backward(AutogradContext *ctx, const variable_list &grad)
    {
        const auto &call = *reinterpret_cast<const Call *>(ctx->saved_data["call"].toInt());
        const auto needs = [&](size_t i) { return ctx->needs_input_grad(i); };
        return ::backward(call, grad[0], ctx->get_saved_variables(), needs);
    }
};

/* A unit in autograd's graph: torch's node of a custom function, which can be traced, less what a
 * unit has no use for. Function::apply prepares for views, in-place operations and tangents at
 * every call, and takes the name of the node apart; that is half of what a call costs. */
struct Node final : torch::autograd::CppNode<SReLU> {
    const Call *call;
    bool repeatable = false; /* the output may be computed again instead of being kept (kept.h) */
    int64_t places = 0;      /* if it is: where it and the tensors lay */

    std::string name() const override { return "SReLUBackward"; }

    variable_list apply(variable_list &&grad) override
    {
        if (!grad[0].defined()) { /* a layer behind had none */
            {
                const std::lock_guard<std::mutex> alone(mutex_); /* which CppNode takes as well */
                prepare();
            }
            return CppNode::apply(std::move(grad)); /* with zeros */
        }
        const std::lock_guard<std::mutex> alone(mutex_); /* as torch's: others may free `saved` */
        const auto needs = [this](size_t i) { return task_should_compute_output(i); };
        return backward(*call, grad[0], ctx_.get_saved_variables(), needs);
    }

    void compiled_args(torch::autograd::CompiledNodeArgs &args) const override
    {
        const_cast<Node *>(this)->prepare();
        CppNode::compiled_args(args);
    }

    /* What backward runs under, and frees what is saved. */
    std::mutex &mutex() { return mutex_; }

  private:
    /* For `SReLU`, which is given the context alone. */
    void prepare() { ctx_.saved_data["call"] = reinterpret_cast<int64_t>(call); }
};

/* A node as autograd holds it. */
template <typename T>
auto made()
{
    if constexpr (std::is_base_of_v<c10::intrusive_ptr_target, T>)
        return c10::make_intrusive<T>();
    else /* torch before 2.13 */
        return std::shared_ptr<T>(new T, [](T *node) { deleteNode(node); });
}

/* SReLU for autograd; the tensors are `within_reach`, and one of them needs a gradient. */
Tensor recorded(const Call &call, variable_list &&tensors, bool repeatable)
{
    const Tensor y = forward(call, tensors);
    const auto node = made<Node>();
    node->call = &call;
    node->repeatable = repeatable;
    if (repeatable)
        node->places = places(y, tensors);
    node->set_next_edges(torch::autograd::collect_next_edges(tensors));
    node->is_variable_input_.assign(tensors.size(), true);
    node->output_info_.emplace_back(y);
    torch::autograd::impl::set_gradient_edge(y, {node, node->add_input_metadata(y)});
    node->set_ctx_grad_fn(node);
    node->ctx_.save_for_backward(std::move(tensors));
    node->save_variables_to_ctx();
    return y;
}

/* Whether kernels can be launched with them: they lie on the current device, and are aligned. */
bool within_reach(const std::vector<Tensor> &tensors)
{
    void *stream;
    for (const Tensor &t : tensors)
        if (address(t) % ALIGNMENT)
            return false;
    return current_stream(tensors[X], &stream);
}

/* Whether someone traces, transforms or intercepts what is computed now, as functional._watched. */
bool watched()
{
    const auto included = c10::impl::tls_local_dispatch_key_set().included_;
    const auto usual = included.add(c10::DispatchKey::ADInplaceOrView); /* but in inference mode */
    return at::impl::torch_function_mode_enabled() ||
           c10::impl::TorchDispatchModeTLS::any_modes_set() ||
           usual != c10::default_included_set ||
           torch::autograd::ForwardADLevel::try_get_by_idx(0) != nullptr;
}

}  // namespace
