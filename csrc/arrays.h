// Array types of the Python boundary: torch CPU tensors, taken without a copy.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <cstdint>

namespace nb = nanobind;

template <typename T, typename... Shape>
using Array = nb::ndarray<T, Shape..., nb::c_contig, nb::device::cpu>;

template <typename T> using Array1 = Array<T, nb::ndim<1>>;
template <typename T> using Array2 = Array<T, nb::ndim<2>>;
template <typename T> using Array3 = Array<T, nb::ndim<3>>;
