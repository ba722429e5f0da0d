// Real spherical harmonics up to degree 3, in the signs and order of 3DGS. Lanes are primitives.
#pragma once

#include "simd.h"

namespace grendel {

constexpr float kBand0 = 0.28209479177387814f;
constexpr float kBand1 = 0.4886025119029199f;
constexpr float kBand2[5] = {1.0925484305920792f, -1.0925484305920792f, 0.31539156525252005f,
                           -1.0925484305920792f, 0.5462742152960396f};
constexpr float kBand3[7] = {-0.5900435899266435f, 2.890611442640554f, -0.4570457994644658f,
                           0.3731763325901154f, -0.4570457994644658f, 1.445305721320277f,
                           -0.5900435899266435f};

// Basis functions 1..15 (as far as the degree goes) at the unit direction (x, y, z).
GRENDEL_INLINE void sh_basis(int degree, F16 x, F16 y, F16 z, F16* b) {
    if (degree < 1) return;
    b[0] = F16(-kBand1) * y;
    b[1] = F16(kBand1) * z;
    b[2] = F16(-kBand1) * x;
    if (degree < 2) return;
    F16 xx = x * x, yy = y * y, zz = z * z, xy = x * y, yz = y * z, xz = x * z;
    b[3] = F16(kBand2[0]) * xy;
    b[4] = F16(kBand2[1]) * yz;
    b[5] = F16(kBand2[2]) * (zz + zz - xx - yy);
    b[6] = F16(kBand2[3]) * xz;
    b[7] = F16(kBand2[4]) * (xx - yy);
    if (degree < 3) return;
    F16 three = 3.0f, four = 4.0f, five_zz = four * zz - xx - yy;
    b[8] = F16(kBand3[0]) * y * (three * xx - yy);
    b[9] = F16(kBand3[1]) * xy * z;
    b[10] = F16(kBand3[2]) * y * five_zz;
    b[11] = F16(kBand3[3]) * z * (zz + zz - three * xx - three * yy);
    b[12] = F16(kBand3[4]) * x * five_zz;
    b[13] = F16(kBand3[5]) * z * (xx - yy);
    b[14] = F16(kBand3[6]) * x * (xx - three * yy);
}

// Gradient of sum_k s[k] basis_k with respect to (x, y, z), the basis taken as polynomials.
GRENDEL_INLINE void sh_direction_gradient(int degree, F16 x, F16 y, F16 z, const F16* s, F16* g) {
    g[0] = F16(-kBand1) * s[2];
    g[1] = F16(-kBand1) * s[0];
    g[2] = F16(kBand1) * s[1];
    if (degree < 2) return;
    F16 two = 2.0f;
    F16 a = F16(kBand2[0]) * s[3], b = F16(kBand2[1]) * s[4], c = F16(kBand2[2]) * s[5],
        d = F16(kBand2[3]) * s[6], e = F16(kBand2[4]) * s[7];
    g[0] = g[0] + a * y - two * c * x + d * z + two * e * x;
    g[1] = g[1] + a * x + b * z - two * c * y - two * e * y;
    g[2] = g[2] + b * y + F16(4.0f) * c * z + d * x;
    if (degree < 3) return;
    F16 xx = x * x, yy = y * y, zz = z * z, xy = x * y, yz = y * z, xz = x * z;
    F16 three = 3.0f, six = 6.0f, eight = 8.0f;
    F16 p0 = F16(kBand3[0]) * s[8], p1 = F16(kBand3[1]) * s[9], p2 = F16(kBand3[2]) * s[10],
        p3 = F16(kBand3[3]) * s[11], p4 = F16(kBand3[4]) * s[12], p5 = F16(kBand3[5]) * s[13],
        p6 = F16(kBand3[6]) * s[14];
    g[0] = g[0] + p0 * six * xy + p1 * yz - p2 * two * xy - p3 * six * xz
         + p4 * (F16(4.0f) * zz - three * xx - yy) + p5 * two * xz + p6 * three * (xx - yy);
    g[1] = g[1] + p0 * three * (xx - yy) + p1 * xz + p2 * (F16(4.0f) * zz - xx - three * yy)
         - p3 * six * yz - p4 * two * xy - p5 * two * yz - p6 * six * xy;
    g[2] = g[2] + p1 * xy + p2 * eight * yz + p3 * (six * zz - three * xx - three * yy)
         + p4 * eight * xz + p5 * (xx - yy);
}

}  // namespace grendel
