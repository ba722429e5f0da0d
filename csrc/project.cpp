// Primitives to splats and back: projection, spherical harmonics, and their gradients.
//
// Sixteen rows are loaded, transposed and computed side by side; a last, ragged group repeats its
// last row. So the bits of a row never depend on where it stands.
#include <algorithm>

#include "buffer.h"
#include "geometry.h"
#include "kernels.h"
#include "sh.h"

namespace grendel {
namespace {

constexpr int kChunk = 1024;  // rows; fixed, so that chunks do not depend on the thread count

// Columns of a scratch row behind the splat's own.
enum { kKey = 10, kRadiusX = 11, kRadiusY = 12, kRow = 13 };

// Rows that are needed soon; they lie scattered, so no hardware foresees them.
GRENDEL_INLINE void prefetch_row(const float* base, int32_t row, int blocks) {
    for (int b = 0; b < blocks; b++) __builtin_prefetch(base + int64_t(row) * kRowWidth + 16 * b);
}

GRENDEL_INLINE void load_rows(const float* base, const int32_t* rows, int stride, F16* r) {
    for (int i = 0; i < 16; i++) r[i] = F16::load(base + int64_t(rows[i]) * stride);
    transpose16(r);
}

// Radii and visibility as gsplat 1.5.3 counts them, or as the 3DGS rasterizer does.
GRENDEL_INLINE M16 visible_box(const Geometry& g, const View& view, const Constants& k, F16& rx, F16& ry) {
    M16 ok = g.det > F16(0.0f);
    if (k.box == kOpacityBox) {
        ok = ok & (g.opacity >= F16(k.alpha_min));
        F16 ratio = max(g.opacity / F16(k.alpha_min), 1.0f);
        F16 reach = min(3.33f, sqrt(F16(2.0f) * log(ratio)));
        rx = ceil(reach * sqrt(g.xx));
        ry = ceil(reach * sqrt(g.yy));
        ok = ok & ((rx > F16(0.0f)) | (ry > F16(0.0f)));
        return ok & (g.u + rx > F16(0.0f)) & (g.u - rx < F16(float(view.width)))
                  & (g.w + ry > F16(0.0f)) & (g.w - ry < F16(float(view.height)));
    }
    F16 mid = F16(0.5f) * (g.xx + g.yy);
    F16 lambda = mid + sqrt(max(fnma(F16(1.0f), g.det, mid * mid), 0.1f));
    rx = ry = ceil(F16(3.0f) * sqrt(lambda));
    float tiles_x = float((view.width + kTile - 1) / kTile * kTile);
    float tiles_y = float((view.height + kTile - 1) / kTile * kTile);
    // Integer pixel centres there: the same point is 0.5 lower in both coordinates.
    F16 u = g.u - F16(0.5f), w = g.w - F16(0.5f);
    return ok & (u + rx + F16(15.0f) >= F16(16.0f)) & (u - rx < F16(tiles_x))
              & (w + ry + F16(15.0f) >= F16(16.0f)) & (w - ry < F16(tiles_y));
}

// Rows that may be visible, by a bound that takes the largest scale in all directions and opacity
// as 1: a tenth of the work of the projection, which then runs on full groups of such rows.
int candidates(const float* values, int begin, int end, const View& view, const Constants& k, int32_t* rows) {
    const float* R = view.rotation;
    const F16 margin = k.box == kOpacityBox ? 2.0f : 18.0f;  // rounding; tiles of the 3-sigma box
    int count = 0;
    for (int first = begin; first < end; first += 16) {
        int lanes = std::min(16, end - first);
        F16 core[16];
        for (int i = 0; i < 16; i++)
            core[i] = F16::load_first<6>(values + int64_t(first + std::min(i, lanes - 1)) * kRowWidth);
        transpose16(core);
        F16 x = row_dot(R, core[0], core[1], core[2]) + F16(view.translation[0]);
        F16 y = row_dot(R + 3, core[0], core[1], core[2]) + F16(view.translation[1]);
        F16 z = row_dot(R + 6, core[0], core[1], core[2]) + F16(view.translation[2]);
        F16 inv_z = F16(1.0f) / z, sx = x * inv_z, sy = y * inv_z;
        F16 tx = min(max(sx, view.x_low), view.x_high), ty = min(max(sy, view.y_low), view.y_high);
        F16 scale = exp(max(core[3], max(core[4], core[5]))) * inv_z;
        F16 jx = F16(view.fx) * scale, jy = F16(view.fy) * scale;
        F16 spread = fma(jx * jx, fma(tx, tx, 1.0f), jy * jy * fma(ty, ty, 1.0f));
        F16 radius = fma(3.34f, sqrt(spread + F16(k.low_pass + 0.32f)), margin);
        F16 u = fma(view.fx, sx, view.cx), w = fma(view.fy, sy, view.cy);
        M16 gone = (z < F16(k.near)) | (u + radius < F16(0.0f)) | (u - radius > F16(float(view.width)))
                 | (w + radius < F16(0.0f)) | (w - radius > F16(float(view.height)));
        for (uint32_t bits = ~gone.bits() & ((1u << lanes) - 1); bits; bits &= bits - 1)
            rows[count++] = first + __builtin_ctz(bits);
    }
    return count;
}

int project_chunk(const float* values, const int64_t* ids, int begin, int end, const View& view,
                  const Constants& k, float* out) {
    int32_t chosen[kChunk];
    int number = candidates(values, begin, end, view, k, chosen), count = 0;
    for (int first = 0; first < number; first += 16) {
        int lanes = std::min(16, number - first);
        int32_t rows[16];
        for (int i = 0; i < 16; i++) rows[i] = chosen[first + std::min(i, lanes - 1)];
        F16 core[16], rx, ry;
        load_rows(values, rows, kRowWidth, core);
        Geometry g;
        project_core(core, view, k, g);
        M16 ok = (g.z >= F16(k.near)) & mask_from_bits((1u << lanes) - 1) & visible_box(g, view, k, rx, ry);
        uint32_t bits = ok.bits();
        if (!bits) continue;
        F16 row[16] = {g.u, g.w, g.yy * g.inv_det, F16(0.0f) - g.xy * g.inv_det, g.xx * g.inv_det,
                       g.opacity, 0.0f, 0.0f, 0.0f, g.z, 0.0f, rx, ry, 0.0f, 0.0f, 0.0f};
        transpose16(row);
        for (; bits; bits &= bits - 1) {
            int lane = __builtin_ctz(bits);
            float* slot = out + 16 * count++;
            row[lane].store(slot);
            uint32_t key = uint32_t(mix64(uint64_t(ids[rows[lane]])) >> 32);
            int32_t index = rows[lane];
            std::memcpy(slot + kKey, &key, 4);
            std::memcpy(slot + kRow, &index, 4);
        }
    }
    return count;
}

// Unit direction from the camera to the means, and its length's inverse.
GRENDEL_INLINE void direction(const F16* core, const View& view, F16* d, F16& inv_length) {
    for (int i = 0; i < 3; i++) d[i] = core[i] - F16(view.center[i]);
    F16 n2 = fma(d[0], d[0], fma(d[1], d[1], d[2] * d[2]));
    inv_length = F16(1.0f) / sqrt(max(n2, 1e-30f));
    for (int i = 0; i < 3; i++) d[i] = d[i] * inv_length;
}

GRENDEL_INLINE int higher_coefficients(int degree) { return (degree + 1) * (degree + 1) - 1; }

GRENDEL_INLINE void colors(const float* values, const int32_t* rows, const View& view, int degree, F16* color) {
    F16 r[16], d[3], basis[15], inv_length;
    load_rows(values, rows, kRowWidth, r);
    for (int c = 0; c < 3; c++) color[c] = fma(kBand0, r[kSh0 + c], 0.5f);
    if (degree > 0) {
        direction(r, view, d, inv_length);
        sh_basis(degree, d[0], d[1], d[2], basis);
        int n = 3 * higher_coefficients(degree);
        for (int block = 0; 16 * block < n; block++) {
            load_rows(values + kShN + 16 * block, rows, kRowWidth, r);
            for (int i = 0, j = 16 * block; i < 16 && j < n; i++, j++)
                color[j % 3] = fma(basis[j / 3], r[i], color[j % 3]);
        }
    }
    for (int c = 0; c < 3; c++) color[c] = max(color[c], 0.0f);
}

void emit_chunk(const float* values, const float* scratch, int count, const View& view, int degree,
                float* out, int32_t* keys, int32_t* rows_out, int32_t* radii) {
    int blocks = 1 + (3 * higher_coefficients(degree) + 15) / 16;
    for (int first = 0; first < count; first += 16) {
        int lanes = std::min(16, count - first);
        int32_t rows[16];
        for (int i = 0; i < 16; i++) {
            std::memcpy(rows + i, scratch + 16 * (first + std::min(i, lanes - 1)) + kRow, 4);
            int32_t soon;
            std::memcpy(&soon, scratch + 16 * std::min(first + 16 + i, count - 1) + kRow, 4);
            prefetch_row(values, soon, blocks);
        }
        F16 color[3];
        colors(values, rows, view, degree, color);
        float c[3][16];
        for (int i = 0; i < 3; i++) color[i].store(c[i]);
        for (int i = 0; i < lanes; i++) {
            const float* s = scratch + 16 * (first + i);
            float* o = out + int64_t(first + i) * kSplatWidth;
            F16::load(s).store_first<kSplatWidth>(o);
            for (int j = 0; j < 3; j++) o[6 + j] = c[j][i];
            std::memcpy(keys + first + i, s + kKey, 4);
            rows_out[first + i] = rows[i];
            radii[2 * (first + i)] = int32_t(s[kRadiusX]);
            radii[2 * (first + i) + 1] = int32_t(s[kRadiusY]);
        }
    }
}

// Gradients of sixteen rows: `gradient` holds the splats' columns, `out` the rows' (16 x blocks).
GRENDEL_INLINE void backward16(const F16* core, const F16* sh, const F16* gradient, const F16* color, const View& view,
                const Constants& k, int degree, F16* out) {
    Geometry g;
    project_core(core, view, k, g);
    const F16 zero = 0.0f, two = 2.0f;

    // Conic, the inverse of the covariance: dL/dS = -Q G Q.
    F16 qa = g.yy * g.inv_det, qb = zero - g.xy * g.inv_det, qc = g.xx * g.inv_det;
    F16 ga = gradient[2], gb = F16(0.5f) * gradient[3], gc = gradient[4];
    F16 m00 = fma(ga, qa, gb * qb), m01 = fma(ga, qb, gb * qc);
    F16 m10 = fma(gb, qa, gc * qb), m11 = fma(gb, qb, gc * qc);
    F16 h00 = zero - fma(qa, m00, qb * m10);
    F16 h01 = zero - fma(qa, m01, qb * m11);
    F16 h11 = zero - fma(qb, m01, qc * m11);

    F16 g_opacity = gradient[5];
    if (k.antialiased) {
        // compensation^2 = det0 / det: its logarithm has the gradient (S0^-1 - Q) / 2.
        F16 f = g_opacity * g.sigma * g.compensation * F16(0.5f);
        M16 regular = g.det0 > F16(1e-12f);
        F16 inv_det0 = keep(regular, F16(1.0f) / max(g.det0, 1e-12f));
        f = keep(regular, f);
        h00 = h00 + f * (g.yy0 * inv_det0 - qa);
        h01 = h01 + f * (zero - g.xy * inv_det0 - qb);
        h11 = h11 + f * (g.xx0 * inv_det0 - qc);
        g_opacity = g_opacity * g.compensation;
    }
    out[kOpacity] = g_opacity * g.sigma * (F16(1.0f) - g.sigma);

    // Covariance = T T^t with T = J V.
    F16 gtu[3], gtv[3];
    for (int c = 0; c < 3; c++) {
        gtu[c] = two * fma(h00, g.tu[c], h01 * g.tv[c]);
        gtv[c] = two * fma(h01, g.tu[c], h11 * g.tv[c]);
    }
    F16 gj00 = zero, gj02 = zero, gj11 = zero, gj12 = zero;
    for (int c = 0; c < 3; c++) {
        gj00 = fma(gtu[c], g.v[c], gj00);
        gj02 = fma(gtu[c], g.v[6 + c], gj02);
        gj11 = fma(gtv[c], g.v[3 + c], gj11);
        gj12 = fma(gtv[c], g.v[6 + c], gj12);
    }
    const float* R = view.rotation;
    F16 gr[9];  // gradient of the primitive's rotation x scale, then of its rotation
    for (int c = 0; c < 3; c++) {
        F16 gv0 = g.j00 * gtu[c], gv1 = g.j11 * gtv[c], gv2 = fma(g.j02, gtu[c], g.j12 * gtv[c]);
        F16 log_scale = zero;
        for (int r = 0; r < 3; r++) {
            F16 gm = fma(R[r], gv0, fma(R[3 + r], gv1, F16(R[6 + r]) * gv2));
            gr[3 * r + c] = gm * g.scale[c];
            log_scale = fma(gr[3 * r + c], g.rotation[3 * r + c], log_scale);
        }
        out[kScales + c] = log_scale;
    }

    // Rotation from a quaternion that is normalised first.
    F16 w = g.quat[0], x = g.quat[1], y = g.quat[2], z = g.quat[3];
    F16 gq[4];
    gq[0] = two * (x * (gr[7] - gr[5]) + y * (gr[2] - gr[6]) + z * (gr[3] - gr[1]));
    gq[1] = two * (y * (gr[1] + gr[3]) + z * (gr[2] + gr[6]) + w * (gr[7] - gr[5])
                   - two * x * (gr[4] + gr[8]));
    gq[2] = two * (x * (gr[1] + gr[3]) + w * (gr[2] - gr[6]) + z * (gr[5] + gr[7])
                   - two * y * (gr[0] + gr[8]));
    gq[3] = two * (w * (gr[3] - gr[1]) + x * (gr[2] + gr[6]) + y * (gr[5] + gr[7])
                   - two * z * (gr[0] + gr[4]));
    F16 along = fma(gq[0], w, fma(gq[1], x, fma(gq[2], y, gq[3] * z)));
    for (int i = 0; i < 4; i++) out[kQuats + i] = (gq[i] - along * g.quat[i]) * g.inv_norm;

    // Position in camera space, through the pixel position, the Jacobian and the depth.
    F16 gu = gradient[0], gw = gradient[1];
    F16 gx = g.j00 * gu, gy = g.j11 * gw;
    F16 fx_iz2 = g.j00 * g.inv_z, fy_iz2 = g.j11 * g.inv_z;
    F16 gz = gradient[9] - fma(gx, g.x, gy * g.y) * g.inv_z - fma(gj00, fx_iz2, gj11 * fy_iz2);
    // J02 = -fx tx / z; where tx is free it is x / z, and both factors move with z.
    gx = gx - keep(g.x_free, gj02 * fx_iz2);
    gy = gy - keep(g.y_free, gj12 * fy_iz2);
    F16 x_times = select(g.x_free, 2.0f, 1.0f), y_times = select(g.y_free, 2.0f, 1.0f);
    gz = gz + x_times * gj02 * fx_iz2 * g.tx + y_times * gj12 * fy_iz2 * g.ty;
    for (int i = 0; i < 3; i++) out[i] = fma(R[i], gx, fma(R[3 + i], gy, F16(R[6 + i]) * gz));

    // Colour.
    F16 gcolor[3];
    for (int c = 0; c < 3; c++) {
        gcolor[c] = keep(color[c] > zero, gradient[6 + c]);
        out[kSh0 + c] = F16(kBand0) * gcolor[c];
    }
    out[14] = out[15] = zero;
    if (degree == 0) return;
    F16 d[3], inv_length, basis[15], s[15], gd[3];
    direction(core, view, d, inv_length);
    sh_basis(degree, d[0], d[1], d[2], basis);
    int n = higher_coefficients(degree);
    for (int j = 0; j < n; j++) {
        s[j] = fma(gcolor[0], sh[3 * j], fma(gcolor[1], sh[3 * j + 1], gcolor[2] * sh[3 * j + 2]));
        for (int c = 0; c < 3; c++) out[kShN + 3 * j + c] = basis[j] * gcolor[c];
    }
    for (int j = 3 * n; j % 16; j++) out[kShN + j] = zero;
    sh_direction_gradient(degree, d[0], d[1], d[2], s, gd);
    F16 radial = fma(gd[0], d[0], fma(gd[1], d[1], gd[2] * d[2]));
    for (int i = 0; i < 3; i++) out[i] = fma(gd[i] - radial * d[i], inv_length, out[i]);
}

struct ProjectScratch {
    Buffer<float> rows;
    Buffer<int> counts;
};

// First half: finds the visible rows, keeps them in scratch, returns their number.
int64_t project_count(ProjectScratch& scratch, Array2<const float> values, Array1<const int64_t> ids,
                      Array1<const double> camera, const Constants& k, int threads) {
    int n = int(values.shape(0)), chunks = (n + kChunk - 1) / kChunk;
    View view(camera);
    float* rows = scratch.rows.ensure(size_t(chunks) * kChunk * 16);
    int* counts = scratch.counts.ensure(chunks + 1);
    const float* v = values.data();
    const int64_t* id = ids.data();
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int c = 0; c < chunks; c++)
        counts[c] = project_chunk(v, id, c * kChunk, std::min(n, (c + 1) * kChunk), view, k,
                                  rows + size_t(c) * kChunk * 16);
    int64_t total = 0;
    for (int c = 0; c < chunks; c++) {
        int count = counts[c];
        counts[c] = int(total);
        total += count;
    }
    counts[chunks] = int(total);
    return total;
}

// Second half: colours, and the rows as the caller keeps them.
void project_emit(ProjectScratch& scratch, Array2<const float> values, Array1<const double> camera,
                  int degree, Array2<float> splats, Array1<int32_t> keys, Array1<int32_t> rows,
                  Array2<int32_t> radii, int threads) {
    int chunks = int((values.shape(0) + kChunk - 1) / kChunk);
    View view(camera);
    const int* offsets = scratch.counts.data();
    const float* v = values.data();
    float* out = splats.data();
    int32_t *key = keys.data(), *row = rows.data(), *radius = radii.data();
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int c = 0; c < chunks; c++) {
        int64_t o = offsets[c];
        emit_chunk(v, scratch.rows.data() + size_t(c) * kChunk * 16, offsets[c + 1] - offsets[c],
                   view, degree, out + o * kSplatWidth, key + o, row + o, radius + 2 * o);
    }
}

