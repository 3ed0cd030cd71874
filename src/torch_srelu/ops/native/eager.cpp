/* Eager SReLU on a GPU with no Python between autograd and the kernels.
 *
 * Kinds of calls are learnt from ops/eager.py once their kernels are compiled: how the tensors
 * look, and the launches of both passes. Whatever is not quite like one of them is left to Python.
 * Needs torch's headers, so it is compiled only where torch is there when the package is built.
 */
#include <ATen/ATen.h>
#include <ATen/PythonTorchFunctionTLS.h>
#include <ATen/SavedTensorHooks.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/forward_grad.h>
#include <torch/csrc/autograd/python_variable.h>

#include <optional>
#include <vector>

#include "calls.h"

namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr int NO_CONTEXT = 201; /* CUDA_ERROR_INVALID_CONTEXT */
constexpr int X = 0, T_R = 1, A_R = 2, T_L = 3, A_L = 4, BIAS = 5; /* among the tensors */
constexpr int ARG_DIM = 5, ARG_BIAS = 6, ARGS = 7; /* srelu(x, t_r, a_r, t_l, a_l, dim, bias) */

Calls calls;
PyObject *fallback; /* backward where nothing else fits */

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
    for (const Tensor &t : saved)
        grads.push_back(at::empty_like(t));
    const Tensor none;
    const auto out = [&](size_t i) { return i < grads.size() ? mutable_address(grads[i]) : 0; };
    const uint64_t outs[] = {out(T_R), out(A_R), out(T_L), out(A_L), out(BIAS)};
    const bool alone = call.sums.empty();
    const Tensor sums = alone ? none : at::empty(call.sums, grads[T_R].options());
    const uint64_t first_args[] = {
        address(grad),
        address(saved[X]),
        mutable_address(grads[X]),
        mutable_address(sums),
        address(saved[T_R]),
        address(saved[A_R]),
        address(saved[T_L]),
        address(saved[A_L]),
        address(biased ? saved[BIAS] : none),
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
            address(sums), address(saved[A_R]), address(saved[A_L]), outs[0],
            outs[1],       outs[2],             outs[3],             outs[4],
        };
        error = plan_launch(&call.second, stream, second_args);
    }
    TORCH_CHECK(error == 0, "the kernels of SReLU's backward pass could not be launched: error ",
                error, " of the CUDA driver");
    return grads;
}

/* Backward by torch_srelu.ops.eager.backward(grad, saved, needs, dim). */
variable_list slow_backward(const Call &call, const Tensor &grad, const variable_list &saved,
                            const std::vector<bool> &needs)
{
    pybind11::gil_scoped_acquire gil;
    pybind11::tuple tensors(saved.size()), needed(saved.size());
    for (size_t i = 0; i < saved.size(); i++) {
        tensors[i] = pybind11::reinterpret_steal<pybind11::object>(THPVariable_Wrap(saved[i]));
        needed[i] = pybind11::bool_(needs[i]);
    }
    auto wrapped = pybind11::reinterpret_steal<pybind11::object>(THPVariable_Wrap(grad));
    const pybind11::handle function(fallback);
    const pybind11::tuple made = function(wrapped, tensors, needed, call.dim);
    variable_list grads;
    for (const auto &g : made)
        grads.push_back(g.is_none() ? Tensor() : THPVariable_Unpack(g.ptr()));
    return grads;
}

struct SReLU : torch::autograd::Function<SReLU> {
    static Tensor forward(AutogradContext *ctx, int64_t which, at::TensorList tensors)
    {
        const auto &call = *reinterpret_cast<const Call *>(which);
        ctx->save_for_backward(tensors.vec());
        ctx->saved_data["call"] = which;
        void *stream = nullptr;
        current_stream(tensors[X], &stream); /* there is one: `within_reach` */
        Tensor y = at::empty_like(tensors[X]);
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

    static variable_list backward(AutogradContext *ctx, variable_list grad)
    {
        const auto saved = ctx->get_saved_variables();
        const auto &call = *reinterpret_cast<const Call *>(ctx->saved_data["call"].toInt());
        std::vector<bool> needs;
        bool all = true;
        for (size_t i = 0; i < saved.size(); i++) {
            needs.push_back(ctx->needs_input_grad(i));
            all = all && needs.back();
        }
        /* Not `watched`: a torch function mode has no say in backward. */
        const bool plain = !at::GradMode::is_enabled() && !grad[0]._fw_grad(0).defined() &&
                           !c10::impl::TorchDispatchModeTLS::any_modes_set();
        variable_list grads;
        if (all && plain && call.looks[X].fit(grad[0]) && call.fit(saved))
            grads = quick_backward(call, grad[0], saved);
        if (grads.empty())
            grads = slow_backward(call, grad[0], saved, needs);
        grads.insert(grads.begin(), Tensor()); /* of `which` */
        return grads;
    }
};

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
    return at::impl::torch_function_mode_enabled() ||
           c10::impl::TorchDispatchModeTLS::any_modes_set() ||
           c10::impl::tls_local_dispatch_key_set().included_ != c10::default_included_set ||
           torch::autograd::ForwardADLevel::try_get_by_idx(0) != nullptr;
}

