// Densification: the statistics that decide it, and the children of a split.
#include <algorithm>
#include <cmath>

#include "kernels.h"
#include "layout.h"

namespace grendel {
namespace {

constexpr double kTwoPi = 6.283185307179586476925286766559;

// A stream of random numbers that is named by its key, so that a draw about a row does not depend
// on where the row is stored or on who draws first.
struct Stream {
    uint64_t state;

    Stream(uint64_t seed, uint64_t event, uint64_t id, uint64_t k)
        : state(add(add(add(add(0, seed), event), id), k)) {}

    static uint64_t add(uint64_t h, uint64_t x) { return mix64(h + 0x9e3779b97f4a7c15ull + mix64(x)); }

    double uniform() {  // in (0, 1)
        state += 0x9e3779b97f4a7c15ull;
        return (double(mix64(state) >> 11) + 0.5) * 0x1p-53;
    }

    double normal() {  // Box and Muller, one of the pair
        double radius = std::sqrt(-2.0 * std::log(uniform()));
        return radius * std::cos(kTwoPi * uniform());
    }
};

// One child of a split: a copy of its parent, moved by a draw from the parent's own density and
// 1.6 times smaller. All in double, one row at a time.
void split_row(const float* parent, Stream stream, float* child) {
    std::copy(parent, parent + kRowWidth, child);
    double local[3];
    for (int i = 0; i < 3; i++) local[i] = std::exp(double(parent[kScales + i])) * stream.normal();

    double w = parent[kQuats], x = parent[kQuats + 1], y = parent[kQuats + 2], z = parent[kQuats + 3];
    double norm = std::sqrt(w * w + x * x + y * y + z * z);
    if (norm > 0) w /= norm, x /= norm, y /= norm, z /= norm;
    else w = 1;
    const double rotation[3][3] = {
        {1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)},
        {2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)},
        {2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)}};
    for (int i = 0; i < 3; i++) {
        const double* r = rotation[i];
        double offset = r[0] * local[0] + r[1] * local[1] + r[2] * local[2];
        child[kMeans + i] = float(double(parent[kMeans + i]) + offset);
        child[kScales + i] = float(double(parent[kScales + i]) - std::log(1.6));
    }
}

void split_children(Array2<float> parents, Array1<int64_t> ids,
                    Array2<float> children, uint64_t seed, uint64_t event,
                    uint64_t k, int threads) {
    const int64_t rows = int64_t(ids.shape(0));
    if (int64_t(parents.shape(0)) != rows || int64_t(children.shape(0)) != rows ||
        parents.shape(1) != kRowWidth || children.shape(1) != kRowWidth)
        throw nb::value_error("split_children: parents, ids and children differ in shape");
    const float* from = parents.data();
    const int64_t* id = ids.data();
    float* to = children.data();
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t i = 0; i < rows; i++)
        split_row(from + i * kRowWidth, Stream(seed, event, uint64_t(id[i]), k), to + i * kRowWidth);
}

// Adds one view to the statistics of its visible rows: the norm of the gradient of the mean in
// normalised device coordinates, in units of `unit`, and one more view.
void accumulate_statistics(Array1<const int32_t> rows, Array2<const float> gradients, int width,
                           int height, double unit, Array1<int64_t> norms, Array1<int32_t> counts,
                           int threads) {
    const int64_t splats = int64_t(rows.shape(0)), primitives = int64_t(norms.shape(0));
    if (int64_t(gradients.shape(0)) != splats || gradients.shape(1) != kSplatWidth ||
        int64_t(counts.shape(0)) != primitives)
        throw nb::value_error("accumulate_statistics: arrays differ in shape");
    const int32_t* row = rows.data();
    if (splats > 0 && (row[0] < 0 || row[splats - 1] >= primitives))  // rows ascend
        throw nb::value_error("accumulate_statistics: a row is out of range");
    const float* gradient = gradients.data();
    const double half_width = 0.5 * width, half_height = 0.5 * height;
    const double most = 0x1p52;  // so that thousands of views cannot overflow
    int64_t* norm = norms.data();
    int32_t* count = counts.data();
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t i = 0; i < splats; i++) {
        double gx = half_width * gradient[i * kSplatWidth], gy = half_height * gradient[i * kSplatWidth + 1];
        norm[row[i]] += int64_t(std::min(std::sqrt(gx * gx + gy * gy) / unit + 0.5, most));
        count[row[i]] += 1;
    }
}

}  // namespace

void register_densify(nb::module_& m) {
    m.def("split_children", &split_children, nb::arg("parents").noconvert(),
          nb::arg("ids").noconvert(), nb::arg("children").noconvert(), nb::arg("seed"),
          nb::arg("event"), nb::arg("k"), nb::arg("threads"));
    m.def("accumulate_statistics", &accumulate_statistics, nb::arg("rows").noconvert(),
          nb::arg("gradients").noconvert(), nb::arg("width"), nb::arg("height"), nb::arg("unit"),
          nb::arg("norms").noconvert(), nb::arg("counts").noconvert(), nb::arg("threads"));
}

}  // namespace grendel
