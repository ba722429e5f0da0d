// Array types of the Python boundary: CPU tensors and arrays, taken without a copy.
//
// nanobind asks for a tensor's memory by DLPack, which torch answers in 4 microseconds; a training
// step hands over a hundred of them. So torch's tensors are asked directly. Whatever else there is
// (numpy) goes the general way.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <cstdint>
#include <type_traits>

namespace nb = nanobind;

template <typename T, size_t N>
class Array {
   public:
    using General = nb::ndarray<T, nb::ndim<N>, nb::c_contig, nb::device::cpu>;

    Array() = default;
    explicit Array(General array) : data_(array.data()), general_(std::move(array)) {
        for (size_t i = 0; i < N; i++) shape_[i] = general_.shape(i);
    }
    Array(T* data, const size_t* shape) : data_(data) {
        for (size_t i = 0; i < N; i++) shape_[i] = shape[i];
    }

    T* data() const { return data_; }
    size_t shape(size_t axis) const { return shape_[axis]; }
    size_t size() const {
        size_t product = 1;
        for (size_t length : shape_) product *= length;
        return product;
    }

   private:
    T* data_ = nullptr;
    size_t shape_[N] = {};
    General general_;  // keeps what was converted
};

template <typename T> using Array1 = Array<T, 1>;
template <typename T> using Array2 = Array<T, 2>;
template <typename T> using Array3 = Array<T, 3>;

namespace grendel {

// Borrowed for as long as the interpreter lives; null without torch.
inline PyObject* torch_object(const char* name) {
    PyObject* torch = PyImport_GetModule(nb::str("torch").ptr());
    PyObject* found = torch ? PyObject_GetAttrString(torch, name) : nullptr;
    if (!found) PyErr_Clear();
    Py_XDECREF(torch);
    return found;
}

template <typename T>
PyObject* torch_dtype() {
    static PyObject* dtype = torch_object(std::is_same_v<T, float>     ? "float32"
                                          : std::is_same_v<T, double>  ? "float64"
                                          : std::is_same_v<T, int16_t> ? "int16"
                                          : std::is_same_v<T, int32_t> ? "int32"
                                          : std::is_same_v<T, int64_t> ? "int64"
                                          : std::is_same_v<T, bool>    ? "bool"
                                                                       : "uint8");
    return dtype;
}

struct Names {
    PyObject *dtype = PyUnicode_InternFromString("dtype"), *shape = PyUnicode_InternFromString("shape"),
             *is_cpu = PyUnicode_InternFromString("is_cpu"),
             *is_contiguous = PyUnicode_InternFromString("is_contiguous"),
             *data_ptr = PyUnicode_InternFromString("data_ptr");
};

// The memory and shape of a torch tensor; false where it is none, or not of this kind.
template <typename T, size_t N>
bool read_tensor(PyObject* tensor, Array<T, N>& out) {
    static PyObject* type = torch_object("Tensor");
    static const Names names;
    if (!type || Py_TYPE(tensor) != (PyTypeObject*)type) return false;
    nb::object dtype = nb::steal(PyObject_GetAttr(tensor, names.dtype));
    nb::object cpu = nb::steal(PyObject_GetAttr(tensor, names.is_cpu));
    nb::object contiguous = nb::steal(PyObject_CallMethodNoArgs(tensor, names.is_contiguous));
    nb::object shape = nb::steal(PyObject_GetAttr(tensor, names.shape));
    nb::object data = nb::steal(PyObject_CallMethodNoArgs(tensor, names.data_ptr));
    bool fits = dtype.ptr() == torch_dtype<std::remove_const_t<T>>() && cpu.ptr() == Py_True &&
                contiguous.ptr() == Py_True && shape && PyTuple_Check(shape.ptr()) &&
                PyTuple_GET_SIZE(shape.ptr()) == Py_ssize_t(N) && data;
    if (!fits) {
        PyErr_Clear();
        return false;
    }
    size_t lengths[N];
    for (size_t i = 0; i < N; i++) lengths[i] = PyLong_AsSize_t(PyTuple_GET_ITEM(shape.ptr(), i));
    out = Array<T, N>(static_cast<T*>(PyLong_AsVoidPtr(data.ptr())), lengths);
    return true;
}

}  // namespace grendel

namespace nanobind::detail {

template <typename T, size_t N>
struct type_caster<Array<T, N>> {
    using Tensor = Array<T, N>;
    NB_TYPE_CASTER(Tensor, make_caster<typename Tensor::General>::Name)

    bool from_python(handle source, uint8_t flags, cleanup_list* cleanup) noexcept {
        if (grendel::read_tensor(source.ptr(), value)) return true;
        make_caster<typename Tensor::General> general;
        if (!general.from_python(source, flags, cleanup)) return false;
        value = Tensor(std::move(general.value));
        return true;
    }
};

}  // namespace nanobind::detail