/* The tensors of srelu(x, t_r, a_r, t_l, a_l, dim, bias); none if they are not all ordinary. */
std::vector<Tensor> unpacked(PyObject *const *args)
{
    std::vector<Tensor> tensors;
    for (int i = 0; i < ARGS; i++) {
        if (i == ARG_DIM || (i == ARG_BIAS && args[i] == Py_None))
            continue;
        if (!THPVariable_CheckExact(args[i]))
            return {};
        tensors.push_back(THPVariable_Unpack(args[i]));
    }
    return tensors;
}

/* While it lives, autograd asks no hooks about the tensors that it keeps. Needs the GIL. */
class Unhooked {
  public:
    Unhooked() : before(at::SavedTensorDefaultHooks::get_tls_state())
    {
        at::SavedTensorDefaultHooks::set_tls_state({});
    }
    ~Unhooked() { at::SavedTensorDefaultHooks::set_tls_state(before); }
    Unhooked(const Unhooked &) = delete;
    Unhooked &operator=(const Unhooked &) = delete;

  private:
    const at::impl::SavedTensorDefaultHooksTLS before;
};

PyObject *srelu(PyObject *, PyObject *const *args, Py_ssize_t count)
{
    HANDLE_TH_ERRORS
    if (count < ARGS || count > ARGS + 1 || !PyLong_CheckExact(args[ARG_DIM]))
        Py_RETURN_NONE;
    const auto tensors = unpacked(args);
    const int64_t dim = PyLong_AsLongLong(args[ARG_DIM]);
    if (PyErr_Occurred()) { /* no such dimension */
        PyErr_Clear();
        Py_RETURN_NONE;
    }
    if (tensors.empty() || watched())
        Py_RETURN_NONE;
    const Call *call = calls.find(dim, tensors);
    if (!call || !within_reach(tensors))
        Py_RETURN_NONE;
    std::optional<Unhooked> unhooked;
    if (count > ARGS && args[ARGS] == Py_True)
        unhooked.emplace();
    Tensor y;
    {
        pybind11::gil_scoped_release no_gil;
        y = SReLU::apply(reinterpret_cast<int64_t>(call), at::TensorList(tensors));
    }
    return THPVariable_Wrap(y);
    END_HANDLE_TH_ERRORS
}

Plan planned(PyObject *capsule)
{
    auto *plan = static_cast<const Plan *>(PyCapsule_GetPointer(capsule, nullptr));
    if (!plan)
        throw python_error();
    return *plan;
}

PyObject *learn(PyObject *, PyObject *args)
{
    HANDLE_TH_ERRORS
    PyObject *given[ARGS], *forward, *first, *second, *sums;
    if (!PyArg_ParseTuple(args, "OOOOOOOOOOO!", &given[0], &given[1], &given[2], &given[3],
                          &given[4], &given[5], &given[6], &forward, &first, &second, &PyTuple_Type,
                          &sums))
        return nullptr;
    const auto tensors = unpacked(given);
    if (tensors.empty())
        Py_RETURN_FALSE;
    Call call{PyLong_AsLongLong(given[ARG_DIM]), {}, planned(forward), planned(first), {}, {}};
    if (second != Py_None) {
        call.second = planned(second);
        for (Py_ssize_t i = 0; i < PyTuple_Size(sums); i++)
            call.sums.push_back(PyLong_AsLongLong(PyTuple_GetItem(sums, i)));
    }
    if (PyErr_Occurred())
        return nullptr;
    if (calls.find(call.dim, tensors))
        Py_RETURN_TRUE;
    for (const Tensor &t : tensors)
        call.looks.emplace_back(t);
    return PyBool_FromLong(calls.add(std::move(call)));
    END_HANDLE_TH_ERRORS
}

PyObject *set_fallback(PyObject *, PyObject *function)
{
    Py_INCREF(function);
    Py_XDECREF(fallback);
    fallback = function;
    Py_RETURN_NONE;
}

PyMethodDef methods[] = {
    {"srelu", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(srelu)), METH_FASTCALL,
     "srelu(x, t_r, a_r, t_l, a_l, dim, bias, unhooked=False), for autograd; None if no such call "
     "was learnt. unhooked: no hooks are asked about the tensors that it keeps"},
    {"learn", learn, METH_VARARGS,
     "learn(x, t_r, a_r, t_l, a_l, dim, bias, forward, first, second, sums): calls like this one"},
    {"set_fallback", set_fallback, METH_O,
     "set_fallback(function): gradients that the kernels cannot compute are function(grad, saved, "
     "needs, dim)"},
    {nullptr, nullptr, 0, nullptr},
};

PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "_eager", "Eager SReLU on a GPU.", -1, methods, nullptr, nullptr,
    nullptr, nullptr,
};

}  // namespace

#define PASTE(a, b) a##b
#define INIT(name) PASTE(PyInit_, name)

PyMODINIT_FUNC INIT(TORCH_EXTENSION_NAME)(void) { return PyModule_Create(&module); }
