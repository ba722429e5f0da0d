// Cuts the tile rows of a unit, laid end to end, into contiguous shares of about equal cost.
#include <algorithm>
#include <vector>

#include <nanobind/stl/vector.h>

#include "kernels.h"

namespace grendel {
namespace {

struct Tape {
    const double* rows;      // cost of each row, > 0
    const uint8_t* borders;  // whether a view begins at each row; one more for the end
    int64_t count;
    double halo;  // share of a row's cost that a cut beside it adds to the other side

    double above(int64_t first) const { return borders[first] ? 0.0 : halo * rows[first - 1]; }
    double below(int64_t last) const { return borders[last] ? 0.0 : halo * rows[last]; }

    // Ends of greedy shares whose costs stay within the limit where they can; more than `most`
    // shares are not looked for.
    std::vector<int64_t> ends(double limit, size_t most) const {
        std::vector<int64_t> found;
        for (int64_t first = 0; first < count && found.size() <= most;) {
            double cost = above(first) + rows[first];
            int64_t last = first + 1, best = last;
            for (; last < count && cost + rows[last] <= limit; last++) {
                cost += rows[last];
                if (cost + below(last + 1) <= limit) best = last + 1;
            }
            found.push_back(first = best);
        }
        return found;
    }
};

// Ends of at most `ranks` shares; the costliest is as cheap as a cut can make it, to 1 in 1000.
std::vector<int64_t> cut(Array1<const double> rows, Array1<const uint8_t> borders, double halo, int64_t ranks) {
    Tape tape{rows.data(), borders.data(), int64_t(rows.shape(0)), halo};
    if (int64_t(borders.shape(0)) != tape.count + 1) throw nb::value_error("cut: borders differ in shape");
    double high = 0, low = 0;
    for (int64_t i = 0; i < tape.count; i++) high += rows.data()[i], low = std::max(low, rows.data()[i]);
    low = std::max(low, high / double(ranks));
    high *= 1 + halo;  // a share of everything fits for sure
    auto best = tape.ends(high, ranks);
    while (high - low > 1e-3 * high) {
        double middle = 0.5 * (low + high);
        auto attempt = tape.ends(middle, ranks);
        if (attempt.size() <= size_t(ranks)) {
            best = attempt;
            high = middle;
        } else {
            low = middle;
        }
    }
    return best;
}

}  // namespace

void register_cut(nb::module_& m) {
    m.def("cut", &cut, nb::arg("rows").noconvert(), nb::arg("borders").noconvert(), nb::arg("halo"),
          nb::arg("ranks"));
}

}  // namespace grendel
