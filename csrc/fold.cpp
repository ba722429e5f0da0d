// From the sums that blending leaves, one for each splat and tile row, to the gradients of splats.
//
// A sum holds moments about the splat's centre: of q = dL/dlog(alpha) with 1, dx, dy, dx^2, dx dy,
// dy^2, then of the colours' and the depth's gradients. The order of addition is fixed: tile rows
// from top to bottom. Who holds a splat's first tile row may add its own rows up before it sends
// them; everyone else sends them one by one, and the owner goes on from there.
#include <algorithm>

#include "kernels.h"
#include "raster.h"

namespace grendel {
namespace {

constexpr int kSlotWidth = 16;

// How many rows each splat's sums take when they are sent: all in one where `first` is set.
int64_t count_sums(RenderState& s, Array1<const uint8_t> first, Array1<int32_t> counts) {
    const uint8_t* is_first = first.data();
    int32_t* count = counts.data();
    int64_t total = 0;
    for (int j = 0; j < s.splats; j++) {
        int own = int(s.slot_count[j]);
        count[j] = is_first[j] ? std::min(own, 1) : own;
        total += count[j];
    }
    return total;
}

GRENDEL_INLINE F16 add_rows(const float* slot, uint32_t rows) {
    F16 sum = 0.0f;
    for (uint32_t r = 0; r < rows; r++)
        sum = r ? sum + F16::load(slot + r * kSlotWidth) : F16::load(slot);
    return sum;
}

// The sums themselves, splat after splat, as count_sums counted them.
void pack_sums(RenderState& s, Array1<const int32_t> counts, Array2<float> out) {
    const int32_t* count = counts.data();
    float* to = out.data();
    for (int j = 0; j < s.splats; j++) {
        const float* slot = s.slots.data() + size_t(s.slot_begin[j]) * kSlotWidth;
        uint32_t own = s.slot_count[j];
        if (count[j] == 1) {
            add_rows(slot, own).store_first<kSplatWidth>(to);
            to += kSplatWidth;
        } else {
            for (uint32_t r = 0; r < own; r++, to += kSplatWidth)
                F16::load(slot + r * kSlotWidth).store_first<kSplatWidth>(to);
        }
    }
}

// Adds the sums of one strip to those of the strips above it. `splats` says whose they are.
void add_sums(Array1<const int32_t> splats, Array1<const int32_t> counts, Array2<const float> sums,
              Array1<uint8_t> begun, Array2<float> totals) {
    const int32_t *splat = splats.data(), *count = counts.data();
    const float* from = sums.data();
    for (size_t i = 0; i < splats.shape(0); i++) {
        uint8_t& started = begun.data()[splat[i]];
        float* total = totals.data() + int64_t(splat[i]) * kSplatWidth;
        for (int32_t r = 0; r < count[i]; r++, from += kSplatWidth) {
            F16 sum = F16::load_first<kSplatWidth>(from);
            if (started) sum = F16::load_first<kSplatWidth>(total) + sum;
            sum.store_first<kSplatWidth>(total);
            started = 1;
        }
    }
}

// Sixteen splats: their moments to the gradients of their columns. Both are transposed.
GRENDEL_INLINE void moments_to_gradients(const F16* m, const F16* s, F16* g) {
    F16 a = s[2], b = s[3], c = s[4], opacity = s[5], zero = 0.0f;
    g[0] = fma(a, m[1], b * m[2]);
    g[1] = fma(b, m[1], c * m[2]);
    g[2] = F16(-0.5f) * m[3];
    g[3] = zero - m[4];
    g[4] = F16(-0.5f) * m[5];
    g[5] = m[0] / max(opacity, 1e-12f);
    for (int i = 6; i < 10; i++) g[i] = m[i];
    for (int i = 10; i < 16; i++) g[i] = zero;
}

// Gradients of all splats; `load(j)` gives the moments of splat j.
template <typename Load>
void gradients_of(const Array2<const float>& splats, const Array2<float>& out, int threads, const Load& load) {
    int n = int(splats.shape(0));
    const float* values = splats.data();
    float* to = out.data();
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int first = 0; first < n; first += 16) {
        int lanes = std::min(16, n - first);
        F16 m[16], s[16], g[16];
        for (int i = 0; i < 16; i++) {
            int j = first + std::min(i, lanes - 1);
            m[i] = load(j);
            s[i] = F16::load_first<kSplatWidth>(values + int64_t(j) * kSplatWidth);
        }
        transpose16(m);
        transpose16(s);
        moments_to_gradients(m, s, g);
        transpose16(g);
        for (int i = 0; i < lanes; i++)
            g[i].store_first<kSplatWidth>(to + int64_t(first + i) * kSplatWidth);
    }
}

// Where all tile rows of a view were blended here.
void fold(RenderState& state, Array2<const float> splats, Array2<float> out, int threads) {
    gradients_of(splats, out, threads, [&](int j) {
        return add_rows(state.slots.data() + size_t(state.slot_begin[j]) * kSlotWidth, state.slot_count[j]);
    });
}

// Where strips were blended elsewhere: from the totals of add_sums.
void finish(Array2<const float> totals, Array2<const float> splats, Array2<float> out, int threads) {
    const float* total = totals.data();
    gradients_of(splats, out, threads, [&](int j) {
        return F16::load_first<kSplatWidth>(total + int64_t(j) * kSplatWidth);
    });
}

}  // namespace

void register_fold(nb::module_& m) {
    m.def("count_sums", &count_sums, nb::arg("state"), nb::arg("first").noconvert(),
          nb::arg("counts").noconvert());
    m.def("pack_sums", &pack_sums, nb::arg("state"), nb::arg("counts").noconvert(),
          nb::arg("out").noconvert());
    m.def("add_sums", &add_sums, nb::arg("splats").noconvert(), nb::arg("counts").noconvert(),
          nb::arg("sums").noconvert(), nb::arg("begun").noconvert(), nb::arg("totals").noconvert());
    m.def("fold", &fold, nb::arg("state"), nb::arg("splats").noconvert(), nb::arg("out").noconvert(),
          nb::arg("threads"));
    m.def("finish", &finish, nb::arg("totals").noconvert(), nb::arg("splats").noconvert(),
          nb::arg("out").noconvert(), nb::arg("threads"));
}

}  // namespace grendel
