/* Eager SReLU on a GPU with no Python between autograd and the kernels.
 *
 * Kinds of calls are learnt from ops/eager.py once their kernels are compiled: how the tensors
 * look, and the launches of both passes. Whatever is not quite like one of them is left to Python.
 * Needs torch's headers, so it is compiled only where torch is there when the package is built.
 */
#include <algorithm>
#include <optional>
#include <vector>

#include "kept.h"

namespace {

constexpr int SOURCES = 8; /* ops/cpp.py asks for it: raised when what it calls or launch.h changes */
constexpr int ARG_DIM = 5, ARG_BIAS = 6, ARGS = 7; /* srelu(x, t_r, a_r, t_l, a_l, dim, bias) */

Calls calls;

/* The tensors of srelu(x, t_r, a_r, t_l, a_l, dim, bias); none if they are not all ordinary. */
std::vector<Tensor> unpacked(PyObject *const *args)
{
    std::vector<Tensor> tensors;
    tensors.reserve(ARGS - 1);
    for (int i = 0; i < ARGS; i++) {
        if (i == ARG_DIM || (i == ARG_BIAS && args[i] == Py_None))
            continue;
        if (!THPVariable_CheckExact(args[i]))
            return {};
        tensors.push_back(THPVariable_Unpack(args[i]));
    }
    return tensors;
}

/* While it lives, autograd asks no hooks about the tensors that it keeps. */
class Unhooked {
  public:
    Unhooked() : before(at::SavedTensorDefaultHooks::set_tracing(true)) {}
    ~Unhooked() { at::SavedTensorDefaultHooks::set_tracing(before); }
    Unhooked(const Unhooked &) = delete;
    Unhooked &operator=(const Unhooked &) = delete;

  private:
    const bool before;
};

bool wants_gradients(const std::vector<Tensor> &tensors)
{
    const auto wants = [](const Tensor &t) { return t.requires_grad(); };
    return at::GradMode::is_enabled() && std::any_of(tensors.begin(), tensors.end(), wants);
}

PyObject *srelu(PyObject *, PyObject *const *args, Py_ssize_t count)
{
    HANDLE_TH_ERRORS
    if (count < ARGS || count > ARGS + 1 || !PyLong_CheckExact(args[ARG_DIM]))
        Py_RETURN_NONE;
    auto tensors = unpacked(args);
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
    if (!wants_gradients(tensors))
        return THPVariable_Wrap(forward_without_gil(*call, tensors));
    const bool noted = count > ARGS && args[ARGS] == Py_True;
    PyObject *const hook = noted ? nullptr : top_hook();
    const bool repeatable = hook && is_pack(hook);
    if (!call->trains || (hook && hook == python.pack) ||
        (repeatable && !can_repeat(args[X], tensors)))
        Py_RETURN_NONE;
    std::optional<Unhooked> unhooked;
    if (repeatable)
        unhooked.emplace();
    Tensor y;
    {
        pybind11::gil_scoped_release no_gil;
        y = recorded(*call, std::move(tensors), repeatable);
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
    Call call{PyLong_AsLongLong(given[ARG_DIM]), {}, planned(forward), {}, {}, {}};
    if (first != Py_None) {
        call.first = planned(first);
        call.trains = true;
    }
    if (second != Py_None) {
        call.second = planned(second);
        for (Py_ssize_t i = 0; i < PyTuple_Size(sums); i++)
            call.sums.push_back(PyLong_AsLongLong(PyTuple_GetItem(sums, i)));
    }
    if (PyErr_Occurred())
        return nullptr;
    for (const Tensor &t : tensors)
        call.looks.emplace_back(t);
    Call *const known = calls.find(call.dim, tensors);
    if (!known)
        return PyBool_FromLong(calls.add(std::move(call)));
    if (call.trains && !known->trains) { /* then no node has looked at these */
        known->first = call.first;
        known->second = call.second;
        known->sums = call.sums;
        known->trains = true;
    }
    Py_RETURN_TRUE;
    END_HANDLE_TH_ERRORS
}

PyObject *set_backward(PyObject *, PyObject *function)
{
    python.backward = Py_NewRef(function); /* for good */
    Py_RETURN_NONE;
}

PyObject *set_hooks(PyObject *, PyObject *args)
{
    Python given = python;
    if (!PyArg_ParseTuple(args, "OOOOO!", &given.pack, &given.unpack, &given.compute,
                          &given.is_noted, &PyDict_Type, &given.outputs))
        return nullptr;
    Py_INCREF(args); /* and so all of them, for good */
    python = given;
    Py_RETURN_NONE;
}

PyMethodDef methods[] = {
    {"srelu", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(srelu)), METH_FASTCALL,
     "srelu(x, t_r, a_r, t_l, a_l, dim, bias, noted=False), for autograd; None if no such call was "
     "learnt, or where `recompute_outputs` is active and memory.py has to note the output: noted"},
    {"learn", learn, METH_VARARGS,
     "learn(x, t_r, a_r, t_l, a_l, dim, bias, forward, first, second, sums): calls like this one; "
     "for those without gradients, first and second may be None"},
    {"set_backward", set_backward, METH_O,
     "set_backward(function): gradients that the kernels cannot compute are function(grad, saved, "
     "needs, dim)"},
    {"pack", pack, METH_O, "For saved_tensors_hooks: what autograd keeps of a tensor"},
    {"unpack", unpack, METH_O, "For saved_tensors_hooks: the tensor"},
    {"push_hooks", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(push_hooks)),
     METH_FASTCALL, "push_hooks(pack, unpack): autograd asks them, in this thread"},
    {"pop_hooks", pop_hooks, METH_NOARGS, "Undoes `push_hooks`"},
    {"origin_of", origin_of, METH_O,
     "origin_of(y): the arguments (x, t_r, a_r, t_l, a_l, dim, bias) of the repeatable call that "
     "gave y, if they and y are as they were; else None"},
    {"set_hooks", set_hooks, METH_VARARGS,
     "set_hooks(pack, unpack, compute, is_noted, outputs): what memory.py does for `pack`, `unpack`"},
    {nullptr, nullptr, 0, nullptr},
};

PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "_eager", "Eager SReLU on a GPU.", -1, methods, nullptr, nullptr,
    nullptr, nullptr,
};

}  // namespace

#define PASTE(a, b) a##b
#define INIT(name) PASTE(PyInit_, name)

PyMODINIT_FUNC INIT(TORCH_EXTENSION_NAME)(void)
{
    PyObject *made = PyModule_Create(&module);
    if (made && PyModule_AddIntConstant(made, "SOURCES", SOURCES) < 0)
        Py_CLEAR(made);
    return made;
}
