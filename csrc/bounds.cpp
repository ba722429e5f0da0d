// Rows that may be visible after one more step of Adam whose gradient is not known. The formulas
// and their proof stand in render/bounds.py.
#include <algorithm>
#include <optional>
#include <vector>

#include <nanobind/stl/optional.h>

#include "kernels.h"
#include "layout.h"
#include "simd.h"

namespace grendel {
namespace {

constexpr int kChunk = 1024;  // rows
constexpr int kUsed = 6;      // columns that are read: means and scales
constexpr int kPlanes = 5;    // of a camera
// In place of a ratio m^2 / v that overflowed to infinity or not-a-number.
constexpr float kHuge = 1e30f;

// Columns of a plane row (render/bounds.py): normal, offset, slack, extent.
struct Plane {
    float normal[3], offset, slack, extent;
};
static_assert(sizeof(Plane) == 6 * sizeof(float));

struct Move {
    F16 rate[kUsed], carry2, fresh2, beta2, floor;
};

// What the planes need of sixteen rows.
struct Group {
    F16 mean[3], move[3], size, scale;
};

struct Rows {
    const float *values, *m, *v;  // [rows, 64]; m and v only where they are read
    const int32_t* chosen;        // [count], or null: all
    int64_t count;

    // Where sixteen of them lie; lanes behind the last repeat it.
    GRENDEL_INLINE void places(int64_t first, int64_t* place) const {
        for (int i = 0; i < 16; i++) {
            const int64_t at = std::min(first + i, count - 1);
            place[i] = kRowWidth * (chosen ? int64_t(chosen[at]) : at);
        }
    }
};

GRENDEL_INLINE void load_group(const float* base, const int64_t* place, F16* r) {
    for (int i = 0; i < 16; i++) r[i] = F16::load_first<kUsed>(base + place[i]);
    transpose16(r);
}

GRENDEL_INLINE F16 step_bound(const Move& move, int column, F16 m, F16 v) {
    F16 ratio = m * reciprocal_sqrt(fma(move.beta2, v, move.floor));
    // The second operand comes out where the first is not a number.
    F16 square = fma(move.carry2, min(ratio * ratio, kHuge), move.fresh2);
    return move.rate[column] * square * reciprocal_sqrt(square);
}

template <bool moments>
GRENDEL_INLINE void load(const Rows& rows, const Move& move, int64_t first, Group& g) {
    F16 value[16], m[16], v[16], farthest[kUsed];
    int64_t place[16];
    rows.places(first, place);
    load_group(rows.values, place, value);
    if (moments) {
        load_group(rows.m, place, m);
        load_group(rows.v, place, v);
    }
    for (int c = 0; c < kUsed; c++) farthest[c] = moments ? step_bound(move, c, m[c], v[c]) : move.rate[c];
    for (int i = 0; i < 3; i++) {
        g.mean[i] = value[kMeans + i];
        g.move[i] = farthest[kMeans + i];
        value[kScales + i] = value[kScales + i] + farthest[kScales + i];
    }
    g.size = abs(g.mean[0]) + abs(g.mean[1]) + abs(g.mean[2]);
    g.scale = exp(max(value[kScales], max(value[kScales + 1], value[kScales + 2])));
}

// Lanes that no move brings to the inner side of all planes. Not-a-number counts as inside.
GRENDEL_INLINE uint32_t outside(const Group& g, const Plane* planes) {
    M16 out = mask_from_bits(0);
    for (int i = 0; i < kPlanes; i++) {
        const Plane& p = planes[i];
        const float* n = p.normal;
        F16 side = fma(n[0], g.mean[0], fma(n[1], g.mean[1], fma(n[2], g.mean[2], p.offset)));
        F16 reach = fma(p.slack, g.size, F16(p.extent) * g.scale);
        for (int j = 0; j < 3; j++) reach = fma(std::fabs(n[j]), g.move[j], reach);
        out = out | (side + reach < F16(0.0f));
    }
    return out.bits();
}

// The lowest bits, one a byte.
GRENDEL_INLINE void spread(uint32_t bits, int lanes, uint8_t* out) {
    uint8_t bytes[16];
    for (int i = 0; i < 16; i++) bytes[i] = (bits >> i) & 1;
    if (lanes == 16) std::memcpy(out, bytes, 16);
    else std::memcpy(out, bytes, size_t(lanes));
}

template <bool moments>
void test_chunk(const Rows& rows, const Move& move, const Plane* planes, int views, int64_t begin,
                int64_t end, uint8_t* out, uint8_t* any) {
    for (int64_t first = begin; first < end; first += 16) {
        const int lanes = int(std::min<int64_t>(16, end - first));
        Group group;
        load<moments>(rows, move, first, group);
        uint32_t all = 0;
        for (int view = 0; view < views; view++) {
            const uint32_t bits = ~outside(group, planes + kPlanes * view);
            all |= bits;
            spread(bits, lanes, out + view * rows.count + first);
        }
        spread(all, lanes, any + first);
    }
}

template <bool moments>
void test_all(const Rows& rows, const Move& move, const std::vector<Plane>& planes, uint8_t* out, uint8_t* any,
              int threads) {
    const int views = int(planes.size()) / kPlanes;
    const int64_t chunks = (rows.count + kChunk - 1) / kChunk;
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t c = 0; c < chunks; c++)
        test_chunk<moments>(rows, move, planes.data(), views, c * kChunk,
                            std::min(rows.count, (c + 1) * kChunk), out, any);
}

// out [C, n] and any [n]: 1 where a row may be visible in a view, and in any of them. Without m and
// v the rates are the largest steps themselves.
void may_be_visible(Array2<const float> values, std::optional<Array2<const float>> m,
                    std::optional<Array2<const float>> v, std::optional<Array1<const int32_t>> chosen,
                    Array1<const float> rates, float carry2, float fresh2, float beta2, float floor,
                    Array2<const float> planes, Array2<uint8_t> out, Array1<uint8_t> any, int threads) {
    const int64_t total = int64_t(values.shape(0)), count = chosen ? int64_t(chosen->shape(0)) : total;
    const size_t views = out.shape(0);
    if (values.shape(1) != kRowWidth || m.has_value() != v.has_value())
        throw nb::value_error("may_be_visible: expected values [N, 64], and m and v or neither");
    for (const auto* array : {&m, &v})
        if (*array && ((*array)->shape(1) != kRowWidth || int64_t((*array)->shape(0)) != total))
            throw nb::value_error("may_be_visible: expected values, m and v of one shape [N, 64]");
    if (rates.shape(0) != kRowWidth) throw nb::value_error("may_be_visible: expected 64 rates");
    if (planes.shape(0) != kPlanes * views || planes.shape(1) * sizeof(float) != sizeof(Plane))
        throw nb::value_error("may_be_visible: expected 5 planes of 6 floats for each view");
    if (int64_t(out.shape(1)) != count || int64_t(any.shape(0)) != count || threads < 1)
        throw nb::value_error("may_be_visible: expected out [C, n], any [n] and at least one thread");
    Rows rows{values.data(), m ? m->data() : nullptr, v ? v->data() : nullptr,
              chosen ? chosen->data() : nullptr, count};
    for (int64_t i = 0; rows.chosen && i < count; i++)
        if (rows.chosen[i] < 0 || rows.chosen[i] >= total)
            throw nb::value_error("may_be_visible: a row is out of range");

    Move move;
    for (int i = 0; i < kUsed; i++) move.rate[i] = F16(rates.data()[i]);
    move.carry2 = F16(carry2), move.fresh2 = F16(fresh2);
    move.beta2 = F16(beta2), move.floor = F16(floor);
    std::vector<Plane> sides(kPlanes * views);
    std::copy_n(planes.data(), planes.size(), reinterpret_cast<float*>(sides.data()));
    uint8_t *to = out.data(), *to_any = any.data();

    nb::gil_scoped_release release;
    if (m) test_all<true>(rows, move, sides, to, to_any, threads);
    else test_all<false>(rows, move, sides, to, to_any, threads);
}

}  // namespace

void register_bounds(nb::module_& m) {
    m.def("may_be_visible", &may_be_visible, nb::arg("values").noconvert(), nb::arg("m").noconvert().none(),
          nb::arg("v").noconvert().none(), nb::arg("chosen").noconvert().none(), nb::arg("rates").noconvert(),
          nb::arg("carry2"), nb::arg("fresh2"), nb::arg("beta2"), nb::arg("floor"),
          nb::arg("planes").noconvert(), nb::arg("out").noconvert(), nb::arg("any").noconvert(),
          nb::arg("threads"));
}

}  // namespace grendel
