/* torch_srelu.recompute_outputs: what autograd keeps of a tensor, and instead of SReLU's outputs.
 *
 * The usual cases, and memory.py does the rest: tensors that are no outputs of SReLU, and outputs
 * of `repeatable` nodes. These are known by their node, which still has what they are computed of.
 */
#pragma once
#include <ATen/SavedTensorHooks.h>
#include <torch/csrc/PyInterpreter.h>

#include <memory>
#include <mutex>
#include <typeinfo>
#include <utility>
#include <vector>

#include "unit.h"

namespace {

/* Tensors at a version: one that is kept or, if there is a call, what it is computed of. */
struct Kept {
    variable_list tensors;
    std::vector<int64_t> versions;
    const Call *call = nullptr;
};

constexpr const char *KEPT = "torch_srelu.Kept";

PyObject *wrapped(Kept &&kept)
{
    auto owned = std::make_unique<Kept>(std::move(kept));
    PyObject *capsule = PyCapsule_New(owned.get(), KEPT, [](PyObject *self) {
        delete static_cast<Kept *>(PyCapsule_GetPointer(self, KEPT));
    });
    if (capsule)
        owned.release();
    return capsule;
}

/* The node that made t, or what t is a view of, if its output need not be kept; else null. */
Node *repeatable(const Tensor &t)
{
    const Tensor base = t.is_view() ? Tensor(t._base()) : t;
    auto *const made_by = base.grad_fn().get();
    if (!made_by || typeid(*made_by) != typeid(Node)) /* cheaper than a dynamic_cast */
        return nullptr;
    auto *const node = static_cast<Node *>(made_by);
    return node->repeatable ? node : nullptr;
}

/* What t, the output of a node, is computed of; nothing if one of them is gone or has changed, or
 * if another thread runs the backward pass of the node. */
variable_list origin(const Tensor &t, Node &node)
{
    if (t._version() != 0 || !node.call->looks[X].fit(t))
        return {};
    const std::unique_lock<std::mutex> alone(node.mutex(), std::try_to_lock);
    if (!alone)
        return {};
    variable_list from;
    try {
        from = node.ctx_.get_saved_variables();
    } catch (const std::exception &) {
        return {};
    }
    return node.call->fit(from) && places(t, from) == node.places ? from : variable_list();
}

PyObject *pack(PyObject *, PyObject *given)
{
    HANDLE_TH_ERRORS
    if (!THPVariable_CheckExact(given) || watched())
        return PyObject_CallOneArg(python.pack, given);
    const Tensor &t = THPVariable_Unpack(given);
    if (t.is_leaf())
        return wrapped({{t}, {t._version()}});
    Node *const node = repeatable(t);
    const bool unusual = node ? t.is_view() : PyDict_Size(python.outputs) > 0;
    if (unusual)
        return PyObject_CallOneArg(python.pack, given);
    /* tensor_data() shares memory and version, not the graph: it may hold what keeps this. */
    Kept kept{node ? origin(t, *node) : variable_list(), {}};
    if (kept.tensors.empty())
        kept.tensors.push_back(t);
    else
        kept.call = node->call;
    kept.versions.reserve(kept.tensors.size());
    for (Tensor &from : kept.tensors) {
        kept.versions.push_back(from._version());
        from = from.tensor_data();
    }
    return wrapped(std::move(kept));
    END_HANDLE_TH_ERRORS
}

/* (x, t_r, a_r, t_l, a_l, dim, bias or None) as Python's objects. */
pybind11::tuple arguments(const variable_list &tensors, const Call &call)
{
    const Tensor bias = tensors.size() > BIAS ? tensors[BIAS] : Tensor();
    return pybind11::make_tuple(object(tensors[X]), object(tensors[T_R]), object(tensors[A_R]),
                                object(tensors[T_L]), object(tensors[A_L]), call.dim, object(bias));
}

PyObject *computed(const Kept &kept)
{
    const c10::AutoGradMode no_gradients(false);
    if (!watched() && kept.call->fit(kept.tensors) && within_reach(kept.tensors))
        return THPVariable_Wrap(forward_without_gil(*kept.call, kept.tensors));
    return PyObject_CallObject(python.compute, arguments(kept.tensors, *kept.call).ptr());
}

PyObject *unpack(PyObject *, PyObject *packed)
{
    HANDLE_TH_ERRORS
    if (!PyCapsule_CheckExact(packed))
        return PyObject_CallOneArg(python.unpack, packed);
    const auto *kept = static_cast<const Kept *>(PyCapsule_GetPointer(packed, KEPT));
    if (!kept)
        return nullptr;
    for (size_t i = 0; i < kept->tensors.size(); i++) {
        const auto &tensor = kept->tensors[i];
        const int64_t version = kept->versions[i];
        if (tensor._version() != version) /* which memory.py raises an error for */
            return PyObject_CallOneArg(python.unpack, pybind11::make_tuple(tensor, version).ptr());
    }
    return kept->call ? computed(*kept) : THPVariable_Wrap(kept->tensors[0]);
    END_HANDLE_TH_ERRORS
}

/* What memory.py makes a recipe of: the arguments that gave an output; None if there are none. */
PyObject *origin_of(PyObject *, PyObject *output)
{
    HANDLE_TH_ERRORS
    if (!THPVariable_CheckExact(output))
        Py_RETURN_NONE;
    const Tensor &t = THPVariable_Unpack(output);
    Node *const node = repeatable(t);
    const variable_list from = node ? origin(t, *node) : variable_list();
    if (from.empty())
        Py_RETURN_NONE;
    return arguments(from, *node->call).release().ptr();
    END_HANDLE_TH_ERRORS
}

/* Whether memory.py knows x as an output. */
bool noted(PyObject *x)
{
    if (PyDict_Size(python.outputs) == 0)
        return false;
    const pybind11::handle is_noted(python.is_noted);
    return is_noted(pybind11::handle(x)).cast<bool>();
}

/* The hook that autograd asks what to keep, as a Python object; null: none. */
PyObject *top_hook()
{
    const auto &stack = at::SavedTensorDefaultHooks::get_tls_state().stack;
    return stack.empty() ? nullptr : stack.top().first.ptr(getPyInterpreter());
}

bool is_pack(PyObject *hook)
{
    return PyCFunction_Check(hook) && PyCFunction_GetFunction(hook) == pack;
}

/* Whether the output of a call with these tensors can be had again by what is in this file. */
bool can_repeat(PyObject *x, const variable_list &tensors)
{
    if (repeatable(tensors[X]) || noted(x))
        return false; /* the input is an output itself, and not kept */
    for (size_t i = T_R; i < tensors.size(); i++)
        if (!tensors[i].requires_grad())
            return false; /* it may change before backward: memory.py copies it */
    return true;
}

/* torch.autograd.graph.saved_tensors_hooks, entered and left, at a tenth of its price. */
PyObject *push_hooks(PyObject *, PyObject *const *hooks, Py_ssize_t count)
{
    HANDLE_TH_ERRORS
    if (count != 2) {
        PyErr_SetString(PyExc_TypeError, "push_hooks(pack, unpack)");
        return nullptr;
    }
    const auto safe = [](PyObject *hook) {
        return c10::SafePyObject(Py_NewRef(hook), getPyInterpreter());
    };
    at::SavedTensorDefaultHooks::lazy_initialize();
    at::SavedTensorDefaultHooks::push_hooks(safe(hooks[0]), safe(hooks[1]));
    Py_RETURN_NONE;
    END_HANDLE_TH_ERRORS
}

PyObject *pop_hooks(PyObject *, PyObject *)
{
    HANDLE_TH_ERRORS
    at::SavedTensorDefaultHooks::pop_hooks();
    Py_RETURN_NONE;
    END_HANDLE_TH_ERRORS
}

}  // namespace