// Adds the gradients of a view's splats to `into`, which holds the rows `into_rows` (ascending, and
// among them all of `rows`); overwrites instead unless `add`.
void project_backward(Array2<const float> values, Array1<const double> camera, const Constants& k,
                      int degree, Array2<const float> splats, Array1<const int32_t> rows,
                      Array2<const float> gradients, Array1<const int32_t> into_rows,
                      bool add, Array2<float> into, int threads) {
    int m = int(rows.shape(0));
    View view(camera);
    int n = 3 * higher_coefficients(degree), blocks = 1 + (n + 15) / 16;
    const float *v = values.data(), *s = splats.data(), *gr = gradients.data();
    const int32_t *row = rows.data(), *out_rows = into_rows.data();
    const int32_t* out_end = out_rows + into_rows.shape(0);
    float* out = into.data();
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int first = 0; first < m; first += 16) {
        int lanes = std::min(16, m - first);
        int32_t r[16];
        float* targets[16];
        const int32_t* target = std::lower_bound(out_rows, out_end, row[first]);
        for (int i = 0; i < lanes; i++) {
            while (*target != row[first + i]) target++;
            targets[i] = out + (target - out_rows) * kRowWidth;
        }
        F16 core[16], sh[48], gradient[16], splat[16], o[64];
        for (int i = 0; i < 16; i++) {
            int j = first + std::min(i, lanes - 1);
            r[i] = row[j];
            gradient[i] = F16::load_first<kSplatWidth>(gr + int64_t(j) * kSplatWidth);
            splat[i] = F16::load_first<kSplatWidth>(s + int64_t(j) * kSplatWidth);
            prefetch_row(v, row[std::min(first + 16 + i, m - 1)], blocks);
        }
        transpose16(gradient);
        transpose16(splat);
        load_rows(v, r, kRowWidth, core);
        for (int b = 1; b < blocks; b++) load_rows(v + 16 * b, r, kRowWidth, sh + 16 * (b - 1));
        backward16(core, sh, gradient, splat + 6, view, k, degree, o);
        for (int b = 0; b < blocks; b++) {
            transpose16(o + 16 * b);
            for (int i = 0; i < lanes; i++) {
                float* p = targets[i] + 16 * b;
                (add ? F16::load(p) + o[16 * b + i] : o[16 * b + i]).store(p);
            }
        }
    }
}

}  // namespace

