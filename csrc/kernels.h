// What each file of kernels hands to the Python module.
#pragma once

#include "arrays.h"

namespace grendel {

void register_project(nb::module_& m);
void register_raster(nb::module_& m);
void register_fold(nb::module_& m);
void register_loss(nb::module_& m);
void register_adam(nb::module_& m);
void register_densify(nb::module_& m);
void register_peak(nb::module_& m);
void register_cut(nb::module_& m);
void register_rows(nb::module_& m);
void register_bounds(nb::module_& m);
void register_pack(nb::module_& m);
void register_mailbox(nb::module_& m);

}  // namespace grendel
