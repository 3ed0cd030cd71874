/* Launches of compiled GPU kernels, called from Python with tensors.
 *
 * For a small tensor, Python takes longer to pass the arguments than the GPU to compute. Plain C with
 * Python's stable ABI: no headers of torch or CUDA. The driver's function comes as an address
 * (triton_launch.py).
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <stdlib.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the driver reads 32-bit integers from the low half of 64-bit values"
#endif

enum { MAX_PARAMETERS = 64, MAX_TENSORS = 16, ALIGNMENT = 16 /* bytes */, NOT_ALIGNED = -1 };

typedef int (*cu_launch_kernel)(void *function, unsigned, unsigned, unsigned, unsigned, unsigned,
                                unsigned, unsigned shared, void *stream, void **params, void **);

typedef struct {
    cu_launch_kernel launch;
    void *function;
    unsigned grid[3], threads, shared;
    int aligned; /* so many first tensors must be aligned, as the kernel was compiled for */
    int count;
    int places[MAX_PARAMETERS]; /* index of the tensor of each parameter; -1: an integer */
    uint64_t values[MAX_PARAMETERS];
} LaunchPlan;

/* 0: launched; NOT_ALIGNED: nothing was done; else the driver's error. */
static inline int plan_launch(const LaunchPlan *plan, void *stream, const uint64_t *tensors)
{
    uint64_t values[MAX_PARAMETERS];
    void *params[MAX_PARAMETERS];
    for (int i = 0; i < plan->count; i++) {
        int place = plan->places[i];
        values[i] = place < 0 ? plan->values[i] : tensors[place];
        if (place >= 0 && place < plan->aligned && values[i] % ALIGNMENT)
            return NOT_ALIGNED;
        params[i] = &values[i];
    }
    return plan->launch(plan->function, plan->grid[0], plan->grid[1], plan->grid[2], plan->threads,
                        1, 1, plan->shared, stream, params, 0);
}

static PyObject *data_ptr; /* "data_ptr" */

static void destroy(PyObject *capsule) { free(PyCapsule_GetPointer(capsule, NULL)); }

static PyObject *plan(PyObject *self, PyObject *args)
{
    unsigned long long address, function;
    PyObject *places, *values;
    LaunchPlan parsed = {0};
    if (!PyArg_ParseTuple(args, "KK(III)IIiO!O!", &address, &function, &parsed.grid[0],
                          &parsed.grid[1], &parsed.grid[2], &parsed.threads, &parsed.shared, &parsed.aligned,
                          &PyTuple_Type, &places, &PyTuple_Type, &values))
        return NULL;
    Py_ssize_t count = PyTuple_Size(places);
    if (count > MAX_PARAMETERS || count != PyTuple_Size(values)) {
        PyErr_Format(PyExc_ValueError, "places and values must be equally long, at most %d",
                     MAX_PARAMETERS);
        return NULL;
    }
    parsed.launch = (cu_launch_kernel)(uintptr_t)address;
    parsed.function = (void *)(uintptr_t)function;
    parsed.count = (int)count;
    for (int i = 0; i < parsed.count; i++) {
        parsed.places[i] = (int)PyLong_AsLong(PyTuple_GetItem(places, i));
        parsed.values[i] = (uint64_t)PyLong_AsLongLong(PyTuple_GetItem(values, i));
        if (!PyErr_Occurred() && parsed.places[i] >= MAX_TENSORS)
            PyErr_Format(PyExc_ValueError, "a kernel has at most %d tensors", MAX_TENSORS);
    }
    if (PyErr_Occurred())
        return NULL;
    LaunchPlan *result = malloc(sizeof *result);
    if (!result)
        return PyErr_NoMemory();
    *result = parsed;
    return PyCapsule_New(result, NULL, destroy);
}

static PyObject *launch(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    const LaunchPlan *plan = count < 2 ? NULL : PyCapsule_GetPointer(args[0], NULL);
    if (!plan) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_TypeError, "launch(plan, stream, *tensors)");
        return NULL;
    }
    void *stream = (void *)(uintptr_t)PyLong_AsUnsignedLongLong(args[1]);
    uint64_t tensors[MAX_TENSORS];
    for (int i = 0; i < plan->count; i++) {
        int place = plan->places[i];
        if (place < 0)
            continue;
        if (place >= count - 2 || args[2 + place] == Py_None)
            Py_RETURN_FALSE;
        PyObject *pointer = PyObject_CallMethodObjArgs(args[2 + place], data_ptr, NULL);
        if (!pointer)
            return NULL;
        tensors[place] = PyLong_AsUnsignedLongLong(pointer);
        Py_DECREF(pointer);
    }
    if (PyErr_Occurred())
        return NULL;
    int error;
    Py_BEGIN_ALLOW_THREADS /* it blocks while the launch queue is full */
    error = plan_launch(plan, stream, tensors);
    Py_END_ALLOW_THREADS
    return PyBool_FromLong(error == 0);
}

static PyMethodDef methods[] = {
    {"plan", plan, METH_VARARGS,
     "plan(cuLaunchKernel, function, grid, threads, shared, aligned, places, values): for launch"},
    {"launch", (PyCFunction)(void (*)(void))launch, METH_FASTCALL,
     "launch(plan, stream, *tensors): whether it was launched. Not if a tensor is missing or not "
     "aligned, or the driver returns an error: then launch by Triton, which reports it"},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT,
    .m_name = "_launch",
    .m_doc = "Launches of compiled GPU kernels.",
    .m_size = -1,
    .m_methods = methods,
};

PyMODINIT_FUNC PyInit__launch(void)
{
    data_ptr = PyUnicode_InternFromString("data_ptr");
    return data_ptr ? PyModule_Create(&module) : NULL;
}
