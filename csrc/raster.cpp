// Pixels of a rectangle from splats, and the gradient of the splats from that of the pixels.
//
// SIMD runs over the 16 pixels of a tile row, so one splat has one dx vector in all rows of a tile;
// alpha steps from row to row by a recurrence: alpha(dy + 1) = alpha(dy) rho(dy) and
// rho(dy + 1) = rho(dy) kappa. Both passes share this arithmetic to the bit, so they take the same
// decisions. Backward runs front to back, too: with R = what lies behind a splat, weighted by the
// pixel's gradient, dL/dalpha = (T(1 - alpha) g - R) / (1 - alpha), where g is the splat's colour
// weighted alike (Kerbl et al. 2023, section 6, rearranged).
#include <algorithm>
#include <nanobind/stl/optional.h>
#include <optional>

#include "kernels.h"
#include "raster.h"

namespace grendel {
namespace {

constexpr float kUnderflow = -100.0f;  // log2 alpha at which a recurrence starts to lose bits
constexpr float kLn2 = 0.69314718055994531f;

struct TileRows {
    F16 transmittance[kTile];
};

const F16& lane_numbers() {
    alignas(64) static const float n[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    static const F16 lanes = F16::load(n);
    return lanes;
}

// Alpha of one splat down the rows of a tile. kDirect evaluates each row afresh.
template <bool kDirect>
struct Alpha {
    F16 value, rho, kappa, dy, base, slope, yy;

    GRENDEL_INLINE void next() {
        dy = dy + F16(1.0f);
        if (kDirect) {
            value = exp2(fma(dy, fma(yy, dy, slope), base));
        } else {
            value = value * rho;
            rho = rho * kappa;
        }
    }
};

// Calls body(alpha) with the recurrence where it is safe, with direct evaluation where it is not.
template <typename Body>
GRENDEL_INLINE void with_alpha(const PixelSplat& p, F16 dx, float first_dy, const Body& body) {
    F16 base = fma(F16(p.xx) * dx, dx, p.log_opacity), slope = F16(p.xy) * dx;
    F16 dy = first_dy, yy = p.yy;
    F16 start = fma(dy, fma(yy, dy, slope), base);
    M16 low = start < F16(kUnderflow);
    if (low.any()) {
        // Only lanes that may become visible further down matter: their maximum over dy.
        F16 peak = fnma(slope * slope, F16(0.25f / p.yy), base);
        if ((low & (peak > F16(-9.0f))).any()) {
            body(Alpha<true>{exp2(start), 0.0f, 0.0f, dy, base, slope, yy});
            return;
        }
    }
    F16 rho = exp2(fma(yy, dy + dy + F16(1.0f), slope));
    body(Alpha<false>{exp2(start), rho, p.kappa, dy, base, slope, yy});
}

// What a splat does to 16 pixels. Finished pixels carry a negative transmittance.
struct Blend {
    F16 alpha, next;  // next: transmittance behind the splat
    M16 live, clamped;

    GRENDEL_INLINE Blend(F16 raw, F16 t, const Constants& k) {
        alpha = min(raw, k.alpha_max);
        next = fnma(alpha, t, t);
        M16 seen = alpha >= F16(k.alpha_min);
        M16 goes_on = next > F16(k.transmittance_min);
        live = seen & goes_on;
        stopped = seen & ~goes_on;
    }
    GRENDEL_INLINE F16 transmittance(F16 t) const { return negate_abs(stopped, select(live, next, t)); }

private:
    M16 stopped;
};

struct Tile {
    int x, y;                    // its first pixel
    int column0, column1;        // columns inside the rectangle, relative to the tile
    int row0, row1;

    Tile(const Window& w, int index) {
        x = (w.tile_x0 + index % w.tiles_x) * kTile;
        y = (w.tile_y0 + index / w.tiles_x) * kTile;
        column0 = std::max(w.x0 - x, 0), column1 = std::min(w.x0 + w.width - x, kTile);
        row0 = std::max(w.y0 - y, 0), row1 = std::min(w.y0 + w.height - y, kTile);
    }
    M16 columns() const { return mask_from_bits(((1u << column1) - 1u) & ~((1u << column0) - 1u)); }
};

// Rows of a plane of the rectangle that lie in a tile.
GRENDEL_INLINE F16 load_row(const float* plane, const Window& w, const Tile& t, int r) {
    const float* p = plane + int64_t(t.y + r - w.y0) * w.width + (t.x - w.x0);
    if (t.column0 == 0 && t.column1 == kTile) return F16::load(p);
    alignas(64) float buffer[16] = {};
    for (int i = t.column0; i < t.column1; i++) buffer[i] = p[i];
    return F16::load(buffer);
}
GRENDEL_INLINE void store_row(F16 v, float* plane, const Window& w, const Tile& t, int r) {
    float* p = plane + int64_t(t.y + r - w.y0) * w.width + (t.x - w.x0);
    if (t.column0 == 0 && t.column1 == kTile) return v.store(p);
    alignas(64) float buffer[16];
    v.store(buffer);
    for (int i = t.column0; i < t.column1; i++) p[i] = buffer[i];
}

// The splat of a pair; that of a later pair is on its way from memory.
GRENDEL_INLINE const PixelSplat& splat_of(RenderState& s, const Pair* pairs, uint32_t i, uint32_t end) {
    constexpr uint32_t kAhead = 6;
    if (i + kAhead < end) __builtin_prefetch(&s.pixel_splats[pairs[i + kAhead].splat]);
    return s.pixel_splats[pairs[i].splat];
}

struct Planes {
    float *color, *alpha, *depth;  // depth may be null
};

template <bool kDepth>
void forward_tile(RenderState& s, int index, const Constants& k, const float* background, const Planes& out) {
    const Window& w = s.window;
    Tile tile(w, index);
    F16 t[kTile], c[3][kTile], d[kTile];
    F16 outside = -1.0f, zero = 0.0f;
    F16 start = select(tile.columns(), 1.0f, outside);
    for (int r = 0; r < kTile; r++) {
        t[r] = r >= tile.row0 && r < tile.row1 ? start : outside;
        c[0][r] = c[1][r] = c[2][r] = zero;
        if (kDepth) d[r] = zero;
    }
    const Pair* pairs = s.pairs.data();
    uint32_t begin = s.tile_begin[size_t(index)], end = s.tile_begin[size_t(index) + 1], i = begin;
    F16 pixel_x = F16(float(tile.x) + 0.5f) + lane_numbers();
    for (; i < end; i++) {
        if ((i - begin) % 16 == 15) {
            M16 alive = t[0] > zero;
            for (int r = 1; r < kTile; r++) alive = alive | (t[r] > zero);
            if (!alive.any()) break;
        }
        const PixelSplat& p = splat_of(s, pairs, i, end);
        int r0 = pairs[i].first_row, r1 = pairs[i].last_row;
        F16 red = p.color[0], green = p.color[1], blue = p.color[2];
        with_alpha(p, pixel_x - F16(p.x), float(tile.y + r0) + 0.5f - p.y, [&](auto a) {
            for (int r = r0; r <= r1; r++) {
                Blend blend(a.value, t[r], k);
                F16 weight = keep(blend.live, blend.alpha * t[r]);
                c[0][r] = fma(weight, red, c[0][r]);
                c[1][r] = fma(weight, green, c[1][r]);
                c[2][r] = fma(weight, blue, c[2][r]);
                if (kDepth) d[r] = fma(weight, p.depth, d[r]);
                t[r] = blend.transmittance(t[r]);
                a.next();
            }
        });
    }
    s.processed[size_t(index)] = i - begin;
    float* saved = s.transmittance.data() + size_t(index) * kTile * kTile;
    int64_t plane = int64_t(w.width) * w.height;
    for (int r = 0; r < kTile; r++) {
        t[r].store(saved + r * kTile);
        if (r < tile.row0 || r >= tile.row1) continue;
        F16 rest = abs(t[r]);
        for (int j = 0; j < 3; j++)
            store_row(fma(rest, background[j], c[j][r]), out.color + j * plane, w, tile, r);
        store_row(F16(1.0f) - rest, out.alpha, w, tile, r);
        if (kDepth) store_row(d[r], out.depth, w, tile, r);
    }
}

struct PixelGradients {
    const float *color_value, *depth_value;  // as rendered
    const float *color, *alpha, *depth;      // alpha and depth may be null
};

template <bool kDepth>
void backward_tile(RenderState& s, int index, const Constants& k, const PixelGradients& in) {
    const Window& w = s.window;
    Tile tile(w, index);
    F16 t[kTile], g[3][kTile], gd[kTile], behind[kTile];
    F16 outside = -1.0f, zero = 0.0f;
    F16 start = select(tile.columns(), 1.0f, outside);
    const float* saved = s.transmittance.data() + size_t(index) * kTile * kTile;
    int64_t plane = int64_t(w.width) * w.height;
    for (int r = 0; r < kTile; r++) {
        bool inside = r >= tile.row0 && r < tile.row1;
        t[r] = inside ? start : outside;
        g[0][r] = g[1][r] = g[2][r] = gd[r] = behind[r] = zero;
        if (!inside) continue;
        for (int j = 0; j < 3; j++) {
            g[j][r] = load_row(in.color + j * plane, w, tile, r);
            behind[r] = fma(g[j][r], load_row(in.color_value + j * plane, w, tile, r), behind[r]);
        }
        if (in.alpha) behind[r] = fnma(abs(F16::load(saved + r * kTile)), load_row(in.alpha, w, tile, r), behind[r]);
        if (kDepth) {
            gd[r] = load_row(in.depth, w, tile, r);
            behind[r] = fma(gd[r], load_row(in.depth_value, w, tile, r), behind[r]);
        }
    }
    const Pair* pairs = s.pairs.data();
    uint32_t begin = s.tile_begin[size_t(index)], end = s.tile_begin[size_t(index) + 1];
    uint32_t last = begin + s.processed[size_t(index)];
    F16 pixel_x = F16(float(tile.x) + 0.5f) + lane_numbers();
    for (uint32_t i = begin; i < last; i++) {
        const PixelSplat& p = splat_of(s, pairs, i, last);
        int r0 = pairs[i].first_row, r1 = pairs[i].last_row;
        F16 red = p.color[0], green = p.color[1], blue = p.color[2];
        F16 dx = pixel_x - F16(p.x);
        F16 q = zero, qy = zero, qyy = zero, sr = zero, sg = zero, sb = zero, sd = zero;
        with_alpha(p, dx, float(tile.y + r0) + 0.5f - p.y, [&](auto a) {
            for (int r = r0; r <= r1; r++) {
                Blend blend(a.value, t[r], k);
                F16 weight = keep(blend.live, blend.alpha * t[r]);
                F16 own = fma(g[0][r], red, fma(g[1][r], green, g[2][r] * blue));
                if (kDepth) own = fma(gd[r], p.depth, own);
                behind[r] = fnma(weight, own, behind[r]);
                sr = fma(weight, g[0][r], sr);
                sg = fma(weight, g[1][r], sg);
                sb = fma(weight, g[2][r], sb);
                if (kDepth) sd = fma(weight, gd[r], sd);
                // dL/dlog(alpha); none where alpha is clamped.
                F16 d_alpha = fma(blend.next, own, F16(0.0f) - behind[r]) * reciprocal(F16(1.0f) - blend.alpha);
                F16 v = keep(blend.live & (a.value <= F16(k.alpha_max)), d_alpha * blend.alpha);
                F16 vy = v * a.dy;
                q = q + v;
                qy = qy + vy;
                qyy = fma(vy, a.dy, qyy);
                t[r] = blend.transmittance(t[r]);
                a.next();
            }
        });
        F16 qx = q * dx;
        F16 sums[16] = {q, qx, qy, qx * dx, qy * dx, qyy, sr, sg, sb, sd, zero, zero, zero, zero, zero, zero};
        F16 total = sum_each(sums);
        float* slot = s.slots.data() + size_t(pairs[i].slot & ~kFirst) * 16;
        if (!(pairs[i].slot & kFirst)) total = F16::load(slot) + total;
        total.store(slot);
    }
    for (uint32_t i = last; i < end; i++)
        if (pairs[i].slot & kFirst) zero.store(s.slots.data() + size_t(pairs[i].slot & ~kFirst) * 16);
}

void bin(RenderState& s, Array2<const float> splats, Array1<const int32_t> keys, int image_height, int x0, int y0, int width, int height, const Constants& k, int threads) {
    Window& w = s.window;
    w = {x0, y0, width, height, x0 / kTile, y0 / kTile, 0, 0};
    w.tiles_x = (x0 + width + kTile - 1) / kTile - w.tile_x0;
    w.tiles_y = (y0 + height + kTile - 1) / kTile - w.tile_y0;
    bin_splats(s, splats.data(), keys.data(), int(splats.shape(0)), image_height, k, threads);
}

void blend(RenderState& s, const Constants& k, Array1<const float> background, Array3<float> color,
           Array2<float> alpha, std::optional<Array2<float>> depth, int threads) {
    int tiles = s.window.tiles();
    s.processed.ensure(tiles);
    s.transmittance.ensure(size_t(tiles) * kTile * kTile);
    Planes out{color.data(), alpha.data(), depth ? depth->data() : nullptr};
    const float* bg = background.data();
#pragma omp parallel for num_threads(threads) schedule(dynamic, 4)
    for (int i = 0; i < tiles; i++) {
        if (out.depth) forward_tile<true>(s, i, k, bg, out);
        else forward_tile<false>(s, i, k, bg, out);
    }
}

void blend_backward(RenderState& s, const Constants& k, Array3<const float> color,
                    std::optional<Array2<const float>> depth, Array3<const float> grad_color,
                    std::optional<Array2<const float>> grad_alpha,
                    std::optional<Array2<const float>> grad_depth, int threads) {
    s.slots.ensure(s.slots_used * 16);
    PixelGradients in{color.data(), depth ? depth->data() : nullptr, grad_color.data(),
                      grad_alpha ? grad_alpha->data() : nullptr,
                      grad_depth ? grad_depth->data() : nullptr};
    const Window& w = s.window;
    // A tile row is the atom of a sum: one thread goes through its tiles from left to right.
#pragma omp parallel for num_threads(threads) schedule(dynamic, 1)
    for (int row = 0; row < w.tiles_y; row++) {
        for (int i = row * w.tiles_x; i < (row + 1) * w.tiles_x; i++) {
            if (in.depth) backward_tile<true>(s, i, k, in);
            else backward_tile<false>(s, i, k, in);
        }
    }
}

// Rows of 16 pixels that both passes evaluate, for each tile row: the cost of blending it.
void tile_row_costs(RenderState& s, Array1<int64_t> out) {
    const Window& w = s.window;
    for (int row = 0; row < w.tiles_y; row++) {
        int64_t cost = 0;
        for (int tile = row * w.tiles_x; tile < (row + 1) * w.tiles_x; tile++)
            for (uint32_t i = 0; i < s.processed[size_t(tile)]; i++) {
                const Pair& pair = s.pairs[s.tile_begin[size_t(tile)] + i];
                cost += pair.last_row - pair.first_row + 1;
            }
        out.data()[row] = cost;
    }
}

}  // namespace

void register_raster(nb::module_& m) {
    nb::class_<RenderState>(m, "RenderState")
        .def(nb::init<>())
        .def_ro("pairs", &RenderState::pairs_used)
        .def_ro("slots", &RenderState::slots_used)
        .def_prop_ro("bytes", &RenderState::bytes);
    m.def("row_ranges",
          [](Array2<const float> splats, const Constants& k, Array2<int32_t> out, int threads) {
              row_ranges(splats.data(), int(splats.shape(0)), k, out.data(), threads);
          },
          nb::arg("splats").noconvert(), nb::arg("constants"), nb::arg("out").noconvert(),
          nb::arg("threads"));
    m.def("tile_row_costs", &tile_row_costs, nb::arg("state"), nb::arg("out").noconvert());
    m.def("bin", &bin, nb::arg("state"), nb::arg("splats").noconvert(), nb::arg("keys").noconvert(),
          nb::arg("image_height"), nb::arg("x0"), nb::arg("y0"),
          nb::arg("width"), nb::arg("height"), nb::arg("constants"), nb::arg("threads"));
    m.def("blend", &blend, nb::arg("state"), nb::arg("constants"), nb::arg("background").noconvert(),
          nb::arg("color").noconvert(), nb::arg("alpha").noconvert(),
          nb::arg("depth").noconvert().none(), nb::arg("threads"));
    m.def("blend_backward", &blend_backward, nb::arg("state"), nb::arg("constants"),
          nb::arg("color").noconvert(), nb::arg("depth").noconvert().none(),
          nb::arg("grad_color").noconvert(), nb::arg("grad_alpha").noconvert().none(),
          nb::arg("grad_depth").noconvert().none(), nb::arg("threads"));
}

}  // namespace grendel
