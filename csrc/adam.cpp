// Adam (Kingma and Ba 2015) over rows of 64 floats, dense and selective, by one formula.
#include <algorithm>
#include <cfloat>
#include <cmath>
#include <type_traits>

#include "kernels.h"
#include "layout.h"
#include "simd.h"

namespace grendel {
namespace {

constexpr int kBlocks = kRowWidth / kLanes;

// Moments below this are set to zero. A row that is out of sight for hundreds of steps would
// otherwise end in subnormal numbers, which some processors handle a hundred times slower; against
// eps they cannot be told from zero.
constexpr float kTiny = 0x1p-120f;

struct Step {
    F16 rate[kBlocks];  // learning rate over the bias correction of m, per column
    F16 fresh1, beta2, fresh2;  // 1 - beta1, beta2, 1 - beta2
    F16 root;  // 1 / sqrt(bias correction of v)
    F16 eps, scale;
};

// One row; lanes of the result stay set while every new value is finite. Every lane has this
// formula, so a result does not depend on the place of its row.
template <int blocks>
GRENDEL_INLINE M16 update_row(const Step& s, float* value, float* m, float* v, const float* g, M16 finite) {
    for (int b = 0; b < blocks; b++, value += kLanes, m += kLanes, v += kLanes, g += kLanes) {
        F16 gradient = F16::load(g) * s.scale;
        F16 mean = F16::load(m);
        mean = fma(s.fresh1, gradient - mean, mean);
        F16 square = fma(s.fresh2, gradient * gradient, s.beta2 * F16::load(v));
        mean = keep(F16(kTiny) <= abs(mean), mean);
        square = keep(F16(kTiny) <= square, square);
        mean.store(m);
        square.store(v);
        // Square roots and divisions would cost more than the memory traffic.
        F16 deviation = square * reciprocal_sqrt(max(square, kTiny));
        F16 direction = mean * reciprocal(fma(deviation, s.root, s.eps));
        F16 moved = fnma(s.rate[b], direction, F16::load(value));
        finite = finite & (abs(moved) <= F16(FLT_MAX));
        moved.store(value);
    }
    return finite;
}

struct Table {
    float *values, *m, *v;  // [rows, 64]
    int64_t rows;
    const float* gradients;  // [active, 64]
    const int32_t* active;   // ascending rows
    int64_t active_rows;
};

constexpr uint32_t kAllLanes = (1u << kLanes) - 1;

template <int blocks>
bool update_all(const Step& step, const Table& t, int threads) {
    alignas(64) static const float zeros[kRowWidth] = {};
    uint32_t lanes = kAllLanes;
#pragma omp parallel for num_threads(threads) schedule(static) reduction(& : lanes)
    for (int chunk = 0; chunk < threads; chunk++) {
        const int64_t from = t.rows * chunk / threads, until = t.rows * (chunk + 1) / threads;
        const int32_t* end = t.active + t.active_rows;
        const int32_t* next = std::lower_bound(t.active, end, from);
        M16 finite = mask_from_bits(kAllLanes);
        for (int64_t row = from; row < until; row++) {
            const float* g = zeros;
            if (next < end && *next == row) g = t.gradients + kRowWidth * (next++ - t.active);
            const int64_t at = kRowWidth * row;
            finite = update_row<blocks>(step, t.values + at, t.m + at, t.v + at, g, finite);
        }
        lanes &= finite.bits();
    }
    return lanes == kAllLanes;
}

template <int blocks>
bool update_active(const Step& step, const Table& t, int threads) {
    uint32_t lanes = kAllLanes;
#pragma omp parallel for num_threads(threads) schedule(static) reduction(& : lanes)
    for (int64_t i = 0; i < t.active_rows; i++) {
        const int64_t at = kRowWidth * int64_t(t.active[i]);
        const float* g = t.gradients + kRowWidth * i;
        M16 finite = mask_from_bits(kAllLanes);
        lanes &= update_row<blocks>(step, t.values + at, t.m + at, t.v + at, g, finite).bits();
    }
    return lanes == kAllLanes;
}

// Whether every value that was written is finite.
bool adam_step(Array2<float> values, Array2<float> m, Array2<float> v,
               Array2<const float> gradients, Array1<const int32_t> rows, Array1<const float> rates,
               double beta1, double beta2, double eps, double correction1, double correction2,
               double gradient_scale, int blocks, bool dense, int threads) {
    if (gradients.shape(1) != kRowWidth || gradients.shape(0) != rows.shape(0))
        throw nb::value_error("adam_step: expected gradients [A, 64] and rows [A]");
    if (rates.shape(0) != kRowWidth) throw nb::value_error("adam_step: expected 64 rates");
    if (blocks < 1 || blocks > kBlocks || threads < 1)
        throw nb::value_error("adam_step: expected 1 to 4 blocks and at least one thread");
    for (const auto& array : {values, m, v})
        if (array.shape(1) != kRowWidth || array.shape(0) != values.shape(0))
            throw nb::value_error("adam_step: expected values, m and v of one shape [N, 64]");
    Table table{values.data(), m.data(), v.data(), int64_t(values.shape(0)),
                gradients.data(), rows.data(), int64_t(rows.shape(0))};
    for (int64_t i = 0; i < table.active_rows; i++)
        if (table.active[i] < (i ? table.active[i - 1] + 1 : 0) || table.active[i] >= table.rows)
            throw nb::value_error("adam_step: rows must ascend and lie in the table");

    Step step;
    for (int b = 0; b < kBlocks; b++) {
        float scaled[kLanes];
        for (int i = 0; i < kLanes; i++)
            scaled[i] = float(double(rates.data()[kLanes * b + i]) / correction1);
        step.rate[b] = F16::load(scaled);
    }
    step.fresh1 = float(1 - beta1);
    step.beta2 = float(beta2);
    step.fresh2 = float(1 - beta2);
    step.root = float(1.0 / std::sqrt(correction2));
    step.eps = float(eps);
    step.scale = float(gradient_scale);

    nb::gil_scoped_release release;
    auto run = [&](auto count) {
        return dense ? update_all<count>(step, table, threads) : update_active<count>(step, table, threads);
    };
    if (blocks == 1) return run(std::integral_constant<int, 1>{});
    if (blocks == 2) return run(std::integral_constant<int, 2>{});
    if (blocks == 3) return run(std::integral_constant<int, 3>{});
    return run(std::integral_constant<int, 4>{});
}

// Place (row * 64 + column) of the first value that is infinite or not a number among the first
// columns of the rows, or -1.
int64_t first_nonfinite(Array2<const float> values, int columns, int threads) {
    if (values.shape(1) != kRowWidth || columns < 0 || columns > kRowWidth || columns % kLanes || threads < 1)
        throw nb::value_error("first_nonfinite: expected [n, 64] and 0, 16, .. 64 columns");
    const float* value = values.data();
    const int64_t n = int64_t(values.shape(0));
    const F16 largest(FLT_MAX);
    int64_t first = n;
#pragma omp parallel for num_threads(threads) schedule(static) reduction(min : first)
    for (int64_t row = 0; row < n; row++) {
        M16 finite = mask_from_bits(kAllLanes);
        for (int column = 0; column < columns; column += kLanes)
            finite = finite & (abs(F16::load(value + kRowWidth * row + column)) <= largest);
        if (finite.bits() != kAllLanes) first = std::min(first, row);
    }
    if (first == n) return -1;
    int64_t at = kRowWidth * first;
    while (std::isfinite(value[at])) at++;
    return at;
}

}  // namespace

void register_adam(nb::module_& m) {
    m.def("adam_step", &adam_step, nb::arg("values").noconvert(), nb::arg("m").noconvert(),
          nb::arg("v").noconvert(), nb::arg("gradients").noconvert(), nb::arg("rows").noconvert(),
          nb::arg("rates").noconvert(), nb::arg("beta1"), nb::arg("beta2"), nb::arg("eps"),
          nb::arg("correction1"), nb::arg("correction2"), nb::arg("gradient_scale"),
          nb::arg("blocks"), nb::arg("dense"), nb::arg("threads"));
    m.def("first_nonfinite", &first_nonfinite, nb::arg("values").noconvert(), nb::arg("columns"),
          nb::arg("threads"));
}

}  // namespace grendel
