// Sets of rows, as ascending numbers, and sums over them.
#include <vector>

#include <nanobind/stl/vector.h>

#include "kernels.h"

namespace grendel {
namespace {

// Writes the rows, out of `total`, that are in any of the sets; gives their number.
int64_t unite(std::vector<Array1<const int32_t>> sets, int64_t total, Array1<int32_t> out) {
    std::vector<uint8_t> present(size_t(total), 0);
    for (auto& set : sets)
        for (size_t i = 0; i < set.shape(0); i++) {
            if (set.data()[i] < 0 || set.data()[i] >= total) throw nb::value_error("unite: a row is out of range");
            present[set.data()[i]] = 1;
        }
    int32_t* to = out.data();
    int64_t n = 0;
    for (int64_t row = 0; row < total && n < int64_t(out.shape(0)); row++) {
        to[n] = int32_t(row);
        n += present[row];
    }
    return n;
}

// Adds values of `rows` to those of `into_rows`, which holds all of them.
void add_rows(Array1<const int32_t> into_rows, Array2<float> into, Array1<const int32_t> rows,
              Array2<const float> values) {
    const int64_t width = int64_t(into.shape(1)), kept = int64_t(into_rows.shape(0));
    if (int64_t(values.shape(1)) != width || values.shape(0) != rows.shape(0) || int64_t(into.shape(0)) != kept)
        throw nb::value_error("add_rows: arrays differ in shape");
    const int32_t *target = into_rows.data(), *row = rows.data();
    const float* from = values.data();
    float* to = into.data();
    int64_t at = 0;
    for (size_t i = 0; i < rows.shape(0); i++, from += width) {
        while (at < kept && target[at] != row[i]) at++;
        if (at == kept) throw nb::value_error("add_rows: a row is not there");
        for (int64_t k = 0; k < width; k++) to[at * width + k] += from[k];
    }
}

}  // namespace

void register_rows(nb::module_& m) {
    m.def("unite", &unite, nb::arg("sets"), nb::arg("total"), nb::arg("out").noconvert());
    m.def("add_rows", &add_rows, nb::arg("into_rows").noconvert(), nb::arg("into").noconvert(),
          nb::arg("rows").noconvert(), nb::arg("values").noconvert());
}

}  // namespace grendel
