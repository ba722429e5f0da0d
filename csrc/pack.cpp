// What an exchange of splats picks and copies.
#include <cstring>

#include "kernels.h"
#include "layout.h"

namespace grendel {
namespace {

// Positions of the splats whose pixel rows [first, last] reach into [start, stop); gives their
// number. `out` has room for all.
int64_t touching(Array2<const int32_t> ranges, int start, int stop, Array1<int32_t> out) {
    const int32_t* range = ranges.data();
    int32_t* to = out.data();
    int64_t n = 0;
    for (int64_t i = 0; i < int64_t(ranges.shape(0)); i++) {
        to[n] = int32_t(i);
        n += range[2 * i] < stop && range[2 * i + 1] >= start;
    }
    return n;
}

// Splats at the given positions, behind one another: their columns, then their keys.
void take_splats(Array2<const float> values, Array1<const int32_t> keys,
                 Array1<const int32_t> positions, Array1<float> out) {
    const int64_t n = int64_t(positions.shape(0));
    if (int64_t(out.shape(0)) != n * (kSplatWidth + 1))
        throw nb::value_error("take_splats: the output has another size");
    const int32_t *at = positions.data(), *key = keys.data();
    const float* from = values.data();
    float* to = out.data();
    for (int64_t i = 0; i < n; i++)
        std::memcpy(to + i * kSplatWidth, from + int64_t(at[i]) * kSplatWidth, sizeof(float) * kSplatWidth);
    for (int64_t i = 0; i < n; i++)
        std::memcpy(to + n * kSplatWidth + i, key + at[i], sizeof(float));
}

}  // namespace

void register_pack(nb::module_& m) {
    m.def("touching", &touching, nb::arg("ranges").noconvert(), nb::arg("start"), nb::arg("stop"),
          nb::arg("out").noconvert());
    m.def("take_splats", &take_splats, nb::arg("values").noconvert(), nb::arg("keys").noconvert(),
          nb::arg("positions").noconvert(), nb::arg("out").noconvert());
}

}  // namespace grendel
