// The planner: the relative locality graph of views, and orders of views drawn from it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "arrays.h"

namespace grendel {

// A symmetric graph in compressed rows; neighbours ascend within a row. It keeps its arrays alive.
class LocalityGraph {
public:
    // Checks the arrays, so that no index can leave them. Throws nb::value_error.
    LocalityGraph(Array1<const int64_t> starts, Array1<const int32_t> neighbours,
                  Array1<const float> weights, Array1<const int32_t> sizes,
                  Array1<const bool> unknown, float unknown_weight);

    int64_t views() const { return int64_t(starts_.shape(0)) - 1; }
    int64_t start(int64_t view) const { return starts_.data()[view]; }
    int32_t neighbour(int64_t edge) const { return neighbours_.data()[edge]; }
    double edge_weight(int64_t edge) const { return double(weights_.data()[edge]); }
    int32_t size(int32_t view) const { return sizes_.data()[view]; }  // number of its items
    bool unknown(int32_t view) const { return unknown_.data()[view]; }
    double unknown_weight() const { return unknown_weight_; }  // stands for edges of unknown views

    // A view is wholly coupled to itself: it may come last in one epoch and first in the next.
    double weight(int32_t u, int32_t v) const {
        if (u == v) return 1.0;
        if (unknown(u) || unknown(v)) return unknown_weight_;
        const int32_t *first = neighbours_.data() + start(u), *last = neighbours_.data() + start(u + 1);
        const int32_t* at = std::lower_bound(first, last, v);
        return at != last && *at == v ? edge_weight(at - neighbours_.data()) : 0.0;
    }

private:
    Array1<const int64_t> starts_;
    Array1<const int32_t> neighbours_;
    Array1<const float> weights_;
    Array1<const int32_t> sizes_;
    Array1<const bool> unknown_;
    double unknown_weight_;
};

// A numpy array that owns a vector's memory.
template <typename T>
nb::ndarray<nb::numpy, T, nb::ndim<1>> to_numpy(std::vector<T>&& values) {
    auto* kept = new std::vector<T>(std::move(values));
    nb::capsule owner(kept, [](void* p) noexcept { delete static_cast<std::vector<T>*>(p); });
    return nb::ndarray<nb::numpy, T, nb::ndim<1>>(kept->data(), {kept->size()}, owner);
}

void register_overlap(nb::module_& m);
void register_order(nb::module_& m);

}  // namespace grendel
