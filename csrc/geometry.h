// EWA projection of sixteen Gaussians (Zwicker et al. 2002; Kerbl et al. 2023, equation 5), shared
// by forward and backward. Lanes are primitives.
#pragma once

#include "simd.h"
#include "view.h"

namespace grendel {

struct Geometry {
    F16 x, y, z, inv_z;           // camera space
    F16 tx, ty;                   // x/z and y/z, clamped for the Jacobian
    M16 x_free, y_free;           // not clamped
    F16 rotation[9], scale[3], inv_norm, quat[4];
    F16 v[9];                     // camera rotation x primitive rotation x scale
    F16 j00, j02, j11, j12;
    F16 tu[3], tv[3];             // rows of J V; the 2D covariance is their Gram matrix
    F16 xx0, xy, yy0;             // before the low-pass filter
    F16 xx, yy, det, inv_det;     // after
    F16 det0, compensation;       // anti-aliasing
    F16 sigma, opacity;           // sigmoid(logit); times compensation
    F16 u, w;                     // pixel position
};

GRENDEL_INLINE void rotation_of(const F16* q, F16* r) {
    F16 w = q[0], x = q[1], y = q[2], z = q[3], two = 2.0f, one = 1.0f;
    r[0] = fnma(two, fma(y, y, z * z), one);
    r[1] = two * fnma(w, z, x * y);
    r[2] = two * fma(w, y, x * z);
    r[3] = two * fma(w, z, x * y);
    r[4] = fnma(two, fma(x, x, z * z), one);
    r[5] = two * fnma(w, x, y * z);
    r[6] = two * fnma(w, y, x * z);
    r[7] = two * fma(w, x, y * z);
    r[8] = fnma(two, fma(x, x, y * y), one);
}

GRENDEL_INLINE F16 row_dot(const float* r, F16 x, F16 y, F16 z) {
    return fma(r[0], x, fma(r[1], y, F16(r[2]) * z));
}

// core: the first 16 columns of the rows, transposed. Lanes behind the near plane hold garbage.
GRENDEL_INLINE void project_core(const F16* core, const View& view, const Constants& k, Geometry& g) {
    const float* R = view.rotation;
    g.x = row_dot(R, core[0], core[1], core[2]) + F16(view.translation[0]);
    g.y = row_dot(R + 3, core[0], core[1], core[2]) + F16(view.translation[1]);
    g.z = row_dot(R + 6, core[0], core[1], core[2]) + F16(view.translation[2]);
    g.inv_z = F16(1.0f) / g.z;
    for (int i = 0; i < 3; i++) g.scale[i] = exp(core[3 + i]);
    F16 norm2 = fma(core[6], core[6], fma(core[7], core[7], fma(core[8], core[8], core[9] * core[9])));
    g.inv_norm = F16(1.0f) / sqrt(norm2);
    for (int i = 0; i < 4; i++) g.quat[i] = core[6 + i] * g.inv_norm;
    rotation_of(g.quat, g.rotation);
    for (int c = 0; c < 3; c++) {
        F16 m0 = g.rotation[c] * g.scale[c], m1 = g.rotation[3 + c] * g.scale[c],
            m2 = g.rotation[6 + c] * g.scale[c];
        for (int r = 0; r < 3; r++) g.v[3 * r + c] = row_dot(R + 3 * r, m0, m1, m2);
    }
    F16 sx = g.x * g.inv_z, sy = g.y * g.inv_z;
    g.tx = min(max(sx, view.x_low), view.x_high);
    g.ty = min(max(sy, view.y_low), view.y_high);
    g.x_free = (sx >= F16(view.x_low)) & (sx <= F16(view.x_high));
    g.y_free = (sy >= F16(view.y_low)) & (sy <= F16(view.y_high));
    g.u = fma(view.fx, sx, view.cx);
    g.w = fma(view.fy, sy, view.cy);
    g.j00 = F16(view.fx) * g.inv_z;
    g.j11 = F16(view.fy) * g.inv_z;
    g.j02 = F16(0.0f) - g.j00 * g.tx;
    g.j12 = F16(0.0f) - g.j11 * g.ty;
    for (int c = 0; c < 3; c++) {
        g.tu[c] = fma(g.j00, g.v[c], g.j02 * g.v[6 + c]);
        g.tv[c] = fma(g.j11, g.v[3 + c], g.j12 * g.v[6 + c]);
    }
    g.xx0 = fma(g.tu[0], g.tu[0], fma(g.tu[1], g.tu[1], g.tu[2] * g.tu[2]));
    g.xy = fma(g.tu[0], g.tv[0], fma(g.tu[1], g.tv[1], g.tu[2] * g.tv[2]));
    g.yy0 = fma(g.tv[0], g.tv[0], fma(g.tv[1], g.tv[1], g.tv[2] * g.tv[2]));
    g.xx = g.xx0 + F16(k.low_pass);
    g.yy = g.yy0 + F16(k.low_pass);
    g.det = fnma(g.xy, g.xy, g.xx * g.yy);
    g.inv_det = F16(1.0f) / g.det;
    g.sigma = sigmoid(core[10]);
    g.opacity = g.sigma;
    if (k.antialiased) {
        g.det0 = max(fnma(g.xy, g.xy, g.xx0 * g.yy0), 0.0f);
        g.compensation = sqrt(g.det0 * g.inv_det);
        g.opacity = g.sigma * g.compensation;
    }
}

}  // namespace grendel
