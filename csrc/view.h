// A camera and the constants of the image formation, in the precision of the kernels.
#pragma once

#include "arrays.h"
#include "layout.h"

namespace grendel {

enum Box : int { kOpacityBox = 0, kThreeSigmaBox = 1 };

struct View {
    float rotation[9], translation[3], center[3];
    float fx, fy, cx, cy;
    int width, height;
    // Clamp of x/z and y/z in the Jacobian (gsplat 1.5.3).
    float x_low, x_high, y_low, y_high;

    // packed: rotation 9, translation 3, centre 3, fx, fy, cx, cy, width, height.
    explicit View(Array1<const double> packed) {
        const double* p = packed.data();
        for (int i = 0; i < 9; i++) rotation[i] = float(p[i]);
        for (int i = 0; i < 3; i++) translation[i] = float(p[9 + i]);
        for (int i = 0; i < 3; i++) center[i] = float(p[12 + i]);
        double fx_ = p[15], fy_ = p[16], cx_ = p[17], cy_ = p[18], w = p[19], h = p[20];
        fx = float(fx_), fy = float(fy_), cx = float(cx_), cy = float(cy_);
        width = int(w), height = int(h);
        double x_margin = 0.3 * 0.5 * w / fx_, y_margin = 0.3 * 0.5 * h / fy_;
        x_low = float(-cx_ / fx_ - x_margin), x_high = float((w - cx_) / fx_ + x_margin);
        y_low = float(-cy_ / fy_ - y_margin), y_high = float((h - cy_) / fy_ + y_margin);
    }
};

struct Constants {
    float alpha_max, alpha_min, transmittance_min, low_pass, near;
    int box;
    bool antialiased;
};

}  // namespace grendel