void register_project(nb::module_& m) {
    nb::class_<Constants>(m, "Constants")
        .def(nb::init<float, float, float, float, float, int, bool>(), nb::arg("alpha_max"),
             nb::arg("alpha_min"), nb::arg("transmittance_min"), nb::arg("low_pass"),
             nb::arg("near"), nb::arg("box"), nb::arg("antialiased"));
    nb::class_<ProjectScratch>(m, "ProjectScratch").def(nb::init<>());
    m.def("project_count", &project_count, nb::arg("scratch"), nb::arg("values").noconvert(),
          nb::arg("ids").noconvert(), nb::arg("camera"), nb::arg("constants"), nb::arg("threads"));
    m.def("project_emit", &project_emit, nb::arg("scratch"), nb::arg("values").noconvert(),
          nb::arg("camera"), nb::arg("degree"), nb::arg("splats").noconvert(),
          nb::arg("keys").noconvert(), nb::arg("rows").noconvert(), nb::arg("radii").noconvert(),
          nb::arg("threads"));
    m.def("project_backward", &project_backward, nb::arg("values").noconvert(), nb::arg("camera"),
          nb::arg("constants"), nb::arg("degree"), nb::arg("splats").noconvert(),
          nb::arg("rows").noconvert(), nb::arg("gradients").noconvert(),
          nb::arg("into_rows").noconvert(), nb::arg("add"), nb::arg("into").noconvert(),
          nb::arg("threads"));
}

}  // namespace grendel
