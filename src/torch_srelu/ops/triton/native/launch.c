/* Launches of compiled GPU kernels, called from Python with tensors.
 *
 * A small tensor takes the GPU less time than Python needs to hand its arguments on. Plain C with
 * Python's stable interface: no headers of torch or CUDA. The driver's functions come as addresses
 * (triton_launch.py).
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <stdlib.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "a number of 32 bits is read from the first half of its 64"
#endif

enum { MOST_PARAMETERS = 64, MOST_TENSORS = 16, ALIGNMENT = 16 /* bytes */, NOT_ALIGNED = -1 };

typedef int (*cu_launch_kernel)(void *function, unsigned, unsigned, unsigned, unsigned, unsigned,
                                unsigned, unsigned shared, void *stream, void **params, void **);

typedef struct {
    cu_launch_kernel launch;
    void *function;
    unsigned grid[3], threads, shared;
    int aligned; /* the first so many tensors must be aligned, as the kernel's code expects */
    int count;
    int places[MOST_PARAMETERS]; /* which tensor it is that a parameter points to; -1: a number */
    uint64_t values[MOST_PARAMETERS];
} Plan;

/* 0: launched; NOT_ALIGNED: nothing was done; else the driver's error. */
static inline int plan_launch(const Plan *plan, void *stream, const uint64_t *tensors)
{
    uint64_t values[MOST_PARAMETERS];
    void *params[MOST_PARAMETERS];
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
    Plan made = {0};
    if (!PyArg_ParseTuple(args, "KK(III)IIiO!O!", &address, &function, &made.grid[0],
                          &made.grid[1], &made.grid[2], &made.threads, &made.shared, &made.aligned,
                          &PyTuple_Type, &places, &PyTuple_Type, &values))
        return NULL;
    Py_ssize_t count = PyTuple_Size(places);
    if (count > MOST_PARAMETERS || count != PyTuple_Size(values)) {
        PyErr_Format(PyExc_ValueError, "places and values must be equally long, at most %d",
                     MOST_PARAMETERS);
        return NULL;
    }
    made.launch = (cu_launch_kernel)(uintptr_t)address;
    made.function = (void *)(uintptr_t)function;
    made.count = (int)count;
    for (int i = 0; i < made.count; i++) {
        made.places[i] = (int)PyLong_AsLong(PyTuple_GetItem(places, i));
        made.values[i] = (uint64_t)PyLong_AsLongLong(PyTuple_GetItem(values, i));
        if (!PyErr_Occurred() && made.places[i] >= MOST_TENSORS)
            PyErr_Format(PyExc_ValueError, "a kernel has at most %d tensors", MOST_TENSORS);
    }
    if (PyErr_Occurred())
        return NULL;
    Plan *kept = malloc(sizeof *kept);
    if (!kept)
        return PyErr_NoMemory();
    *kept = made;
    return PyCapsule_New(kept, NULL, destroy);
}

static PyObject *launch(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    const Plan *known = count < 2 ? NULL : PyCapsule_GetPointer(args[0], NULL);
    if (!known) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_TypeError, "launch(plan, stream, *tensors)");
        return NULL;
    }
    void *stream = (void *)(uintptr_t)PyLong_AsUnsignedLongLong(args[1]);
    uint64_t tensors[MOST_TENSORS];
    for (int i = 0; i < known->count; i++) {
        int place = known->places[i];
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
    Py_BEGIN_ALLOW_THREADS /* it waits where too many launches are under way */
    error = plan_launch(known, stream, tensors);
    Py_END_ALLOW_THREADS
    return PyBool_FromLong(error == 0);
}

static PyMethodDef methods[] = {
    {"plan", plan, METH_VARARGS,
     "plan(cuLaunchKernel, function, grid, threads, shared, aligned, places, values): for launch"},
    {"launch", (PyCFunction)(void (*)(void))launch, METH_FASTCALL,
     "launch(plan, stream, *tensors): whether it was. Not if a tensor is missing or not aligned, "
     "or the driver refuses: then Triton should launch, and say why"},
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
